"""How the benches measure: all candidates in one run, in turns, and the median of many short rounds.

Turns matter more than anything else: whatever else the machine does then falls on every candidate alike.
"""

import argparse
import statistics
import time
import warnings


def per_call(f, args, calls, clock=time.perf_counter):
    start = clock()
    for _ in range(calls):
        f(*args)
    return (clock() - start) / calls


def in_turns(candidates, rounds=15, calls=None, budget=0.05, clock=time.perf_counter):
    """Median seconds per call of each candidate: {name: (function, args)} -> {name: seconds}.

    With time.thread_time as the clock, what else the machine does hardly counts: for work on one thread.
    """
    counts = {}
    for name, (f, args) in candidates.items():
        f(*args)  # compiled, allocated, warm
        once = max(per_call(f, args, 2, clock), 1e-8)
        counts[name] = calls or max(1, int(budget / once))
    seen = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, (f, args) in candidates.items():
            seen[name].append(per_call(f, args, counts[name], clock))
    return {name: statistics.median(times) for name, times in seen.items()}


def settings(**more):
    """The command line of a bench of kernels: --device, --dtype, --threads, words that choose, and `more` with their
    defaults. With one thread of a CPU, `clock` is the time of this thread."""
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int)
    parser.add_argument("only", nargs="*")
    for name, default in more.items():
        how = {"action": "store_true"} if default is False else {"type": type(default), "default": default}
        parser.add_argument("--" + name.replace("_", "-"), **how)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    options.clock = time.thread_time if options.threads == 1 and options.device == "cpu" else time.perf_counter
    options.dtype = getattr(torch, options.dtype)
    options.chosen = lambda name: not options.only or any(word in name for word in options.only)
    warnings.simplefilter("ignore")
    return options


def once(f):
    start = time.perf_counter()
    result = f()
    return time.perf_counter() - start, result


def table(head, rows):
    lines = [head, *rows]
    widths = [max(len(str(line[column])) for line in lines) for column in range(len(head))]
    for number, line in enumerate(lines):
        print("  ".join(str(cell).ljust(width) if column == 0 else str(cell).rjust(width)
                        for column, (cell, width) in enumerate(zip(line, widths))))
        if number == 0:
            print("  ".join("-" * width for width in widths))


class Bars:
    """The numbers that must hold. `check()` prints them and gives the exit status."""

    def __init__(self):
        self.lines = []

    def at_most(self, what, value, limit, unit):
        self.lines.append((what, f"{value:.2f} {unit}", f"at most {limit:g} {unit}", "holds" if value <= limit else "FAILS"))

    def check(self):
        print()
        table(("bar", "measured", "promised", ""), self.lines)
        return 1 if any(line[-1] == "FAILS" for line in self.lines) else 0
