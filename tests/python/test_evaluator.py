"""The evaluator against CPython itself: small programs, disturbed at every point. Needs no torch if MAGNETO_EVALUATOR is the
path of a module that tests/cpython/build.py made; tests/cpython/run.py does the same with CPython's own test suite."""
import os
import sys
import threading

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cpython"))
import fuzz
import leak
import programs
from run import load


def find_evaluator():
    path = os.environ.get("MAGNETO_EVALUATOR")
    if path:
        return load(path)
    magneto = pytest.importorskip("magneto")
    testing = getattr(getattr(magneto, "_C", None), "_testing", None)
    if not hasattr(testing, "run_all_frames"):
        pytest.skip("this build has no tests of the evaluator", allow_module_level=True)
    return testing


evaluator = find_evaluator()
if evaluator.unsupported_interpreter():
    pytest.skip(evaluator.unsupported_interpreter(), allow_module_level=True)


@pytest.fixture(autouse=True)
def everything_off_afterwards():
    yield
    evaluator.off()
    evaluator.only(None)


def evaluated(function, *arguments, start=evaluator.run_all_frames):
    evaluator.only([c for c in fuzz.code_objects(function.__code__)])
    start()
    try:
        return function(*arguments)
    finally:
        evaluator.off()


def test_the_opcode_table_has_the_numbers_of_the_interpreter():
    import opcode
    known = {name: number for name, number in opcode.opmap.items() if number < 256 and not name.startswith("INSTRUMENTED_")}
    for name in ("CACHE", "INTERPRETER_EXIT", "RESERVED", "EXIT_INIT_CHECK", "ENTER_EXECUTOR"):  # in no code of functions
        known.pop(name, None)
    assert evaluator.opcode_numbers() == known


@pytest.mark.parametrize("program", programs.PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_disturbed_at_every_point_behaves_as_in_cpython(program):
    reports = []
    tests = fuzz.Fuzz(evaluator, every=3, report=reports.append)
    tests.program(program)
    assert not tests.wrong, "\n".join(reports)


def test_memory_and_reference_counts_stay_flat():
    memory, blocks, before, after = leak.measure(evaluator, 3000)
    assert before == after
    assert blocks < 50
    assert memory < 512


def test_references_are_counted_as_in_cpython():
    def program():
        thing = object()
        kept = [thing, sys.getrefcount(thing)]
        return kept[1], [sys.getrefcount(thing) for _ in range(2)], sys.getrefcount(kept)
    assert evaluated(program) == program()


def test_a_frame_that_nobody_disturbs_is_never_handed_over():
    def program():
        with programs.Manager("m", True):
            try:
                undefined_name
            except NameError:
                raise ValueError(programs.Point(1).norm)
        return [x for x in range(3)]
    assert evaluated(program) == [0, 1, 2]
    assert evaluator.statistics()["handed_over"] == 0


def test_a_director_can_end_a_frame_anywhere():
    def program(values):
        total = []
        for value in values:
            total.append(value * 2)
        return total
    answer = object()
    references = sys.getrefcount(answer)
    for n in range(20):
        assert evaluated(program, [1, 2], start=lambda: evaluator.return_at(n, answer)) is answer
    evaluator.return_at(0, None)
    assert sys.getrefcount(answer) == references


def test_a_director_can_raise_anywhere():
    def program(values):
        total = []
        try:
            for value in values:
                total.append(value * 2)
        except KeyError as e:
            return e.__traceback__.tb_lineno
        return total
    first = program.__code__.co_firstlineno
    caught, left = set(), set()
    for n in range(60):
        try:
            outcome = evaluated(program, [1, 2], start=lambda: evaluator.raise_at(n, KeyError("k")))
            if outcome == [2, 4]:
                break
            caught.add(outcome - first)
        except KeyError as e:
            inside = e.__traceback__.tb_next.tb_next
            left.add(inside.tb_lineno - first)
    assert caught == {3, 4}
    assert {0, 1, 7} <= left <= {0, 1, 2, 3, 7}


def test_frames_of_other_threads_are_theirs():
    def program():
        return 1
    evaluator.only([program.__code__])
    evaluator.run_all_frames()
    thread = threading.Thread(target=program)
    thread.start()
    thread.join()
    evaluator.off()
    assert evaluator.statistics()["frames"] == 1


def test_tracing_that_a_frame_switches_on_is_served_from_the_next_line():
    events = []

    def trace(frame, event, argument):
        events.append((event, frame.f_lineno - program.__code__.co_firstlineno))
        return trace

    def program():
        sys.settrace(trace)
        sys._getframe().f_trace = trace
        x = 1
        sys.settrace(None)
        return x

    def native():
        events.clear()
        program()
        return list(events)
    expected = native()
    events.clear()
    evaluated(program)
    assert events == expected and expected


def test_tracing_that_comes_on_in_the_instruction_that_raises_sees_the_exception():
    def trace(frame, event, argument):
        if frame.f_code is program.__code__:
            events.append((event, frame.f_lineno - program.__code__.co_firstlineno))
        return trace

    def switch_and_raise(frame):
        frame.f_trace = trace
        sys.settrace(trace)
        raise RuntimeError

    def program():
        try:
            switch_and_raise(sys._getframe())
        except RuntimeError:
            pass
        sys.settrace(None)
    events = []
    program()
    expected, events = events, []
    evaluated(program)
    assert events == expected and expected


def test_a_signal_interrupts_a_loop():
    import signal

    class Interrupted(Exception):
        pass

    def interrupt(*_):
        raise Interrupted

    def program():
        n = 0
        try:
            while True:
                n += 1
        except Interrupted as e:
            return e.__traceback__.tb_lineno - program.__code__.co_firstlineno, e.__traceback__.tb_next.tb_frame.f_code
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        line, raised_by = evaluated(program)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert line in (3, 4)
    assert raised_by is interrupt.__code__  # no frame of ours in between


def test_threads_take_turns():
    def program(done, n):
        while not done:
            n += 1
        return n
    done = []
    timer = threading.Timer(0.05, done.append, (True,))
    timer.start()
    assert evaluated(program, done, 0) > 0


def test_recursion_ends_with_the_error_of_cpython():
    def program(n=0):
        try:
            return program(n + 1)
        except RecursionError as e:
            return str(e)
    assert evaluated(program).startswith(program())  # any hook makes it add "while calling a Python object"


def test_the_hook_is_gone_when_nobody_listens():
    def program():
        return 1
    evaluated(program)
    assert evaluator.statistics()["frames"] == 1
    program()
    assert evaluator.statistics()["frames"] == 1


def test_a_generator_comes_back_at_every_resumption():
    def program(n):
        yield from (i for i in range(n))
    evaluator.only([c for c in fuzz.code_objects(program.__code__)])
    evaluator.run_all_frames()
    result = list(program(5))
    evaluator.off()
    assert result == [0, 1, 2, 3, 4]
    assert evaluator.statistics()["frames"] == 2 + 2 * 6  # two are made, each is resumed six times
    assert evaluator.statistics()["handed_over"] == 0


def test_type_parameters_go_to_cpython():
    if sys.version_info < (3, 12):
        pytest.skip("syntax of 3.12")
    space = {}
    source = "def program():\n  def generic[T: int, *Ts](x: T) -> T: return x\n  type Pair[A] = tuple[A, A]\n  return generic(1), str(Pair), [str(p) for p in generic.__type_params__]"
    exec(source, space)
    assert evaluated(space["program"]) == (1, "Pair", ["T", "Ts"])
