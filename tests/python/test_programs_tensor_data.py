"""`x.data`: the same memory, no history, and versions that are counted apart."""

import random

import pytest
import torch
from torch import nn, randn

import magneto
from device import DEVICE
from harness import fresh, same_as_eager


def reads(x):
    return x * x.data.abs().max() + x.data


def of_what_is_made(x):
    y = x.sin() * 2
    return y, y.data, y.data.view(3, 1) + 1, y.data.requires_grad, y.data.is_leaf


def leaves_twice(x):
    y = x * 2
    a, b = y.data, y.data
    return y, a, b, a is b, a[1:]


PROGRAMS = [reads, of_what_is_made, leaves_twice]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("grad", [False, True])
def test_as_eager(program, grad):
    same_as_eager(program, randn(3, requires_grad=grad), more=[((randn(3, requires_grad=grad),), {})] * 2)


@pytest.mark.needs_capture
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("grad", [False, True])
def test_one_graph(program, grad):
    compiled = magneto.compile(program, fullgraph=True)
    for _ in range(3):
        compiled(randn(3, device=DEVICE, requires_grad=grad))
    report = magneto.report()
    assert len(report.graphs) == 1 and not report.breaks and not report.recompiles
    assert not [note.fallback for note in report.graphs if getattr(note, "fallback", "")]


def averaged(model, average):
    """An exponential moving average, as most write it."""
    for p, q in zip(model.parameters(), average.parameters()):
        q.data.mul_(0.9).add_(p.data, alpha=0.1)
    return sum(q.data.sum() for q in average.parameters())


@pytest.mark.needs_capture
def test_an_average_of_parameters_is_one_graph():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(DEVICE)
    ours, theirs = (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(DEVICE) for _ in range(2))
    ours.load_state_dict(theirs.state_dict())
    compiled = magneto.compile(averaged, fullgraph=True)
    versions = [p._version for p in ours.parameters()]
    for _ in range(3):
        torch.testing.assert_close(compiled(model, ours), averaged(model, theirs))
        for p, q in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(p, q)
    assert [p._version for p in ours.parameters()] == versions
    assert len(magneto.report().graphs) == 1 and not magneto.report().breaks


def test_a_model_is_trained_and_averaged():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            for p, q in zip(self.a.parameters(), self.b.parameters()):
                q.data.mul_(0.5).add_(p.data, alpha=0.5)
            return self.a(x).sum() + self.b(x.data).sum()

    torch.manual_seed(0)
    same_as_eager(Both(), randn(2, 3), more=[((randn(2, 3),), {})], close=True)


# ---- what is done with one tensor, its data and its views, in all orders ------------------------------------------------

STEPS = {
    "take": lambda v: v.update(d=v["x"].data),
    "take of the input": lambda v: v.update(d=v["a"].data),
    "view": lambda v: v.update(d=v["d"].view(3, 1)[:, 0]),
    "detach": lambda v: v.update(x=v["x"].detach()),
    "write": lambda v: v["x"].mul_(2),
    "write the data": lambda v: v["d"].add_(1),
    "write a part": lambda v: v["d"][1:].mul_(3),
    "write the input": lambda v: v["s"].add_(v["d"]),
    "write the data of the input": lambda v: v["s"].data.mul_(0.5),
    "grow": lambda v: v.update(x=v["x"] * v["x"]),
    "add": lambda v: v.update(x=v["x"] + v["d"] * v["s"]),
    "keep": lambda v: v["kept"].append(v["d"]),
    "keep its view": lambda v: v["kept"].append(v["d"][1:]),
}


def program_of(names, no_grad):
    @fresh
    def program():
        def f(a, s):
            v = {"a": a, "s": s, "x": a * 2, "d": a.data, "kept": []}
            with torch.set_grad_enabled(not no_grad):
                for name in names:
                    STEPS[name](v)
            return v["x"], v["kept"], [t._version for t in (v["x"], v["d"], v["s"], *v["kept"])]

        return f

    return program


@pytest.mark.parametrize("seed", range(40))
def test_in_any_order(seed):
    chance = random.Random(seed)
    names = chance.choices(list(STEPS), k=chance.randint(2, 7))
    grad = seed % 2 == 0
    arguments = lambda: (randn(3, requires_grad=grad), randn(3))  # noqa: E731
    torch.manual_seed(seed)
    same_as_eager(program_of(names, seed % 3 == 0), *arguments(), more=[(arguments(), {}) for _ in range(2)])
