"""copy.copy and copy.deepcopy inside of a compiled function."""

import copy

import pytest
import torch
from torch import nn

from each_call import numbers, same_each_call

pytestmark = pytest.mark.needs_capture


def test_a_tensor():
    def f(x):
        y = x * 2
        a, b = copy.deepcopy(x), copy.deepcopy(y)
        a.add_(1)
        b.mul_(3)
        return a, b, x, y, a is x

    same_each_call(lambda: f, graphs=1)


def test_containers_of_one_tensor():
    def f(x):
        xs = [x, {"a": [1, 2], "b": (x, "c")}]
        ys = copy.deepcopy(xs)
        ys[1]["a"].append(3)
        ys[0].add_(1)
        return ys, xs, ys[0] is ys[1]["b"][0]

    same_each_call(lambda: f)


def test_containers_without_tensors():
    def program():
        config = {"a": [1, 2], "b": {"c": 3}}

        def f(x):
            own = copy.deepcopy(config)
            own["a"].append(4)
            other = copy.copy(config)
            other["d"] = own
            return x * sum(own["a"]), own, other["a"] is config["a"]

        def call(g, k):
            if k in (2, 4):
                config["a"].append(k)
            return g(numbers(k)), dict(config)

        return f, call

    same_each_call(program)


def test_objects():
    class Thing:
        def __init__(self):
            self.x, self.items = 1, [1]

    def program():
        thing = Thing()

        def f(x):
            a, b = copy.copy(thing), copy.deepcopy(thing)
            a.x = 5
            b.items.append(2)
            return x * a.x + len(b.items), thing.x, a.items is thing.items

        def call(g, k):
            if k == 3:
                thing.x, thing.items = 4, [1, 2, 3]
            return g(numbers(k)), vars(thing)

        return f, call

    same_each_call(program, breaks=None)


@pytest.mark.parametrize("shared", [False, True])
def test_tensors_that_share_memory_at_some_calls(shared):
    def program():
        def f(x, y):
            a, b = copy.deepcopy([x, y])
            a.add_(1)
            return a, b

        def call(g, k):
            x = numbers(k)
            return g(x, x.view(3) if k >= 2 or shared else numbers(k))

        return f, call

    same_each_call(program, breaks=None)


def test_views_keep_their_strides():
    base = torch.arange(12.0).reshape(3, 4)

    def f(x):
        y = copy.deepcopy(base[:, 1])
        y += x
        return y, y.storage_offset(), base

    same_each_call(lambda: f, breaks=None)


def test_attributes_and_gradients_of_tensors():
    def program():
        x = torch.ones(3)

        def f(y):
            return copy.deepcopy(x), y + 1

        def call(g, k):
            if k == 2:
                x.name = [k]
            if k == 4:
                x.grad = torch.zeros(3)
            made, rest = g(numbers(k))
            return made, rest, getattr(made, "name", None), getattr(made, "name", None) is getattr(x, "name", 0), made.grad

        return f, call

    same_each_call(program, breaks=None)


def test_parameters_and_modules():
    def program():
        module = nn.Linear(3, 3)
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)

        def f(x):
            other = copy.deepcopy(module)
            weight = copy.deepcopy(module.weight)
            return other(x), other, weight

        def call(g, k):
            with torch.no_grad():
                module.bias.fill_(k)
            y, other, weight = g(numbers(k))
            assert all(p.is_leaf and p.requires_grad and p is not q for p, q in zip(other.parameters(), module.parameters()))
            y.sum().backward()
            return y, other.weight.grad, weight, type(weight).__name__, module.weight.grad, other.bias

        return f, call

    same_each_call(program, breaks=None)


def test_copies_of_a_tensor_share_its_memory():
    def f(x):
        y = copy.copy(x)
        y.add_(1)
        return x * 2, y

    same_each_call(lambda: f, breaks=None)
