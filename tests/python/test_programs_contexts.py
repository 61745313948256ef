"""with blocks: the program's own, contextlib's, and torch's modes, entered inside or around the call."""

import contextlib
import contextvars

import pytest
import torch
from torch import randn

import magneto
from device import DEVICE
from harness import fresh, same_as_eager


def weight():
    torch.manual_seed(3)
    return randn(4, 4, requires_grad=True)


def test_no_grad_inside():
    def f(x):
        y = x * 2
        with torch.no_grad():
            z = y * 3
        return y + z, z

    same_as_eager(f, randn(3, requires_grad=True))


def test_no_grad_as_a_decorator():
    @torch.no_grad()
    def frozen(x):
        return x.exp()

    same_as_eager(lambda x: (frozen(x), x.exp()), randn(3, requires_grad=True))


def test_enable_grad_inside_no_grad():
    def f(x):
        with torch.no_grad():
            a = x * 2
            with torch.enable_grad():
                b = x * 3
            c = x * 4
        return a, b, c, torch.is_grad_enabled()

    same_as_eager(f, randn(3, requires_grad=True))


def test_set_grad_enabled_by_an_argument():
    def f(x, on):
        with torch.set_grad_enabled(on):
            return x * 2

    same_as_eager(f, randn(3, requires_grad=True), True, more=[((randn(3, requires_grad=True), False), {})])


def test_grad_mode_left_changed():
    def f(x):
        torch.set_grad_enabled(False)
        return x * 2

    def call(g, x):
        try:
            y = g(x)
            return y, torch.is_grad_enabled()
        finally:
            torch.set_grad_enabled(True)

    same_as_eager(f, randn(3, requires_grad=True), call=call)


def test_inference_mode_inside():
    def f(x):
        with torch.inference_mode():
            y = x * 2
        return y, y.is_inference()

    same_as_eager(f, randn(3))


def test_inference_mode_around():
    def f(x):
        return x * 2 + 1

    def call(g, x):
        with torch.inference_mode():
            inside = g(x)
        return inside, g(x)

    same_as_eager(f, randn(3, requires_grad=True), call=call)


