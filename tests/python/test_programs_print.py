"""What a program prints is printed again by replays, in the same order, without a break where it does not depend on data."""

import contextlib
import io
import sys
import warnings

import pytest
import torch

import magneto


def shown(f, *args):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            result = f(*args)
        except Exception as error:
            result = type(error)
    return out.getvalue(), result


def same(f, compiled, *args):
    want, have = shown(f, *args), shown(compiled, *args)
    assert want[0] == have[0]
    assert torch.equal(want[1], have[1]) if isinstance(want[1], torch.Tensor) else want[1] == have[1]


def test_values_sizes_and_dtypes():
    def f(x, n):
        print("a", n, x.shape, x.dtype, x.device, (1, "b"), None, 1.5, sep="-", end="!\n")
        y = x * n
        print()
        print("y", tuple(y.shape), flush=True)
        return y

    compiled = magneto.compile(f, fullgraph=True)
    for n, size in ((1, 3), (1, 3), (2, 3), (3, 4), (4, 5), (2, 6), (7, 8)):
        same(f, compiled, torch.ones(size), n)
    assert len(magneto.report().graphs) <= 4


def test_a_print_in_one_of_many_layers():
    class Layer(torch.nn.Module):
        def __init__(self, number):
            super().__init__()
            self.linear, self.number = torch.nn.Linear(4, 4), number

        def forward(self, x):
            if self.number == 3:
                print("layer", self.number)
            return self.linear(x).relu()

    model = torch.nn.Sequential(*(Layer(k) for k in range(12)))
    compiled = magneto.compile(model)
    for _ in range(3):
        want, have = shown(model, torch.ones(2, 4)), shown(compiled, torch.ones(2, 4))
        assert want[0] == have[0] == "layer 3\n"
        torch.testing.assert_close(want[1], have[1])
    assert len(magneto.report().graphs) == 1


@pytest.mark.parametrize("said", [lambda x: print(x), lambda x: print([x]), lambda x: print({1, 2}), lambda x: print("b", file=sys.stdout)])
def test_what_may_change_is_a_break(said):
    def f(x):
        y = x * 2
        said(y)
        return y + 1

    compiled = magneto.compile(f)
    for _ in range(3):
        same(f, compiled, torch.ones(3))
    assert len(magneto.report().breaks) >= 1


def test_a_list_that_grows_after_it_was_printed():
    def f(x):
        sizes = [1]
        print(sizes)
        sizes.append(2)
        print(sizes, "later")
        return x * sizes[1]

    compiled = magneto.compile(f, fullgraph=True)
    for _ in range(3):
        same(f, compiled, torch.ones(3))


def test_in_front_of_an_error():
    def f(x, index):
        print("before")
        y = x[index]
        print("after")
        return y

    compiled = magneto.compile(f)
    for index in (0, 1, 9, 1, 9, 9):
        same(f, compiled, torch.arange(3.0), torch.tensor([index]))


def test_between_changes_of_an_object():
    class Counter:
        count = 0

    def f(x, counter):
        counter.count += 1
        print("count", counter.count)
        counter.count += 1
        print("count", counter.count)
        return x + counter.count

    compiled = magneto.compile(f)
    one, other = Counter(), Counter()
    for _ in range(5):
        want, have = shown(f, torch.ones(2), one), shown(compiled, torch.ones(2), other)
        assert want[0] == have[0] and torch.equal(want[1], have[1])


def test_a_stream_that_raises_or_is_python():
    class Stream(io.StringIO):
        def write(self, text):
            if self.bad:
                raise OSError("full")
            return super().write(text.upper())

    def f(x):
        print("some words")
        return x * 2

    compiled = magneto.compile(f)
    for bad in (False, False, True, True, False):
        texts = []
        for g in (f, compiled):
            stream = Stream()
            stream.bad = bad
            with contextlib.redirect_stdout(stream):
                if bad:
                    with pytest.raises(OSError, match="full"):
                        g(torch.ones(2))
                else:
                    assert torch.equal(g(torch.ones(2)), torch.full((2,), 2.0))
            texts.append(stream.getvalue())
        assert texts[0] == texts[1]


def test_another_function_of_that_name():
    said = []

    def f(x):
        print = said.append
        print("a")
        return x * 2

    compiled = magneto.compile(f)
    for _ in range(3):
        compiled(torch.ones(2))
    assert said == ["a"] * 3


def test_a_stream_that_lets_go_of_what_runs_code_at_its_end():
    ended = []

    class Ends:
        def __del__(self):
            ended.append("ends")

    class Stream(io.StringIO):
        def write(self, text):
            self.held = None
            return super().write(text)

    def f(x, held):
        y = x * len(held)
        print("some words")
        return y + 1

    compiled = magneto.compile(f)
    for _ in range(4):
        for g in (f, compiled):
            stream = Stream()
            stream.held = [Ends()]
            with contextlib.redirect_stdout(stream), warnings.catch_warnings():
                warnings.simplefilter("error")
                assert torch.equal(g(torch.ones(2), stream.held), torch.full((2,), 2.0))
    assert ended == ["ends"] * 8
