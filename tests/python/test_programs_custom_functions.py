"""Custom autograd.Functions: one graph where no gradient is needed, eager's own node where one is."""

import pytest
import torch
from torch import randn

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
def test_a_custom_function_that_builds_its_node_is_one_break_at_its_call():
    compiled = magneto.compile(lambda x: Saves.apply(x * 2) + 1)
    for _ in range(12):
        compiled(leaf(3)).sum().backward()
    (stop,) = magneto.report().breaks
    assert "Saves" in stop.reason and "Saves.apply" in stop.source
    assert len(magneto.report().graphs) == 2 and not magneto.report().recompiles and not magneto.report().fallbacks


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
