"""The process around a program: tracing, garbage, finalizers, the environment, clocks, logs, warnings."""

import gc
import io
import logging
import os
import random
import sys
import time
import warnings
import weakref

import pytest
import torch
from torch import ones, randn

import magneto
from harness import fresh, module_program, same_as_eager


def test_settrace_sees_every_line():
    def f(x):
        y = x + 1
        if y.dim() == 1:
            y = y * 2
        return y

    def call(g, x):
        lines = []

        def trace(frame, event, arg):
            if frame.f_code is f.__code__:
                lines.append((event, frame.f_lineno - f.__code__.co_firstlineno))
            return trace

        g(x)
        sys.settrace(trace)
        try:
            y = g(x)
        finally:
            sys.settrace(None)
        return y, lines

    same_as_eager(f, randn(3), call=call)


def test_setprofile_sees_the_call():
    def f(x):
        return x + 1

    def call(g, x):
        events = []
        g(x)
        sys.setprofile(lambda frame, event, arg: events.append(event) if frame.f_code is f.__code__ else None)
        try:
            y = g(x)
        finally:
            sys.setprofile(None)
        return y, [event for event in events if event in ("call", "return")]

    same_as_eager(f, randn(3), call=call)


def test_frames_looked_at_from_inside():
    def who():
        return sys._getframe(1).f_code.co_name, sorted(sys._getframe(1).f_locals)

    def f(x):
        y = x + 1
        return y, who(), sys._getframe().f_code.co_name

    same_as_eager(f, randn(3))


class Watched:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def __del__(self):
        self.log.append(self.name)


def test_finalizers_run_in_order():
    def f(x, log):
        a = Watched(log, "a")
        y = x + 1
        del a
        log.append("after a")
        b = Watched(log, "b")
        b = Watched(log, "c")
        log.append("end")
        return y

    same_as_eager(f, randn(3), [])


ENDS = {}


def ends(function):
    ENDS[function.__name__.replace("_", " ")] = function
    return function


@ends
def deleted(x, log):
    a = Watched(log, "a")
    y = x + 1
    del a
    return y * 2


@ends
def replaced(x, log):
    a = Watched(log, "a")
    y = x + 1
    a = None  # noqa: F841
    return y * 2


@ends
def dropped_from_the_stack(x, log):
    a = [Watched(log, "a")]
    y = x + 1
    a.pop()
    return y * 2


@ends
def replaced_in_a_loop(x, log):
    for name in "abc":
        a = Watched(log, name)  # noqa: F841
        x = x + 1
    return x * 2


@pytest.mark.parametrize("how", ENDS)
def test_an_object_whose_end_runs_code_ends_where_eager_ends_it(how):
    same_as_eager(ENDS[how], randn(3), [])


@pytest.mark.needs_capture
@pytest.mark.parametrize("how", ENDS)
def test_an_instruction_that_lets_such_an_object_go_is_stepped_over(how):
    compiled = magneto.compile(ENDS[how])
    for _ in range(4):
        compiled(randn(3), [])
    settled = len(magneto.report().graphs)
    for _ in range(20):
        compiled(randn(3), [])
    assert len(magneto.report().graphs) == settled >= 2 and not magneto.report().fallbacks, str(magneto.report())


def test_a_weak_reference_dies_with_its_object():
    def f(x):
        y = x * 2
        ref = weakref.ref(y)
        alive = ref() is not None
        z = y + 1
        del y
        return z, alive, ref() is None

    same_as_eager(f, randn(3))


def test_arguments_are_not_kept_alive():
    g = magneto.compile(lambda x: x * 2)
    x = randn(3)
    for _ in range(3):
        g(x)
    ref = weakref.ref(x)
    del x
    gc.collect()
    assert ref() is None


def test_results_are_not_kept_alive():
    g = magneto.compile(lambda x: [x * 2, {"k": x + 1}])
    refs = [weakref.ref(g(randn(3))[0]) for _ in range(3)]
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3


