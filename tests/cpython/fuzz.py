"""Runs the programs of programs.py natively and by the evaluator, disturbed at every possible point:

    hand-over     before each executed instruction in turn the frame goes to CPython
    stop          each primitive in turn declines, and the instruction is stepped over
    twice         like stop, and every following n-th primitive declines, too

Result, side effects, exception with its chain, and traceback lines and columns must be those of CPython.

    python tests/cpython/fuzz.py --module <path> [--every N] [programs ...]
"""
import argparse
import os
import sys
import traceback
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import programs


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def all_code():
    functions = list(programs.PROGRAMS) + [programs.log, programs.lines]
    for cls in programs.CLASSES:
        for value in vars(cls).values():
            value = getattr(value, "__func__", value)
            value = getattr(value, "fget", value)
            if isinstance(value, types.FunctionType):
                functions.append(value)
    return [code for function in functions for code in code_objects(function.__code__)]


def chain(exception):
    return [type(e).__name__ if e else None for e in (exception, exception.__context__, exception.__cause__)]


def outcome(program):
    programs.LOG.clear()
    try:
        result = "returned", program()
    except BaseException as e:
        where = [(x.name, x.lineno, x.colno, x.end_colno) for x in traceback.extract_tb(e.__traceback__)][1:]
        result = "raised", chain(e), str(e), where
        del e
    return repr(result), repr(programs.LOG)


class Fuzz:
    def __init__(self, evaluator, every=1, report=print):
        self.evaluator, self.every, self.report = evaluator, every, report
        self.tried = self.wrong = 0
        self.evaluator.only(all_code())

    def attempt(self, program, expected, what, start):
        start()
        try:
            got = outcome(program)
        finally:
            self.evaluator.off()
        self.tried += 1
        if got != expected:
            self.wrong += 1
            if self.wrong <= 10:
                self.report(f"{program.__name__}: {what}\n    expected {expected}\n    got      {got}")
        return self.evaluator.statistics()

    def sweep(self, program, expected, what, start):
        """Moves the disturbance through the program until it comes after the end."""
        n = 0
        while not self.attempt(program, expected, f"{what} {n}", lambda: start(n))["pending"]:
            n += self.every

    def program(self, program):
        e = self.evaluator
        expected = outcome(program)
        assert outcome(program) == expected, f"{program.__name__} is not the same twice"
        self.attempt(program, expected, "undisturbed", e.run_all_frames)
        self.attempt(program, expected, "slots rewritten before each instruction", lambda: e.rewrite_from(0))
        self.sweep(program, expected, "hand-over at instruction", e.hand_over_at)
        self.sweep(program, expected, "stop at primitive", e.stop_at)
        for period in range(5):
            self.attempt(program, expected, f"every primitive of {period + 1} stops", lambda: e.stop_at(0, period))
        for seed in range(20):
            self.attempt(program, expected, f"random hand-overs, seed {seed}", lambda: e.run_all_frames(25, seed))

    def close(self):
        self.evaluator.only(None)


def main():
    from run import load
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--module", required=True)
    parser.add_argument("--every", type=int, default=1, help="only every n-th point")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    fuzz = Fuzz(load(arguments.module), arguments.every)
    for program in programs.PROGRAMS:
        if not arguments.names or program.__name__ in arguments.names:
            fuzz.program(program)
    print(f"CPython {sys.version.split()[0]}: {len(programs.PROGRAMS)} programs, {fuzz.tried} runs, {fuzz.wrong} wrong")
    return 1 if fuzz.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
