"""Custom autograd.Functions: part of the graph, forward and backward, where a rehearsal tells what the backward does."""

import pytest
import torch
from torch import randn

import custom_gradients
import magneto
from harness import fresh, same_as_eager

# torch 2.15 has apply itself in C: it takes keywords, and wants a signature of every forward.
APPLY_IS_C = not isinstance(torch.autograd.Function.__dict__["apply"], classmethod)

leaf = lambda *size: randn(*size, requires_grad=True)  # noqa: E731


class Saves(torch.autograd.Function):
    """What most of them do: tensors and numbers kept for backward."""

    @staticmethod
    def forward(ctx, x, scale=2):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x**3 * ctx.scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2 * ctx.scale, None


class AsksWhoNeeds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * y if ctx.needs_input_grad[0] else x + y if ctx.needs_input_grad[1] else x - y

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


class WritesItsInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class ReturnsItsInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x, y + 1, "text", None

    @staticmethod
    def backward(ctx, a, b, *rest):
        return -a, b


class ReversesTheGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


class NotDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, places = x.sort()
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        return values, places

    @staticmethod
    def backward(ctx, grad, _):
        (places,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter(0, places, grad)


class WithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x, scale=3):
        return x * scale, x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output[1])
        ctx.scale = inputs[1]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, a, b):
        x, y = ctx.saved_tensors
        return (0 if a is None else a * ctx.scale) + (0 if b is None else b) + x * y, None


class Nested(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        assert not torch.is_grad_enabled()
        return Saves.apply(x) + WithSetup.apply(x)[0]

    @staticmethod
    def backward(ctx, grad):
        return grad


USES = {
    "saved tensors": lambda x: Saves.apply(x) + Saves.apply(x * 2, 3),
    "needs_input_grad": lambda x: AsksWhoNeeds.apply(x, x.detach()) + AsksWhoNeeds.apply(x.detach(), x),
    "mark_dirty": lambda x: WritesItsInput.apply(x * 1) + 1,
    "an input is returned": lambda x: ReturnsItsInput.apply(x * 1, x),
    "a view is returned": lambda x: ReversesTheGradient.apply(x * 1) * 2,
    "mark_non_differentiable": lambda x: NotDifferentiable.apply(x),
    "setup_context": lambda x: WithSetup.apply(x)[0] + WithSetup.apply(x, 4)[1],
    "one inside another": lambda x: Nested.apply(x),
}


@pytest.mark.parametrize("use", USES)
def test_a_custom_function_is_eagers(use):
    same_as_eager(USES[use], leaf(3))


@pytest.mark.parametrize("use", USES)
def test_a_custom_function_without_gradients_is_eagers(use):
    same_as_eager(USES[use], randn(3))


@pytest.mark.needs_capture
@pytest.mark.parametrize("use", USES)
def test_a_custom_function_without_gradients_is_one_graph(use):
    found = magneto.explain(USES[use])(randn(3))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)
    with torch.no_grad():
        found = magneto.explain(USES[use])(leaf(3))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)


@pytest.mark.needs_capture
@pytest.mark.parametrize("use", ["saved tensors", "a view is returned", "mark_non_differentiable", "one inside another"])
def test_a_custom_function_with_a_gradient_is_one_graph(use):
    compiled = magneto.compile(USES[use])
    for _ in range(12):
        out = compiled(leaf(3))
        (out[0] if isinstance(out, tuple) else out).sum().backward()
    assert len(magneto.report().graphs) == 1 and not magneto.report().breaks and not magneto.report().recompiles, str(magneto.report())


class Tells(torch.autograd.Function):
    """A backward that nobody may rehearse."""
    told = []

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        Tells.told.append(grad.sum().item())
        return grad * 2


@pytest.mark.needs_capture
def test_a_backward_that_changes_an_object_is_one_break_at_its_call():
    compiled = magneto.compile(lambda x: Tells.apply(x * 2) + 1)
    Tells.told.clear()
    for k in range(12):
        compiled(leaf(3)).sum().backward()
        assert Tells.told == [3.0] * (k + 1)
    (stop,) = magneto.report().breaks
    assert "Tells" in stop.reason and "item" in stop.reason and "Tells.apply" in stop.source
    assert len(magneto.report().graphs) == 2 and not magneto.report().recompiles and not magneto.report().fallbacks


def backward_that(does):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.note = 1
            ctx.save_for_backward(x)
            return x * 2

        backward = staticmethod(does)

    return Function


# Each must happen when the backward runs, as often as it runs, and not when it is rehearsed.
def _appends(seen, ctx, grad):
    seen.append(len(seen))
    return grad


def _counts(seen, ctx, grad):
    ctx.note += 1
    seen.extend([ctx.note])
    return grad