def test_autocast_inside():
    @fresh
    def program():
        w = weight()

        def f(x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = x @ w
                z = y.float().softmax(-1)
            return y, z @ w

        return f

    same_as_eager(program, randn(3, 4))


def test_autocast_around():
    @fresh
    def program():
        w = weight()
        return lambda x: torch.relu(x @ w)

    def call(g, x):
        plain = g(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = g(x)
        with torch.autocast("cpu", dtype=torch.float16, enabled=False):
            off = g(x)
        return plain, low, off, g(x)

    same_as_eager(program, randn(3, 4), call=call)


def test_default_dtype_around():
    def call(g, x):
        out = [g(x)]
        torch.set_default_dtype(torch.float64)
        try:
            out.append(g(x))
        finally:
            torch.set_default_dtype(torch.float32)
        return out + [g(x)]

    same_as_eager(lambda x: torch.zeros(3) + torch.tensor(1.5) + x, randn(3), call=call)


def test_default_dtype_inside():
    def f(x):
        torch.set_default_dtype(torch.float64)
        try:
            made = torch.ones(3), torch.arange(3) / 2, torch.tensor([1.5])
        finally:
            torch.set_default_dtype(torch.float32)
        return made, torch.zeros(2), x + 1

    same_as_eager(f, randn(3))


@pytest.mark.needs_capture
def test_a_default_device_is_guarded():
    def f(x):
        y = torch.nn.functional.relu(x) + torch.ones(3, device="cpu") * x.sin()
        return y, torch.zeros(2, dtype=x.dtype), torch.tensor([1.0, 2.0]), torch.tensor([x.shape[0] * 0.5, 1.0]), torch.arange(3)

    magneto.reset()
    compiled = magneto.compile(f)
    x = randn(3)
    for default in (None, DEVICE, None, DEVICE):
        torch.set_default_device(default)
        try:
            expected, found = f(x), compiled(x)
        finally:
            torch.set_default_device(None)
        for a, b in zip(expected, found, strict=True):
            assert a.device == b.device and a.dtype == b.dtype and a.shape == b.shape
        torch.testing.assert_close(found[0], expected[0])
    report = magneto.report()
    assert not report.breaks and not report.fallbacks and len(report.graphs) == 2, str(report)
    assert "default device" in str(report.recompiles[0])


def test_a_device_context_inside_and_outside():
    def f(x):
        with torch.device("meta"):
            y = torch.empty(3)
            with torch.device("cpu"):
                z = torch.ones(3) + x
        return y.device, z, torch.ones(2)

    same_as_eager(f, randn(3))


def test_a_device_context():
    def f(x):
        with torch.device("meta"):
            y = torch.empty(3)
        return y.device, x + 1

    same_as_eager(f, randn(3))


@pytest.mark.parametrize("make", [
    lambda x: torch.zeros(2, device="meta") + 1,
    lambda x: torch.empty_like(x, device="meta") * 2,
    lambda x: x.to("meta").sum(),
    lambda x: torch.nn.Linear(3, 4, device="meta").weight.t(),
])
def test_tensors_that_a_program_makes_on_meta(make):
    def f(x):
        y = make(x)
        return (y.device, y.shape, y.dtype, y.stride()), torch.sin(x) + y.dim()

    same_as_eager(f, randn(3))


def test_what_is_made_on_meta_is_no_read_of_data():
    found = magneto.explain(lambda: torch.zeros(2, device="meta"))()
    assert "torch.zeros (a device that is neither CPU nor CUDA) cannot be part of a graph" in str(found)


def test_deterministic_algorithms_around():
    def call(g, x):
        torch.use_deterministic_algorithms(True)
        try:
            return g(x)
        finally:
            torch.use_deterministic_algorithms(False)

    same_as_eager(lambda x: torch.empty(3).fill_(2) + x, randn(3), call=call)


def test_ones_own_context_manager():
    class Scope:
        depth = 0

        def __enter__(self):
            Scope.depth += 1
            return Scope.depth

        def __exit__(self, *error):
            Scope.depth -= 1

    def f(x):
        with Scope() as outer, Scope() as inner:
            y = x * outer + inner
        return y, Scope.depth

    same_as_eager(f, randn(3))


def test_a_break_inside_a_with_block():
    def f(x):
        with torch.no_grad():
            y = x * 2
            print("inside", y.requires_grad)
            z = y + 1
        return x * z

    same_as_eager(f, randn(3, requires_grad=True))


def test_an_early_return_out_of_with_blocks():
    def f(x, n):
        with torch.no_grad():
            for i in range(n):
                with contextlib.nullcontext(i) as j:
                    if j == 2:
                        return x * j
        return x

    same_as_eager(f, randn(3, requires_grad=True), 5, more=[((randn(3, requires_grad=True), 1), {})])


def test_a_context_manager_passed_in():
    def f(x, scope):
        with scope:
            return x * 2

    same_as_eager(f, randn(3, requires_grad=True), torch.no_grad(), more=[
        ((randn(3, requires_grad=True), contextlib.nullcontext()), {})])


def test_a_context_variable():
    @fresh
    def program():
        scale = contextvars.ContextVar("scale", default=2)

        def f(x):
            y = x * scale.get()
            token = scale.set(10)
            y = y + scale.get()
            scale.reset(token)
            return y + scale.get()

        return f, scale

    same_as_eager(program, randn(2), change=lambda scale: scale.set(5))


def test_fork_rng_and_seeds_inside():
    def f(x):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            noise = torch.rand(3)
        return x + noise, torch.rand(2)

    same_as_eager(f, randn(3))


def test_redirected_output():
    import io

    def f(x):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            print("caught", x.shape[0])
        return x + 1, out.getvalue()

    same_as_eager(f, randn(3))


def test_sdpa_kernel_context():
    def f(q):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    same_as_eager(f, randn(1, 2, 3, 4))


def test_a_torch_function_mode_around():
    from torch.overrides import TorchFunctionMode

    class Counting(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def call(g, x):
        g(x)
        with Counting() as mode:
            y = g(x)
        return y, mode.names

    same_as_eager(lambda x: torch.relu(x + 1), randn(3), call=call)


def test_a_torch_dispatch_mode_around():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    def call(g, x):
        g(x)
        with Counting() as mode:
            y = g(x)
        return y, mode.names

    same_as_eager(lambda x: torch.relu(x + 1), randn(3), call=call)


def test_saved_tensor_hooks_around():
    packed = []

    def call(g, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t * 1, lambda t: t * 2):
            return g(x)

    same_as_eager(lambda x: x.exp() * x, randn(3, requires_grad=True), call=call)
