"""Special methods that are code of the program, those of keys and those of containers: they run as often as in eager, whatever they do."""

import collections
import functools

import pytest
import torch._dynamo
from torch import ones

import magneto


class Stopped(Exception):
    pass


def counts(world):
    pass


def breaks(world):
    torch._dynamo.graph_break()


def clears(world):
    for container in (world.dict, world.set, world.list, world.ordered):
        container.clear()


def raises(world):
    if len(world.seen) % 3 == 2:
        raise Stopped


OPERATIONS = {
    "d[k]": lambda w: w.dict[w.key],
    "d[k] of another": lambda w: w.dict[w.Key(1)],
    "d.get": lambda w: w.dict.get(w.Key(1)),
    "d.setdefault": lambda w: w.dict.setdefault(w.Key(2), 5),
    "d[k] = v": lambda w: w.dict.__setitem__(w.Key(1), 5) or len(w.dict),
    "del d[k]": lambda w: w.dict.pop(w.Key(1)),
    "k in d": lambda w: w.Key(1) in w.dict,
    "k not in d": lambda w: w.Key(9) in w.dict,
    "d == d": lambda w: w.dict == {w.Key(0): 0, w.Key(1): 1},
    "d.copy": lambda w: len(w.dict.copy()),
    "dict(d)": lambda w: len(dict(w.dict)),
    "d | d": lambda w: len(w.dict | {w.Key(1): 7}),
    "d.update": lambda w: w.dict.update({w.Key(1): 7}) or len(w.dict),
    "fromkeys": lambda w: len(dict.fromkeys(w.list)),
    "items": lambda w: [n for _, n in w.dict.items()],
    "k in keys": lambda w: w.Key(1) in w.dict.keys(),
    "ordered": lambda w: [n for _, n in w.ordered.items()],
    "ordered[k]": lambda w: w.ordered[w.Key(1)],
    "ordered.move": lambda w: w.ordered.move_to_end(w.Key(0)) or list(w.ordered.values()),
    "k in s": lambda w: w.Key(1) in w.set,
    "s.add": lambda w: w.set.add(w.Key(5)) or len(w.set),
    "s.discard": lambda w: w.set.discard(w.Key(1)) or len(w.set),
    "s | s": lambda w: len(w.set | {w.Key(1), w.Key(8)}),
    "s & s": lambda w: len(w.set & {w.Key(1), w.Key(8)}),
    "s - s": lambda w: len(w.set - {w.Key(1)}),
    "s == s": lambda w: w.set == {w.Key(0), w.Key(1)},
    "set(l)": lambda w: len(set(w.list)),
    "k in l": lambda w: w.Key(1) in w.list,
    "l.index": lambda w: w.list.index(w.Key(1)),
    "l.count": lambda w: w.list.count(w.Key(1)),
    "l.remove": lambda w: w.list.remove(w.Key(0)) or len(w.list),
    "l == l": lambda w: w.list == [w.Key(0), w.Key(1)],
    "t == t": lambda w: tuple(w.list) == (w.Key(0), w.Key(1)),
    "sorted": lambda w: [k.n for k in sorted(w.list)],
    "max": lambda w: max(w.list).n,
    "k == k": lambda w: w.key == w.Key(1),
    "Counter": lambda w: sum(collections.Counter(w.list).values()),
    "match": lambda w: [k.n for k in w.list if k == w.key],
    "made here": lambda w: {w.Key(3): 1}[w.Key(3)],
    "made and changed": lambda w: len({w.Key(3), w.Key(3), w.Key(4)}),
}


class World:
    def __init__(self, act):
        world, self.seen = self, []

        class Key:
            def __init__(self, n):
                self.n = n

            def __hash__(self):
                world.seen.append(("hash", self.n))
                return self.n % 2

            def __eq__(self, other):
                world.seen.append(("eq", self.n))
                act(world)
                return isinstance(other, Key) and self.n == other.n

            def __lt__(self, other):
                world.seen.append(("lt", self.n))
                act(world)
                return self.n < other.n

        self.Key, self.key = Key, Key(1)
        self.list = [Key(0), self.key]
        self.dict = {key: key.n for key in self.list}
        self.ordered = collections.OrderedDict(self.dict)
        self.set = set(self.list)


def is_undefined(operation, act):
    """CPython ends where an ordered dict is cleared while a key of it is looked up, and goes by addresses where a dict is that it writes to."""
    return act is clears and operation in ("ordered.move", "ordered[k]", "d.setdefault", "d[k] = v", "d.update", "s.add")


@pytest.mark.parametrize("act", [counts, breaks, clears, raises], ids=lambda act: act.__name__)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_keys_do(operation, act):
    if is_undefined(operation, act):
        pytest.skip("not even eager repeats itself")
    outcomes = []
    for compile in (lambda f: f, magneto.compile):
        world, told = World(act), []
        run = compile(lambda x, w: (x * 2, OPERATIONS[operation](w), x + 1))
        for _ in range(3):
            world.seen.clear()
            try:
                told.append(run(ones(2), world)[1])
            except (Stopped, KeyError, ValueError, RuntimeError, IndexError) as error:
                told.append((type(error), str(error) if type(error) is RuntimeError else ""))
            told.append(list(world.seen))
        outcomes.append(told)
    assert outcomes[0] == outcomes[1]


