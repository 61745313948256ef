"""Operators that write in place, in programs that are trained: the gradient is that of what was written, not of what was there.

A program is *who* is written to (the result of a product, a view of it, an intermediate, a view of an input that asks for no
gradient), by *what*, and *where* it goes from there. A few of each operator run always, all two thousand of them with
MAGNETO_TEST_ALL=1.
"""

import itertools
import os

import pytest
import torch
from torch import nn

import magneto
from rounding import close

# ---- by what: v is f32[4, 4], x asks for a gradient -----------------------------------------------------------------

INDEX = torch.tensor([2, 0])


def assign(v, x):
    v[1:3] = x[:2]


def assign_number(v, x):
    v[:, 1] = 2.0


def divide(v, x):
    v /= 1 + x.abs()


def add_row(v, x):
    v += x[0]


WRITES = {
    "clamp_": lambda v, x: v.clamp_(-1, 1),
    "clamp_ by tensors": lambda v, x: v.clamp_(-x.abs(), x.abs()),
    "mul_": lambda v, x: v.mul_(2),
    "mul_ by x": lambda v, x: v.mul_(x),
    "mul_ by itself": lambda v, x: v.mul_(v),
    "/=": divide,
    "+= a row": add_row,
    "add_ with alpha": lambda v, x: v.add_(x, alpha=3),
    "sub_": lambda v, x: v.sub_(x.detach()),
    "relu_": lambda v, x: v.relu_(),
    "sigmoid_": lambda v, x: v.sigmoid_(),
    "tanh_": lambda v, x: v.tanh_(),
    "exp_": lambda v, x: v.exp_(),
    "abs_": lambda v, x: v.abs_(),
    "neg_": lambda v, x: v.neg_(),
    "pow_": lambda v, x: v.pow_(3),
    "sgn_": lambda v, x: v.sgn_(),
    "zero_": lambda v, x: v.zero_(),
    "fill_": lambda v, x: v.fill_(3.0),
    "fill_ with x": lambda v, x: v.fill_(x[0, 0]),
    "copy_": lambda v, x: v.copy_(x),
    "copy_ of itself": lambda v, x: v.copy_(v.t() * 2),
    "masked_fill_": lambda v, x: v.masked_fill_(x > 0, 0.5),
    "leaky_relu_": lambda v, x: nn.functional.leaky_relu_(v, 0.1),
    "hardtanh_": lambda v, x: nn.functional.hardtanh_(v),
    "elu_": lambda v, x: nn.functional.elu_(v),
    "silu_": lambda v, x: nn.functional.silu(v, inplace=True),
    "addcmul_": lambda v, x: v.addcmul_(x, x, value=0.5),
    "lerp_": lambda v, x: v.lerp_(x, 0.3),
    "cumsum_": lambda v, x: v.cumsum_(0),
    "tril_": lambda v, x: v.tril_(),
    "addmm_": lambda v, x: v.addmm_(x, x),
    "index_put_": lambda v, x: v.index_put_((INDEX,), x[:2]),
    "index_put_, added": lambda v, x: v.index_put_((INDEX,), x[:2], accumulate=True),
    "index_add_": lambda v, x: v.index_add_(0, INDEX, x[:2]),
    "index_copy_": lambda v, x: v.index_copy_(0, INDEX, x[:2]),
    "index_fill_": lambda v, x: v.index_fill_(0, INDEX, 0.5),
    "scatter_": lambda v, x: v.scatter_(0, INDEX[None].expand(2, 2), x),
    "scatter_add_": lambda v, x: v.scatter_add_(0, INDEX[None].expand(2, 2), x),
    "assigned": assign,
    "a number assigned": assign_number,
    "two in a row": lambda v, x: v.mul_(2).clamp_(-1, 1).add_(x),
    "under no_grad": lambda v, x: torch.no_grad()(v.mul_)(2),
    "detached": lambda v, x: v.detach().mul_(2),
}

# ---- who: gives what is written to, and the tensor that it is part of -----------------------------------------------


def alone(make):
    def who(x, w, buffer):
        v = make(x, w, buffer)
        return v, v

    return who


def part(make, view):
    def who(x, w, buffer):
        base = make(x, w, buffer)
        return view(base), base

    return who


def product(x, w, buffer):
    return x @ w


def own_product(x, w, buffer):
    return x @ x.mT


def intermediate(x, w, buffer):
    return x * 2


def batch(x, w, buffer):
    return (x @ w).expand(2, 4, 4) + w


