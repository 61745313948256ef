"""Functions written in C that run operators, read data or count where no instruction shows it: sum() of a generator adds
tensors, all() and sorted() ask tensors for their truth, a set compares its numbers.

Each program runs with arguments that differ in values, sizes and dtypes: whatever C code found out at the first call must
not be taken for granted at the next.
"""

import bisect
import collections
import functools
import itertools
import math
import operator

import pytest
import torch
from torch import ones, tensor

import magneto

LIMIT = {"cache_size_limit": 50}


def outcome(f, *args):
    try:
        return f(*args)
    except Exception as error:
        return type(error)


def agree(f, calls, **options):
    compiled = magneto.compile(f, options=LIMIT, **options)
    for args in calls:
        want, have = outcome(f, *args), outcome(compiled, *args)
        if not isinstance(want, torch.Tensor):
            assert want == have, args
            continue
        assert isinstance(have, torch.Tensor) and want.dtype == have.dtype and want.shape == have.shape, args
        torch.testing.assert_close(have, want)
    return compiled


READS = {
    "all of a generator": lambda x, y: x if all(t for t in (x.sum() > 0, y.sum() > 0)) else y,
    "any of a generator": lambda x, y: x * 3 if any(t for t in (x.sum() > 0, y.sum() < 0)) else y,
    "any of a list": lambda x, y: x * 3 if any([x.sum() > 0, y.sum() < 0]) else y,
    "filter(None)": lambda x, y: len(list(filter(None, [x.sum() > 0, y.sum() > 0]))) * y,
    "filter": lambda x, y: len(list(filter(lambda t: t.sum() > 0, [x, y]))) * y,
    "max of a generator": lambda x, y: max(t for t in (x.sum(), y.sum())),
    "max of a list": lambda x, y: max([x.sum(), y.sum()]),
    "max with a key": lambda x, y: max([x, y], key=lambda t: t.sum()),
    "min with a default": lambda x, y: min((t for t in (y.sum(), x.sum())), default=None),
    "sorted": lambda x, y: sorted(t for t in (x.sum(), y.sum()))[0],
    "sorted with a key": lambda x, y: sorted([x, y], key=lambda t: t.sum())[0] + 0,
    "list.sort": lambda x, y: (lambda xs: (xs.sort(key=lambda t: t.sum()), xs[0])[1])([x, y]) + 0,
    "takewhile": lambda x, y: len(list(itertools.takewhile(lambda t: t.sum() > 0, [x, y]))) * y,
    "dropwhile": lambda x, y: len(list(itertools.dropwhile(lambda t: t.sum() > 0, [x, y]))) * y,
    "filterfalse": lambda x, y: len(list(itertools.filterfalse(lambda t: t.sum() > 0, [x, y]))) * y,
    "compress": lambda x, y: len(list(itertools.compress([1, 2], [x.sum() > 0, y.sum() > 0]))) * y,
    "compress by a generator": lambda x, y: len(list(itertools.compress([1, 2], (t.sum() > 0 for t in (x, y))))) * y,
    "groupby": lambda x, y: len(list(itertools.groupby([x, y], key=lambda t: t.sum() > 0))) * y,
    "map(bool)": lambda x, y: len([b for b in map(bool, [x.sum() > 0, y.sum() > 0]) if b]) * y,
    "map(float)": lambda x, y: sum(map(float, [x.sum(), y.sum()])) * y,
    "map(int)": lambda x, y: y * [*map(int, [x.sum()])][0],
    "in a list": lambda x, y: y * (2 if x.sum() in [1.0, 3.0] else 3),
    "in a generator": lambda x, y: y * (2 if 3.0 in (t for t in (x.sum(),)) else 3),
    "list.count": lambda x, y: y * [t for t in (x.sum(), y.sum())].count(3.0),
    "equal lists": lambda x, y: y * (2 if [x.sum()] == [tensor(3.0)] else 3),
    "ordered tuples": lambda x, y: y * (2 if (x.sum(), 1) < (y.sum(), 2) else 3),
    "a set of floats": lambda x, y: y * len({float(x.sum()), 3.0}),
    "reduce": lambda x, y: functools.reduce(lambda a, b: a if a.sum() > b.sum() else b, [x, y]) + 0,
    "bisect": lambda x, y: y * bisect.bisect([1.0, 5.0], x.sum()),
    "math.sqrt": lambda x, y: y * math.sqrt(x.sum()),
    "torch.tensor of a list": lambda x, y: torch.tensor([x[0], 1.0]) * y[0],
    "torch.tensor of lists": lambda x, y: torch.tensor([[1.0], [x[0] * 2]]) * y[0],
    "torch.tensor of a tensor": lambda x, y: torch.tensor(x) * y,
    "operator.not_": lambda x, y: y * (2 if operator.not_(x.sum() > 0) else 3),
    "operator.truth": lambda x, y: y * (2 if operator.truth(x.sum() > 0) else 3),
    "operator.contains": lambda x, y: y * (2 if operator.contains([1.0, 3.0], x.sum()) else 3),
}


