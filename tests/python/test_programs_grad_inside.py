"""torch.autograd.grad inside of a program: its backward is a part of the graph, which can be differentiated again."""

import random

import pytest
import torch
from torch import nn

import magneto
from device import DEVICE


def network():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).to(DEVICE)


def gradient_penalty(net, x):
    y = net(x * 1.0)
    between = x.lerp(x.flip(0), 0.3)
    slope, = torch.autograd.grad(net(between).sum(), between, create_graph=True)
    return y.mean() + ((slope.norm(dim=1) - 1) ** 2).mean()


def differential_equation(net, x):
    u = net(x)
    slope = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
    curvature = torch.autograd.grad(slope.sum(), x, create_graph=True)[0]
    return (curvature.sum(1) - u[:, 0]).pow(2).mean()


def forces(net, x):
    places = x.detach().clone().requires_grad_()
    energy = net(places).sum()
    return energy, -torch.autograd.grad(energy, places)[0]


def forces_in_training(net, x):
    places = x.detach().clone()
    places.requires_grad = True
    energy = net(places).sum()
    return energy, -torch.autograd.grad([energy], [places], create_graph=True)[0]


def inner_step(net, x):
    weights = dict(net.named_parameters())
    loss = torch.func.functional_call(net, weights, (x,)).pow(2).mean()
    slopes = torch.autograd.grad(loss, weights.values(), create_graph=True)
    adapted = {name: weight - 0.1 * slope for (name, weight), slope in zip(weights.items(), slopes)}
    return torch.func.functional_call(net, adapted, (x,)).pow(2).mean()


def first_order_step(net, x):
    weights = list(net.parameters())
    slopes = torch.autograd.grad(net(x).pow(2).mean(), weights)
    return sum((slope * weight).sum() for slope, weight in zip(slopes, weights))


def twice_through_one_graph(net, x):
    y = net(x).sum()
    first = torch.autograd.grad(y, x, retain_graph=True)[0]
    second = torch.autograd.grad(y.exp(), x)[0]
    return first + second


def unused(net, x):
    found = torch.autograd.grad(net(x).sum(), [x, net[0].weight.new_zeros(2).requires_grad_()], allow_unused=True)
    return found[0], found[1] is None


def for_a_tensor_in_between(net, x):
    h = net[0](x)
    y = net[1](h)
    return torch.autograd.grad(y.pow(2).sum(), h)[0] * h


def what_is_freed_leaves(net, x):
    y = net(x).sum()
    return y, y * 2, torch.autograd.grad(y, x)[0]


def noise_with_a_gradient(net, x):
    scale = torch.ones(3, device=x.device, requires_grad=True)
    slope, = torch.autograd.grad(net(x.detach() * scale).sum(), scale)
    return slope


PROGRAMS = [gradient_penalty, differential_equation, forces, forces_in_training, inner_step, first_order_step, twice_through_one_graph, unused,
            for_a_tensor_in_between, what_is_freed_leaves, noise_with_a_gradient]


def outcome(function, net, rows):
    torch.manual_seed(rows)
    x = torch.randn(rows, 3).to(DEVICE).requires_grad_()
    net.zero_grad()
    results = function(net, x)
    results = [r for r in (results if isinstance(results, tuple) else (results,))]
    tensors = [r for r in results if isinstance(r, torch.Tensor)]
    told = [r for r in results if not isinstance(r, torch.Tensor)] + [(t.requires_grad, t.is_leaf) for t in tensors]
    try:
        roots = [t.sum() for t in tensors if t.requires_grad]
        if roots:
            sum(roots).backward()
    except RuntimeError as error:
        told.append(str(error)[:70])
        return told, [t.detach() for t in tensors]
    return told, [t.detach() for t in tensors] + [x.grad] + [weight.grad for weight in net.parameters()]


