"""Lists, dicts, sets, tuples and their relatives: made inside, passed in, written to, returned."""

import collections
import dataclasses
import enum
import itertools
import operator
import typing

import pytest
import torch
from torch import ones, randn

import magneto
from harness import fresh, module_program, same_as_eager


def test_a_list_of_tensors_in_and_out():
    same_as_eager(lambda xs: [x * i for i, x in enumerate(xs)], [randn(2), randn(3), randn(4)])


def test_a_list_argument_of_another_length():
    same_as_eager(lambda xs: sum(xs), [randn(2), randn(2)], more=[(([randn(2)],), {}), (([ones(2)] * 4,), {})])


def test_appending_to_the_callers_list():
    def f(x, out):
        out.append(x + 1)
        out.append(x)
        return len(out)

    same_as_eager(f, randn(3), [])


def test_all_ways_to_change_the_callers_list():
    def f(xs):
        xs[0] = xs[0] * 2
        xs.insert(1, xs[0])
        xs.extend([xs[1] + 1, None])
        last = xs.pop()
        xs.reverse()
        del xs[1]
        xs += [last]
        xs[1:2] = [1, 2]
        return xs

    same_as_eager(f, [randn(2), randn(2), randn(2)])


def test_a_dict_of_tensors_in_and_out():
    same_as_eager(lambda d: {k: v + 1 for k, v in d.items()} | {"sum": sum(d.values())}, {"a": randn(2), "b": randn(2)})


def test_a_dict_argument_with_other_keys():
    def f(d):
        return d["a"] * 2 if "a" in d else d.get("b", torch.zeros(1))

    same_as_eager(f, {"a": randn(2)}, more=[(({"b": randn(2)},), {}), (({},), {}), (({"b": 1, "a": ones(1)},), {})])


def test_all_ways_to_change_the_callers_dict():
    def f(d):
        d["new"] = d["a"] + 1
        d.setdefault("b", 3)
        d.setdefault("c", []).append(d["a"])
        d.update(x=1)
        gone = d.pop("a")
        del d["b"]
        d |= {"y": gone}
        return d.popitem()

    same_as_eager(f, {"a": randn(2), "b": 2})


def test_the_order_of_a_dict_matters():
    def f(d):
        out = torch.zeros(2)
        for k, v in d.items():
            out = out * 2 + v
        return out, list(d)

    a, b = randn(2), randn(2)
    same_as_eager(f, {"a": a, "b": b}, more=[(({"b": b, "a": a},), {})])


def test_one_list_under_two_names():
    def f(x):
        inner = [x]
        both = (inner, inner, {"k": inner})
        inner.append(x + 1)
        return both

    same_as_eager(f, randn(2))


def test_a_list_that_contains_itself():
    def f(x):
        loop = [x]
        loop.append(loop)
        return loop

    same_as_eager(f, randn(2))


def test_nested_containers_of_arguments():
    def f(tree):
        return {"out": [tree["a"][0] + tree["a"][1][0], (tree["b"],)]}

    same_as_eager(f, {"a": (randn(2), [randn(2)]), "b": randn(3)})


def test_a_named_tuple():
    class Pair(typing.NamedTuple):
        left: torch.Tensor
        right: torch.Tensor = None

    def f(p):
        return Pair(p.left + 1, p), p._replace(right=p.left), Pair(*p)

    same_as_eager(f, Pair(randn(2), randn(2)))


def test_collections_namedtuple():
    point = collections.namedtuple("point", "x y", defaults=[2])
    same_as_eager(lambda x: (point(x), point(x, x + 1)._asdict()), randn(2))


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    tags: list = dataclasses.field(default_factory=list)
    scale: float = 1.0

    def scaled(self):
        return self.x * self.scale


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: object
    n: int = 3


def test_a_dataclass_argument():
    def f(batch):
        batch.tags.append("seen")
        return batch.scaled()

    same_as_eager(f, Batch(randn(2), [], 2.0), more=[((Batch(randn(2), [], 3.0),), {})])


def test_a_dataclass_made_inside():
    def f(x):
        batch = Batch(x * 2)
        batch.tags.append(x)
        return dataclasses.replace(batch, scale=4.0), batch

    same_as_eager(f, randn(2))


def test_a_frozen_dataclass_with_slots():
    same_as_eager(lambda x: (Frozen(x + 1), Frozen(x, 5), Frozen(1) == Frozen(1)), randn(2))


def test_assigning_to_a_frozen_dataclass_raises():
    def f(x):
        frozen = Frozen(x)
        frozen.x = x + 1
        return frozen

    same_as_eager(f, randn(2), raises=dataclasses.FrozenInstanceError)


def test_asdict_of_a_dataclass():
    same_as_eager(lambda x: dataclasses.asdict(Frozen(x.shape[0])), randn(2))


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


def test_an_enum_argument():
    def f(x, color):
        return (x + 1 if color is Color.RED else x - 1), Color(2), Color["RED"], [c.name for c in Color]

    same_as_eager(f, randn(2), Color.RED, more=[((randn(2), Color.GREEN), {})])