WHO = {
    "product": alone(product),
    "product with itself": alone(own_product),
    "linear": alone(lambda x, w, b: nn.functional.linear(x, w, w[0])),
    "intermediate": alone(intermediate),
    "product, transposed": part(product, torch.t),
    "product, viewed": part(lambda x, w, b: torch.cat([x, x]) @ w, lambda t: t.view(2, 4, 4)[1]),
    "product, permuted": part(lambda x, w, b: torch.stack([x, w]) @ w, lambda t: t.permute(1, 2, 0)[..., 1]),
    "intermediate, transposed": part(intermediate, torch.t),
    "intermediate, sliced": part(lambda x, w, b: torch.cat([x, w]) * 2, lambda t: t[2:6]),
    "intermediate, a view of a view": part(batch, lambda t: t.transpose(0, 2)[:, :, 1].t()),
    "intermediate, selected": part(batch, lambda t: t[1]),
    "intermediate, flat": part(intermediate, lambda t: t.view(-1).view(4, 4)),
    "input without gradient, a copy": alone(lambda x, w, b: b[:4] * 1),
    "input without gradient, part of a copy": part(lambda x, w, b: b * 1, lambda t: t[1:5]),
    "input without gradient": alone(lambda x, w, b: b[:4].clone()),
}

# ---- where it goes --------------------------------------------------------------------------------------------------

WHERE = {
    "output": lambda v, base, x: v,
    "goes on": lambda v, base, x: (v * x).sum() + base.sum(),
    "all of it": lambda v, base, x: (v, base, base * x),
}


def program(who, what, where):
    def f(x, w, buffer):
        v, base = WHO[who](x, w, buffer)
        WRITES[what](v, x)
        return WHERE[where](v, base, x)

    return f


def arguments(seed):
    generator = torch.Generator().manual_seed(seed)
    x, w, buffer = (torch.randn(n, 4, generator=generator) for n in (4, 4, 6))
    return x.requires_grad_(), w.requires_grad_(), buffer


def answer(f, seed):
    """Results, what is in the arguments afterwards, gradients; or the error."""
    x, w, buffer = arguments(seed)
    try:
        results = f(x, w, buffer)
        results = results if isinstance(results, tuple) else (results,)
        generator = torch.Generator().manual_seed(9)
        ends = [t for t in results if t.requires_grad]
        loss = sum((t * torch.randn(t.shape, generator=generator)).sum() for t in ends)
        if ends:
            loss.backward()
    except RuntimeError as error:
        return str(error).split(";")[0][:60], []
    facts = [(t.requires_grad, t._version, t.stride(), t.storage_offset()) for t in results]
    return (*facts, x.grad is None, w.grad is None), [t.detach() for t in (*results, buffer, x.grad, w.grad) if t is not None]


def check(f):
    compiled = magneto.compile(f)
    for seed in (0, 0, 1):
        (facts, want), (found, have) = answer(f, seed), answer(compiled, seed)
        assert facts == found
        for k, (a, b) in enumerate(zip(want, have, strict=True)):
            assert close(a, b, 4), f"tensor {k}: {b} instead of {a}"


EVERY = list(itertools.product(WHO, WRITES, WHERE))


@pytest.mark.parametrize("who, what, where", EVERY[::17])
def test_a_write_in_place_has_eagers_gradient(who, what, where):
    check(program(who, what, where))


@pytest.mark.skipif("MAGNETO_TEST_ALL" not in os.environ, reason="takes ten minutes")
@pytest.mark.parametrize("who", WHO)
def test_every_write_in_place_has_eagers_gradient(who):
    wrong = []
    for _, what, where in (one for one in EVERY if one[0] == who):
        magneto.reset()
        try:
            check(program(who, what, where))
        except AssertionError as error:
            wrong.append(f"{what}, {where}: {str(error)[:200]}")
    assert not wrong, "\n".join(wrong)


# ---- as seen --------------------------------------------------------------------------------------------------------

def test_a_linear_on_a_transposed_input():
    """Eager adds the bias in place."""
    def train(compile):
        torch.manual_seed(0)
        layer = nn.Linear(4, 3)
        f = compile(lambda x: layer(x.transpose(0, 1)).relu())
        for seed in range(3):
            layer.zero_grad()
            f(torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(seed))).sum().backward()
        return layer.weight.grad, layer.bias.grad

    for a, b in zip(train(lambda f: f), train(magneto.compile), strict=True):
        assert a is not None and b is not None and close(a, b, 4)


def test_versions_of_results_without_gradients():
    def f(x):
        v = x[:4] * 1
        w = v[1:]
        w.abs_()
        v.add_(1)
        z = x * 2
        z[0].zero_()
        return v, w, z[1:], x * 3, torch.zeros(3).fill_(1)

    x = torch.randn(6)
    compiled = magneto.compile(f)
    for _ in range(3):
        want, have = f(x), compiled(x)
        assert [t._version for t in have] == [t._version for t in want]
        want[0].add_(1), have[0].add_(1)
        assert [t._version for t in have] == [t._version for t in want]


