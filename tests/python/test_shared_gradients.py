"""Gradients of several leaves that are one tensor, or lie in one memory: a leaf takes over what the backward gives, and later
adds to it. No two leaves may get the same memory."""

import pytest
import torch
import torch.nn.functional as F
from conftest import magneto

CASES = {
    "the same": (lambda t, x: torch.relu(t + x), [(2, 3), (2, 3)]),
    "three times the same": (lambda t, x, y: torch.relu(t + x + y), [(2, 3)] * 3),
    "a view beside it": (lambda t, x: torch.relu(t + x.view(2, 3)), [(2, 3), (6,)]),
    "a view before it": (lambda t, x: torch.relu(x.view(2, 3) + t), [(2, 3), (6,)]),
    "two views": (lambda t, x: torch.relu(t.view(6) + x.view(6)), [(2, 3), (3, 2)]),
    "two views of two": (lambda t, x: torch.tanh(t.unsqueeze(0) + x.unsqueeze(0)), [(2, 3), (2, 3)]),
    "transposed": (lambda t, x: torch.relu(t + x.t()), [(2, 3), (3, 2)]),
    "rows": (lambda t, x: torch.cat([t, x]).sin(), [(2, 3), (1, 3)]),
    "rows, twice": (lambda t, x: torch.cat([t, x]).sin() + torch.cat([x, t]), [(2, 3), (2, 3)]),
    "columns": (lambda t, x: torch.cat([t, x], 1).sin(), [(2, 3), (2, 1)]),
    "stacked": (lambda t, x: torch.stack([t, x]).sin(), [(2, 3), (2, 3)]),
    "expanded": (lambda t, x: torch.relu(t.expand(2, 3) + x), [(1, 3), (2, 3)]),
    "summed": (lambda t, x: (t + x).sum(), [(2, 3), (2, 3)]),
    "summed after a view": (lambda t, x: (t.view(6) + x).sum(), [(2, 3), (6,)]),
    "the tangent": (lambda t, x: t + x, [(2, 3), (2, 3)]),
    "the tangent and a view": (lambda t, x: t + x.view(2, 3), [(2, 3), (6,)]),
    "two outputs": (lambda t, x: (torch.relu(t + x), (t + x) * 2), [(2, 3), (2, 3)]),
    "a bias": (lambda x, w, b, c: F.linear(x, w, b) + c, [(2, 3), (4, 3), (4,), (2, 4)]),
    "a norm": (lambda x, r: F.layer_norm(x + r, (3,)), [(2, 3), (2, 3)]),
    "two biases": (lambda x, a, b: x.sin() + a + b, [(2, 3), (3,), (3,)]),
}


def trained(f, shapes, through=lambda leaves: leaves):
    """Gradients of two backwards, added up, and which of them share memory."""
    leaves = seeded(shapes)
    for _ in range(2):
        made = f(*through(leaves))
        made = made if isinstance(made, tuple) else (made,)
        torch.autograd.backward(made, [torch.ones_like(t) for t in made])
    ends = [{leaf.grad.data_ptr() + 4 * place for place in torch.arange(99).as_strided(leaf.shape, leaf.grad.stride()).flatten().tolist()}
            for leaf in leaves]
    return [leaf.grad for leaf in leaves], any(a & b for k, a in enumerate(ends) for b in ends[:k])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("first", [lambda leaves: leaves, lambda leaves: [leaves[0] * 1, *leaves[1:]]], ids=["leaves", "no leaf first"])
def test_leaves_that_get_one_gradient_do_not_share_memory(name, first):
    f, shapes = CASES[name]
    compiled = magneto.compile(f)
    # In eager, and where a program is recorded, two leaves may take views of one tensor: the right sums are those of one backward.
    leaves = seeded(shapes)
    want = [2 * g for g in torch.autograd.grad(f_sum(f, first(leaves)), leaves)]
    trained(compiled, shapes, first)
    for _ in range(2):
        have, share = trained(compiled, shapes, first)
        assert not share
        for a, b in zip(want, have):
            torch.testing.assert_close(b, a)


def seeded(shapes):
    torch.manual_seed(0)
    return [torch.randn(*shape, requires_grad=True) for shape in shapes]


def f_sum(f, args):
    made = f(*args)
    return sum(t.sum() for t in (made if isinstance(made, tuple) else (made,)))


