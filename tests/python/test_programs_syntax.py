"""Python's syntax around tensors and sizes: match, walrus, comprehensions, stars, f-strings, chained compares."""

import math
import re

import torch
from torch import ones, randn

from harness import same_as_eager


def test_match_on_values_and_types():
    def f(x, cmd):
        match cmd:
            case "double" | "twice":
                return x * 2
            case {"scale": s, **rest}:
                return x * s, rest
            case [a, b, *more]:
                return x * a + b, more
            case int(n) if n > 3:
                return x - n
            case (float() | None) as other:
                return x, other
            case _:
                return "unknown"

    same_as_eager(f, randn(2), "twice", more=[
        ((randn(2), cmd), {}) for cmd in ({"scale": 3, "z": 1}, [1, 2, 3], 5, 2, None, 2.5)])


def test_match_on_a_class_and_a_shape():
    def f(x):
        match x:
            case torch.Tensor(shape=[n]):
                return x + n
            case torch.Tensor(shape=[n, m]):
                return x.sum(0) * m
            case _:
                return None

    same_as_eager(f, randn(3), more=[((randn(3, 2),), {}), ((randn(1, 2, 3),), {}), ((4,), {})])


def test_walrus():
    def f(x):
        if (n := x.shape[0]) > 2 and (y := x * n) is not None:
            return y + n
        return [z := n + 1, z * 2]

    same_as_eager(f, randn(3), more=[((randn(1),), {})])


def test_comprehensions_of_all_kinds():
    def f(xs):
        pairs = [(i, j) for i in range(3) for j in range(i) if j != 1]
        return [x * 2 for x in xs if x.numel() > 1], {i: x for i, x in enumerate(xs)}, {x.shape for x in xs}, pairs, \
            [[y + i for y in xs] for i in range(2)]

    same_as_eager(f, [randn(2), randn(1), randn(2)])


def test_star_expressions():
    def f(x, *rest):
        a, *b = (x, *rest)
        args, kwargs = (2, -1), {"keepdim": True}
        return torch.sum(x, *args[1:], **kwargs), [*b, a], {**kwargs, "k": 1}, x.view(*x.shape, 1), print(*args, sep="-")

    same_as_eager(f, randn(3, 4), randn(1), randn(2))


def test_f_strings_and_formats_of_sizes():
    def f(x):
        n, m = x.shape
        return x + 1, f"{n}x{m} {n * m:>6} {n / m:.2f} {x.shape!r} {tuple(x.shape)}", "%d of %s" % (n, x.shape), \
            "{0}-{b:03d}".format(n, b=m), str(n) + repr(m), f"{x.dtype} {x.device} {x.ndim=}"

    same_as_eager(f, randn(3, 4))


def test_strings():
    def f(x, name):
        parts = name.split(".")
        if name.endswith("weight") and not name.startswith("ln"):
            x = x * 2
        return x, parts, ".".join(reversed(parts)), name.upper(), name[2:5], name.replace("a", "b"), "w" in name, \
            re.sub(r"\d+", "N", name), name.encode(), sorted(name)

    same_as_eager(f, randn(2), "h.1.weight", more=[((randn(2), "ln.weight"), {})])


