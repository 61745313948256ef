"""Numbers that are read from tensors in the middle of a function: eager, torch.compile and Magneto, side by side.

    python bench/reads.py           microseconds a call, and of eager's time
"""

import torch

import magneto
from measure import in_turns, table


def scaled(x):
    return (x * 2 + 1) / x.abs().max().item() + x.sigmoid()


def branch(x):
    y = torch.tanh(x) * 2
    return y.relu() + 1 if y.sum() < 1e30 else y


def picked(x):
    y = x.sin()
    return y[y > 0].square().sum() + y


def rows(programs):
    for program in programs:
        for size in (64, 1 << 16):
            inputs = [torch.randn(size) for _ in range(4)]
            sides = {"eager": program, "torch.compile": torch.compile(program, dynamic=False), "Magneto": magneto.compile(program)}

            def calls(f):
                return lambda: [f(x) for x in inputs]

            for f in sides.values():
                for _ in range(4):
                    calls(f)()
            times = in_turns({name: (calls(f), ()) for name, f in sides.items()})
            yield [f"{program.__name__}, {size}", *(f"{1e6 * times[name] / len(inputs):.1f}" for name in sides),
                   f"{times['Magneto'] / times['eager']:.2f}", f"{times['torch.compile'] / times['eager']:.2f}"]


if __name__ == "__main__":
    table(["us a call", "eager", "torch.compile", "Magneto", "Magneto of eager", "torch.compile of eager"],
          list(rows((scaled, branch, picked))))