# ---- containers that override what their C types do --------------------------------------------------------------------

SPECIAL = {
    dict: "__getitem__ __setitem__ __contains__ __iter__ __len__ keys values items get",
    collections.OrderedDict: "__getitem__ __setitem__ __contains__ __iter__ __len__ keys values items get",
    collections.defaultdict: "__getitem__ __setitem__ __contains__ __iter__ __len__ keys",
    list: "__getitem__ __setitem__ __contains__ __iter__ __len__ append",
    tuple: "__getitem__ __contains__ __iter__ __len__",
    set: "__contains__ __iter__ __len__ add",
    collections.deque: "__getitem__ __setitem__ __contains__ __iter__ __len__ append",
}

USES = {
    "x[1]": lambda c: c[1],
    "x[-1]": lambda c: c[-1],
    "x[1] = 5": lambda c: c.__setitem__(1, 5),
    "1 in x": lambda c: 1 in c,
    "len": lambda c: len(c),
    "truth": lambda c: bool(c),
    "for": lambda c: [n for n in c],
    "list": lambda c: list(c),
    "tuple": lambda c: tuple(c),
    "sorted": lambda c: sorted(c),
    "sum": lambda c: sum(c),
    "max": lambda c: max(c),
    "unpack": lambda c: (lambda a, b, *rest: a)(*c),
    "dict": lambda c: dict(c) if isinstance(c, dict) else dict(enumerate(c)),
    "set": lambda c: set(c),
    "equal": lambda c: c == type(c).__mro__[1](),
    "copy": lambda c: len(c.copy()) if hasattr(c, "copy") else len(c[:]),
    "get": lambda c: c.get(1) if isinstance(c, dict) else c.__class__.__name__,
    "items": lambda c: list(c.items()) if isinstance(c, dict) else list(enumerate(c)),
    "values": lambda c: list(c.values()) if isinstance(c, dict) else list(reversed(list(c))),
    "append": lambda c: getattr(c, "append", getattr(c, "add", getattr(c, "__len__", None)))(*([] if isinstance(c, (dict, tuple)) else [7])),
    "update": lambda c: c.update({4: 5}) if isinstance(c, dict) else c.update([4]) if isinstance(c, set) else None,
    "pop": lambda c: c.pop(1) if isinstance(c, dict) else None if isinstance(c, tuple) else c.pop(),
    "clear": lambda c: None if isinstance(c, tuple) else c.clear(),
    "repr": lambda c: repr(c),
}


class Room:
    def __init__(self, base):
        seen = self.seen = []

        def method(name):
            def called(this, *args):
                seen.append(name)
                return getattr(base, name)(this, *args)

            return called

        self.Class = type("Class", (base,), {name: method(name) for name in SPECIAL[base].split()})
        self.fill = {1: 2, 2: 3, 3: 1} if issubclass(base, dict) else [1, 2, 3]

    def make(self):
        return self.Class(None, self.fill) if issubclass(self.Class, collections.defaultdict) else self.Class(self.fill)


@pytest.mark.parametrize("where", ["outside", "inside", "both"])
@pytest.mark.parametrize("base", SPECIAL, ids=lambda base: base.__name__)
def test_what_containers_do(base, where):
    different = []
    for name, use in USES.items():
        outcomes = []
        for compile in (lambda f: f, magneto.compile):
            room, told = Room(base), []

            def program(x, given):
                kept = room.make() if where != "outside" else given
                first = use(kept)
                return x + 1, first, use(given) if where == "both" else None

            run = compile(program)
            given = room.make()
            for _ in range(3):
                room.seen.clear()
                try:
                    told.append([str(part) for part in run(ones(2), given)[1:]])
                except (TypeError, KeyError, IndexError, AttributeError, ValueError) as error:
                    told.append(type(error))
                told.append(list(room.seen))
            outcomes.append(told)
        if outcomes[0] != outcomes[1]:
            different.append((name, *outcomes))
    assert not different


# ---- calls without an end ----------------------------------------------------------------------------------------------


def calls_itself(x):
    class Caller:
        pass

    Caller.__call__ = Caller()
    try:
        Caller()()
    except RecursionError:
        return x + 1


def partial_of_itself(x):
    endless = functools.partial(len)
    endless.__setstate__((endless, (), {}, {}))
    text, none = repr(endless), list(map(endless, ()))  # called, it would end CPython
    endless.__setstate__((len, (), {}, {}))
    return x + 1, text, none


@pytest.mark.parametrize("program", [calls_itself, partial_of_itself])
def test_calls_without_an_end(program):
    compiled = magneto.compile(program)
    for _ in range(3):
        assert str(compiled(ones(2))) == str(program(ones(2)))