def _prints(seen, ctx, grad):
    print("backward")
    return grad


def _writes_to_what_comes(seen, ctx, grad):
    return grad.mul_(2)


def _writes_to_what_was_saved(seen, ctx, grad):
    with torch.no_grad():
        ctx.saved_tensors[0].add_(1)
    return grad


def _draws(seen, ctx, grad):
    return grad * torch.rand_like(grad)


def _raises(seen, ctx, grad):
    raise ValueError("in backward")


def _gives_too_many(seen, ctx, grad):
    return grad, grad


def _asks_for_grad_mode(seen, ctx, grad):
    return grad * (2 if torch.is_grad_enabled() else 3)


def _catches(seen, ctx, grad):
    try:
        seen.append(1)
    except BaseException:
        return grad * 100
    return grad


@pytest.mark.parametrize("does", [_appends, _counts, _prints, _writes_to_what_comes, _writes_to_what_was_saved, _draws,
                                  _asks_for_grad_mode, _catches], ids=lambda does: does.__name__[1:])
def test_a_backward_does_nothing_before_it_runs(does):
    @fresh
    def program():
        seen = []
        function = backward_that(lambda ctx, grad: does(seen, ctx, grad))
        return (lambda x: (function.apply(x * 1).sin(), len(seen))), seen

    same_as_eager(program, leaf(3))


@pytest.mark.parametrize("does, error", [(_raises, ValueError), (_gives_too_many, RuntimeError)], ids=["raises", "gives too many"])
def test_a_backward_that_fails_does_so_when_it_runs(does, error):
    function = backward_that(lambda ctx, grad: does([], ctx, grad))
    compiled = magneto.compile(lambda x: function.apply(x * 1).sin())
    for _ in range(3):
        out = compiled(leaf(3))
        with pytest.raises(error):
            out.sum().backward()


def test_what_a_backward_reads_is_guarded():
    @fresh
    def program():
        factors = {"by": 2.0}
        function = backward_that(lambda ctx, grad: grad * factors["by"])
        return (lambda x: function.apply(x * 1).sin()), factors

    def change(factors):
        factors["by"] = 5.0

    same_as_eager(program, leaf(3), change=change)


@pytest.mark.needs_capture
def test_functions_with_sizes_and_floats_that_change_are_few_graphs():
    compiled = magneto.compile(lambda x, scale: Saves.apply(x * 1, scale).sin())
    for n in range(2, 14):
        x = leaf(n)
        (got,) = torch.autograd.grad(compiled(x, n * 0.3).sum(), x)
        (want,) = torch.autograd.grad(Saves.apply(x * 1, n * 0.3).sin().sum(), x)
        torch.testing.assert_close(got, want)
    assert len(magneto.report().graphs) <= 3 and not magneto.report().breaks, str(magneto.report())


def second_gradients_agree(f):
    compiled = magneto.compile(f)
    for _ in range(3):
        x = torch.randn(3, dtype=torch.float64, requires_grad=True)
        seen = []
        for call in (f, compiled):
            (first,) = torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
            seen.append((first.detach(), *torch.autograd.grad(first.sin().sum(), x)))
        torch.testing.assert_close(*seen)


NOT_LINEAR = {
    "a product": lambda x, grad: grad * grad * grad,
    "a clamp": lambda x, grad: grad.clamp(-1, 1),
    "a constant": lambda x, grad: x * 1,
    "with a constant": lambda x, grad: grad + x,
    "whole numbers": lambda x, grad: grad.to(torch.int64).to(grad.dtype) * x,
    "a floor": lambda x, grad: torch.div(grad, 2, rounding_mode="floor") * x,
    "a mask of itself": lambda x, grad: torch.where(grad > 0, grad, x),
    "a norm": lambda x, grad: grad / grad.norm() * x,
}


@pytest.mark.parametrize("kind", NOT_LINEAR)
def test_a_gradient_that_is_not_linear_is_differentiated(kind):
    class Cubes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return NOT_LINEAR[kind](ctx.saved_tensors[0], grad)

    def f(x):
        y = Cubes.apply(x * 1)
        return y * y

    second_gradients_agree(f)


