"""same_each_call: a program with state of its own, called several times, in eager and compiled; each call may change the state."""

import collections
import contextlib
import dataclasses
import io

import torch

import magneto
from harness import DEVICE


def told(value):
    """All that can be compared, as text."""
    if isinstance(value, torch.Tensor):
        kind = (type(value).__name__, value.dtype, tuple(value.shape), value.stride(), value.requires_grad, value.is_leaf)
        return f"{kind}{value.detach().tolist()}"
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__ + "(" + ", ".join(told(part) for part in value) + ")"
    if isinstance(value, dict):
        return type(value).__name__ + "{" + ", ".join(f"{told(key)}: {told(part)}" for key, part in value.items()) + "}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__ + told(vars(value))
    return repr(value)


def observed(call, g, k):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            result = told(call(g, k))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    return result, out.getvalue()


def numbers(k):
    return torch.full((3,), float(k + 1), device=DEVICE)


def same_each_call(program, calls=6, breaks=0, graphs=None):
    """`program` makes a function and how to call it: call(g, k) for k = 0, 1 ... Both worlds have their own."""
    if not isinstance(program(), tuple):
        made = program

        def program():
            return made(), lambda g, k: g(numbers(k))

    f, call = program()
    expected = [observed(call, f, k) for k in range(calls)]
    f, call = program()
    magneto.reset()
    g = magneto.compile(f)
    for k in range(calls):
        found = observed(call, g, k)
        assert found == expected[k], f"call {k}: {found} is not {expected[k]}"
    report = magneto.report()
    if breaks is not None:
        assert len(report.breaks) == breaks, report.breaks
    if graphs is not None:
        assert len(report.graphs) <= graphs, report
