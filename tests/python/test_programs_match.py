"""match statements, dicts that find tensors, patterns of text, and calls that ask for what is so already."""

import re

import pytest
import torch
from torch import randn

import magneto
from harness import fresh, same_as_eager


def sequence(x):
    match [1, x]:
        case [2, y]:
            return y
        case [1, y]:
            return y * 2


def mapping(x):
    match {"a": 2, "x": x}:
        case {"b": _}:
            return x
        case {"a": int(n), "x": y}:
            return y * n


def of_a_kind(x):
    match x.dim():
        case float():
            return x
        case int(n) if n > 1:
            return x * n
        case _:
            return x - 1


def rest(x):
    match (x, 1, 2, 3):
        case (first, *others):
            return first * len(others)


def of_shape(x):
    match tuple(x.shape):
        case (2, n):
            return x * n
        case (n,):
            return x + n


ONE_GRAPH = {
    "a sequence": sequence,
    "a mapping": mapping,
    "a kind": of_a_kind,
    "the rest": rest,
    "a shape": of_shape,
    "a dict of tensors": lambda x: {x: 2}[x] * x,
    "a pattern": lambda x: x * len(re.findall("a", "aba")) * len(re.sub("a", "", "aba")) * re.match("(a)b", "ab").end(1),
    "requires_grad_ as it is": lambda x: x.clone().requires_grad_(False) * 2,
}


@pytest.mark.parametrize("program", ONE_GRAPH)
def test_a_small_program_is_eagers(program):
    same_as_eager(ONE_GRAPH[program], randn(2, 3))


@pytest.mark.needs_capture
@pytest.mark.parametrize("program", ONE_GRAPH)
def test_a_small_program_is_one_graph(program):
    found = magneto.explain(ONE_GRAPH[program])(randn(2, 3))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)


def test_what_a_mapping_from_outside_holds_is_guarded():
    @fresh
    def program():
        options = {"scale": 2.0, "x": None}

        def f(x):
            match options:
                case {"scale": float(s), "x": None}:
                    return x * s
                case {"scale": s}:
                    return x + s

        return f, options

    def change(options):
        options["scale"] = 5

    same_as_eager(program, randn(3), change=change)


def test_a_module_with_other_parameters():
    layer = torch.nn.Linear(3, 3)
    parameters = {name: p.detach() * 2 for name, p in layer.named_parameters()}
    same_as_eager(lambda x: torch.func.functional_call(layer, parameters, (x,)), randn(2, 3))