def test_a_function_that_is_differentiable_once():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0].cos()

    compiled = magneto.compile(lambda x: Once.apply(x * 1) * 2)
    for _ in range(3):
        x = leaf(3)
        (first,) = torch.autograd.grad(compiled(x).square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            first.sum().backward()


@pytest.mark.parametrize("part", range(4))
def test_functions_that_are_made_by_chance(part):
    for n in range(40):
        text, found = custom_gradients.check(777_000 + 40 * part + n)
        assert not found, f"{found}\n{text}"


def test_the_input_itself_is_returned_and_written_to():
    same_as_eager(lambda x: (WritesItsInput.apply(x), ReturnsItsInput.apply(x, x), ReversesTheGradient.apply(x)), randn(3))


def test_a_weight_that_a_forward_finds_by_itself():
    @fresh
    def program():
        weight = torch.arange(3.0, requires_grad=True)

        class Hidden(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * weight

            @staticmethod
            def backward(ctx, grad):
                return grad * weight

        return (lambda x: (Hidden.apply(x), Hidden.apply(x) * weight)), weight

    same_as_eager(program, randn(3))


def test_a_ctx_that_outlives_its_call():
    @fresh
    def program():
        kept = []

        class Keeps(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                kept.append(ctx)
                ctx.note = 3
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        def f(x):
            y = Keeps.apply(x)
            return y, [c.note for c in kept], kept.pop().note

        return f

    same_as_eager(program, randn(3))


def test_a_forward_that_breaks_and_one_that_reads_data():
    class Prints(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            print("forward")
            ctx.save_for_backward(y)
            return y + (1 if y.sum() > 0 else -1)

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    same_as_eager(lambda x: Prints.apply(x * 1) + 1, randn(3))
    same_as_eager(lambda x: Prints.apply(x * 1) + 1, leaf(3))


def test_a_forward_that_raises_and_one_that_is_misused():
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, n):
            if n > 1:
                raise ValueError(n)
            return x * n

    class ForgetsToReturn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            x.mul_(2)
            return x + 1

    def f(x, n):
        try:
            return Raises.apply(x, n)
        except ValueError as error:
            return x - error.args[0]

    same_as_eager(f, randn(3), 1, more=[((randn(3), 2), {})])
    same_as_eager(f, randn(3), 2)
    same_as_eager(lambda x: ForgetsToReturn.apply(x), randn(3), raises=RuntimeError)
    same_as_eager(lambda x: Raises.apply(x, n=1), randn(3), raises=None if APPLY_IS_C else TypeError)


def test_a_forward_that_is_replaced():
    @fresh
    def program():
        class Changes(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

        return (lambda x: Changes.apply(x)), Changes

    def change(cls):
        cls.forward = staticmethod(lambda ctx, x: x * 3)

    same_as_eager(program, randn(3), change=change)


def test_a_forward_that_is_no_python_function():
    class Adds(torch.autograd.Function):
        forward = staticmethod(torch.add)
        setup_context = staticmethod(lambda ctx, inputs, output: None)

    class Bound(torch.autograd.Function):
        @classmethod
        def forward(cls, ctx, x):
            return x * 2

    same_as_eager(lambda x: Bound.apply(x), randn(3))
    same_as_eager(lambda x: super(torch.autograd.Function, Adds).apply(x, x), randn(3),
                  raises=ValueError if APPLY_IS_C else None)


def test_a_function_that_saves_what_nobody_reads():
    @fresh
    def program():
        weight = torch.ones(3, requires_grad=True)

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(weight, x)
                ctx.other = weight
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.saved_tensors[1]

        return (lambda x: Function.apply(x * 1).sin()), weight

    same_as_eager(program, leaf(3))


@pytest.mark.needs_capture
def test_a_function_inside_of_a_backward_is_differentiated():
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, grad, x):
            ctx.save_for_backward(grad, x)
            return grad * x

        @staticmethod
        def backward(ctx, again):
            grad, x = ctx.saved_tensors
            return again * x * 5, again * grad * 7

    class Outer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return Inner.apply(grad, ctx.saved_tensors[0])

    f = lambda x: Outer.apply(x * 1).sin()  # noqa: E731
    second_gradients_agree(f)
    assert len(magneto.report().graphs) == 1 and not magneto.report().breaks, str(magneto.report())


@pytest.mark.needs_capture
@pytest.mark.parametrize("decorated", [False, True])
def test_a_function_under_autocast(decorated):
    forward_in = torch.amp.custom_fwd(device_type="cpu") if decorated else (lambda f: f)
    backward_in = torch.amp.custom_bwd(device_type="cpu") if decorated else (lambda f: f)

    class Product(torch.autograd.Function):
        @staticmethod
        @forward_in
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        @backward_in
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            grad = grad.to(x.dtype)
            return grad @ w.t(), x.t() @ grad

    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return Product.apply(x * 1, w).float()

    compiled = magneto.compile(f)
    for _ in range(3):
        x, w = leaf(4, 4), leaf(4, 4)
        want = torch.autograd.grad(f(x, w).square().sum(), (x, w))
        got = torch.autograd.grad(compiled(x, w).square().sum(), (x, w))
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    assert len(magneto.report().graphs) == 1 and not magneto.report().breaks, str(magneto.report())
