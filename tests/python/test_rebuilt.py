"""What a replay builds again is as eager's in what one can see without asking for its address: the order of a set, and
whether a NaN is found in the container that it was put into."""

import collections
import math

import pytest
import torch

import magneto

X = torch.ones(3)


def taken_out():
    numbers = {5, 13, 21, 29}
    numbers.discard(5)
    numbers.add(37)
    return numbers


def shrunk():
    numbers = set(range(0, 4000, 40))
    for k in range(0, 3960, 40):
        numbers.discard(k)
    numbers |= {5, 13, 21}
    return numbers


SETS = {
    "a jump back": lambda: {5, 13},
    "added": lambda: set([5]) | {13, 21},
    "met": lambda: {5, 13, 21, 2} & {21, 13, 5, 7},
    "taken out": taken_out,
    "shrunk": shrunk,
    "many": lambda: {k * 7919 % 1009 for k in range(60)},
    "words": lambda: {chr(97 + k % 26) * (k % 5 + 1) for k in range(40)},
    "frozen": lambda: frozenset([5, 13, 21]),
    "difference": lambda: set(range(100)) - set(range(3, 97)),
    "empty": lambda: {5} - {5},
    "of pairs": lambda: {(k, k * 8) for k in range(9)},
}


@pytest.mark.parametrize("name", SETS)
def test_the_order_of_a_set(name):
    make = SETS[name]

    def f(x):
        made = make()
        return x * 2, made, list(made)

    def broken(x):
        made = make()
        torch._dynamo.graph_break()
        return x * 2, made, list(made)

    for function in (f, broken):
        magneto.reset()
        c = magneto.compile(function, backend="eager")
        for k in range(4):
            (_, expected, listed), (_, got, ours) = function(X), c(X)
            assert list(got) == list(expected) and listed == ours and type(got) is type(expected), k
            if isinstance(got, set):  # it grows as eager's does
                for more in (45, 53, 61, 1, 9, 17, 101):
                    got.add(more), expected.add(more)
                assert list(got) == list(expected)
                got.clear()


def test_an_element_that_is_also_elsewhere():
    def f(x, n):
        pair = (n, 3)
        made = {pair, (13, 1), (5, 1), (21, 1)}
        return x * 2, made, pair, any(pair is item for item in made)

    magneto.reset()
    c = magneto.compile(f, backend="eager")
    for n in (1, 2, 3, 4, 5, 6):
        expected, got = f(X, n), c(X, n)
        assert got[1:] == expected[1:] and any(got[2] is item for item in got[1])


def in_one_list(x, s):
    kept = [s, s]
    torch._dynamo.graph_break()
    return x * 2, kept.count(s), s in kept, kept.index(s)


def doubled(x, s):
    t = s * 2
    kept = [t, t]
    return x * 2, kept


KEYS = {
    "a Counter": lambda x, s: (x * 2, collections.Counter([s, s])[s]),
    "a dict": lambda x, s: (x * 2, {s: 1}.get(s)),
    "a set": lambda x, s: (x * 2, s in {s}),
    "a list": in_one_list,
    "an index": lambda x, s: (x * 2, [1.0, s].index(s)),
    "of the caller": lambda x, s: (x * 2, HELD.get(s)),
}
HELD = {math.nan: 1, 2.5: 2}


@pytest.mark.parametrize("backend", [None, "eager"])
@pytest.mark.parametrize("name", KEYS)
def test_a_nan_is_itself(name, backend):
    f = KEYS[name]
    magneto.reset()
    c = magneto.compile(f, **({"backend": backend} if backend else {}))
    for value in (math.nan, math.nan, 1.5, float("nan"), 2.5, float("nan"), math.nan, 3.5, 4.5, math.nan, float("nan")):
        assert c(X, value)[1:] == f(X, value)[1:], value


def test_a_computed_nan_is_one_object():
    magneto.reset()
    c = magneto.compile(doubled, backend="eager")
    for value in (1.5, 2.5, math.nan, 3.5, float("nan")):
        kept = c(X, value)[1]
        assert kept.count(kept[0]) == 2