def test_chained_compares_on_sizes_and_numbers():
    def f(x, n):
        return (x + 1 if 1 < x.shape[0] <= n < 10 else x - 1), x.shape[0] == x.shape[1] != n, -(-x.shape[0] // 2)

    same_as_eager(f, randn(3, 4), 5, more=[((randn(6, 4), 5), {}), ((randn(3, 3), 20), {})])


def test_arithmetic_of_sizes():
    def f(x):
        b, n, d = x.shape
        h = d // 2
        pad = (-n) % 4
        y = torch.nn.functional.pad(x, (0, 0, 0, pad)).reshape(b, (n + pad) // 4, 4, 2, h).transpose(2, 3)
        return y, math.sqrt(d), d**-0.5, n << 1, n & 6, n | 8, n ^ 3, ~n, int(n * 1.5), float(n), bool(n - 3), n % 2, round(n / 2)

    same_as_eager(f, randn(2, 5, 6))


def test_loops_over_sizes():
    def f(x):
        out = []
        for i in range(x.shape[0]):
            for j in range(0, x.shape[1], 2):
                if i == j:
                    continue
                out.append(x[i, j] * i - j)
        return torch.stack(out), out[-1]

    same_as_eager(f, randn(3, 4))


def test_while_with_a_number():
    def f(x, n):
        while n:
            n -= 1
            x = x * 1.1
            if n == 2:
                break
        else:
            x = -x
        return x, n

    same_as_eager(f, randn(2), 5, more=[((randn(2), 2), {}), ((randn(2), 0), {})])


def test_swaps_and_augmented_assignment():
    def f(x, y):
        x, y = y, x
        z = x
        x += 1
        y = y * 2
        y -= x
        y **= 2
        n = 3
        n //= 2
        n <<= 4
        return x, y, z, x is z, n

    same_as_eager(f, randn(2), randn(2))


def test_short_circuit_values():
    def f(x, a, b):
        return x + 1, a or b, a and b, not a, a if b else None, [] or {} or 0

    same_as_eager(f, randn(2), 0, "b", more=[((randn(2), [1], ""), {}), ((randn(2), None, 0.0), {})])


def test_lambdas_and_immediately_called_functions():
    same_as_eager(lambda x: (lambda a, *, b=2: a * b)(x, b=3) + (lambda: x)(), randn(2))


def test_del_and_rebinding():
    def f(x):
        y = x + 1
        del x
        x = [y]
        del x[0]
        return x, y

    same_as_eager(f, randn(2))


def test_an_import_inside():
    def f(x):
        import math as m
        from collections import OrderedDict
        from torch.nn import functional

        return functional.relu(x) * m.pi, OrderedDict(a=1)

    same_as_eager(f, randn(2))


def test_an_import_that_fails_inside():
    def f(x):
        try:
            import no_such_module
        except ImportError as error:
            return x, str(error)
        return no_such_module

    same_as_eager(f, randn(2))


def test_global_and_builtin_names():
    def f(x):
        return abs(x), pow(x, 2), round(3.7), divmod(7, 3), hex(255), chr(97), ord("a"), bin(5), isinstance(x, object)

    same_as_eager(f, randn(3))


def test_constants_of_all_kinds():
    def f(x):
        return x * 1e-3, x + 1j, x * True, (1, "a", 2.5, None, ..., b"b"), frozenset({1}), 10**30, -0.0, float("nan"), math.inf

    same_as_eager(f, randn(2))


def test_a_very_long_function():
    def f(x):
        a0 = x + 0; a1 = a0 * 2; a2 = a1 - a0; a3 = a2 / 3; a4 = a3.sin(); a5 = a4 + a1; a6 = a5 * a2  # noqa: E702
        b0 = a6 + 1; b1 = b0.exp(); b2 = b1 / (1 + b1); b3 = b2 @ b2; b4 = b3.relu(); b5 = b4 - b2; b6 = b5.abs()  # noqa: E702
        return a0, a1, a2, a3, a4, a5, a6, b0, b1, b2, b3, b4, b5, b6

    same_as_eager(f, randn(3))


def test_a_number_argument_of_each_kind():
    def f(x, v):
        return x * v, v, type(v).__name__

    same_as_eager(f, ones(2), 2, more=[((ones(2), v), {}) for v in (3, 2.0, -0.0, True, 0, 1, 2**40, 1.5 + 2j)])


def test_a_string_none_and_dtype_argument():
    def f(x, mode, dtype=None):
        y = torch.nn.functional.interpolate(x, scale_factor=2, mode=mode)
        return y.to(dtype) if dtype is not None else y

    same_as_eager(f, randn(1, 1, 3, 3), "nearest", more=[((randn(1, 1, 3, 3), "bilinear"), {"dtype": torch.float64}),
                                                         ((randn(1, 1, 3, 3), "cubic"), {})])
