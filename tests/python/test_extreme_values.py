"""Reductions and norms of huge, tiny, infinite and missing numbers: finite where eager is finite, and as near to the truth."""

import math

import pytest
import torch
import torch.nn.functional as F

import magneto
from device import DEVICE
from rounding import UNITS

INF, NAN = float("inf"), float("nan")

OPERATORS = {
    "var": lambda x: (x.var(1), x.var(), x.var(0, correction=0)),
    "std": lambda x: (x.std(1), x.std(), x.std(0, unbiased=False)),
    "var_mean": lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, 0)),
    "mean": lambda x: (x.mean(1), x.mean(), x.mean(0, keepdim=True)),
    "sum": lambda x: (x.sum(1), x.sum(), x.sum(0)),
    "norm": lambda x: (x.norm(dim=1), x.norm(), torch.linalg.vector_norm(x, 3, dim=1), torch.linalg.vector_norm(x, 1),
                       torch.linalg.vector_norm(x, INF, dim=0)),
    "normalize": lambda x: (F.normalize(x, dim=1), F.cosine_similarity(x, x.flip(0), dim=1)),
    "logsumexp": lambda x: (x.logsumexp(1), x.logsumexp(0), x.logsumexp((0, 1))),
    "softmax": lambda x: (x.softmax(1), x.log_softmax(1), x.softmax(0)),
    "layer_norm": lambda x: (F.layer_norm(x, x.shape[1:]), F.layer_norm(x, x.shape[1:], eps=0.0)),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[1:]),
    "batch_norm": lambda x: F.batch_norm(torch.cat([x, x]), None, None, training=True),
    "instance_norm": lambda x: F.instance_norm(x[None].contiguous()),
    "group_norm": lambda x: F.group_norm(x, 4),
    "prod": lambda x: (x.prod(1), x.prod()),
    "cumsum": lambda x: (x.cumsum(1), x.cumsum(0)),
    "cumprod": lambda x: x.cumprod(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "extremes": lambda x: (x.amax(1), x.amin(0), x.max(), x.argmax(1)),
    "mse": lambda x: (F.mse_loss(x, x.flip(0)), F.l1_loss(x, x.flip(0)), F.smooth_l1_loss(x, x.flip(0))),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(len(x), device=x.device) % 8),
}


def noise(scale=1.0, offset=0.0, of=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(6, 40, generator=generator, dtype=torch.float64) * scale + offset).to(of)


def with_some(value):
    """Not in the last place: there Welford's mean is infinite, else it is no number."""
    x = noise()
    x[1, 3] = x[4, 0] = value
    return x


INPUTS = {
    "usual": noise,
    "huge": lambda: noise(1e30),
    "near the largest": lambda: noise(1e37, 2e38),
    "all the largest": lambda: torch.full((6, 40), 3e38),
    "tiny": lambda: noise(1e-30),
    "denormal": lambda: noise(1e-41),
    "far from zero": lambda: noise(1.0, 1e6),
    "one": lambda: noise()[:1, :8],
    "constant": lambda: torch.full((6, 40), 0.1),
    "zeros": lambda: torch.zeros(6, 40),
    "inf": lambda: with_some(INF),
    "-inf": lambda: with_some(-INF),
    "both": lambda: torch.cat([with_some(INF).where(noise() < 1, -INF)[:, :-1], noise()[:, :1]], 1)[[0, 1, 2, 3, 4, 4]],
    "nan": lambda: with_some(NAN),
    "all -inf": lambda: torch.full((6, 40), -INF),
    "f16": lambda: noise(of=torch.float16),
    "f16, huge": lambda: noise(1e3, 3e4, torch.float16),
    "bf16": lambda: noise(of=torch.bfloat16),
    "bf16, huge": lambda: noise(1e30, of=torch.bfloat16),
    "f64, huge": lambda: noise(1e200, of=torch.float64),
}


def differences(name, f, make):
    """What differs from eager: a number that is finite in one and not in the other, an error that is twice eager's."""
    x = make().to(DEVICE)
    compiled = magneto.compile(f)
    compiled(x)

    def listed(result):
        return result if isinstance(result, tuple) else (result,)

    try:
        truth = listed(f(x.double()))
    except RuntimeError:
        truth = None
    for k, (want, have) in enumerate(zip(listed(f(x)), listed(compiled(x)), strict=True)):
        a, b = want.double(), have.double()
        fine = torch.isfinite(a)
        if torch.isfinite(x).all() and truth is not None:  # squares overflow in one way to cut rows, in another they do not
            exact = truth[k].double().to(want.dtype).double() if x.dtype is not torch.float64 else b
            b = torch.where(~fine & torch.isfinite(exact), a, b)
        if want.dtype != have.dtype or not torch.equal(fine, torch.isfinite(b)):
            yield f"{name}, result {k}: {have.flatten()[:4].tolist()} instead of {want.flatten()[:4].tolist()}"
            continue
        # what becomes of an infinite number depends on the order in which a kernel adds, and that on the machine
        if torch.isfinite(x).all() and not torch.allclose(a[~fine], b[~fine], equal_nan=True):
            yield f"{name}, result {k}: {b[~fine][:4].tolist()} instead of {a[~fine][:4].tolist()}"
        if not fine.any() or want.dtype not in UNITS:
            continue
        error, unit = (a - b)[fine].abs().max().item(), UNITS[want.dtype] * a[fine].abs().max().item()
        if error <= max(unit, 1e-41):  # tiny numbers have few digits
            continue
        exact = truth[k].double()[fine]
        if not torch.isfinite(exact).all():
            continue
        ours, theirs = (b[fine] - exact).abs().max().item(), (a[fine] - exact).abs().max().item()
        if ours > 2 * theirs + unit:
            yield f"{name}, result {k}: error {ours:.3g}, eager's is {theirs:.3g}, largest {a[fine].abs().max():.3g}"


