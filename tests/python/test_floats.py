"""Python floats that change from call to call: learning rates, temperatures, decays.

A float is a constant of the first recording. When it is another one, it becomes an input of the graph: a double that
takes part in type promotion as a Python number does. Two graphs serve all its values, and the answer is eager's, bit
by bit with backend="eager".
"""

import math
import operator
import struct
import types

import pytest
import torch

import magneto

VALUES = [0.1, 0.25, -3.5, 1e-3, 7.0, 0.5000001, 123.456, -0.75, 3e-8, 2.5] + [0.01 * k + 0.003 for k in range(40)]
SPECIAL = [0.5, 0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e300, 5e-324, 2.0, 0.25]


def bits(value):
    """Everything one can see of a result."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, value.shape, value.stride(), value.detach().reshape(-1).view(torch.uint8).tolist() if value.numel() else [])
    if isinstance(value, float):
        return ("float", struct.pack("d", value))
    if isinstance(value, (tuple, list)):
        return (type(value), [bits(v) for v in value])
    if isinstance(value, dict):
        return (dict, [(k, bits(v)) for k, v in value.items()])
    return (type(value), value)


def graphs():
    return len(magneto.report().graphs)


def rounds_as_eager(f, calls, *, most=2, exact=True, **options):
    """Calls f and its compiled self with each of the argument tuples; at most `most` graphs."""
    magneto.reset()
    c = magneto.compile(f, backend="eager", **options) if exact else magneto.compile(f, **options)
    for args in calls:
        expected, got = answer(f, args), answer(c, args)
        if exact:
            assert bits(expected) == bits(got), args
        else:
            torch.testing.assert_close(got, expected, equal_nan=True, msg=lambda text: f"{args}: {text}")
    assert graphs() <= most, magneto.report()
    assert not any("eager from now on" in str(fallback) for fallback in magneto.report().fallbacks)


def answer(f, args):
    try:
        return f(*args)
    except Exception as error:
        return (type(error).__name__, str(error))


X, G = torch.linspace(-2, 3, 12).reshape(3, 4), torch.linspace(1, -1, 12).reshape(3, 4)
HOLDER = types.SimpleNamespace(lr=0.1, group={"lr": 0.1, "params": [X]}, rates=[0.1, 5.0])
RATE, RATES, GROUPS = 0.1, [0.1, 7], [{"lr": 0.1, "betas": (0.9, 0.999)}]


def set_global(v):
    global RATE
    RATE = v


def closure():
    lr = 0.1

    def f(x):
        return x - lr * G

    def set(v):
        nonlocal lr
        lr = v
    return f, set


def param_groups(x):
    out = x
    for group in GROUPS:
        out = out - group["lr"] * G
    return out


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lr = 0.1

    def forward(self, x):
        return x - self.lr * G


MODULE = Module()
CLOSURE = closure()
PLACES = {
    "a global": (lambda x: x - RATE * G, set_global),
    "an attribute": (lambda x: x - HOLDER.lr * G, lambda v: setattr(HOLDER, "lr", v)),
    "an attribute of a module": (MODULE.forward, lambda v: setattr(MODULE, "lr", v)),
    "an entry of a dict": (lambda x: x - HOLDER.group["lr"] * G, lambda v: HOLDER.group.update(lr=v)),
    "a param_group": (param_groups, lambda v: GROUPS[0].update(lr=v)),
    "an element of a list": (lambda x: x - RATES[0] * G, lambda v: RATES.__setitem__(0, v)),
    "an element of a list of an object": (lambda x: x - HOLDER.rates[0] * G, lambda v: HOLDER.rates.__setitem__(0, v)),
    "a closure": CLOSURE,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("backend", [None, "eager"])
def test_a_float_that_changes_becomes_an_input(place, backend):
    f, change = PLACES[place]
    magneto.reset()
    c = magneto.compile(f, **({"backend": backend} if backend else {}))
    for value in VALUES + SPECIAL:
        change(value)
        if backend:
            assert bits(c(X)) == bits(f(X)), value
        else:
            torch.testing.assert_close(c(X), f(X), equal_nan=True)
    assert graphs() <= 2, magneto.report()


ARGUMENTS = {
    "a float": (lambda x, lr: x - lr * G, lambda v: v),
    "in a list": (lambda x, l: x - l[1] * G, lambda v: [3, v]),
    "in a dict": (lambda x, d: x - d["lr"] * G, lambda v: {"lr": v, "n": 1}),
    "in an object": (lambda x, o: x - o.lr * G, lambda v: types.SimpleNamespace(lr=v)),
    "by keyword": (lambda x, *, lr: x - lr * G, None),
    "in a list of dicts": (lambda x, l: x - l[0]["lr"] * G, lambda v: [{"lr": v}]),
}


@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("backend", [None, "eager"])
def test_an_argument_that_changes_becomes_an_input(kind, backend):
    f, pack = ARGUMENTS[kind]
    magneto.reset()
    c = magneto.compile(f, **({"backend": backend} if backend else {}))
    for value in VALUES + SPECIAL:
        args, kwargs = ((X,), {"lr": value}) if pack is None else ((X, pack(value)), {})
        if backend:
            assert bits(c(*args, **kwargs)) == bits(f(*args, **kwargs)), value
        else:
            torch.testing.assert_close(c(*args, **kwargs), f(*args, **kwargs), equal_nan=True)
    assert graphs() <= 2, magneto.report()


# Every way a float meets a tensor: operators, both sides, methods with numbers, in all dtypes (promotion).
USES = {
    "x * s": lambda x, s: x * s, "s * x": lambda x, s: s * x, "x + s": lambda x, s: x + s, "s - x": lambda x, s: s - x,
    "x - s": lambda x, s: x - s, "x / s": lambda x, s: x / s, "s / x": lambda x, s: s / x, "x // s": lambda x, s: x // s,
    "x % s": lambda x, s: x % s, "x ** s": lambda x, s: x ** s, "s ** x": lambda x, s: s ** x, "x > s": lambda x, s: x > s,
    "x == s": lambda x, s: x == s, "s <= x": lambda x, s: s <= x, "alpha": lambda x, s: torch.add(x, beside(x), alpha=s),
    "sub alpha": lambda x, s: torch.sub(x, beside(x), alpha=s), "clamp": lambda x, s: x.clamp(-abs(s), abs(s)), "clamp_min": lambda x, s: x.clamp(min=s),
    "clamp by a maximum": lambda x, s: x.clamp(max=s), "clamp_min of its own": lambda x, s: torch.clamp_min(x, s), "clamp in place": lambda x, s: (x * 2).clamp_(None, s), "clamp_max": lambda x, s: torch.clamp_max(x, s),
    "where": lambda x, s: torch.where(x > 0, x, s), "lerp": lambda x, s: torch.lerp(x, beside(x), s), "full": lambda x, s: torch.full((2, 2), s, dtype=x.dtype),
    "full_like": lambda x, s: torch.full_like(x, s), "fill_": lambda x, s: x.clone().fill_(s), "masked_fill": lambda x, s: x.masked_fill(x > 0, s),
    "addcmul": lambda x, s: torch.addcmul(x, beside(x), beside(x), value=s), "addcdiv": lambda x, s: torch.addcdiv(x, beside(x), beside(x) + 2, value=s),
    "leaky_relu": lambda x, s: torch.nn.functional.leaky_relu(x, s), "elu": lambda x, s: torch.nn.functional.elu(x, s),
    "threshold": lambda x, s: torch.nn.functional.threshold(x, s, 0.5), "softplus": lambda x, s: torch.nn.functional.softplus(x, s),
    "in place": lambda x, s: x.clone().mul_(s).add_(s).sub_(1.0), "item assignment": lambda x, s: assign(x.clone(), s), "tensor": lambda x, s: x + torch.tensor(s),
    "tensor of a list": lambda x, s: x.sum() + torch.tensor([s, 1.0]), "scalar_tensor": lambda x, s: x + torch.scalar_tensor(s), "linspace": lambda x, s: torch.linspace(0.0, abs(s), 4),
    "normalize": lambda x, s: torch.nn.functional.layer_norm(x, (4,), eps=abs(s) + 1e-5), "softmax of a temperature": lambda x, s: torch.softmax(x / s, -1),
    "nan_to_num": lambda x, s: torch.nan_to_num(x / 0.0, nan=s), "pow of a number": lambda x, s: torch.pow(2.0, x * s), "copysign": lambda x, s: torch.copysign(x, s),
    "fmod": lambda x, s: torch.fmod(x, s), "remainder": lambda x, s: torch.remainder(x, s), "maximum": lambda x, s: torch.maximum(x, torch.full_like(x, s)),
    "index_fill": lambda x, s: x.index_fill(0, torch.tensor([0]), s), "pad": lambda x, s: torch.nn.functional.pad(x, (1, 1), value=s), "hardtanh": lambda x, s: torch.nn.functional.hardtanh(x, -1.0, s),
    "foreach": lambda x, s: torch._foreach_mul([x, x], s), "foreach alpha": lambda x, s: torch._foreach_add([x, x], [x, x], alpha=s), "foreach list": lambda x, s: torch._foreach_mul([x, x], [s, 2.0]),
    "two of them": lambda x, s: x * s + (x - s) * (s * 2), "float and int": lambda x, s: x * s + x * 3, "xlogy": lambda x, s: torch.xlogy(x, s), "rsub": lambda x, s: torch.rsub(x, s, alpha=2),
    "addmm": lambda x, s: torch.addmm(x[:, :3], x, x.mT, beta=s, alpha=2.0), "addmm alpha": lambda x, s: torch.addmm(torch.ones(3).to(x.dtype), x, x[:3].mT, alpha=s),
    "dropout": lambda x, s: dropped(x, s), "group_norm": lambda x, s: torch.nn.functional.group_norm(x, 2, eps=abs(s)), "rms_norm": lambda x, s: torch.nn.functional.rms_norm(x, (4,), eps=abs(s)), "norm": lambda x, s: torch.linalg.vector_norm(x + 4, s, dim=1),
    "scatter": lambda x, s: x.scatter(1, torch.zeros(x.shape[0], 1, dtype=torch.long), s), "index_add": lambda x, s: x.index_add(0, torch.tensor([0, 0]), x[:2], alpha=s), "huber": lambda x, s: torch.nn.functional.huber_loss(x, beside(x), delta=s),
    "power above 0": lambda x, s: (x.abs() + 0.5) ** s, "attention": lambda x, s: torch.nn.functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], scale=s), "zero-dimensional": lambda x, s: x.sum() * s + x,
    "gelu of a product": lambda x, s: torch.nn.functional.gelu((x * s).clamp(-9, 9)), "isclose": lambda x, s: torch.isclose(x, x + 1, atol=abs(s) if s == s else 0.0),
}
# gelu of an infinity: torch's vectors of an x86 give NaN, so it is left out.
# Most operators want the number itself: a constant of their recording. Of integers too, where torch truncates it.
CONSTANTS = {"copysign", "foreach list", "xlogy", "rms_norm", "norm", "huber", "attention", "isclose"}
CONSTANTS_OF_INTEGERS = {"pad", "nan_to_num", "threshold", "addmm", "addmm alpha", "full", "full_like", "fill_", "masked_fill", "addcmul", "maximum", "scatter", "index_add", "index_fill", "item assignment"}
# torch converts an argument that is a number to the element type, and some kernels refuse one that is too large: 1e300 has a graph of its own.
NUMBERS = {"s - x", "x % s", "x ** s", "s ** x", "x > s", "x == s", "s <= x", "where", "masked_fill", "fmod", "remainder", "rsub", "scatter", "index_add", "power above 0",
           "pad", "linspace", "leaky_relu", "elu", "threshold", "softplus", "hardtanh", "addmm", "addmm alpha", "tensor", "tensor of a list", "index_fill", "item assignment"}
# So has NaN, where it is the only limit: eager's answer depends on the place of the element in its vectors.
ONE_LIMIT = {"hardtanh", "clamp_min", "clamp by a maximum", "clamp in place"}


def dropped(x, s):
    torch.manual_seed(5)
    return torch.nn.functional.dropout(x, s, True)


def beside(x):
    """Another tensor of its size and type."""
    return torch.linspace(1, -1, x.numel()).reshape(x.shape).to(x.dtype)


def assign(x, s):
    x[0] = s
    x[:, 1:] *= s
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.bool, torch.complex64])
@pytest.mark.parametrize("use", USES)
def test_a_float_is_a_python_number(use, dtype):
    f = USES[use]
    x = X.to(dtype)
    magneto.reset()
    c = magneto.compile(f, backend="eager")
    for value in VALUES[:4] + SPECIAL:
        expected, got = answer(f, (x, value)), answer(c, (x, value))
        assert bits(expected) == bits(got), (value, expected, got)
    inexact = dtype.is_floating_point or dtype.is_complex
    constant = use in CONSTANTS or (use in CONSTANTS_OF_INTEGERS and not inexact) or (use in ("lerp", "nan_to_num", "item assignment") and dtype.is_complex)
    if not constant and not isinstance(answer(f, (x, 0.3)), tuple):
        assert graphs() <= 2 + (use in NUMBERS) + (use in ONE_LIMIT), magneto.report()


@pytest.mark.parametrize("use", USES)
def test_kernels_take_the_float(use):
    f = USES[use]
    magneto.reset()
    c = magneto.compile(f)
    for value in VALUES[:4] + SPECIAL:
        if use == "x ** s" and 0 < value < 1e-45:
            continue  # to torch this exponent is a double for single elements, and zero in its vectors
        expected, got = answer(f, (X, value)), answer(c, (X, value))
        if isinstance(expected, tuple) and isinstance(expected[0], str):
            assert expected == got
        else:
            torch.testing.assert_close(got, expected, equal_nan=True, msg=lambda text: f"{value}: {text}")


@pytest.mark.parametrize("grow", [0, 1])
@pytest.mark.parametrize("use", USES)
def test_gradients_of_each_use(use, grow):
    """With sizes that are fixed, and with sizes that change along with the float."""
    f = USES[use]
    magneto.reset()
    c = magneto.compile(f)
    for k, value in enumerate(VALUES[:38] + SPECIAL):
        if use == "x ** s" and 0 < value < 1e-45:
            continue
        rows = 3 + k % 4 * grow
        values = torch.linspace(-2, 3, 4 * rows).reshape(rows, 4)
        expected, got = (answer(gradient_of, (function, values, value)) for function in (f, c))
        if isinstance(expected, tuple) and isinstance(expected[0], str):
            assert expected == got, value
        else:
            # Groups of two elements: the gradient is a difference of nearly equal numbers, in eager as well.
            loose = {"atol": 1e-4, "rtol": 1e-4} if use == "group_norm" else {}
            torch.testing.assert_close(got, expected, equal_nan=True, **loose, msg=lambda text: f"{value}: {text}")


def gradient_of(f, values, number):
    """The results, and the gradient of the tensor they are made of; None: none flows."""
    x = values.clone().requires_grad_()
    made = f(x, number)
    made = list(made) if isinstance(made, (tuple, list)) else [made]
    reached = [y for y in made if y.requires_grad]
    if reached:
        torch.autograd.backward(reached, [torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape) for y in reached])
    return [y.detach() for y in made] + ([x.grad] if x.grad is not None else [])


TRAINED = {
    "x - lr * g": lambda x, g, s: x - s * g, "products": lambda x, g, s: x * s * g + s, "quotient": lambda x, g, s: (x * g) / s, "s / x": lambda x, g, s: s / (x.abs() + 1) * g,
    "alpha": lambda x, g, s: torch.add(x, g, alpha=s) * x, "power": lambda x, g, s: (x.abs() + 1) ** s * g, "number to a power": lambda x, g, s: abs(s) ** x * g,
    "temperature": lambda x, g, s: torch.softmax(x / (abs(s) + 0.1), -1) * g, "lerp": lambda x, g, s: torch.lerp(x, g, s), "clamp": lambda x, g, s: (x * 2).clamp(-abs(s), abs(s)) * g,
    "leaky relu": lambda x, g, s: torch.nn.functional.leaky_relu(x, s) * g, "addcmul": lambda x, g, s: torch.addcmul(x, x, g, value=s), "in place": lambda x, g, s: (x * 2).mul_(s).add_(g, alpha=s),
    "computed": lambda x, g, s: x * (s * 0.9 + 1) - g * math.sqrt(abs(s)), "branch": lambda x, g, s: x * s if s > 0.2 else g * s, "where": lambda x, g, s: torch.where(x > s, x * s, g),
    "exp": lambda x, g, s: torch.exp(-s * x) * g, "elu": lambda x, g, s: torch.nn.functional.elu(x, abs(s) + 0.1) * g,
}


# The same for both: eager rounds x + alpha * g once and a kernel twice, which a function of the result would enlarge.
COTANGENT = torch.linspace(0.5, 1.5, 12).reshape(3, 4)


@pytest.mark.parametrize("backend", [None, "eager"])
@pytest.mark.parametrize("name", TRAINED)
def test_gradients(name, backend):
    f = TRAINED[name]
    magneto.reset()
    c = magneto.compile(f, **({"backend": backend} if backend else {}))
    for value in [0.1, 0.25, -3.5, 7.0, 1.0, 0.0, -0.0, 2.0, 0.5, 1.0, 0.3]:
        leaves = [[X.clone().requires_grad_(), G.clone().requires_grad_()] for _ in range(2)]
        for function, (x, g) in zip((f, c), leaves):
            function(x, g, value).backward(COTANGENT)
        for expected, got in zip(*leaves):
            if backend:
                assert (expected.grad is None) == (got.grad is None) and (got.grad is None or bits(got.grad) == bits(expected.grad)), value
            else:
                torch.testing.assert_close(got.grad, expected.grad, equal_nan=True)


# What Python does with the float itself.
PYTHON = {
    "s * 0.9": lambda x, s: (x * (s * 0.9), s * 0.9), "s + 1": lambda x, s: x * (s + 1), "1 - s": lambda x, s: x * (1 - s), "1 / s": lambda x, s: x * (1 / s),
    "s ** 2": lambda x, s: x * s ** 2, "2 ** s": lambda x, s: x * 2 ** s, "s // 0.3": lambda x, s: x * (s // 0.3), "s % 0.3": lambda x, s: x * (s % 0.3),
    "-s": lambda x, s: (x * -s, -s), "+s": lambda x, s: x * +s, "abs": lambda x, s: x * abs(s), "sqrt": lambda x, s: x * math.sqrt(abs(s)), "exp": lambda x, s: x * math.exp(-abs(s)),
    "max": lambda x, s: (x * max(s, 0.2), max(s, 0.2)), "min of ints": lambda x, s: x * min(s, 1), "max of three": lambda x, s: x * max(s, 0.1, -s), "pow": lambda x, s: x * math.pow(abs(s), 0.5),
    "float()": lambda x, s: x * float(s), "int()": lambda x, s: x * int(s) if math.isfinite(s) else x, "round": lambda x, s: x * round(s, 1), "s < 0.5": lambda x, s: x + 1 if s < 0.5 else x - 1,
    "0.5 >= s": lambda x, s: x + 1 if 0.5 >= s else x - 1, "s == 1": lambda x, s: x + 1 if s == 1 else x * s, "s != 0": lambda x, s: x / s if s != 0 else x, "if s": lambda x, s: x * s if s else x,
    "not s": lambda x, s: x if not s else x * s, "s is None": lambda x, s: x if s is None else x * s, "isinstance": lambda x, s: x * s if isinstance(s, float) else x, "chained": lambda x, s: x * s if 0.0 < s < 1.0 else x - s,
    "format": lambda x, s: (x * s, f"{s:.3f}"), "str": lambda x, s: (x * s, str(s)), "as a key": lambda x, s: x * {0.1: 2.0}.get(s, 3.0), "in a set": lambda x, s: x * 2 if s in {0.1, 1.0} else x,
    "returned": lambda x, s: (x, s, [s, s * 2], {"s": s}), "hash": lambda x, s: (x, hash(s) == hash(s)), "sum": lambda x, s: x * sum([s, 1.0]), "a list": lambda x, s: x * [s, 2.0][0], "a tuple": lambda x, s: x * (s, 2.0)[0],
    "loop": lambda x, s: loop(x, s), "bias correction": lambda x, s: x * (s / (1 - 0.9 ** 3)) ** 0.5 if s > 0 else x, "inner function": lambda x, s: scaled(x, s), "keyword": lambda x, s: scaled(x, by=s * 2),
    "generator": lambda x, s: x * sum(v for v in (s, s * 2)), "map": lambda x, s: [x * v for v in map(lambda v: v + 1, [s, s])], "sorted": lambda x, s: x * sorted([s, 0.3])[0], "is_integer": lambda x, s: x * s.is_integer(),
    "operator": lambda x, s: x * operator.mul(s, 3), "divmod": lambda x, s: x * divmod(s, 0.7)[1] if math.isfinite(s) else x, "isnan": lambda x, s: x if math.isnan(s) else x * s, "copysign": lambda x, s: x * math.copysign(1.0, s),
    "torch.tensor": lambda x, s: torch.tensor([s, s + 1]), "break": lambda x, s: after_a_break(x, s), "swap": lambda x, s: swapped(x, s, s + 1), "atan2": lambda x, s: x * math.atan2(s, 2), "hypot": lambda x, s: x * math.hypot(s, 2.0),
    "complex power": lambda x, s: x * ((-abs(s) - 1) ** 0.5).real, "by zero": lambda x, s: x * (1.0 / (s * 0)), "unpacked": lambda x, s: unpacked(x, (s, s * 2)), "floor": lambda x, s: x * math.floor(s) if math.isfinite(s) else x,
    "compare two": lambda x, s: x * s if s > s * 0.5 else x, "n / 2": lambda x, s: x * (x.shape[0] / 2) * s, "n ** -0.5": lambda x, s: x * x.shape[0] ** -0.5 * s, "lambda default": lambda x, s: (lambda v=s: x * v)(),
}


def loop(x, s):
    while s > 0.2 and s < 4:
        s = s * 0.5
        x = x + s
    return x


def scaled(x, by=1.0):
    return x * by


def after_a_break(x, s):
    y = x * s
    s = s * 2
    torch._dynamo.graph_break()
    return y + s * x, s


def swapped(x, a, b):
    a, b = b, a
    return x * a - b


def unpacked(x, pair):
    a, b = pair
    return x * a + b


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("name", PYTHON)
def test_what_python_does_with_it(name, dynamic):
    f = PYTHON[name]
    magneto.reset()
    c = magneto.compile(f, backend="eager", dynamic=dynamic)
    for value in VALUES[:6] + SPECIAL + VALUES[6:8] + SPECIAL[:4]:
        expected, got = answer(f, (X, value)), answer(c, (X, value))
        assert bits(expected) == bits(got), (value, expected, got)


@pytest.mark.parametrize("name", ["s * 0.9", "s + 1", "1 - s", "s ** 2", "2 ** s", "-s", "+s", "abs", "sqrt", "exp", "max", "max of three", "pow", "float()", "returned", "a list", "a tuple", "inner function", "keyword",
                                  "operator", "copysign", "break", "swap", "atan2", "hypot", "unpacked", "lambda default", "n / 2", "n ** -0.5", "isinstance", "s is None"])
def test_arithmetic_stays_symbolic(name):
    most = 4 if name == "break" else 2
    rounds_as_eager(PYTHON[name], [(X, 0.2 + value * value) for value in VALUES[:30]], most=most)


def test_a_branch_is_a_condition():
    calls = [(X, v) for v in [0.1, 0.2, 0.3, 0.7, 0.8, 0.25, 0.9, 0.51, 0.49]]
    rounds_as_eager(lambda x, s: x * s if s > 0.5 else x - s, calls, most=3)


def test_dynamic_false_keeps_the_constants():
    magneto.reset()
    c = magneto.compile(lambda x, s: x * s, backend="eager", dynamic=False)
    for value in (0.1, 0.2, 0.3):
        c(X, value)
    assert graphs() == 3 and "real(" not in str(magneto.report())


def test_dynamic_true_has_it_from_the_first_call():
    magneto.reset()
    c = magneto.compile(lambda x, s: x * s, backend="eager", dynamic=True)
    for value in (0.1, 0.2, 0.0, math.nan):
        c(X, value)
    assert graphs() == 1


def test_the_report_shows_it():
    magneto.reset()
    c = magneto.compile(lambda x, lr: x * lr if lr < 9 else x, backend="eager")
    c(X, 0.1), c(X, 0.2)
    text = str(magneto.report())
    assert "real(s0)" in text and "lr was 0.1, is 0.2" in text
    guards = "\n".join(str(g) for graph in magneto.report().graphs for g in graph.guards)
    assert "lr is a float (any)" in guards and "s0 < 9" in guards


def test_an_int_in_its_place_is_another_program():
    f = lambda x, s: x.long() // s
    magneto.reset()
    c = magneto.compile(f, backend="eager")
    for value in (2.0, 3.0, 2, 3, 4.0, 5, True):
        assert bits(c(X, value)) == bits(f(X, value))


def test_an_optimizer_of_ones_own():
    class Adam:
        def __init__(self, parameters, lr):
            self.lr, self.t, self.parameters = lr, 0, parameters
            self.m = [torch.zeros_like(p) for p in parameters]
            self.v = [torch.zeros_like(p) for p in parameters]

        def step(self, gradients):
            self.t += 1
            with torch.no_grad():
                for p, g, m, v in zip(self.parameters, gradients, self.m, self.v):
                    m.mul_(0.9).add_(g, alpha=1 - 0.9)
                    v.mul_(0.999).addcmul_(g, g, value=1 - 0.999)
                    size = self.lr / (1 - 0.9 ** self.t)
                    p.addcdiv_(m, (v / (1 - 0.999 ** self.t)).sqrt_().add_(1e-8), value=-size)

    ours, eagers = Adam([X.clone()], 0.1), Adam([X.clone()], 0.1)
    magneto.reset()
    step = magneto.compile(ours.step, backend="eager")
    for k in range(20):
        gradient = G * (k + 1)
        ours.lr = eagers.lr = 0.1 * 0.9 ** k
        step([gradient]), eagers.step([gradient])
        assert bits(ours.parameters) == bits(eagers.parameters), k
    assert graphs() <= 4, magneto.report()