@pytest.mark.parametrize("f", READS.values(), ids=READS)
def test_data_that_c_code_reads(f):
    x, y = ones(3), ones(3) * 2
    agree(f, [(x, y), (x, y), (x * 2, y), (-x, y), (x, -y), (-x, -y), (x * 5, y), (ones(4), ones(4)), (x.double(), y.double()), (x, y)])


GRAPHS = {
    "sum of a generator": lambda x, y: sum(t for t in (x, y)),
    "sum from a start": lambda x, y: sum((t for t in (x, y)), y),
    "sum of an iterator": lambda x, y: sum(iter((x, y))),
    "sum of values": lambda x, y: sum({"a": x, "b": y}.values()),
    "sum of a chain": lambda x, y: sum(itertools.chain((x,), (y,))),
    "sum of a map": lambda x, y: sum(map(lambda t: t, (x, y))),
    "accumulate": lambda x, y: list(itertools.accumulate(t for t in (x, y)))[1],
    "starmap": lambda x, y: list(itertools.starmap(torch.add, ((a, b) for a, b in [(x, y)])))[0],
    "map over a generator": lambda x, y: list(map(torch.exp, (t for t in (x, y))))[0],
    "map over iterators": lambda x, y: [*map(torch.add, iter((x,)), iter((y,)))][0],
    "reduce of a generator": lambda x, y: functools.reduce(torch.mul, (t for t in (x, y))),
    "reduce(operator.add)": lambda x, y: functools.reduce(operator.add, (t for t in (x, y))),
    "stack of a generator": lambda x, y: torch.stack(list(t for t in (x, y))),
    "operator.mul": lambda x, y: operator.mul(x, y),
    "operator.lt": lambda x, y: operator.lt(x, y),
    "operator.neg": lambda x, y: operator.neg(x) + y,
    "operator.iadd": lambda x, y: operator.iadd(x * 1, y),
    "operator.matmul": lambda x, y: operator.matmul(x, y),
    "operator.getitem": lambda x, y: operator.getitem(x, 0) + y,
    "operator.is_": lambda x, y: x * 2 if operator.is_(x, y) else y * 2,
    "abs": lambda x, y: abs(x - y),
    "pow": lambda x, y: pow(x, 2) + y,
}


@pytest.mark.parametrize("f", GRAPHS.values(), ids=GRAPHS)
def test_operators_that_c_code_runs_are_one_graph(f):
    x, y = ones(3) * 2, ones(3)
    magneto.reset()
    agree(f, [(x, y), (x, y), (-x, y)], fullgraph=True)
    assert len(magneto.report().graphs) == 1 and not magneto.report().recompiles
    agree(f, [(x, y), (ones(4), ones(4)), (x.double(), y.double()), (x, ones(3, requires_grad=True)), (x, x), (x, y)])


