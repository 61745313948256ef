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


# ---- lazy conjugates and negatives, zeros without memory, sparse tensors, other layouts ------------------------------

def handed_on(x):
    return x.clone()


def to_both(x, w):
    return x - w


def by_views(x):
    return x.clone().t()[1:]


def in_parts(x, w):
    return torch.cat([x, w * 2])


def of_two(x, w):
    return x.clone(), (x + 1).t() * w


def scaled(x, w):
    return x * w


def through_a_product(x, w):
    return x @ w


def facts(g):
    return g.is_conj(), g.is_neg(), g.layout, g._is_zerotensor()


def dense(g):
    return (g.to_dense() if g.is_sparse else g).detach().resolve_conj().resolve_neg().clone()


def seen_of(f, g, ask, tangent, dtype=torch.float32):
    """Gradients as hooks of inputs and the caller see them."""
    torch.manual_seed(3)
    leaves = [randn(4, 4, dtype=dtype, requires_grad=True) for _ in range(f.__code__.co_argcount)]
    hooks = {}
    for k, leaf in enumerate(leaves):
        leaf.register_hook(lambda grad, k=k: hooks.update({k: grad}))
    ys = outputs(g(*leaves))
    tangents = [tangent(y) for y in ys]
    seen = []
    if ask == "grad":
        seen += torch.autograd.grad(ys, leaves, tangents)
    else:
        torch.autograd.backward(ys, tangents)
        seen += [leaf.grad for leaf in leaves]
    return seen + [hooks[k] for k in range(len(leaves))]


def check_seen(f, ask, tangent, dtype=torch.float32):
    c = magneto.compile(f)
    for _ in range(3):
        want, have = seen_of(f, f, ask, tangent, dtype), seen_of(f, c, ask, tangent, dtype)
        assert [facts(g) for g in have] == [facts(g) for g in want]
        for w, h in zip(want, have):
            torch.testing.assert_close(dense(h), dense(w))


LAZY = {
    "conjugated": (torch.complex64, lambda y: randn(y.shape, dtype=y.dtype).conj()),
    "conjugated and transposed": (torch.complex64, lambda y: randn(y.shape[::-1], dtype=y.dtype).mH),
    "conjugated and negated": (torch.complex64, lambda y: torch._neg_view(randn(y.shape, dtype=y.dtype).conj())),
    "negated": (torch.float32, lambda y: torch._neg_view(randn(y.shape))),
    "imaginary": (torch.float32, lambda y: randn(y.shape, dtype=torch.complex64).conj().imag),
}


@pytest.mark.parametrize("ask", ["grad", "backward"])
@pytest.mark.parametrize("f", [handed_on, to_both, by_views, in_parts, of_two, scaled])
@pytest.mark.parametrize("kind", LAZY)
def test_lazy_bits_are_handed_on(f, kind, ask):
    check_seen(f, ask, LAZY[kind][1], LAZY[kind][0])


@pytest.mark.parametrize("f", [handed_on, to_both, by_views])
def test_zeros_without_memory_are_handed_on(f):
    check_seen(f, "grad", lambda y: torch._efficientzerotensor(y.shape, dtype=y.dtype))


@pytest.mark.parametrize("ask", ["grad", "backward"])
@pytest.mark.parametrize("f", [handed_on, to_both, scaled, through_a_product])
def test_a_sparse_gradient_stays_sparse(f, ask):
    check_seen(f, ask, lambda y: (torch.arange(y.numel()).reshape(y.shape) % 3 * 1.5).to_sparse())


def test_a_table_with_sparse_gradients_after_a_break():
    table = nn.Parameter(randn(10, 4))
    optimizer = torch.optim.SparseAdam([table])
    half = magneto.compile(lambda w: w * 2)
    for _ in range(3):
        optimizer.zero_grad()
        F.embedding(torch.tensor([1, 3, 3]), half(table), sparse=True).sum().backward()
        assert table.grad.is_sparse
        optimizer.step()


@pytest.mark.parametrize("how", ["expanded", "transposed", "stepped"])
def test_a_gradient_that_is_handed_on_keeps_its_layout(how):
    made = {"expanded": lambda y: torch.ones(()).expand(y.shape), "transposed": lambda y: randn(y.shape[::-1]).t(),
            "stepped": lambda y: randn(4, 8)[:, ::2]}[how]
    for _ in range(3):
        c = magneto.compile(handed_on)
        x = randn(4, 4, requires_grad=True)
        tangent = made(x)
        (g,) = torch.autograd.grad(c(x), x, tangent)
        assert g.data_ptr() == tangent.data_ptr() and g.stride() == tangent.stride()


@pytest.mark.parametrize("norm", [F.instance_norm, lambda x: F.batch_norm(x, None, None, training=True), lambda x: F.group_norm(x, 5)])
@pytest.mark.parametrize("batch", [1, 2])
def test_layouts_of_a_tangent_do_not_change_its_meaning(norm, batch):
    """Strides of sizes that are one say nothing. Where eager reads such a tangent in the order of memory (native_batch_norm_backward
    of torch 2.11), ours is the gradient that a contiguous tangent gives, from the second call on."""
    c = magneto.compile(lambda x: norm(x).transpose(0, 3))
    c(randn(batch, 5, 1, 3, requires_grad=True))
    for _ in range(3):
        x, weights = randn(batch, 5, 1, 3, requires_grad=True), randn(3, 5, 1, batch)
        (have,) = torch.autograd.grad(c(x), x, weights)
        (want,) = torch.autograd.grad(norm(x), x, weights.transpose(0, 3).contiguous())
        torch.testing.assert_close(have, want)
