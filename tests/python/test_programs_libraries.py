"""Operators of other libraries: their own gradients come back through a compiled function, whoever wrote them."""

import itertools

import pytest
import torch
from torch import randn

import magneto
from harness import fresh, same_as_eager

leaf = lambda *size: randn(*size, requires_grad=True)  # noqa: E731


# ---- custom_op and register_autograd --------------------------------------------------------------------------------

@torch.library.custom_op("magneto_grads::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


cube.register_fake(torch.empty_like)


def keep_input(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def cube_backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * 3 * x * x


cube.register_autograd(cube_backward, setup_context=keep_input)
cube.register_autocast("cpu", torch.bfloat16)
cube.register_vmap(lambda info, dims, x: (cube(x), dims[0]))


@torch.library.custom_op("magneto_grads::mixed", mutates_args=())
def mixed(x: torch.Tensor, y: torch.Tensor, n: int, *, scale: float = 2.0) -> torch.Tensor:
    return x * y * n * scale


@mixed.register_fake
def _(x, y, n, *, scale=2.0):
    return torch.empty(torch.broadcast_shapes(x.shape, y.shape), dtype=x.dtype)


def mixed_setup(ctx, inputs, keyword_only_inputs, output):
    x, y, n = inputs
    ctx.save_for_backward(x, y)
    ctx.factor = n * keyword_only_inputs["scale"]


def mixed_backward(ctx, grad):
    x, y = ctx.saved_tensors
    wants = ctx.needs_input_grad
    return grad * y * ctx.factor if wants[0] else None, grad * x * ctx.factor if wants[1] else None, None


mixed.register_autograd(mixed_backward, setup_context=mixed_setup)


@torch.library.custom_op("magneto_grads::ordered", mutates_args=())
def ordered(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = x.sort()
    return values, places


ordered.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x, dtype=torch.long)))


def ordered_setup(ctx, inputs, output):
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])
    ctx.set_materialize_grads(False)


def ordered_backward(ctx, grad, _):
    (places,) = ctx.saved_tensors
    return None if grad is None else torch.zeros_like(grad).scatter(-1, places, grad)


ordered.register_autograd(ordered_backward, setup_context=ordered_setup)


