"""What one call costs: `x + 1` on 16 floats, and the guards of a module with 200 parameters.

Magneto's own part (vectorcall, guards, dispatch to the graph) is found by extrapolation: a graph with n outputs takes
own + n * (allocate, compute and wrap one); functions with 1, 2 and 3 outputs give that as a slope. The guards of a module
are the time it takes above a plain function with the same graph, operator by operator. A whole call of seven operators
as one kernel is timed, too.

    python bench/call.py            the table, and status 1 if a bar is broken
"""

import sys
import warnings

import torch
from torch import nn

import magneto
from measure import Bars, in_turns, table

LENGTHS = (1, 6, 11)


def chain(n):
    scope = {}
    exec(f"def add_{n}(x):\n    return x{' + 1' * n}\n", scope)
    return scope[f"add_{n}"]


class Reader(nn.Module):
    """Looks at all of its parameters, computes with none: what a call costs beyond `x + 1` are its guards."""

    def __init__(self, parameters):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(parameters // 2))

    def forward(self, x):
        n = 1
        for layer in self.layers:
            n = n + (layer.weight.shape[0] - layer.bias.shape[0])
        return x + n


class Deep(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))

    def forward(self, x):
        return self.layers(x)


OUTPUTS = (lambda x: (x + 1,), lambda x: (x + 1, x + 2), lambda x: (x + 1, x + 2, x + 3))
SEVEN = "seven operators, one kernel"


def seven(x):
    return torch.tanh(torch.sigmoid(torch.relu(x * 2 + 1)) - 0.5) * 3


def dynamo(f):
    torch._dynamo.reset()
    return torch.compile(f, backend="eager")


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    x, v = torch.randn(16), torch.randn(1, 2)
    reader, deep = Reader(200), Deep(100)
    functions = {f"x{' + 1' * n if n == 1 else f' + 1, {n} times'}": chain(n) for n in LENGTHS}
    with torch.no_grad():
        candidates = {}
        for name, f in functions.items():
            candidates[name, "eager"] = f, (x,)
            candidates[name, "torch.compile"] = dynamo(f), (x,)
            candidates[name, "Magneto"] = magneto.compile(f, backend="eager"), (x,)
        for name, module, arg in (("reads 200 parameters", reader, x), ("100 linear layers", deep, v)):
            candidates[name, "eager"] = module, (arg,)
            candidates[name, "torch.compile"] = dynamo(module), (arg,)
            candidates[name, "Magneto"] = magneto.compile(module, backend="eager"), (arg,)
        for n, f in enumerate(OUTPUTS, 1):
            candidates[f"{n} outputs", "eager"] = f, (x,)
            candidates[f"{n} outputs", "torch.compile"] = dynamo(f), (x,)
            candidates[f"{n} outputs", "Magneto"] = magneto.compile(f), (x,)
        candidates[SEVEN, "eager"] = seven, (x,)
        candidates[SEVEN, "torch.compile"] = dynamo(seven), (x,)
        candidates[SEVEN, "Magneto"] = magneto.compile(seven), (x,)
        times = in_turns(candidates)

    rows = []
    for name in dict.fromkeys(name for name, _ in candidates):
        eager, theirs, ours = (times[name, side] for side in ("eager", "torch.compile", "Magneto"))
        rows.append((name, *(f"{1e6 * t:.2f}" for t in (eager, theirs, ours)), f"{ours / eager:.2f}", f"{ours / theirs:.2f}"))
    table(("microseconds a call", "eager", 'torch.compile("eager")', "Magneto", "Magneto / eager", "Magneto / torch.compile"), rows)

    one = times[next(iter(functions)), "Magneto"]
    outputs = [times[f"{n} outputs", "Magneto"] for n in (1, 2, 3)]
    bars = Bars()
    bars.at_most("own part of a call of x + 1", 1e6 * (outputs[0] - (outputs[2] - outputs[0]) / 2), 1, "us")
    bars.at_most("all of a call of x + 1 as a kernel", 1e6 * outputs[0], 2, "us")
    bars.at_most("guards of a module with 200 parameters", 1e6 * (times["reads 200 parameters", "Magneto"] - one), 5, "us")
    bars.at_most("seven operators as a kernel, the whole call", 1e6 * times[SEVEN, "Magneto"], 5, "us")
    return bars.check()


if __name__ == "__main__":
    sys.exit(main())