def test_the_module_and_the_function_can_die():
    def build():
        module = torch.nn.Linear(3, 3)
        g = magneto.compile(module)
        f = magneto.compile(lambda x: module(x) * 2)
        for n in (1, 2, 3):
            g(randn(n, 3)), f(randn(n, 3))
        return weakref.ref(module), weakref.ref(module.weight)

    refs = build()
    magneto.reset()
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_weak_dictionaries():
    @fresh
    def program():
        class Key:
            pass

        table, key = weakref.WeakKeyDictionary(), Key()

        def f(x):
            table[key] = table.get(key, 0) + 1
            table[Key()] = "gone at once"
            return x * table[key], len(table)

        return f

    same_as_eager(program, randn(3))


def test_the_garbage_collector_runs_inside():
    def f(x, log):
        node = Watched(log, "cycle")
        node.me = node
        del node
        gc.collect()
        log.append("collected")
        return x + 1

    same_as_eager(f, randn(3), [])


def test_the_garbage_collector_runs_while_tracing():
    threshold = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        same_as_eager(lambda x: [[x * i, {"k": (i, [x])}] for i in range(8)], randn(3))
    finally:
        gc.set_threshold(*threshold)


def test_reference_counts_seen_from_inside():
    def f(x):
        y = [x, x]
        return sys.getrefcount(y) < 5, x + 1

    same_as_eager(f, randn(3))


def test_the_environment():
    def change(_):
        os.environ["MAGNETO_TEST_SCALE"] = "5"

    @fresh
    def program():
        os.environ.pop("MAGNETO_TEST_SCALE", None)
        return lambda x: x * float(os.environ.get("MAGNETO_TEST_SCALE", "2")) + int("PATH" in os.environ)

    same_as_eager(program, randn(3), change=change)
    os.environ.pop("MAGNETO_TEST_SCALE", None)


def test_random_numbers_of_python():
    def f(x):
        if random.random() < 0.5:
            x = x + 1
        return x * random.uniform(0, 1), random.choice([1, 2, 3]), random.randint(0, 9), random.sample(range(9), 3)

    def call(g, x):
        return [g(x) for _ in range(4)]

    same_as_eager(f, randn(3), call=call)


def test_time_does_not_stand_still():
    g = magneto.compile(lambda x: (x + 1, time.perf_counter(), time.time()))
    stamps = [g(ones(2))[1] for _ in range(5)]
    assert stamps == sorted(set(stamps))


def test_logging():
    @fresh
    def program():
        log = logging.getLogger("a test of magneto")
        stream = io.StringIO()
        log.handlers, log.propagate = [logging.StreamHandler(stream)], False
        log.setLevel(logging.INFO)

        def f(x):
            log.debug("not this")
            log.info("rows %d", x.shape[0])
            y = x + 1
            log.warning("sum %.3f", y.sum())
            return y, stream.getvalue()

        def change():
            log.setLevel(logging.DEBUG)

        return f, change

    same_as_eager(program, randn(3), change=lambda change: change())


def test_warnings_are_given_each_time():
    def f(x):
        warnings.warn("old", DeprecationWarning)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("silent")
        return x + 1

    same_as_eager(f, randn(3))


def test_a_warning_turned_into_an_error():
    def f(x):
        y = x + 1
        warnings.warn("now an error")
        return y

    def call(g, x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return g(x)

    same_as_eager(f, randn(3), call=call, raises=UserWarning)


def test_a_warning_of_torch():
    def f(x):
        return torch.nn.functional.mse_loss(x, torch.zeros(1, dtype=x.dtype))

    same_as_eager(f, randn(3))


def test_unusual_recursion_limits():
    def deep(x, n):
        return x + 1 if n == 0 else deep(x, n - 1)

    def call(g, x):
        limit = sys.getrecursionlimit()
        try:
            sys.setrecursionlimit(5000)
            return g(x, 900)
        finally:
            sys.setrecursionlimit(limit)

    same_as_eager(deep, randn(2), call=call)


def test_an_interrupt_while_tracing_leaves_a_working_program():
    program = module_program("""
        armed = False
        def callee(x):
            if armed:
                raise KeyboardInterrupt
            return x * 2
        def f(x):
            y = x + 1
            z = callee(y)
            return z - 1
    """)
    f, module = program()
    g = magneto.compile(f)
    x = randn(3)
    expected = f(x)
    for _ in range(3):
        module.armed = True
        with pytest.raises(KeyboardInterrupt):
            g(x)
        module.armed = False
        assert torch.equal(g(x), expected)
        assert torch.equal(g(ones(5)), f(ones(5)))
    same_as_eager(program, randn(3), change=lambda m: setattr(m, "armed", True))


def test_a_signal_while_tracing():
    import signal

    seen = []
    old = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(torch.ones(2) * 3))

    def f(x):
        y = x + 1
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in range(10):
            y = y * 1.1
        return y

    try:
        same_as_eager(f, randn(3))
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert len(seen) >= 20 and all(torch.equal(s, torch.ones(2) * 3) for s in seen)


