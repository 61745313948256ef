"""What everybody's first compiled program trips over: print, .item(), branches on data, I/O in the middle."""

import os
import sys
import time

import torch
from torch import ones, randn, tensor

import magneto
from harness import fresh, module_program, same_as_eager


def test_a_print_in_the_middle():
    def f(x):
        y = x + 1
        print("half way", y.shape)
        return y * 2

    same_as_eager(f, randn(3, 4))


def test_a_print_of_a_tensor_shows_its_values():
    def f(x):
        y = x * 2
        print(y)
        return y.sum()

    same_as_eager(f, randn(3))


def test_prints_in_a_loop_come_in_order():
    def f(x):
        for i in range(3):
            x = x + i
            print(i, x.sum().item())
        return x

    same_as_eager(f, randn(2, 2))


def test_print_to_stderr():
    def f(x):
        print("careful", file=sys.stderr, end="!\n")
        return x.relu()

    same_as_eager(f, randn(4))


def test_print_in_a_callee():
    def inner(x):
        print("inner", float(x.max()))
        return x.exp()

    def f(x):
        return inner(x) + inner(x * 2)

    same_as_eager(f, randn(4))


def test_item_as_a_factor():
    same_as_eager(lambda x: x * x.sum().item(), randn(3))


def test_item_as_an_index():
    def f(x, i):
        return x[i.item()] * 2

    same_as_eager(f, randn(3, 2), tensor(1))


def test_item_of_each_kind():
    def f(x):
        return x.sum().item(), (x > 0).any().item(), x.argmax().item(), float(x[0]), int(x[1]), bool(x[2] > 0)

    same_as_eager(f, randn(4))


def test_a_branch_on_data():
    def f(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    same_as_eager(f, ones(3), more=[((-ones(3),), {}), ((ones(3),), {})])


def test_a_branch_on_data_inside_a_loop():
    def f(xs):
        kept = []
        for x in xs:
            if x.mean() > 0:
                kept.append(x * 2)
        return kept

    same_as_eager(f, [ones(2), -ones(2), ones(3)])


def test_a_while_loop_on_data():
    def f(x):
        steps = 0
        while x.norm() > 1:
            x = x / 2
            steps += 1
        return x, steps

    same_as_eager(f, randn(5) * 20)


def test_a_conditional_expression_on_data():
    same_as_eager(lambda x: x.cos() if (x > 0).all() else x.sin(), randn(3).abs())


def test_and_or_not_on_tensors():
    def f(a, b):
        return (a > 0 and b > 0), (a > 0 or b > 0), not (a > 0)

    same_as_eager(f, tensor(1.0), tensor(-1.0))


def test_an_ambiguous_truth_value_raises():
    def f(x):
        if x > 0:
            return x
        return -x

    same_as_eager(f, randn(3), raises=RuntimeError)


def test_an_assert_on_data():
    def f(x):
        assert x.min() > -100, "too small"
        return x.log1p()

    same_as_eager(f, randn(3).abs(), more=[((randn(3) * 1e6 - 1e7,), {})])


def test_a_data_dependent_early_return():
    def f(x):
        y = x.tanh()
        if y.abs().max() < 0.1:
            return None
        y = y * 2
        if y.sum() < 0:
            return "negative"
        return y

    same_as_eager(f, ones(3), more=[((-ones(3),), {}), ((ones(3) * 0.01,), {})])


def test_break_and_continue_on_data():
    def f(x):
        total = torch.zeros(())
        for row in x:
            if row[0] < -1:
                continue
            if row[0] > 1:
                break
            total = total + row.sum()
        else:
            total = total - 1
        return total

    same_as_eager(f, randn(6, 2))


def test_a_loop_as_long_as_a_value_says():
    def f(x, n):
        for _ in range(int(n)):
            x = x * 1.5
        return x

    same_as_eager(f, randn(2), tensor(3))


def test_reading_a_file_in_the_middle(tmp_path):
    @fresh
    def program():
        path = tmp_path / "scale.txt"
        path.write_text("3")

        def f(x):
            y = x + 1
            with open(path) as file:
                return y * float(file.read())

        return f, path

    same_as_eager(program, randn(3), change=lambda path: path.write_text("5"))


def test_writing_to_a_file_in_the_middle(tmp_path):
    def f(x):
        with open(tmp_path / "log", "a") as file:
            file.write("call\n")
        with open(tmp_path / "log") as file:
            lines = len(file.readlines())
        os.remove(tmp_path / "log")
        return x * lines

    same_as_eager(f, randn(3))


def test_the_clock_is_read_at_each_call():
    times = []

    def f(x):
        times.append(time.perf_counter())
        return x * 2

    g = magneto.compile(f)
    for _ in range(4):
        assert torch.equal(g(ones(2)), ones(2) * 2)
    assert len(set(times)) == 4 and times == sorted(times)


def test_an_item_outlives_the_call():
    same_as_eager(module_program("""
        best = float("-inf")
        def f(x):
            global best
            score = x.sum().item()
            if score > best:
                best = score
                return x * 10
            return x
    """), randn(3), more=[((ones(3),), {}), ((ones(3) * 9,), {}), ((-ones(3),), {})])


def test_tolist_and_back():
    same_as_eager(lambda x: torch.tensor([v * 2 for v in x.tolist()]) + x, randn(5))


def test_len_and_iteration_of_a_tensor():
    same_as_eager(lambda x: (len(x), [row.sum() for row in x], sum(x)), randn(3, 2))


def test_unpacking_a_tensor():
    def f(x):
        first, *rest = x
        return first, rest

    same_as_eager(f, randn(3, 2))


def test_a_tensor_in_a_list_of_tensors():
    same_as_eager(lambda x, y: (x in [x, y], y in [x]), tensor(1.0), tensor(2.0))


def test_str_and_repr_and_format_of_a_tensor():
    def f(x):
        y = x + 1
        return str(y), repr(y), f"{y.sum():.3f} {y.shape} {y.dtype}", "%s" % y.mean()

    same_as_eager(f, randn(3))


def test_hash_and_dictionary_of_tensors():
    def f(x):
        y = x + 1
        names = {x: "x", y: "y"}
        return names[x], names[y], len(names), hash(x) == id(x)

    same_as_eager(f, randn(3))