def test_parts_of_a_cat_are_not_copied():
    """They have no place in common: each leaf takes its part over, as in eager."""
    compiled = magneto.compile(lambda *ts: torch.cat([t.view(-1) for t in ts]).sin())
    for _ in range(2):
        leaves = seeded([(2, 3), (4,), (3, 5)])
        compiled(*leaves).sum().backward()
    assert len({leaf.grad.untyped_storage().data_ptr() for leaf in leaves}) == 1


@pytest.mark.parametrize("f", [lambda a, b: (a + b).sin(), lambda a, b: torch.relu(a + b) * 2 + (a + b) ** 3])
def test_second_gradients_do_not_share_memory(f):
    compiled = magneto.compile(f)
    answers = []
    for function in (f, compiled, compiled, compiled):
        leaves = seeded([(2, 3), (2, 3)])
        for _ in range(2):
            made = torch.autograd.grad(function(*leaves).sum(), leaves, create_graph=True)
            torch.autograd.backward(made, [torch.ones(2, 3)] * 2)
        answers.append([leaf.grad for leaf in leaves])
        assert leaves[0].grad.data_ptr() != leaves[1].grad.data_ptr()
    for have in answers[1:]:
        torch.testing.assert_close(have, answers[0])


TANGENTS = {
    "as it is": torch.ones_like,
    "expanded": lambda y: torch.ones(()).expand_as(y),
    "rows expanded": lambda y: torch.arange(1.0, y.shape[-1] + 1).expand_as(y),
    "transposed": lambda y: torch.arange(1.0, y.numel() + 1).view(y.shape[::-1]).permute(*range(y.dim())[::-1]),
    "every second": lambda y: torch.arange(2.0 * y.numel()).view(*y.shape, 2)[..., 0],
}


@pytest.mark.parametrize("shape", [(2, 3), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize("tangent", TANGENTS)
@pytest.mark.parametrize("f", [lambda *ts: torch.stack(ts), lambda *ts: torch.cat(ts), lambda *ts: torch.stack(ts, -1)],
                         ids=["stack", "cat", "columns"])
def test_parts_of_a_tangent(f, tangent, shape):
    """Leaves copy parts of a tangent that is not dense, each its own; of those that are dense none is the memory of two leaves."""
    compiled = magneto.compile(f)

    def trained(function):
        leaves = seeded([shape, shape])
        for _ in range(2):
            made = function(*leaves)
            made.backward(TANGENTS[tangent](made))
        return [leaf.grad for leaf in leaves]

    def storages(grads):
        return len({grad.untyped_storage().data_ptr() for grad in grads})

    eager, _ = trained(f), trained(compiled)
    leaves = seeded([shape, shape])
    made = f(*leaves)
    want = torch.autograd.grad(made, leaves, TANGENTS[tangent](made))
    for _ in range(2):
        have = trained(compiled)
        assert have[0].data_ptr() != have[1].data_ptr()  # eager's may be the same, and then each gets what the other adds
        assert storages(have) == storages(eager) or shape != (2, 3)
        torch.testing.assert_close(have, [2 * grad for grad in want])


@pytest.mark.parametrize("f", [lambda a, b, c: (a + c.view(2, 3)) * b, lambda a, b, c: F.linear(b, a + c.unsqueeze(0).squeeze(0)),
                               lambda a, b, c: (a + c.t().t()) * b.sin()], ids=["view", "squeeze", "transposes"])
def test_second_gradients_that_are_views_do_not_share_memory(f):
    """The engine may come to the leaf behind the view first, or last: a leaf never takes over memory that another one has."""
    compiled = magneto.compile(f)
    for _ in range(3):
        leaves = seeded([(2, 3)] * 3)
        made = torch.autograd.grad(f(*leaves).sum(), leaves[1:], create_graph=True)
        want = torch.autograd.grad([t.sin().sum() for t in made if t.requires_grad], leaves, allow_unused=True)
        leaves = seeded([(2, 3)] * 3)
        for _ in range(2):
            made = torch.autograd.grad(compiled(*leaves).sum(), leaves[1:], create_graph=True)
            torch.autograd.backward([t.sin().sum() for t in made if t.requires_grad])
        have = [leaf.grad for leaf in leaves]
    for a, b in zip(want, have, strict=True):
        torch.testing.assert_close(b, None if a is None else 2 * a)