@pytest.mark.parametrize("name", OPERATORS)
def test_values_are_finite_where_eagers_are(name):
    wrong = [line for what, make in INPUTS.items() for line in differences(f"{name} of {what}", OPERATORS[name], make)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("count", [10_000, 1_000_000])
def test_sums_of_many_elements(count):
    """Rounding does not pile up: neither along rows nor along columns."""
    def f(x):
        return x.sum(), x.sum(0), x.sum(1), x.mean(), x.var(0), x.norm(), (x * x).sum()

    x = torch.rand(count // 100, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for one in (x, x + 1000, x.t().contiguous()):
        for dtype in (torch.float32, torch.bfloat16):
            wrong = list(differences(str(dtype), f, lambda: one.to(dtype)))  # noqa: B023
            assert not wrong, "\n".join(wrong)


LONG = {
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: (x * 1e-5 + 1).cumprod(0),
    "few columns": lambda x: x.view(-1, 4).sum(0),
    "middle": lambda x: x.view(2, -1, 5).sum(1),
    "gathered": lambda x: x[torch.arange(len(x), device=x.device) // 2].mean(),
    "cross_entropy": lambda x: F.cross_entropy(x.view(-1, 20), torch.arange(len(x) // 20, device=x.device) % 20),
    "mse": lambda x: F.mse_loss(x, x * 0.5),
    "norm": lambda x: x.view(-1, 4).norm(dim=0),
}


@pytest.mark.parametrize("name", LONG)
def test_long_sums_and_scans(name):
    """Equal numbers round one way: what is added one after the other drifts."""
    for make in (lambda: torch.full((2_000_000,), 0.1), lambda: torch.linspace(-2, 3, 2_000_000)):
        x = make().to(DEVICE)
        compiled = magneto.compile(LONG[name])
        compiled(x)
        want, have, truth = LONG[name](x).double(), compiled(x).double(), LONG[name](x.double())
        scale = truth.abs().max().item()
        ours, theirs = ((t - truth).abs().max().item() / scale for t in (have, want))
        assert ours <= 4 * theirs + 4e-6, f"error {ours:.3g}, eager's is {theirs:.3g}"


NEAR_ZERO = {name: getattr(torch, name) for name in ("expm1", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "square")}
NEAR_ZERO |= {"elu": F.elu, "celu": F.celu, "selu": F.selu, "silu": F.silu, "gelu": F.gelu, "mish": F.mish, "leaky_relu": F.leaky_relu}


@pytest.mark.parametrize("name", NEAR_ZERO)
def test_numbers_below_all_normal_ones(name):
    """A unit of them is all there is: who loses it divides by zero next."""
    f = NEAR_ZERO[name]
    x = torch.tensor([1.4e-45, 2.8e-45, 1e-44, 1e-41, 1e-39, 1.1e-38, 1.2e-38, 3e-38]).repeat(5)
    x = torch.cat([x, -x])
    c = magneto.compile(f)
    for _ in range(3):
        torch.testing.assert_close(c(x), f(x), rtol=1e-5, atol=1e-45 if name != "selu" else 3e-45)


@pytest.mark.parametrize("exponent", [0.5, -0.5, -1, -2, 2, 3, 1.5])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_powers_at_the_ends(dtype, exponent):
    """torch computes some of them as roots, which have other signs and another answer for -inf; f16 never on a CPU."""
    x = torch.tensor([-math.inf, math.inf, -0.0, 0.0, math.nan, -1.0, -2.0, 1.0, 7.3] * 8, device=DEVICE).to(dtype)
    powers = [lambda x: x.pow(exponent), lambda x, e: x.pow(e)]
    for power, others in zip(powers, ([()], [(2.5,), (1.25,), (exponent,)])):
        compiled = magneto.compile(power)
        for other in others * 2:
            want, have = power(x, *other), compiled(x, *other)
            torch.testing.assert_close(have, want, equal_nan=True)
            assert torch.equal(have.signbit() | want.isnan(), want.signbit() | want.isnan())
