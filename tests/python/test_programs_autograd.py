"""Gradients: computed outside, inside, twice; custom functions, hooks, checkpoints, leaves and their rules."""

import pytest
import torch
from torch import ones, randn

import magneto
from device import DEVICE
from harness import fresh, same_as_eager

leaf = lambda *size: randn(*size, requires_grad=True)  # noqa: E731


def test_gradients_reach_all_leaves():
    same_as_eager(lambda x, w, b: torch.tanh(x @ w + b).sum(0), leaf(3, 4), leaf(4, 5), leaf(5))


def test_one_leaf_used_many_times():
    same_as_eager(lambda x: x * x + x.sin() @ x.t() @ x, leaf(3, 4))


def test_some_results_without_gradients():
    same_as_eager(lambda x, y: (x * 2, y * 2, x.detach() + y, (x > 0), x.argmax()), leaf(3), randn(3))


def test_backward_inside():
    def f(x, w):
        loss = (x * w).pow(2).sum()
        loss.backward()
        return loss.detach(), w.grad * 2

    same_as_eager(f, randn(3), leaf(3))


def test_backward_inside_accumulates():
    def f(w):
        for i in range(3):
            (w * i).sum().backward()
        total = w.grad.clone()
        w.grad = None
        (w**2).sum().backward(retain_graph=True)
        w.grad.zero_()
        return total

    same_as_eager(f, leaf(3))


def test_autograd_grad_inside():
    def f(x):
        y = (x**3).sum()
        (g,) = torch.autograd.grad(y, x)
        return g * 2, x.grad is None

    same_as_eager(f, leaf(3))


def test_a_gradient_penalty_needs_double_backward():
    def f(x, w):
        y = torch.tanh(x @ w).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return (g.norm(dim=1) - 1).pow(2).mean()

    same_as_eager(f, leaf(3, 4), leaf(4, 2))


def test_double_backward_from_outside():
    def call(g, x):
        y = g(x)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return y.detach(), first.detach(), second

    same_as_eager(fresh(lambda: lambda x: x.sin() * x.exp() if x.requires_grad else x.requires_grad_() * 2), leaf(3), call=call)


def test_backward_twice_without_retain_raises_outside():
    def call(g, x):
        y = g(x).sum()
        y.backward()
        y.backward()

    same_as_eager(lambda x: x.exp() * 2, leaf(3), call=call, raises=RuntimeError)


def test_requires_grad_set_inside():
    def f(x):
        y = (x * 2).detach().requires_grad_()
        z = torch.zeros(3, requires_grad=True)
        loss = (y * 3 + z).sum()
        loss.backward()
        return y.grad, z.grad, y.is_leaf

    same_as_eager(f, randn(3))


def test_requires_grad_of_an_argument_set_inside():
    def f(x):
        x.requires_grad_(True)
        return (x * 2).sum()

    same_as_eager(f, randn(3))


def test_detach_and_data():
    def f(x):
        y = x * 2
        d = y.detach()
        d.add_(1)
        y.data.mul_(3)
        return y, d, x.data * 2, d.requires_grad

    same_as_eager(f, leaf(3))


def test_reading_grad_inside():
    def f(x, w):
        if w.grad is not None:
            w = w - 0.1 * w.grad
        return (x * w).sum()

    def call(g, x, w):
        g(x, w).backward()
        second = g(x, w)
        w.grad = None
        return second, g(x, w)

    same_as_eager(f, randn(3), leaf(3), call=call)


def test_writing_in_place_to_a_leaf_raises():
    same_as_eager(lambda w: w.add_(1), leaf(3), raises=RuntimeError)
    same_as_eager(lambda w: w[0].mul_(2), leaf(3), raises=RuntimeError)


def test_writing_in_place_to_a_leaf_without_grad_mode():
    def f(w):
        loss = (w**2).sum()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad.zero_()
        return loss

    same_as_eager(f, leaf(3))


def test_a_saved_tensor_overwritten_raises_in_backward():
    def f(x):
        y = x.exp()
        y.add_(1)
        return y

    same_as_eager(f, leaf(3))


def test_in_place_in_the_middle_of_a_graph():
    def f(x):
        y = x * 2
        y.add_(1)
        y[0] = 5
        z = y * x
        z.relu_()
        return z

    same_as_eager(f, leaf(3))


def test_a_view_written_to_has_the_right_gradient():
    def f(x, w):
        buffer = torch.zeros(2, 3)
        buffer[0] = x
        buffer[1] += w * 2
        return buffer.sum(0) * buffer[1]

    same_as_eager(f, leaf(3), leaf(3))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale=2):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x**3 * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2 * ctx.scale, None


def test_a_custom_function():
    same_as_eager(lambda x: Cube.apply(x) + Cube.apply(x * 2, 3), leaf(3))


def test_a_custom_function_with_setup_context_and_two_results():
    class Split(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2, x + 1

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, a, b):
            return (a if a is not None else 0) * 2 + (b if b is not None else 0)

    same_as_eager(lambda x: Split.apply(x)[0] * 3, leaf(3))