def test_int_enum_and_flags():
    same_as_eager(lambda x: (x * Level.HIGH, Flags.A | Flags.B, Flags.A in (Flags.A | Flags.B)), randn(2))


def test_ordered_dict_and_its_order():
    def f(x):
        d = collections.OrderedDict(a=x, b=x + 1)
        d.move_to_end("a")
        return d, list(d)

    same_as_eager(f, randn(2))


def test_defaultdict():
    def f(x):
        d = collections.defaultdict(list)
        for i, row in enumerate(x):
            d[i % 2].append(row)
        return d, d[7]

    same_as_eager(f, randn(3, 2))


def test_deque_with_a_maximum():
    @fresh
    def program():
        recent = collections.deque(maxlen=2)

        def f(x):
            recent.append(x.sum())
            recent.rotate(1)
            return torch.stack(list(recent))

        return f, recent

    same_as_eager(program, randn(3))


def test_counter_and_chainmap():
    def f(x):
        counts = collections.Counter("abca")
        chain = collections.ChainMap({"a": x}, {"a": 1, "b": x + 1})
        return counts, counts.most_common(1), chain["a"], chain["b"]

    same_as_eager(f, randn(2))


def test_sets_of_numbers_and_strings():
    def f(x, names):
        names.add("new")
        sizes = {*x.shape, 7}
        return sizes, sizes & {7}, names - {"a"}, frozenset(names), 3 in sizes

    same_as_eager(f, randn(3, 4), {"a", "b"})


def test_a_set_of_tensors_is_by_identity():
    def f(x):
        y = x + 1
        return len({x, y, x}), x in {x}, y in {x}

    same_as_eager(f, randn(2))


def test_torch_size_and_its_arithmetic():
    def f(x):
        s = x.shape
        return s, s[1:], s + (1,), s.numel(), s[:-1] + torch.Size([2]), s == (3, 4), len(s), s[-1], tuple(s), list(s)

    same_as_eager(f, randn(3, 4))


def test_subclasses_of_list_dict_and_tuple():
    class Row(list):
        def total(self):
            return sum(self)

    class Table(dict):
        def __missing__(self, key):
            return key * 2

    class Point(tuple):
        pass

    def f(x):
        row = Row([x, x + 1])
        row.tag = "t"
        table = Table(a=1)
        return row, row.total(), table["a"], table["zz"], table, Point((x, 2))

    same_as_eager(f, randn(2))


def test_slices_and_star_of_lists():
    def f(xs):
        head, *middle, tail = xs
        return [*middle, head], xs[::-1], xs[1:3], [tail] * 2, [*xs, *reversed(xs)]

    same_as_eager(f, [randn(1), randn(2), randn(1), randn(2)])


def test_sorting_lists_of_tensors_by_a_key():
    def f(xs):
        xs.sort(key=lambda x: x.numel())
        return xs, sorted(xs, key=lambda x: -x.shape[0]), max(xs, key=len)

    same_as_eager(f, [randn(3), randn(1), randn(2)])


def test_mappings_of_a_foreign_kind():
    class Lazy(collections.abc.Mapping):
        def __init__(self, data):
            self.data = data

        def __getitem__(self, key):
            return self.data[key] * 2

        def __iter__(self):
            return iter(self.data)

        def __len__(self):
            return len(self.data)

    def f(x):
        lazy = Lazy({"a": x, "b": x + 1})
        return dict(lazy), {**lazy}, list(lazy.values()), "a" in lazy

    same_as_eager(f, randn(2))


def test_a_cache_of_tensors_that_grows():
    same_as_eager(module_program("""
        import torch
        cache = {}
        def f(x):
            key = tuple(x.shape)
            if key not in cache:
                cache[key] = torch.arange(x.shape[-1], dtype=torch.float32)
            return x + cache[key]
    """), randn(2, 3))


def test_a_kv_cache_passed_along():
    def f(x, cache):
        k = x * 2
        cache["k"] = k if cache.get("k") is None else torch.cat([cache["k"], k], 1)
        return cache["k"].sum(-1), cache

    def decode(g, x, cache):
        for _ in range(4):
            out, cache = g(x, cache)
        return out, cache

    same_as_eager(f, randn(2, 1, 3), {"k": None}, call=decode)


def test_whether_a_deque_from_outside_is_empty():
    @fresh
    def program():
        queue = collections.deque([1])
        return (lambda x: x + (1 if queue else 2)), queue

    same_as_eager(program, randn(3), change=lambda queue: queue.clear())


def test_whether_a_view_of_a_dict_is_empty():
    @fresh
    def program():
        table = {"a": 1}
        keys = table.keys()
        return (lambda x: x + (1 if keys else 2)), table

    same_as_eager(program, randn(3), change=lambda table: table.clear())


def struct_sequences(x):
    largest, sign = x.max(0), torch.linalg.slogdet(x)
    values, indices = x.sort(1)
    return largest.values + values[0], largest.indices, sign.logabsdet * sign[0], x.min(1), len(largest), x.topk(2).indices, largest