FAILURES = {
    "a list of a map": lambda x: list(map(torch.linalg.cholesky, [x]))[0],
    "an unpacked map": lambda x: [*map(torch.linalg.cholesky, [x])][0],
    "a loop over a map": lambda x: [t for t in map(torch.linalg.cholesky, [x])][0],
    "next": lambda x: next(map(torch.linalg.cholesky, [x])) + 0,
    "reduce": lambda x: functools.reduce(torch.linalg.solve, [x, x]),
    "sum of a generator": lambda x: sum(torch.linalg.cholesky(t) for t in (x,)),
}


@pytest.mark.parametrize("f", FAILURES.values(), ids=FAILURES)
def test_an_operator_that_fails_inside_of_c_code(f):
    def program(x, y):
        try:
            return f(x)
        except RuntimeError:
            return y * 2

    bad, good, y = torch.zeros(3, 3), torch.eye(3) * 4, ones(3, 3)
    agree(program, [(bad, y), (bad, y), (good, y), (bad, y), (good, y)])
    agree(program, [(good, y), (bad, y), (good, y)])


def test_what_a_hidden_operator_writes():
    def f(x, y):
        return functools.reduce(operator.iadd, (t for t in (x, y, y)))

    for make in (lambda: (ones(3), ones(3)), lambda: (ones(3), ones(3, requires_grad=True))):
        compiled = magneto.compile(f)
        for _ in range(3):
            eager, ours = make(), make()
            assert torch.equal(f(*eager), compiled(*ours)) and torch.equal(eager[0], ours[0])
            assert eager[0].requires_grad == ours[0].requires_grad


class Sized:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __index__(self):
        return self.n

    @property
    def half(self):
        return self.n // 2


