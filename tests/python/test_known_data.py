"""Data that each call computes of the same numbers are known: torch.tensor(8).item() is 8. Others the graph reads at each call."""

import pytest
import torch
from torch import randn

import magneto
from harness import same_as_eager

READS = {
    "item": lambda x: x * (torch.tensor(8) * 2).item(),
    "int": lambda x: x * int(torch.tensor(3.7)),
    "float": lambda x: x * float(torch.arange(4)[2]),
    "a branch": lambda x: x + 1 if torch.tensor(min(x.shape[0], 2)) > 1 else x - 1,
    "a slice": lambda x: x[: torch.tensor(2)],
    "an index of a list": lambda x: [x, x * 2][torch.tensor(1)],
    "clamp": lambda x: torch.clamp(x, 0, torch.tensor(0.5) / 2),
    "written to": lambda x: x * torch.zeros(3).fill_(2).add_(1)[1].item(),
    "a view that is written to": lambda x: x * (lambda t: (t[1:].mul_(5), t[2].item())[1])(torch.ones(3)),
}
# What these tensors hold comes from outside.
READ_AGAIN = {
    "an input": lambda x: x * x.sum().item(),
    "written from outside": lambda x: x * torch.zeros(3).copy_(x)[1].item(),
    "a view written from outside": lambda x: x * (lambda t: (t[1:].add_(x[:2]), t[2].item())[1])(torch.ones(3)),
    "random": lambda x: x * torch.rand(1).item(),
    "an index from outside": lambda x: x * torch.arange(9)[x.argmax()].item(),
}


@pytest.mark.parametrize("read", READS | READ_AGAIN)
def test_a_read_is_eagers(read):
    same_as_eager((READS | READ_AGAIN)[read], randn(3))


@pytest.mark.needs_capture
@pytest.mark.parametrize("read", READS)
def test_known_data_are_no_break(read):
    found = magneto.explain(READS[read])(randn(3))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)
    assert "magneto::read(" not in found.graphs[0].text


@pytest.mark.needs_capture
@pytest.mark.parametrize("read", READ_AGAIN)
def test_data_from_outside_are_read_at_each_call(read):
    found = magneto.explain(READ_AGAIN[read])(randn(3))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)
    assert "magneto::read(" in found.graphs[0].text


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_number_that_changes_is_read_again(dynamic):
    def f(x, emb):
        span = torch.tensor(min(x.shape[0], 8))
        kept = emb[8 - span : 8 + span]
        return x * (int(span) if span > 4 else 1) + kept.sum() + torch.clamp(torch.arange(6), 0, span * 2 - 1).sum()

    compiled = magneto.compile(f, dynamic=dynamic)
    for n in (3, 3, 4, 5, 6, 12, 9, 3):
        x, emb = randn(n), randn(16, 2)
        torch.testing.assert_close(compiled(x, emb), f(x, emb))
