"""Memory and reference counts stay flat over many frames that are finished, handed over in the middle, or stopped.

    python tests/cpython/leak.py --module <path> [--rounds N]
"""
import argparse
import gc
import sys


class Manager:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


def program(value, n, manager, callback):
    kept, total = [value, value], 0

    def closure():
        return value, total
    for i in range(n):
        with manager:
            try:
                total += i
                if i == 2:
                    raise ValueError(value)
                callback(value)
            except ValueError as e:
                kept.append(e.args[0])
    first, *rest = kept
    {**{"a": value}, "b": value}
    callback(*rest[:1], **{})
    match value:
        case int():
            pass
    return kept, closure(), sum(x for x in range(3)), f"{n}{total!r:>4}", {k: value for k in "ab"}


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4


def counts(*objects):
    return [sys.getrefcount(o) for o in objects]


def measure(evaluator, rounds):
    """(growth of resident memory in kB, growth of allocated blocks, reference counts before, after)"""
    value, manager = object(), Manager()

    def callback(value):
        return None
    codes = [program.__code__, callback.__code__, *(c for c in program.__code__.co_consts if hasattr(c, "co_code"))]
    evaluator.only(codes)
    evaluator.run_all_frames()
    program(value, 4, manager, callback)
    evaluator.off()
    length = evaluator.statistics()["instructions"]

    def several(rounds):
        for i in range(rounds):
            if i % 3 == 0:
                evaluator.hand_over_at(i // 3 % (length + 1))
            elif i % 3 == 1:
                evaluator.stop_at(i // 3 % (length + 1))
            else:
                evaluator.run_all_frames()
            program(value, 4, manager, callback)
        evaluator.off()
        gc.collect()
    several(3 * (length + 1))
    watched = value, manager, callback, program, program.__code__, ValueError, Manager
    before, memory, blocks = counts(*watched), resident(), sys.getallocatedblocks()
    several(rounds)
    result = resident() - memory, sys.getallocatedblocks() - blocks, before, counts(*watched)
    evaluator.only(None)
    return result


def main():
    from run import load
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--module", required=True)
    parser.add_argument("--rounds", type=int, default=100_000)
    arguments = parser.parse_args()
    memory, blocks, before, after = measure(load(arguments.module), arguments.rounds)
    print(f"CPython {sys.version.split()[0]}: {arguments.rounds} runs, memory {memory:+d} kB, blocks {blocks:+d}, "
          f"reference counts {before} -> {after}")
    return 1 if memory > 512 or blocks > 50 or before != after else 0


if __name__ == "__main__":
    sys.exit(main())