NUMBERS = {
    "a set": lambda x, v: x * len({v, 3}),
    "a set, behind": lambda x, v: x * len({3, v}),
    "set()": lambda x, v: x * len(set([v, 3])),
    "a set of tuples": lambda x, v: x * len({(3, 1), (v, 1)}),
    "a set comprehension": lambda x, v: x * len({t for t in (v, 3)}),
    "set.add": lambda x, v: (lambda s: (s.add(v), x * len(s))[1])({3}),
    "set.discard": lambda x, v: (lambda s: (s.discard(v), x * len(s))[1])({3}),
    "set.update": lambda x, v: (lambda s: (s.update([v]), x * len(s))[1])({3}),
    "frozenset()": lambda x, v: x * len(frozenset((v, 3))),
    "joined sets": lambda x, v: x * len({3} | {v}),
    "equal sets": lambda x, v: x * (2 if {v} == {3} else 4),
    "a dict": lambda x, v: x * len({v: 1, 3: 2}),
    "a dict's entry": lambda x, v: x * {3: 5, v: 7}[3],
    "dict()": lambda x, v: x * len(dict([(v, 1), (3, 2)])),
    "dict.__setitem__": lambda x, v: (lambda d: (d.__setitem__(v, 9), x * d[3])[1])({3: 1}),
    "dict.setdefault": lambda x, v: (lambda d: (d.setdefault(v, 9), x * len(d))[1])({3: 1}),
    "dict.update": lambda x, v: (lambda d: (d.update({v: 2}), x * len(d))[1])({3: 1}),
    "merged dicts": lambda x, v: x * len({3: 1} | {v: 2}),
    "unpacked dicts": lambda x, v: x * len({**{3: 1}, **{v: 2}}),
    "dict.fromkeys": lambda x, v: x * len(dict.fromkeys([v, 3])),
    "Counter": lambda x, v: x * len(collections.Counter([v, 3])),
    "enumerate from": lambda x, v: [i for i, _ in enumerate([1, 2], int(v))][0] * x,
    "islice": lambda x, v: len(list(itertools.islice([1, 2, 3], abs(int(v))))) * x,
    "sum of a generator": lambda x, v: sum(t for t in (v, 3)) * x,
    "sum of an iterator": lambda x, v: sum(iter([v, 3])) * x,
    "sum of values": lambda x, v: sum({1: v}.values()) * x,
    "sum of pairs": lambda x, v: sum(a for a, _ in zip((t for t in (v, 3)), iter([1, 2]))) * x,
    "sum of a map": lambda x, v: sum(map(lambda t: t * v, [1, 2])) * x,
    "sum inside of a tuple": lambda x, v: tuple(sum(t * v for t in (1, n)) for n in (1, 2))[1] * x,
    "tuple of a map of C": lambda x, v: tuple(map(abs, (t for t in (v, 3))))[0] * x,
    "max of a generator": lambda x, v: max(t for t in (v, 3)) * x,
    "all of a generator": lambda x, v: x * (1 + all(t for t in (v, 3))),
    "sorted by a key": lambda x, v: sorted([1, 2, 3], key=lambda t: abs(t - v))[0] * x,
    "sorted by a pair": lambda x, v: sorted([1, 2, 3], key=lambda t: (v > t, t))[0] * x,
    "filter": lambda x, v: len(list(filter(lambda t: v, [1, 3]))) * x,
    "len() of an object": lambda x, v: x * len(Sized(abs(int(v)))),
    "an object as an index": lambda x, v: x * [10, 11, 12, 13, 14, 15, 16][Sized(abs(int(v)))],
    "a property": lambda x, v: x * Sized(v).half,
    "reduce": lambda x, v: functools.reduce(lambda a, b: a * b, [v, 3]) * x,
    "reduce(operator.mul)": lambda x, v: functools.reduce(operator.mul, [v, 3]) * x,
    "accumulate": lambda x, v: list(itertools.accumulate(t for t in (v, 3)))[1] * x,
    "a tuple of a generator": lambda x, v: tuple(t + 1 for t in (v, 3))[0] * x,
    "an unpacked generator": lambda x, v: (lambda a, b: a * x + b)(*(t for t in (v, 3))),
    "yield from": lambda x, v: x * sum(delegating(v)),
    "operator.mul": lambda x, v: operator.mul(v, 3) * x,
    "operator.lt": lambda x, v: x * (2 if operator.lt(v, 3) else 3),
    "pow with a modulus": lambda x, v: x * pow(int(v), 2, 7),
    "divmod": lambda x, v: x * divmod(v, 3)[1],
}


def delegating(v):
    yield from (t * 2 for t in (v, 1))


@pytest.mark.parametrize("f", NUMBERS.values(), ids=NUMBERS)
def test_numbers_that_c_code_counts_with(f):
    x = ones(3)
    for dynamic in (None, True):
        agree(f, [(x, v) for v in (1, 1, 3, 3, 4, 0, -3, 1, 2.5, 3.0, True)], dynamic=dynamic)
        agree(lambda x, y: f(x, y.shape[0]), [(x, ones(n)) for n in (2, 2, 3, 3, 4, 6, 1, 0)], dynamic=dynamic)
    agree(lambda x, y: f(x, y.sum().item()), [(x, tensor([float(n)])) for n in (1, 1, 3, 3, 4, 0, -3)])


@pytest.mark.parametrize("f", [
    pytest.param(lambda x: x.new_ones(tuple(s * 2 for s in x.shape)), id="a tuple of a generator"),
    pytest.param(lambda x: x.new_ones([*(s + 1 for s in x.shape)]), id="an unpacked generator"),
    pytest.param(lambda x: x.new_ones(tuple(map(lambda s: s * 3, x.shape))), id="a map of a lambda"),
    pytest.param(lambda x: x.new_ones(operator.mul(x.shape[0], 2)), id="operator.mul"),
    pytest.param(lambda x: x.new_ones([s for s in (t for t in x.shape)]), id="a loop over a generator"),
])
def test_sizes_stay_symbols_where_c_code_only_hands_them_on(f):
    magneto.reset()
    agree(f, [(ones(n),) for n in (4, 5, 6, 7, 9)], dynamic=True)
    assert not magneto.report().recompiles