@torch.library.custom_op("magneto_grads::doubled", mutates_args=())
def doubled(xs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [x * 2 for x in xs]


doubled.register_fake(lambda xs: [torch.empty_like(x) for x in xs])
doubled.register_autograd(lambda ctx, grads: [grad * 2 for grad in grads])


@torch.library.custom_op("magneto_grads::biased", mutates_args=())
def biased(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x + (0 if bias is None else bias)


biased.register_fake(lambda x, bias: torch.empty_like(x))
biased.register_autograd(lambda ctx, grad: (grad, None if not ctx.needs_input_grad[1] else grad.sum(0)))


@torch.library.custom_op("magneto_grads::filled_", mutates_args={"x"})
def filled_(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(y * 3)


@torch.library.custom_op("magneto_grads::computing", mutates_args=())
def computing(x: torch.Tensor) -> torch.Tensor:
    return x.exp()


computing.register_fake(torch.empty_like)


def computing_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0].cos() * output, output * 2)


computing.register_autograd(lambda ctx, grad: grad * ctx.saved_tensors[0] + ctx.saved_tensors[1],
                            setup_context=computing_setup)


@torch.library.custom_op("magneto_grads::without", mutates_args=())
def without(x: torch.Tensor) -> torch.Tensor:
    return x * 5


without.register_fake(torch.empty_like)


# ---- torch.library.Library ------------------------------------------------------------------------------------------

library = torch.library.Library("magneto_more_grads", "DEF")
ours = torch.ops.magneto_more_grads


def define(name, kernel, autograd=None, key="Autograd", signature="(Tensor x) -> Tensor", like=torch.empty_like):
    library.define(name + signature)
    if kernel:
        library.impl(name, kernel, "CompositeExplicitAutograd")
    if like:
        torch.library.register_fake(f"magneto_more_grads::{name}", like, lib=library)
    if autograd:
        library.impl(name, autograd, key)
    getattr(ours, name).default  # made when it is first asked for: a packet of operators is part of the picture


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        with torch._C._AutoDispatchBelowAutograd():
            return ours.sine(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos() * 2


define("sine", torch.sin, lambda x: Sine.apply(x))


class Square(torch.autograd.Function):
    """Calls the operator with another argument than it was given."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        with torch._C._AutoDispatchBelowAutograd():
            return ours.square(x.contiguous() * 1)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * x


define("square", lambda x: x * x, lambda x: Square.apply(x))

noted = []


def says_autograd(x):
    noted.append(len(noted))
    print("autograd", len(noted))
    with torch._C._AutoDispatchBelowAutograd():
        return ours.says(x) * len(noted)


def says_composite(x):
    noted.append(len(noted))
    print("composite", len(noted))
    return x.sin() * len(noted)


define("says", torch.sin, says_autograd)
define("says_more", None, says_composite, "CompositeImplicitAutograd", like=None)
define("formula", torch.tanh)
torch.library.register_autograd("magneto_more_grads::formula", lambda ctx, grad: grad * ctx.saved_tensors[0],
                                setup_context=keep_input, lib=library)


def clamp_autograd(x):
    with torch._C._AutoDispatchBelowAutograd(), torch.no_grad():
        ours.clamp_here_(x)


def clamp_here(x):
    x.clamp_(-0.5, 0.5)


library.define("clamp_here_(Tensor(a!) x) -> ()")
library.impl("clamp_here_", clamp_here, "CompositeExplicitAutograd")
library.impl("clamp_here_", clamp_autograd, "Autograd")


def in_place(x):
    y = x * 2
    filled_(y, x.detach())
    return y + x


def in_place_by_a_kernel(x):
    y = x.detach() * 2
    ours.clamp_here_(y)
    return y * x


def no_grad_around(x):
    with torch.no_grad():
        y = cube(x * 2)
    return y * cube(x), cube(x.detach())


def under_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return cube(x * 2) @ x.mT


USES = {
    "custom_op": lambda x: cube(x * 2) + 1,
    "custom_op, the input itself": lambda x: cube(x),
    "twice": lambda x: cube(cube(x) * 0.1) * x,
    "between products": lambda x: cube(x @ x.mT * 0.1) @ x,
    "some arguments need a gradient": lambda x: mixed(x, x.detach(), 3) + mixed(x.detach(), x * 2, 2, scale=0.5),
    "all arguments": lambda x: mixed(x, x * 2, 1),
    "an output without a gradient": lambda x: ordered(x * 2)[0] * ordered(x)[1],
    "both outputs leave": lambda x: ordered(x * 2),
    "lists": lambda x: doubled([x, x * 2, x.detach()])[1] * doubled([x.detach()])[0],
    "no bias": lambda x: biased(x * 2, None) * 2,
    "a bias": lambda x: biased(x * 2, x[0]) * 2,
    "setup_context computes": lambda x: computing(x * 0.1) + x,
    "written to": in_place,
    "written to by a kernel": in_place_by_a_kernel,
    "Library, an autograd.Function": lambda x: ours.sine(x * 2) + 1,
    "Library, another argument": lambda x: ours.square(x * 2) + 1,
    "Library, register_autograd": lambda x: ours.formula(x * 2) + 1,
    "no_grad": no_grad_around,
    "autocast": under_autocast,
    "a result that leaves and goes on": lambda x: (lambda y: (y, y * 2, cube(y)))(cube(x)),
    "written to afterwards": lambda x: cube(x).mul_(2) + x,
    "a view of it is written to": lambda x: (lambda y: (y[0].mul_(2), y)[1])(cube(x)),
    "needs no gradient at all": lambda x: cube(x.detach()) * ordered(x.detach())[1],
}


@pytest.mark.parametrize("use", USES)
def test_an_operator_of_a_library_is_eagers(use):
    same_as_eager(USES[use], leaf(3, 4))


@pytest.mark.parametrize("use", USES)
def test_an_operator_of_a_library_without_gradients_is_eagers(use):
    same_as_eager(USES[use], randn(3, 4))


@pytest.mark.needs_capture
@pytest.mark.parametrize("use", [use for use in USES if use not in ("Library, another argument", "autocast")])
def test_an_operator_of_a_library_is_no_break(use):
    for x in (randn(3, 4), leaf(3, 4)):
        found = magneto.explain(USES[use])(x)
        assert (found.graph_count, found.break_count) == (1, 0), str(found)


@pytest.mark.needs_capture
def test_the_gradient_of_a_library_is_said_to_be_called():
    """What lies before and behind an operator whose gradient is Python code is compiled."""
    compiled = magneto.compile(lambda x, w: (cube((x @ w).relu() * 2) @ w).tanh().sum(), fullgraph=True)
    for _ in range(3):
        compiled(leaf(4, 4), leaf(4, 4)).backward()
    (graph,) = magneto.report().graphs
    assert "no_grad" not in str(graph)
    assert len(magneto.report().graphs) == 1 and not magneto.report().recompiles


def test_what_a_kernel_of_autograd_in_python_does_is_done_in_each_call():
    for operator in (ours.says, ours.says_more):
        @fresh
        def program():
            noted.clear()
            return (lambda x: operator(x * 2) + 1), noted
        same_as_eager(program, randn(3))
        same_as_eager(program, leaf(3))


def test_an_operator_without_a_formula_raises_as_in_eager():
    def call(g, x):
        y = g(x)
        with pytest.raises(RuntimeError, match="no autograd formula"):
            y.sum().backward()
        return y.detach()

    same_as_eager(lambda x: without(x * 2), leaf(3), call=lambda g, x: call(g, x) if x.requires_grad and torch.is_grad_enabled() else g(x))


def trained(f, when, change):
    """What six calls give; `change` comes after the third."""
    answers = []
    for count in range(6):
        if count == 3:
            change()
        x = (torch.arange(3.0) + count).requires_grad_(count != when)
        y = f(x)
        try:
            y.sum().backward()
            answers.append((y.tolist(), None if x.grad is None else x.grad.tolist()))
        except RuntimeError as error:
            answers.append((y.tolist(), str(error).split(".")[0].split("through")[0]))
    return answers


numbers = itertools.count()


@pytest.mark.parametrize("without_gradient", [0, 1, 5, None])
def test_a_formula_that_comes_later(without_gradient):
    """Graphs were recorded when it had none."""
    def one(compile):
        late = torch.library.custom_op(f"magneto_grads::late{next(numbers)}", lambda x: x * 7, mutates_args=(),
                                       schema="(Tensor x) -> Tensor")
        late.register_fake(torch.empty_like)
        return trained(compile(lambda x: late(x * 2) + x), without_gradient,
                       lambda: late.register_autograd(lambda ctx, grad: grad * 11))

    assert one(lambda f: f) == one(magneto.compile)


@pytest.mark.parametrize("how", ["a kernel for shapes", "a fake", "nothing"])
@pytest.mark.parametrize("without_gradient", [0, 1, 5, None])
def test_a_kernel_of_autograd_that_comes_later(without_gradient, how):
    def one(compile):
        own = torch.library.Library(f"magneto_late_{next(numbers)}", "DEF")
        own.define("late(Tensor x) -> Tensor")
        own.impl("late", lambda x: x * 7, "CPU")
        if how == "a kernel for shapes":
            own.impl("late", torch.empty_like, "Meta")
        elif how == "a fake":
            torch.library.register_fake(f"{own.ns}::late", torch.empty_like, lib=own)
        late = getattr(torch.ops, own.ns).late

        class Late(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                with torch._C._AutoDispatchBelowAutograd():
                    return late(x)

            @staticmethod
            def backward(ctx, grad):
                return grad * 11

        return trained(compile(lambda x: late(x * 2) + x), without_gradient,
                       lambda: own.impl("late", lambda x: Late.apply(x), "Autograd"))

    assert one(lambda f: f) == one(magneto.compile)


# ---- other ways to ask for derivatives ------------------------------------------------------------------------------

def test_a_gradient_of_a_gradient():
    def call(g, x):
        y = g(x)
        if not y.requires_grad:
            return y
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return y, first, second

    same_as_eager(lambda x: cube(x * 2) * x, leaf(3), call=call)


def test_a_backward_inside_of_the_compiled_function():
    def f(x):
        y = cube(x * 2)
        (grad,) = torch.autograd.grad(y.sum(), x)
        return y, grad

    same_as_eager(f, leaf(3), call=lambda g, x: g(x) if x.requires_grad and torch.is_grad_enabled() else None)


def test_vmap_of_an_operator_of_a_library():
    same_as_eager(lambda x: torch.vmap(cube)(x * 2) + 1, randn(3, 4))
    same_as_eager(lambda x: torch.vmap(cube)(x * 2) + 1, leaf(3, 4))


def test_training_by_steps():
    @fresh
    def program():
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        return (lambda x: cube(layer(x)).mean()), (layer, optimizer)

    def call(g, x):
        loss = g(x)
        if loss.requires_grad:
            loss.backward()
        return loss

    same_as_eager(program, randn(3, 4), call=call)


# ---- C++ ------------------------------------------------------------------------------------------------------------

def test_operators_of_torchvision():
    vision = pytest.importorskip("torchvision").ops
    boxes = torch.tensor([[0, 0, 0, 4, 4.0], [0, 1, 1, 6, 6]])
    f = torch.nn.functional

    programs = {
        "roi_align": lambda w, x: vision.roi_align(f.conv2d(x, w, padding=1) * 2, boxes, (2, 2)),
        "roi_pool": lambda w, x: vision.roi_pool(f.conv2d(x, w, padding=1) * 2, boxes, (2, 2)),
        "ps_roi_align": lambda w, x: vision.ps_roi_align(f.conv2d(x, w, padding=1) * 2, boxes, 2),
        "ps_roi_pool": lambda w, x: vision.ps_roi_pool(f.conv2d(x, w, padding=1) * 2, boxes, 2),
        "deform_conv2d": lambda w, x: vision.deform_conv2d(x * 2, f.conv2d(x, w.repeat(6, 1, 1, 1)[:18], padding=1), w,
                                                           padding=1, mask=torch.sigmoid(x.repeat(1, 3, 1, 1))) * 2,
    }
    for program in programs.values():
        same_as_eager(program, leaf(4, 3, 3, 3), randn(1, 3, 8, 8), units=10)
        same_as_eager(program, leaf(4, 3, 3, 3), leaf(1, 3, 8, 8), units=10)
        same_as_eager(program, randn(4, 3, 3, 3), randn(1, 3, 8, 8), units=10)


@pytest.mark.needs_capture
def test_a_gradient_in_cpp_is_part_of_the_graph():
    vision = pytest.importorskip("torchvision").ops
    boxes = torch.tensor([[0, 0, 0, 4, 4.0], [0, 1, 1, 6, 6]])
    compiled = magneto.compile(lambda x: vision.roi_align(x * 2, boxes, (2, 2)).relu().sum(), fullgraph=True)
    for _ in range(3):
        compiled(leaf(1, 4, 8, 8)).backward()
    (graph,) = magneto.report().graphs
    assert not magneto.report().fallbacks and "no_grad" not in str(graph)


def test_forward_mode():
    def f(x, t):
        with torch.autograd.forward_ad.dual_level():
            try:
                y = cube(torch.autograd.forward_ad.make_dual(x, t) * 2)
                return torch.autograd.forward_ad.unpack_dual(y)
            except (NotImplementedError, RuntimeError) as error:
                return type(error)

    f(randn(3), randn(3))  # torch warns of what it imports for forward mode, once
    same_as_eager(f, randn(3), randn(3))