class Counted:
    def __init__(self):
        self.reads = 0

    @property
    def v(self):
        self.reads += 1
        return self.reads

    def times(self, x, n=1):
        return x * self.v * n

    def __getitem__(self, key):
        self.reads += 1
        return key * self.reads


SECOND, LENGTH, TIMES = operator.itemgetter(1), operator.attrgetter("ndim"), operator.methodcaller("mul", 3)
PLAIN_GETTERS = {
    "an item": lambda x: operator.itemgetter(1)([x, x + 1]),
    "an item of a dict": lambda x: operator.itemgetter("a")({"a": x * 2}),
    "several items": lambda x: operator.itemgetter(2, 0)((x, 1, x * 2)),
    "an attribute": lambda x: x * operator.attrgetter("ndim")(x) + operator.attrgetter("T")(x),
    "a method": lambda x: operator.methodcaller("sum", 0)(x) + operator.methodcaller("relu")(x),
    "a method of text": lambda x: x * len(operator.methodcaller("split", "a")("banana")),
    "from outside": lambda x: TIMES(SECOND((1, x))) + LENGTH(x),
    "for C code": lambda x: sorted([(x, 2), (x + 1, 1)], key=SECOND)[0][0] + sum(map(operator.itemgetter(0), [(x, 1), (x, 2)])),
    "struct sequences": struct_sequences,
}
GETTERS = PLAIN_GETTERS | {
    "an attribute of an attribute": lambda x: x + operator.attrgetter("shape.numel")(x)(),
    "keywords": lambda x: operator.methodcaller("sum", dim=0)(x),
    "code that counts": lambda x: (lambda c: (operator.attrgetter("v", "v")(c), operator.itemgetter(1, 2)(c), operator.attrgetter("v")(c),
                                              operator.methodcaller("times", x)(c), operator.methodcaller("times", x, 2)(c), c.reads))(Counted()),
    "none such": lambda x: operator.itemgetter(5)([x]) if x.ndim > 2 else x,
}


@pytest.mark.parametrize("name", GETTERS)
def test_getters(name):
    same_as_eager(GETTERS[name], randn(3, 3))


@pytest.mark.needs_capture
@pytest.mark.parametrize("name", PLAIN_GETTERS)
def test_getters_are_part_of_a_graph(name):
    found = magneto.explain(PLAIN_GETTERS[name])(randn(3, 3))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)


# ---- methods of C types that make and change containers of the program's own -----------------------------------------


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def all_of_a_set(x):
    s = {1, 2, 3}
    s.intersection_update({2, 3, 4}), s.difference_update([3]), s.symmetric_difference_update({5})
    s &= {2, 5, 7}
    t = frozenset(s)
    return x * len(s) + sum(t ^ {9}), sorted(t.symmetric_difference([2])), t <= {2, 5, 6}


def all_of_a_deque(x):
    d = collections.deque([1, 2, 3], maxlen=5)
    d.rotate(1), d.insert(1, 7), d.extendleft([8]), d.reverse(), d.remove(7)
    return x * d.count(3) + d.index(2), list(d), list(d.copy()), list(reversed(d)), len(d + d), 8 in d


def all_of_a_counter(x):
    c = collections.Counter("banana")
    c.update("bb"), c.subtract({"a": 1})
    return x * c["a"], c.most_common(1), sorted(c.elements()), c + collections.Counter(z=2), sum(c.values())


def groups(x):
    found = [(key, list(group)) for key, group in itertools.groupby([1, 1, 2, 1], key=lambda n: n * 2)]
    left = [key for key, _ in itertools.groupby("aabbc")]
    return x * len(found), found, left, [list(g) for _, g in itertools.groupby([])]


def tees(x):
    a, b, c = itertools.tee((n * 2 for n in range(4)), 3)
    first = next(a)
    return x * sum(a), first, list(b), list(zip(c, [1, 2])), list(itertools.tee([1])[1])


METHODS = {
    "sets": all_of_a_set,
    "deques": all_of_a_deque,
    "counters": all_of_a_counter,
    "groups": groups,
    "tees": tees,
    "vars": lambda x: (x * len(vars(Counted())), "LOW" in vars(Level), vars(Counted())["reads"]),
    "named numbers": lambda x: (x * Level.HIGH + x[Level.LOW], Level.HIGH * x, x.sum(Level.LOW), x.roll(Level.LOW, 0)),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_own_containers(name):
    same_as_eager(METHODS[name], randn(3, 3))


@pytest.mark.needs_capture
@pytest.mark.parametrize("name", [name for name in METHODS if name != "vars"])
def test_methods_of_own_containers_are_part_of_a_graph(name):
    found = magneto.explain(METHODS[name])(randn(3, 3))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)


def test_a_tee_that_is_refused():
    with pytest.raises(ValueError):
        magneto.compile(lambda x: (x, itertools.tee([1], -1)))(ones(2))
