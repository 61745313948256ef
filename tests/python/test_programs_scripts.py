"""TorchScript: a scripted function is the operators it runs, unless it reads data or does what no graph holds."""

from typing import Dict, List, Optional, Tuple

import pytest
import torch
from torch import randn

import magneto
from harness import fresh, same_as_eager

torch._C._jit_set_texpr_fuser_enabled(False)  # fused on a GPU after a few calls, eager's own results have other strides


@torch.jit.script
def helper(x: torch.Tensor, n: int):
    return x * n


@torch.jit.script
def calls_another(x: torch.Tensor):
    return helper(x, 2) + helper(x, x.size(0))


@torch.jit.script
def makes_tensors_of_numbers(x: torch.Tensor, n: int):
    half = torch.tensor(n / 2)
    wide = torch.tensor(0.1, dtype=torch.double)
    return x * half + torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float) * n), wide, torch.tensor(n), torch.tensor(n > 1)


@torch.jit.script
def branches_on_sizes(x: torch.Tensor, y: torch.Tensor):
    if x.size(0) != y.size(0):
        return x + 1
    else:
        return y


@torch.jit.script
def loops_and_lists(xs: List[torch.Tensor], scale: float = 2.0):
    out: List[torch.Tensor] = []
    total = 0
    for i, x in enumerate(xs):
        total += x.dim()
        out.append(x * scale + i)
    return torch.stack(out), total, out[-1].size()


@torch.jit.script
def optional_and_dict(x: torch.Tensor, y: Optional[torch.Tensor] = None) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
    if y is None:
        y = x * 2
    return x, {"x": x, "y": y}


@torch.jit.script
def writes_in_place(x: torch.Tensor):
    t = torch.tensor(0.0)
    t += 3
    return x.mul_(t), t


ONE_GRAPH = {
    "another scripted function": lambda x: calls_another(x),
    "tensors of numbers": lambda x: makes_tensors_of_numbers(x, 3),
    "a branch on sizes": lambda x: branches_on_sizes(x, x * 2) + branches_on_sizes(x, x[:1]),
    "loops and lists": lambda x: loops_and_lists([x, x + 1]) + loops_and_lists([x], scale=3.0),
    "an optional argument and a dict": lambda x: (optional_and_dict(x * 1), optional_and_dict(x, y=x)),
    "an operator in place": lambda x: writes_in_place(x * 1),
}


@pytest.mark.parametrize("use", ONE_GRAPH)
def test_a_scripted_function_is_eagers(use):
    same_as_eager(ONE_GRAPH[use], randn(3, 2))
    with torch.no_grad():
        same_as_eager(ONE_GRAPH[use], randn(3, 2, requires_grad=True))


@pytest.mark.needs_capture
@pytest.mark.parametrize("use", ONE_GRAPH)
def test_a_scripted_function_is_one_graph(use):
    found = magneto.explain(ONE_GRAPH[use])(randn(3, 2))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)


def test_a_scripted_function_has_its_gradients():
    same_as_eager(lambda x, w: torch.sigmoid(calls_another(x) * w), randn(3, 2), randn(2, requires_grad=True))


@torch.jit.script
def reads_data(x: torch.Tensor):
    if bool(x.sum() > 0):
        return x + 1
    return x - int(x.size(0))


@torch.jit.script
def prints(x: torch.Tensor):
    print("scripted", x.size(0))
    return x * 2


@torch.jit.script
def a_list_of_data(x: torch.Tensor):
    values: List[float] = x[0].tolist()
    return x * values[0]


@torch.jit.script
def shares_memory(x: torch.Tensor):
    y = x.data
    y.mul_(2)
    return y


@torch.jit.ignore
def in_python(x):
    return x * 3


@torch.jit.script
def calls_python(x: torch.Tensor) -> torch.Tensor:
    return in_python(x) + 1


@torch.jit.script
def raises(x: torch.Tensor):
    assert x.size(0) < 3, "too many rows"
    return x * 2


BREAKS = {"reads data": reads_data, "prints": prints, "a list of data": a_list_of_data, "x.data": shares_memory, "Python": calls_python}


@pytest.mark.parametrize("name", BREAKS)
def test_what_no_graph_holds_runs_as_in_eager(name, capfd):
    scripted = BREAKS[name]
    same_as_eager(lambda x: scripted(x * 1) + 1, randn(2, 2))
    same_as_eager(lambda x: scripted(x), randn(2, 2))


@pytest.mark.needs_capture
@pytest.mark.parametrize("name", BREAKS)
def test_what_no_graph_holds_is_one_break(name, capfd):
    scripted = BREAKS[name]
    found = magneto.explain(lambda x: scripted(x * 1) + 1)(randn(2, 2))
    assert (found.graph_count, found.break_count) == (2, 1), str(found)


def test_a_scripted_function_that_raises():
    def f(x):
        try:
            return raises(x)
        except (torch.jit.Error, AssertionError) as error:
            return x + len(error.args)

    same_as_eager(f, randn(2, 2), more=[((randn(4, 2),), {})])
    same_as_eager(f, randn(4, 2))


def test_a_traced_function_that_knows_a_tensor():
    @fresh
    def program():
        weight = torch.tensor(2.0)
        traced = torch.jit.trace(lambda x: x * weight + x.size(0), torch.ones(3))
        return (lambda x: traced(x)), weight

    same_as_eager(program, randn(3), change=lambda weight: weight.add_(1))


class Scaled(torch.nn.Module):
    scale: float

    def __init__(self):
        super().__init__()
        self.scale = 2.0
        self.weight = torch.nn.Parameter(torch.arange(3.0))

    def forward(self, x):
        if self.training:
            x = x + 1
        return x * self.weight * self.scale


def test_a_scripted_module_whose_attributes_change():
    @fresh
    def program():
        module = torch.jit.script(Scaled())
        return (lambda x: module(x)), module

    def change(module):
        module.eval()
        module.scale = 3.0
        with torch.no_grad():
            module.weight.add_(1)

    @fresh
    def by_method():
        module = torch.jit.script(Scaled())
        forward = module.forward
        return (lambda x: forward(x)), [module]

    for make, alter in ((program, change), (by_method, lambda state: change(state[0]))):
        eager, compiled = make(), make()
        g = magneto.compile(compiled[0])
        x = torch.ones(3)
        for _ in range(3):
            assert torch.equal(eager[0](x), g(x))
        alter(eager[1]), alter(compiled[1])
        for _ in range(3):
            assert torch.equal(eager[0](x), g(x))
