"""torch.func: vmap, grad, vjp and what is made of them are part of the graph; what runs at the bottom is recorded."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacrev, jvp, stack_module_state, vjp, vmap

import magneto
from device import DEVICE
from harness import same_as_eager

WEIGHT = torch.linspace(-1, 1, 9, device=DEVICE).reshape(3, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(3, 3, device=DEVICE)

    def forward(self, x):
        return self.inner(x).tanh()


NET = Net()
ENSEMBLE = [Net() for _ in range(3)]


def loss(params, x):
    return functional_call(NET, params, (x,)).square().sum()


def of_each_sample(x):
    return vmap(grad(loss), in_dims=(None, 0))(dict(NET.named_parameters()), x)


def of_an_ensemble(x):
    params, buffers = stack_module_state(ENSEMBLE)
    return vmap(lambda params, buffers, x: functional_call(ENSEMBLE[0], (params, buffers), (x,)), in_dims=(0, 0, None))(params, buffers, x)


def in_place(x):
    def one(y):
        z = y.clone()
        z.add_(1)
        z[0] = y[1]
        return z * 2

    return vmap(one)(x)


def with_python(x):
    def one(y, scale):
        total = 0
        for part in (y, y + 1, {"a": y}["a"]):
            total = total + part * scale
        return total if y.dim() == 1 else y

    return vmap(one, in_dims=(0, None))(x, 2.0)


def pulled_back(x):
    y, pull = vjp(lambda z: (z.sin(), z.cos()), x)
    return pull((torch.ones_like(x), x))[0] + y[0]


PROGRAMS = {
    "vmap": lambda x: vmap(lambda y: y.sin() @ WEIGHT)(x),
    "vmap of two": lambda x: vmap(lambda y, z: y * z.sum(), in_dims=(0, None))(x, WEIGHT),
    "vmap of columns": lambda x: vmap(lambda y: y * 2, in_dims=1, out_dims=1)(x),
    "vmap in vmap": lambda x: vmap(vmap(lambda y: y.exp() + 1))(x),
    "vmap of several results": lambda x: vmap(lambda y: (y + 1, {"a": y * 2}))(x),
    "vmap in chunks": lambda x: vmap(lambda y: y.cos(), chunk_size=2)(x),
    "vmap with sizes": lambda x: vmap(lambda y: y.reshape(1, -1).expand(2, y.shape[0]).sum(0) * y.numel())(x),
    "vmap of a reduction": lambda x: vmap(lambda y: torch.softmax(y, 0).max(0).values)(x),
    "vmap of a convolution": lambda x: vmap(lambda y: torch.nn.functional.conv1d(y.reshape(1, 1, -1), torch.ones(1, 1, 2, device=y.device)))(x),
    "vmap in place": in_place,
    "vmap with Python": with_python,
    "grad": lambda x: grad(lambda y: (y.sin() * 2).sum())(x),
    "grad and value": lambda x: grad_and_value(lambda y: y.square().sum())(x),
    "grad with more": lambda x: grad(lambda y: (y.square().sum(), y * 2), has_aux=True)(x),
    "grad of the second": lambda x: grad(lambda y, z: (y * z).sum(), argnums=1)(x, x + 1),
    "grad in grad": lambda x: grad(lambda y: grad(lambda z: z.sin().sum())(y).sum())(x),
    "vmap of grad": lambda x: vmap(grad(lambda y: (y.sin() * y).sum()))(x),
    "vjp": pulled_back,
    "jacrev": lambda x: jacrev(lambda y: y.sin().sum(0))(x),
    "samples": of_each_sample,
    "an ensemble": of_an_ensemble,
}


def numbers(k, rows=4):
    return (torch.linspace(-1, 1, 3 * rows, device=DEVICE) + k).reshape(rows, 3)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "an ensemble"])
def test_one_graph(name):
    program = PROGRAMS[name]
    compiled = magneto.compile(program, fullgraph=True)
    for k in range(3):
        torch.testing.assert_close(compiled(numbers(k)), program(numbers(k)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_many_ways(name):
    """Other sizes, dtypes, strides, without gradients; some of them raise."""
    PROGRAMS[name](numbers(0))  # the first one warns of what torch loads then
    same_as_eager(PROGRAMS[name], numbers(0), close=True)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ("vmap of several results", "grad and value", "grad with more", "samples")])
def test_with_a_gradient(name):
    program = PROGRAMS[name]
    compiled = magneto.compile(program)
    for k in range(3):
        answers = []
        for f in (program, compiled):
            x = numbers(k).requires_grad_()
            y = f(x)
            if y.requires_grad:
                y.square().sum().backward()
            answers.append((y.detach(), x.grad))
        torch.testing.assert_close(answers[0], answers[1])


@pytest.mark.parametrize("name", ["vmap", "vmap of grad", "samples", "vjp"])
def test_other_sizes(name):
    program = PROGRAMS[name]
    compiled = magneto.compile(program)
    for rows in (4, 5, 6, 4):
        torch.testing.assert_close(compiled(numbers(0, rows)), program(numbers(0, rows)))


def test_what_it_closes_over_is_guarded():
    scale = [2.0]

    def f(x):
        return vmap(lambda y: y * scale[0])(x)

    compiled = magneto.compile(f)
    for value in (2.0, 2.0, 3.0, 4.0):
        scale[0] = value
        x = torch.ones(2, 3, device=DEVICE)
        assert torch.equal(compiled(x), f(x))


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_random_numbers(randomness):
    def f(x):
        return vmap(lambda y: y + torch.rand_like(y), randomness=randomness)(x)

    same_as_eager(f, torch.ones(4, 3, device=DEVICE))


def test_a_break_inside():
    def f(x):
        def one(y):
            y = y + 1
            torch._dynamo.graph_break()
            return y * 2

        return vmap(one)(x.sin()).cos()

    same_as_eager(f, torch.ones(4, 3, device=DEVICE), close=True)


def test_one_that_raises():
    def f(x):
        try:
            return vmap(lambda y: y.reshape(7))(x)
        except RuntimeError:
            return x + 1

    same_as_eager(f, torch.ones(4, 3, device=DEVICE))


@pytest.mark.parametrize("program", [lambda x: jvp(torch.sin, (x,), (torch.ones_like(x),)), lambda x: hessian(lambda y: y.sin().sum())(x[0])])
def test_forward_mode_is_eagers(program):
    compiled = magneto.compile(program)
    for k in range(3):
        torch.testing.assert_close(compiled(numbers(k)), program(numbers(k)))


def test_a_compiled_function_inside_of_a_transform():
    def plain(y):
        return y.sin() * 2

    inner = magneto.compile(plain)
    outer = magneto.compile(lambda x: vmap(inner)(x))
    for k in range(3):
        torch.testing.assert_close(outer(numbers(k)), vmap(plain)(numbers(k)))
        torch.testing.assert_close(vmap(inner)(numbers(k)), vmap(plain)(numbers(k)))
        torch.testing.assert_close(grad(lambda y: inner(y).sum())(numbers(k)), grad(lambda y: plain(y).sum())(numbers(k)))