def test_a_custom_function_that_prints_in_backward():
    class Loud(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            print("forward")
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            print("backward", grad.sum().item())
            return grad * 2

    same_as_eager(lambda x: Loud.apply(x) + 1, leaf(3))


def test_a_straight_through_estimator():
    same_as_eager(lambda x: x + (x.round() - x).detach(), leaf(3))


def test_checkpoint():
    from torch.utils.checkpoint import checkpoint

    def block(x, w):
        return torch.tanh(x @ w).relu()

    same_as_eager(lambda x, w: checkpoint(block, checkpoint(block, x, w, use_reentrant=False), w, use_reentrant=False),
                  leaf(3, 4), leaf(4, 4))


def test_checkpoint_with_dropout_draws_the_same_mask():
    from torch.utils.checkpoint import checkpoint

    def block(x):
        return torch.nn.functional.dropout(x, 0.5) * x

    same_as_eager(lambda x: checkpoint(block, x, use_reentrant=False), leaf(4, 4))


def test_a_hook_on_an_intermediate():
    def f(x, log):
        y = x * 2
        if y.requires_grad:
            y.register_hook(lambda g: log.append(g.clone()) or g * 10)
        return y * 3

    def call(g, x, log):
        y = g(x, log)
        if y.requires_grad:
            y.sum().backward()
        return y.detach()

    same_as_eager(f, leaf(3), [], call=call)


def test_a_hook_on_an_argument():
    def call(g, x):
        if x.requires_grad:
            x.register_hook(lambda grad: grad * 100)
        return g(x)

    same_as_eager(lambda x: x.sin() * 2, leaf(3), call=call)


def test_retain_grad():
    def f(x):
        y = x * 2
        if y.requires_grad:
            y.retain_grad()
        return y, y.pow(2).sum()

    def call(g, x):
        y, loss = g(x)
        if loss.requires_grad:
            loss.backward()
        return y.grad, loss.detach()

    same_as_eager(f, leaf(3), call=call)


def test_post_accumulate_hooks():
    @fresh
    def program():
        w, log = torch.ones(3, requires_grad=True), []
        w.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.clone()))
        return (lambda x: (x * w).sum()), log

    same_as_eager(program, randn(3))


def test_the_graph_is_visible():
    def f(x):
        y = x * 2
        return y, y.grad_fn is not None, y.is_leaf, y.requires_grad, x.grad_fn

    same_as_eager(f, leaf(3), call=lambda g, x: [v for v in g(x) if not callable(v)])


def test_grad_of_a_non_leaf_argument():
    def call(g, x):
        hidden = x * 2
        return g(hidden) + hidden

    same_as_eager(lambda h: h.exp() * 3, leaf(3), call=call)


def test_an_argument_that_is_no_leaf_written_in_place():
    def call(g, x):
        hidden = x * 2
        out = g(hidden)
        return out, hidden

    same_as_eager(lambda h: h.mul_(3) + 1, leaf(3), call=call)


def test_unused_leaves_have_no_gradient():
    same_as_eager(lambda x, w: (x * 2).sum(), leaf(3), leaf(4))


def test_loss_scaling_and_unscaling_inside():
    def f(x, w):
        loss = (x * w).sum()
        (g,) = torch.autograd.grad(loss * 1024, w)
        return g / 1024, loss

    same_as_eager(f, randn(3), leaf(3))


def test_forward_mode_derivatives():
    def f(x):
        return torch.func.jvp(lambda v: v.sin() * 2, (x,), (torch.ones_like(x),))

    f(ones(1))  # the first use imports, and that warns once in a process
    same_as_eager(f, randn(3))


def test_anomaly_mode_around():
    def call(g, x):
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            y = g(x)
        return y

    same_as_eager(lambda x: x.sqrt() * 2, leaf(3).detach().abs().requires_grad_(), call=call)


def test_backward_of_a_result_after_a_later_call():
    def call(g, x, y):
        first = g(x)
        second = g(y)
        if first.requires_grad:
            first.sum().backward()
        return first.detach(), second

    same_as_eager(lambda x: (x * x).exp(), leaf(3), leaf(3), call=call)


def test_gradients_with_respect_to_an_integer_index():
    same_as_eager(lambda w, i: w[i].sum() + torch.nn.functional.embedding(i, w).prod(), leaf(5, 2), torch.tensor([0, 3, 3]))


def test_a_leaf_made_inside_and_returned():
    def f(x):
        w = ones(3, requires_grad=True)
        return w, (w * x).sum()

    same_as_eager(f, randn(3))


def penalty(x, w):
    y = (x * w).tanh().pow(2).sum()
    (g,) = torch.autograd.grad(y, w, create_graph=True)
    return y + (g.norm() - 1) ** 2


def steps_inside(x, w):
    loss = (x * w).sin().sum()
    loss.backward()
    return loss.detach() * 2, w.grad * 1


@pytest.mark.parametrize("program", [penalty, steps_inside])
def test_a_backward_inside(program):
    same_as_eager(program, randn(3), leaf(3), more=[((randn(3), leaf(3)), {})], close=True)


@pytest.mark.needs_capture
def test_a_backward_inside_is_one_break():
    found = magneto.explain(steps_inside)(randn(3, device=DEVICE), leaf(3))
    assert (found.graph_count, found.break_count) == (2, 1), str(found)