def compare(found, expected):
    assert found[0] == expected[0]
    for one, other in zip(found[1], expected[1], strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_eager(program):
    net = network()
    magneto.reset()
    compiled = magneto.compile(program)
    for rows in (4, 4, 5, 6, 9):
        compare(outcome(compiled, net, rows), outcome(program, net, rows))


@pytest.mark.needs_capture
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_graph_for_all_sizes(program):
    net = network()
    magneto.reset()
    compiled = magneto.compile(program, fullgraph=True)
    for rows in (4, 4, 5, 6, 9):
        compare(outcome(compiled, net, rows), outcome(program, net, rows))
    report = magneto.report()
    assert len(report.graphs) <= 2 and not report.breaks and not report.fallbacks, str(report)
    assert not any(graph.fallback for graph in report.graphs), str(report)


def outside(x, h):
    return torch.autograd.grad((h * 2).sum(), x)[0]


def custom(x):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    return torch.autograd.grad(Doubled.apply(x).sum(), x)[0]


def hooked(x):
    h = x * 3
    heard = []
    h.register_hook(lambda gradient: heard.append(gradient) or gradient * 2)
    slope, = torch.autograd.grad(h.sin().sum(), x)
    return slope, len(heard), heard[0]


def refused(x):
    y = (x * 2).sum()
    torch.autograd.grad(y, x)
    try:
        torch.autograd.grad(y.sin() * (x * x).sum(), x)
        torch.autograd.grad((x * x).sum() * y, [x, torch.ones(2)])
    except RuntimeError as error:
        return str(error)


def test_what_a_graph_does_not_hold():
    """A way through what was there before, Python code in the backward, errors: as in eager."""
    for program in (custom, hooked, refused):
        magneto.reset()
        compiled = magneto.compile(program)
        for _ in range(3):
            x = torch.linspace(-1, 1, 5, device=DEVICE, requires_grad=True)
            found, expected = compiled(x), program(x)
            assert torch.equal(found, expected) if isinstance(expected, torch.Tensor) else str(found) == str(expected)
    magneto.reset()
    compiled = magneto.compile(outside)
    for _ in range(3):
        x = torch.ones(3, device=DEVICE, requires_grad=True)
        assert torch.equal(compiled(x, x.exp()), outside(x, x.exp()))


def test_a_leaf_that_leaves():
    def f(x):
        leaf = (x * 2).requires_grad_()
        return leaf, (leaf * 3).sum()

    magneto.reset()
    compiled = magneto.compile(f)
    for _ in range(3):
        leaf, total = compiled(torch.ones(3, device=DEVICE))
        assert leaf.is_leaf and leaf.requires_grad and total.requires_grad
        total.backward()
        assert leaf.grad.tolist() == [3.0] * 3


STEPS = {
    "compute": "h = (h * w).sin()",
    "square": "h = h * h + x",
    "relu": "h = torch.relu(h - 0.1)",
    "leaf": "h = h.detach().requires_grad_(); leaves.append(h)",
    "grad x": "g, = torch.autograd.grad(h.sum() + x.sum(), x, create_graph={create}, retain_graph={keep}); out.append(g)",
    "grad w": "g, = torch.autograd.grad((h * w).sum(), w, create_graph={create}, retain_graph={keep}); h = h + g",
    "grad both": "for g in torch.autograd.grad((h * x * w).sum(), [x, w], create_graph={create}): out.append(g)",
    "grad leaf": "if leaves: out += torch.autograd.grad((h * leaves[-1]).sum(), leaves[-1], create_graph={create}, retain_graph={keep})",
    "write": "h = h.clone(); h.mul_(w)",
    "detach": "out.append(h.detach())",
    "leave": "out.append(h)",
    "quiet": "with torch.no_grad(): out.append(h * 2)",
}


def made(seed):
    chance = random.Random(seed)
    lines = ["def program(x, w):", "    h, out, leaves = x * w, [], []"]
    for _ in range(chance.randint(3, 8)):
        step = STEPS[chance.choice(list(STEPS))]
        lines.append("    " + step.format(create=chance.random() < 0.6, keep=chance.choice(["None", "True", "True"])))
    lines.append("    return [h, *out]")
    scope = {"torch": torch}
    exec("\n".join(lines), scope)
    return scope["program"], "\n".join(lines)


def ran(function, size):
    x = torch.linspace(-1, 1.5, size, device=DEVICE, requires_grad=True)
    w = torch.linspace(0.5, 1, size, device=DEVICE, requires_grad=True)
    told, tensors = [], []
    try:
        results = function(x, w)
        told += [(t.requires_grad, t.is_leaf) for t in results]
        tensors += [t.detach().clone() for t in results]
        for t in results:
            if t.requires_grad:
                t.sin().sum().backward(retain_graph=True)
    except RuntimeError as error:
        told.append(str(error)[:60])
        return told, tensors
    return told, [*tensors, x.grad, w.grad]


@pytest.mark.parametrize("seed", range(60))
def test_in_any_order(seed):
    program, text = made(seed)
    magneto.reset()
    compiled = magneto.compile(program)
    for size in (4, 4, 6, 7):
        try:
            compare(ran(compiled, size), ran(program, size))
        except AssertionError as error:
            raise AssertionError(f"{text}\n{error}") from None
