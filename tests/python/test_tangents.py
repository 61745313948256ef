"""Gradients that come as anything but plain tensors: wrapper subclasses, batches of is_grads_batched, and the tensors that
compiled autograd shows to nodes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn, randn
from torch.testing._internal.two_tensor import TwoTensor

import magneto


def product(x, w):
    return (x @ w).tanh()


def hidden(x, w):
    h = x.tanh()
    return h, F.layer_norm(h @ w, (4,), w[0], w[1])


def two(x, w):
    return x.exp(), (w * 2).sin()[:3]


def dropped(x, w):
    return F.dropout(x @ w, 0.5)


def in_a_buffer(x, w):
    y = x * 2
    y[:, 1:].mul_(w[:3, 1:])
    return y


PROGRAMS = [product, hidden, two, dropped, in_a_buffer]


def inputs():
    torch.manual_seed(3)
    return randn(3, 4, requires_grad=True), randn(4, 4, requires_grad=True)


def outputs(y):
    return y if isinstance(y, tuple) else (y,)


def plain(g):
    return [None] if g is None else [type(g), g.a.clone(), g.b.clone()] if isinstance(g, TwoTensor) else [g.detach().clone()]


def check(ask, f):
    c = magneto.compile(f)
    expected = ask(f)
    for _ in range(3):
        got = ask(c)
        assert len(got) == len(expected)
        for e, g in zip(expected, got):
            if isinstance(e, torch.Tensor):
                assert torch.allclose(e, g, rtol=1e-4, atol=1e-5)
            else:
                assert e is g


def wrapped(i):
    return TwoTensor(torch.full((3, 4), 1.0 + i), torch.full((3, 4), 2.0 - i))


@pytest.mark.parametrize("f", PROGRAMS)
def test_a_wrapper_subclass(f):
    def ask(g):
        x, w = inputs()
        ys = outputs(g(x, w))
        grads = torch.autograd.grad(ys, (x, w), [wrapped(i) for i in range(len(ys))], allow_unused=True)
        return [part for grad in grads for part in plain(grad)]

    check(ask, f)


def test_a_wrapper_subclass_that_is_accumulated():
    def ask(g):
        x, w = inputs()
        y = g(x, w)
        y.backward(wrapped(0), retain_graph=True)
        y.backward(wrapped(1))
        return plain(x.grad) + plain(w.grad)

    check(ask, product)


def test_a_wrapper_subclass_with_hooks():
    def ask(g):
        x, w = inputs()
        h, y = g(x, w)
        seen = []
        h.register_hook(lambda grad: seen.extend(plain(grad)))
        torch.autograd.backward([h, y], [wrapped(0), wrapped(1)])
        return seen + plain(x.grad) + plain(w.grad)

    check(ask, hidden)


@pytest.mark.parametrize("f", PROGRAMS)
def test_batches(f):
    def ask(g):
        x, w = inputs()
        ys = outputs(g(x, w))
        torch.manual_seed(9)
        tangents = [randn(5, 3, 4) for _ in ys]
        grads = torch.autograd.grad(ys, (x, w), tangents, is_grads_batched=True, allow_unused=True)
        return [part for grad in grads for part in plain(grad)]

    check(ask, f)


def test_a_vectorized_jacobian():
    def ask(g):
        x, w = inputs()
        one = torch.autograd.functional.jacobian(g, (x, w), vectorize=True)
        two = torch.autograd.functional.hessian(lambda x: g(x, w).sum(), x, vectorize=True)
        return [*one, two]

    check(ask, product)


def test_what_torch_computes_again_where_the_input_has_changed():
    """What it saved is enough, as for a plain backward."""
    c = magneto.compile(lambda x: x.exp())
    for kind in ("plain", "plain", "wrapped"):
        x = randn(3, 4, requires_grad=True)
        y = c(x)
        with torch.no_grad():
            x.mul_(2)
        if kind == "plain":
            y.sum().backward()
    (g,) = torch.autograd.grad(y, x, wrapped(0))
    assert torch.allclose(g.a, y) and torch.allclose(g.b, 2 * y)


# ---- compiled autograd -------------------------------------------------------------------------------------------------

def compiled_autograd():
    from torch._dynamo import compiled_autograd

    return compiled_autograd._enable(lambda graph: graph)


@pytest.mark.parametrize("around", ["backward", "all", "first call"])
@pytest.mark.parametrize("f", PROGRAMS)
def test_compiled_autograd(f, around):
    def ask(g):
        x, w = inputs()
        if around == "first call":
            with compiled_autograd():
                g(x, w)
            torch.manual_seed(3)
        if around == "all":
            with compiled_autograd():
                sum(y.sum() for y in outputs(g(x, w))).backward()
        else:
            loss = sum(y.sum() for y in outputs(g(x, w)))
            with compiled_autograd():
                loss.backward()
        return plain(x.grad) + plain(w.grad)

    check(ask, f)


def test_compiled_autograd_trains():
    def train(compiled):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
        net = magneto.compile(model) if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = net(randn(3, 4)).square().mean()
            with compiled_autograd():
                loss.backward()
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    for p, q in zip(train(False), train(True)):
        assert torch.allclose(p, q, rtol=1e-4, atol=1e-5)


def test_compiled_autograd_and_a_backward_without_it():
    def ask(g):
        x, w = inputs()
        y = g(x, w)
        with compiled_autograd():
            y.sum().backward(retain_graph=True)
        y.sum().backward()
        return plain(x.grad) + plain(w.grad)

    check(ask, product)


def test_compiled_autograd_does_not_look_at_hidden_gradients():
    c = magneto.compile(hidden)
    for _ in range(3):
        x, w = inputs()
        h, y = c(x, w)
    h.register_hook(lambda grad: grad * 2)
    with compiled_autograd(), pytest.raises(NotImplementedError, match="compiled autograd does not allow"):
        y.sum().backward()
