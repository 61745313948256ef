"""A gradient that is zeros in eager is zeros here, one that is None is None."""

import pytest
import torch
from torch import randn

import magneto
from harness import fresh, same_as_eager

leaf = lambda *size: randn(*size, requires_grad=True)  # noqa: E731
INF = float("inf")

PROGRAMS = {
    "sgn": lambda x: x.sgn(),
    "sgn, times itself": lambda x: x.sgn() * x,
    "sgn of a product": lambda x: (x * 2).sgn(),
    "sgn of a product with infinity": lambda x: (x * INF).sgn(),
    "sgn of a quotient": lambda x: (x / 0).sgn() + (1 / x).sgn(),
    "sgn of a view": lambda x: x.t()[1:].sgn(),
    "sgn of a sum": lambda x: (x + x.sgn()).sgn() + x.sum().sgn(),
    "sgn of a cross product": lambda x: torch.linalg.cross(x[:, :3], x.detach()[:, 1:] * INF).sgn(),
    "sgn of a broadcast": lambda x: (x * x[:1]).sgn(),
    "sgn and what does not flow": lambda x: (x.sgn(), x.detach().sgn(), (x * 2)),
    "sgn, written to": lambda x: (lambda y: (y.mul_(2), y)[1])(x.sgn()),
    "sign": lambda x: x.sign() + x.sign() * x,
    "angle": lambda x: x.angle(),
    "angle, times itself": lambda x: x.angle() * x,
    "copysign": lambda x: torch.copysign(x.detach(), x),
    "copysign of both": lambda x: torch.copysign(x * 2, x),
    "repeat": lambda x: x.repeat(0, 1).sum() + x.repeat(2, 0).sum(),
    "repeat and itself": lambda x: (x.repeat(0, 1), x * 2),
    "empty parts": lambda x: torch.cat([x[:0], x[:0]]),
    "empty parts and others": lambda x: torch.cat([x[:0], x.detach(), x[:0]]),
    "round": lambda x: x.round() + x.floor() + x.ceil() + x.trunc(),
    "frac": lambda x: x.frac() + x.fmod(1),
    "comparison": lambda x: torch.where(x > 0, x.detach(), 0) * (x > 0),
    "a norm that counts": lambda x: x.norm(0),
    "heaviside": lambda x: torch.nn.functional.threshold(x, 100, 0.0),
    "clamp": lambda x: x.clamp(100, 200),
    "an expansion to nothing": lambda x: x[None].expand(0, 3, 4),
    "an index that is empty": lambda x: x.index_select(0, torch.zeros(0, dtype=torch.long)),
    "several outputs": lambda x: (x.sgn(), x.angle(), x * 2, x.detach()),
    "multiplied by zero": lambda x: x * 0 * 2,
    "real part of a real number": lambda x: x.to(torch.complex64).imag,
    "floor division": lambda x: x // 2,
    "zeros like it": lambda x: torch.zeros_like(x) * x,
    "max pool of infinity": lambda x: torch.nn.functional.max_pool1d(x[None] * 0 - INF, 2),
    "nan to num": lambda x: (x * INF).nan_to_num(),
    "prod of nothing": lambda x: x[:0].prod() + x[:0].sum(),
    "std of one": lambda x: x[:1, :1].std(unbiased=False),
    "fill": lambda x: (x * 2).fill_(1.0) + x.detach(),
    "masked fill": lambda x: (x * 2).masked_fill(x == x, 1.0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_eagers(name):
    same_as_eager(PROGRAMS[name], leaf(3, 4))


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("sgn, written to", "floor division")])  # eager raises
def test_gradients_are_eagers_where_some_are_not_asked_for(name):
    def call(g, x):
        y = g(x)
        outputs = [t for t in (y if isinstance(y, tuple) else (y,)) if t.requires_grad]
        if not outputs:
            return y
        found = [torch.autograd.grad(t.sum().abs(), x, retain_graph=True, allow_unused=True) for t in outputs]
        return y, [[None if g is None else g + 0 for g in some] for some in found]

    same_as_eager(PROGRAMS[name], leaf(3, 4), call=call)


@pytest.mark.parametrize("name", ["sgn", "angle", "copysign", "repeat", "empty parts"])
def test_weight_decay_moves_a_weight_whose_gradient_is_zeros(name):
    @fresh
    def program():
        weight = torch.nn.Parameter(torch.arange(12.0).view(3, 4))
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=0.5)

        return (lambda x: (PROGRAMS[name](weight) * 2).sum() + x), (weight, optimizer)

    def call(g, x):
        loss = g(x)
        if loss.requires_grad:
            loss.sum().backward()
        return loss.detach()

    same_as_eager(program, randn(1), call=call)


def test_steps_of_an_optimizer():
    def train(compile):
        torch.manual_seed(0)
        weights = [torch.nn.Parameter(torch.randn(3, 4)) for _ in range(4)]
        optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=0.5)
        f = compile(lambda x: (weights[0].sgn() * x + torch.copysign(x, weights[1]) + weights[2].angle()).sum()
                    + weights[3].repeat(0, 1).sum())
        for seed in range(4):
            optimizer.zero_grad()
            f(torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))).backward()
            optimizer.step()
        return weights

    for a, b in zip(train(lambda f: f), train(magneto.compile)):
        torch.testing.assert_close(a, b)


def test_forward_mode():
    """Tangents that are zeros without memory."""
    def f(x, t):
        with torch.autograd.forward_ad.dual_level():
            y = torch.autograd.forward_ad.make_dual(x, t) * 2
            return torch.autograd.forward_ad.unpack_dual(y + x).tangent

    torch.func.jvp(torch.sin, (randn(3),), (randn(3),))  # the first of a process imports, and warns
    same_as_eager(f, randn(3), randn(3))
    same_as_eager(lambda x, t: torch.func.jvp(lambda v: v.sgn() * 3 + v * 2, (x,), (t,)), randn(3), randn(3))