@pytest.mark.parametrize("change", ["transpose_(0, 0)", "transpose_(0, 1)", "t_()", "squeeze_(0)", "unsqueeze_(0)", "swapdims_(0, 1)", "as_strided_((2,), (1,))"])
@pytest.mark.parametrize("make", ["x.repeat_interleave(2, 0)", "(x * x).view(2, 2)", "x * x", "x[:, :1]", "(x * x)[1:]", "x.t()"])
def test_what_looks_otherwise_without_gradients(make, change):
    """Eager makes the history of a view again, and keeps that of any other tensor as it is."""
    space = {"torch": torch}
    exec(f"def f(x):\n    v = {make}\n    with torch.no_grad():\n        v.{change}\n    return v, v * 3", space)
    answers = []
    for f in (space["f"], *[magneto.compile(space["f"])] * 3):
        x = torch.arange(4.).view(2, 2).requires_grad_()
        try:
            v, w = f(x.clone())
            facts = v.shape, v.stride(), v.is_leaf, v.requires_grad, w.is_leaf, w.tolist()
            (w.sum() + v.sum()).backward()
            answers.append((*facts, None if x.grad is None else x.grad.tolist()))
        except RuntimeError as error:
            answers.append(str(error).split("\n")[0])
    assert answers[1:] == answers[:1] * 3


def added_to_all(x):
    v = (x * 2).detach()
    v.add_(x.sum())
    return v


def added_to_a_part(x):
    v = (x * 2).detach()
    v[1:] += x.sum()
    return v.t()


def beside_what_it_was(x):
    u = x * 2
    v = u.detach()
    v.mul_(x)
    return u, v


def of_an_input(x):
    v = (x * 1).view(-1).detach()[:4]
    v *= x.sum()
    return v, v * 2


@pytest.mark.parametrize("f", [added_to_all, added_to_a_part, beside_what_it_was, of_an_input], ids=lambda f: f.__name__)
def test_what_was_detached_gets_a_history_of_its_own(f):
    """Its memory is another tensor's, its history is not."""
    compiled = magneto.compile(f)
    for k in range(3):
        x = torch.linspace(-1, 2 + k, 6).reshape(3, 2).requires_grad_()
        y = x.detach().clone().requires_grad_()
        want, have = (g if isinstance(g, tuple) else (g,) for g in (f(x), compiled(y)))
        assert [(t.requires_grad, t.is_leaf) for t in have] == [(t.requires_grad, t.is_leaf) for t in want]
        for results in (want, have):
            torch.autograd.backward(results, [torch.linspace(1, 2, t.numel()).reshape(t.shape) for t in results])
        assert all(torch.allclose(a, b) for a, b in zip(have, want)) and torch.allclose(y.grad, x.grad)


def turned_around(x):
    v = (x * 2).as_strided((2, 1), (0, 2))
    v.unsqueeze_(-1)
    return v


def beside_its_base(x):
    y = x * 2
    v = y[1:]
    v.t_()
    return v, y, v * 3


def twice(x):
    v = (x * 2).expand(3, 3, 2)
    v.transpose_(0, 1).squeeze_(1).transpose_(1, 2)
    return v


def written_to_before_and_after(x):
    y = x * 2
    v, w = y[1:], y[0]
    v.mul_(x[1:])
    v.t_()
    w.unsqueeze_(0)
    v.exp_()
    return v, w


def of_a_library(x):
    v = torch.nn.functional.conv1d(x.t(), torch.ones(2, 2, 2), padding=1)
    v.unsqueeze_(-2)
    return v


def no_view(x):
    y = x * 2
    y.t_()
    return y, y[0]


@pytest.mark.parametrize("after", ["", "y.mul_(2)", "y.detach().zero_()"])
@pytest.mark.parametrize("f", [turned_around, beside_its_base, twice, written_to_before_and_after, of_a_library, no_view],
                         ids=lambda f: f.__name__)
def test_a_view_that_looks_otherwise_is_a_view(f, after):
    def facts(f):
        x = torch.linspace(-1, 2, 6).reshape(3, 2).requires_grad_()
        h = x * 1
        seen = []
        h.register_hook(lambda g: seen.append(("h", g.tolist())))
        results = f(h)
        results = results if isinstance(results, tuple) else (results,)
        found = [(t.shape, t.stride(), t.storage_offset(), t._is_view(), t._version, t._is_view() and t._base.shape, t.tolist()) for t in results]
        found.append([(a._is_view() and b._is_view() and a._base is b._base, a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())
                      for a, b in itertools.combinations(results, 2)])
        try:
            y = results[0]
            for k, t in enumerate(results):
                t.grad_fn  # torch makes the history of a view when it is asked for it
                t.register_hook(lambda g, k=k: seen.append((k, None if g is None else g.tolist())))
            exec(after)
            torch.autograd.backward(results, [torch.linspace(1, 2, t.numel()).reshape(t.shape) for t in results])
        except RuntimeError as error:
            return found, str(error).split(":")[0], sorted(seen, key=str)
        return found, seen, x.grad.tolist()

    compiled = magneto.compile(f)
    for _ in range(3):
        assert str(facts(compiled)) == str(facts(f))