def test_a_child_process_after_a_fork():
    g = magneto.compile(lambda x: x * 2 + 1)
    x = randn(3)
    g(x)
    pid = os.fork()
    if pid == 0:
        ok = torch.equal(g(x), x * 2 + 1) and torch.equal(g(ones(5)), ones(5) * 3)
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_sys_modules_and_identity_of_modules():
    def f(x):
        return x + 1, sys.modules["torch"] is torch, torch.__name__, __name__.rsplit(".")[-1]

    same_as_eager(f, randn(3))


def test_printing_order_with_two_streams():
    def f(x):
        print("one")
        sys.stderr.write("two\n")
        sys.stdout.write("three\n")
        return x + 1

    same_as_eager(f, randn(3))


def test_an_import_runs_when_it_is_met(tmp_path, monkeypatch):
    """A module that is imported for the first time by what is recorded: once, in order, and no break."""
    (tmp_path / "fresh_module.py").write_text("import builtins\nbuiltins.imports_met.append(len(builtins.imports_met))\nTHREE = 3\n")
    (tmp_path / "fresh_pack").mkdir()
    (tmp_path / "fresh_pack" / "__init__.py").write_text("")
    (tmp_path / "fresh_pack" / "part.py").write_text("FIVE = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("builtins.imports_met", [], raising=False)

    def f(x):
        import importlib
        import fresh_module
        from fresh_pack import part as first
        other = importlib.import_module(".part", "fresh_pack")
        return x * fresh_module.THREE + first.FIVE + other.FIVE

    c = magneto.compile(f, fullgraph=True)
    try:
        for _ in range(3):
            assert torch.equal(c(torch.ones(2)), torch.full((2,), 13.0))
        import builtins
        assert builtins.imports_met == [0]
        sys.modules["fresh_module"].THREE = 4
        assert torch.equal(c(torch.ones(2)), torch.full((2,), 14.0))
        del sys.modules["fresh_module"]
        assert torch.equal(c(torch.ones(2)), torch.full((2,), 13.0)) and builtins.imports_met == [0, 1]
    finally:
        for name in ("fresh_module", "fresh_pack", "fresh_pack.part"):
            sys.modules.pop(name, None)


def test_an_import_that_fails_is_tried_again(tmp_path, monkeypatch):
    def f(x):
        try:
            import module_that_comes_later
        except ImportError:
            return x + 1
        return x + module_that_comes_later.TEN

    def g(x):
        import importlib
        return importlib.import_module("module_that_comes_later").TEN + x

    c, d = magneto.compile(f), magneto.compile(g)
    for _ in range(3):
        assert torch.equal(c(torch.ones(2)), torch.full((2,), 2.0))
        with pytest.raises(ModuleNotFoundError, match="module_that_comes_later"):
            d(torch.ones(2))
    (tmp_path / "module_that_comes_later.py").write_text("TEN = 10\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        for _ in range(2):
            assert torch.equal(c(torch.ones(2)), torch.full((2,), 11.0)) and torch.equal(d(torch.ones(2)), torch.full((2,), 11.0))
    finally:
        sys.modules.pop("module_that_comes_later", None)
