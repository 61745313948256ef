"""Operands of several element types: which of them torch rounds before it computes, and to what."""

import pytest
import torch
import torch.nn.functional as F

import magneto
from device import DEVICE

BINARY = {name: getattr(torch, name) for name in
          "add sub rsub mul div floor_divide fmod remainder pow atan2 lt le gt ge eq ne maximum minimum fmax hypot copysign xlogy clamp_min".split()}
BINARY |= {
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "addcmul": lambda a, b: torch.addcmul(a, a, b),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b),
    "lerp": lambda a, b: torch.lerp(a, -a, b),
    "where": lambda a, b: torch.where(a > b, a, b),
    "threshold": lambda a, b: F.threshold(a, b, 7.0),
}
OTHERS = {
    "a number": lambda value: value,
    "f32, no dimensions": lambda value: torch.tensor(value, device=DEVICE),
    "f64, no dimensions": lambda value: torch.tensor(value, dtype=torch.float64, device=DEVICE),
    "a CPU's f32, no dimensions": lambda value: torch.tensor(value),
    "i64": lambda value: torch.arange(2001, 2038, device=DEVICE),
    "i64, one element": lambda value: torch.tensor([2001], device=DEVICE),
    "a large int": lambda value: 2001,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", BINARY)
def test_what_is_promoted_to_halves_is_rounded_as_torch_does(name, other, dtype):
    for swapped in (False, True):
        function = BINARY[name]
        f = (lambda a, b: function(b, a)) if swapped else (lambda a, b: function(a, b))
        compiled = magneto.compile(f)
        for k in range(5):
            value = 0.405 + 0.377 * k
            x = torch.linspace(0.05, 3.0, 37)
            x[::2] = value  # the same number, before it is rounded
            arguments = x.to(DEVICE, dtype), OTHERS[other](value)
            try:
                wanted = f(*arguments)
            except (RuntimeError, TypeError):
                break  # torch has no such form
            given = compiled(*arguments)
            assert given.dtype == wanted.dtype
            # an error of one unit of the last place; the number's own rounding would be seen in what is left of the difference
            torch.testing.assert_close(given.double(), wanted.double(), rtol=2 ** (-9 if dtype == torch.float16 else -6), atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["add", "sub"])
def test_the_factor_of_halves_is_rounded_on_a_cpu(name, dtype):
    """As in x.add_(gradient, alpha=-lr), where next to nothing is left. Some of torch's loops round the product, too."""
    function, sign = getattr(torch, name), 1 if name == "add" else -1
    compiled = magneto.compile(lambda x, y, s: function(x, y, alpha=s))
    for s in (0.3, 0.3, -0.7, 0.1, 1.0, 2.0):
        y = torch.linspace(0.1, 2.1, 203).to(dtype)
        rounded = torch.tensor(s, dtype=dtype).item()
        for x in (torch.ones_like(y), y * s, y * -s):
            wanted, given = function(x, y, alpha=s), compiled(x, y, s)
            product = rounded * y.double()
            exact = (x.double() + sign * product).to(dtype)
            once_more = (x.double() + sign * product.to(dtype).double()).to(dtype)
            assert bool(((wanted == exact) | (wanted == once_more)).all())
            assert bool(((given == wanted) | torch.isclose(given, exact, rtol=2 ** (-9 if dtype == torch.float16 else -6), atol=1e-6)).all())


@pytest.mark.parametrize("function", [lambda x, s: F.leaky_relu(x, s, inplace=True), lambda x, s: F.elu(x, s, inplace=True), lambda x, s: F.celu(x, s, inplace=True)])
def test_a_gradient_from_a_result_with_a_negative_slope_is_refused(function):
    compiled = magneto.compile(lambda x, s: function(x * 2, s))
    for s in (0.5, -0.7, -0.7, -0.3, 0.5):
        x = torch.linspace(-1, 1, 7, device=DEVICE).requires_grad_()
        answers = []
        for f in (lambda x, s: function(x * 2, s), compiled):
            try:
                answers.append(torch.autograd.grad(f(x, s).sum(), x)[0])
            except RuntimeError as error:
                answers.append(str(error)[:40])
        wanted, given = answers
        assert wanted == given if isinstance(wanted, str) else torch.allclose(wanted, given)


def test_integers_are_interpolated_in_floats():
    ends, weight = (torch.tensor([2, 30]), torch.tensor([1, 900])), torch.tensor(0.07)
    compiled = magneto.compile(torch.lerp)
    for _ in range(3):
        assert torch.equal(compiled(*ends, weight), torch.lerp(*ends, weight))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
@pytest.mark.parametrize("padding", [0, 1])
def test_negative_integers_are_pooled(dtype, padding):
    def f(x):
        return F.max_pool2d(x, 2, padding=padding, return_indices=True)

    compiled = magneto.compile(f)
    for _ in range(3):
        x = torch.randint(-100, 0, (2, 2, 5, 4)).to(dtype)
        for given, wanted in zip(compiled(x), f(x)):
            assert torch.equal(given, wanted)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
@pytest.mark.parametrize("pool", [lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2, padding=1), lambda x: F.adaptive_avg_pool2d(x, (2, 1)),
                                  lambda x: F.interpolate(x, (3, 7), mode="bilinear"), lambda x: F.interpolate(x, (3, 7))])
def test_averages_of_integers(pool, dtype):
    compiled = magneto.compile(pool)
    for _ in range(3):
        x = torch.randint(0, 200, (2, 3, 4, 6)).to(dtype)
        try:
            wanted = pool(x)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                compiled(x)
            continue
        assert torch.equal(compiled(x), wanted)
    assert not [graph.fallback for graph in magneto.report().graphs if "a bug in Magneto" in graph.fallback]


def test_a_sum_of_one_negative_zero_is_zero():
    def f(x):
        x = x * 1
        sums = x.sum(1), x.mean(1), x.sum(), F.cross_entropy(x, torch.zeros(1, dtype=torch.long, device=x.device), reduction="sum")
        return [torch.copysign(torch.ones_like(one), one) for one in sums]

    compiled = magneto.compile(f)
    for _ in range(3):
        x = torch.tensor([[-0.0]], device=DEVICE)
        assert [one.tolist() for one in compiled(x)] == [one.tolist() for one in f(x)]