# ---- state that C code reads or changes. Each makes a program of its own, which is called several times.

def best_of_a_dict():
    d = {"a": 1, "b": 5}

    def f(x):
        best = max(d, key=d.get)
        d["a"] += 2
        return x * d[best] + len(sorted(d, key=d.get)[0])

    return f


def attrgetter():
    class Item:
        def __init__(self, v):
            self.v = v

    items = [Item(3), Item(1)]

    def f(x):
        least = min(items, key=operator.attrgetter("v")).v
        items[0].v -= 1
        return x * least

    return f


def map_of_getattr():
    class Item:
        v = 1

    item = Item()

    def f(x):
        found = sum(map(getattr, [item], ["v"]))
        item.v += 1
        return x * found

    return f


def map_of_append():
    seen = []

    def f(x):
        list(map(seen.append, [1, 2]))
        return x * len(seen)

    return f


def map_of_get():
    d = {"a": 1, "b": 2}

    def f(x):
        total = sum(map(d.get, ["a", "b"]))
        d["a"] += 1
        return x * total

    return f


def chain_of_attributes():
    class Node:
        def __init__(self, children):
            self.children = children

    nodes = [Node([1]), Node([2, 3])]

    def f(x):
        total = sum(itertools.chain.from_iterable(n.children for n in nodes))
        nodes[0].children.append(4)
        nodes[1].children[0] += 1
        return x * total

    return f


def longest_attribute():
    class Node:
        def __init__(self, children):
            self.children = children

    nodes = [Node([1]), Node([2, 3])]

    def f(x):
        longest = len(max((n.children for n in nodes), key=len))
        joined = sum((n.children for n in nodes), [])
        nodes[0].children.append(4)
        return x * longest + len(joined)

    return f


def counter():
    c = collections.Counter()

    def f(x):
        c["a"] += 1
        c.update("ab")
        return x * c["a"] + c["b"]

    return f


def dict_with_its_own_delitem():
    class Own(dict):
        def __delitem__(self, key):
            dict.__delitem__(self, key)

    d = Own(a=0)

    def f(x):
        d["a"] += 1
        if "z" in d:
            del d["z"]
        else:
            d["z"] = 1
        return x * d["a"] + len(d)

    return f


def object_with_its_own_delattr():
    class Own:
        def __delattr__(self, name):
            object.__delattr__(self, name)

    o = Own()
    o.v = 0

    def f(x):
        o.v += 1
        return x * o.v

    return f


def truth_of_objects():
    class Flag:
        v = 1

        def __bool__(self):
            return self.v > 2

    a, b = Flag(), Flag()

    def f(x):
        found = any([a, b]) + 2 * all(t for t in (a, b)) + len(list(filter(None, [a, b])))
        a.v += 1
        return x * found

    return f


def random_keys():
    r = __import__("random").Random(0)

    def f(x):
        return x * sorted([1, 2, 3, 4], key=lambda _: r.random())[0] + sum(t() for t in (r.random,))

    return f


STATE = [best_of_a_dict, attrgetter, map_of_getattr, map_of_append, map_of_get, chain_of_attributes, longest_attribute, counter,
         dict_with_its_own_delitem, object_with_its_own_delattr, truth_of_objects, random_keys]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("make", STATE, ids=lambda make: make.__name__)
def test_state_that_c_code_reads_or_changes(make, dynamic):
    eager, compiled = make(), magneto.compile(make(), dynamic=dynamic, options=LIMIT)
    for call in range(7):
        want, have = eager(ones(2)), compiled(ones(2))
        assert torch.equal(want, have), (call, want, have)
