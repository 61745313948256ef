"""An old value is read, its place gets another one or is emptied, and the old value is used again.

A program is a place (attribute, item, global, cell ...), something that happens to it, and a use of what it held before:

    def f(x, b, keep):
        prev = b.s              # a place of two: this one, and b.t
        b.s = x * 2             # what happens
        keep.append(prev)       # a use
        return prev

Both worlds run it several times on their own state; between calls the state is changed from outside, too.
"""

import array
import collections
import contextlib
import itertools
import linecache
import random
import re
import textwrap
import types

import pytest
import torch
from torch import randn

import magneto
from harness import compare, fresh, module_program, same_as_eager
from picture import Picture

HEAD = """
    import collections, contextlib, time, types, torch
    from torch import nn

    class Box:
        def __init__(self, s=None, t=None):
            self.s, self.t = s, t

    class Slots:
        __slots__ = ("s", "t")
        def __init__(self, s, t):
            self.s, self.t = s, t

    class Property:
        def __init__(self, s, t):
            self.__dict__.update(_s=s, _t=t)
        s = property(lambda self: self._s, lambda self, v: self.__dict__.__setitem__("_s", v), lambda self: self.__dict__.pop("_s"))
        t = property(lambda self: self._t, lambda self, v: self.__dict__.__setitem__("_t", v), lambda self: self.__dict__.pop("_t"))

    class Watched(Box):
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value)
            object.__setattr__(self, "last", name)

    class Dict(dict): pass
    class List(list): pass

    class Net(nn.Module):
        def __init__(self, s, t):
            super().__init__()
            self.plain = 1
            for name, value in (("s", s), ("t", t)):
                if isinstance(value, nn.Parameter) or isinstance(value, nn.Module) or not isinstance(value, torch.Tensor):
                    setattr(self, name, value)
                else:
                    self.register_buffer(name, value)

    class held:
        def __init__(self, get, put, value):
            self.get, self.put, self.value = get, put, value
        def __enter__(self):
            self.old = self.get()
            self.put(self.value)
            return self.old
        def __exit__(self, *error):
            self.put(self.old)
            return False

    @contextlib.contextmanager
    def kept(get, put, value):
        old = get()
        put(value)
        try:
            yield old
        finally:
            put(old)
"""

# name: (what makes the state from values v and w, how f reads the first place and the second one)
FLOATING = {
    "attributes": ("Box(v, w)", "b.s", "b.t"),
    "slots": ("Slots(v, w)", "b.s", "b.t"),
    "properties": ("Property(v, w)", "b.s", "b.t"),
    "a class with __setattr__": ("Watched(v, w)", "b.s", "b.t"),
    "a namespace": ("types.SimpleNamespace(s=v, t=w)", "b.s", "b.t"),
    "a list": ("[v, w]", "b[0]", "b[1]"),
    "the end of a list": ("[None, v, w]", "b[-1]", "b[-2]"),
    "a dict": ("{'s': v, 't': w}", "b['s']", "b['t']"),
    "a dict with keys of other kinds": ("{1: v, (2, 'k'): w}", "b[1]", "b[2, 'k']"),
    "an OrderedDict": ("collections.OrderedDict(s=v, t=w)", "b['s']", "b['t']"),
    "a defaultdict": ("collections.defaultdict(list, s=v, t=w)", "b['s']", "b['t']"),
    "a subclass of dict": ("Dict(s=v, t=w)", "b['s']", "b['t']"),
    "a subclass of list": ("List([v, w])", "b[0]", "b[1]"),
    "a deque": ("collections.deque([v, w])", "b[0]", "b[-1]"),
    "objects in objects": ("Box(Box(v), [{'k': w}])", "b.s.s", "b.t[0]['k']"),
    "two holders": ("(Box(v), {'k': w})", "b[0].s", "b[1]['k']"),
    "a module": ("Net(v, w)", "b.s", "b.t"),
    "attributes of a tensor": ("(lambda t: (setattr(t, 's', v), setattr(t, 't', w), t)[2])(torch.ones(2))", "b.s", "b.t"),
    "an instance dict": ("Box(v, w)", "b.__dict__['s']", "vars(b)['t']"),
    "one list twice": ("(lambda l: Box(l, l))([v, w])", "b.s[0]", "b.t[1]"),
}
# Found from the function itself: the same objects at every call.
PINNED = {
    "globals": ("", "G", "H"),
    "a global object": ("Box(v, w)", "G.s", "G.t"),
    "a global list": ("[v, w]", "G[0]", "G[1]"),
    "a global dict": ("{'s': v, 't': w}", "G['s']", "G['t']"),
    "class attributes": ("type('Class', (), {'s': v, 't': w})", "G.s", "G.t"),
    "attributes of a function": ("(lambda f: (setattr(f, 's', v), setattr(f, 't', w), f)[2])(lambda: 0)", "G.s", "G.t"),
    "a global module": ("Net(v, w)", "G.s", "G.t"),
    "cells": (None, "s", "t"),
}

# What happens to the first place, A; the second is C. X is a new value.
HAPPENS = {
    "it is overwritten": "prev = A\nA = X",
    "it is overwritten twice": "prev = A\nA = X\nA = Y",
    "it is overwritten and read": "prev = A\nA = X\nx = x + number(A)",
    "it is overwritten by itself": "prev = A\nA = prev",
    "it is swapped": "A, C = C, A\nprev = A",
    "it is swapped twice": "prev = A\nA, C = C, A\nA, C = C, A",
    "it is rotated": "prev = A\nA = C\nC = prev",
    "it moves": "prev = C\nC = A\nA = X",
    "it is emptied": "prev = A\ndel A\nA = X",
    "it is gone": "prev = A\ndel A",
    "it is None for a while": "prev = A\nA = None\nx = x + (A is None)\nA = X",
    "it is saved and restored": "prev = A\ntry:\n    A = X\n    x = x + number(A)\nfinally:\n    A = prev",
    "it is saved, and X stays on an error": "prev = A\ntry:\n    A = X\n    raise KeyError('k')\nexcept KeyError:\n    x = x + 1",
    "a with block restores it": "def put(v):\n    SCOPE\n    A = v\nprev = A\nwith held(lambda: A, put, X) as old:\n    x = x + number(A) + number(old)",
    "a generator's with block restores it":
        "def put(v):\n    SCOPE\n    A = v\nprev = A\nwith kept(lambda: A, put, X) as old:\n    x = x + number(A) + number(old)",
    "it changes in a loop": "for i in range(3):\n    prev = A\n    A = C\n    C = X\n    x = x + i",
    "a function changes it": "def change(v):\n    SCOPE\n    old = A\n    A = v\n    return old\nprev = change(X)",
    "a break comes before": "prev = A\ntime.perf_counter()\nA = X",
    "a break comes after": "prev = A\nA = X\ntime.perf_counter()",
    "breaks come between": "time.perf_counter()\nprev = A\nA = C\ntime.perf_counter()\nC = prev\nA = X\ntime.perf_counter()",
}
# Only where the holder is a list or a dict.
OF_LISTS = {
    "pop": "prev = B.pop()\nB.append(X)",
    "pop in front": "prev = B.pop(0)\nB.insert(0, X)",
    "pop and nothing else": "prev = B.pop()",
    "a copy": "old = list(B)\nB[0] = X\nprev = old[0]",
    "a slice": "old = B[:]\nB[0] = X\nprev = old[0]",
    "unpacking": "prev, *rest = B\nB[0] = X\nB[1] = prev",
    "reverse": "prev = B[0]\nB.reverse()\nB[0] = X",
    "clear": "prev = B[0]\nB.clear()\nB.extend([X, prev])",
    "del of all": "old = B[:]\ndel B[0], B[0]\nB += [X, old[0]]\nprev = old[1]",
    "del of a slice": "prev = B[0]\ndel B[:]\nB.extend((X, X))",
    "a slice assignment": "prev = B[0]\nB[:] = [X, prev]",
    "insert": "prev = B[0]\nB.insert(0, X)",
    "a loop over it": "for i, v in enumerate(B):\n    prev = v\n    B[i] = X",
    "sorted by a key": "prev = sorted(B, key=lambda v: 0)[0]\nB[0] = X",
}
OF_DICTS = {
    "get": "prev = B.get(K)\nB[K] = X",
    "pop": "prev = B.pop(K)\nB[K] = X",
    "pop and nothing else": "prev = B.pop(K, None)",
    "popitem": "prev = B.popitem()[1]",
    "setdefault": "prev = B.setdefault(K, X)\nB[K] = X",
    "setdefault of a new key": "prev = B.setdefault('new', X)\nB['new'] = prev",
    "a copy": "old = dict(B)\nB[K] = X\nprev = old[K]",
    "its own copy": "old = B.copy()\nB[K] = X\nprev = old[K]",
    "values": "prev = list(B.values())[0]\nB[K] = X",
    "items": "for k, v in list(B.items()):\n    prev = v\n    B[k] = X",
    "update": "prev = B[K]\nB.update({K: X})",
    "an update that restores": "old = {**B}\nB[K] = X\nB.update(old)\nprev = old[K]",
    "clear": "prev = B[K]\nB.clear()\nB[K] = X",
    "union": "prev = B[K]\nB |= {K: X}",
}
USES = {
    "it is returned": "return prev",
    "it is an operand": "return x * number(prev)",
    "both": "return prev, x - number(prev), x",
    "it is kept": "keep.append(prev)\nreturn x",
    "it is kept in a dict": "keep[-1]['k'] = prev\nreturn x + number(keep[-1]['k'])",
    "it is put elsewhere": "keep.append((prev, [prev]))\nreturn x",
    "it is an operand after a break": "time.perf_counter()\nreturn x * number(prev), prev",
}

VALUES = {
    "tensors": lambda n: randn(3) + n,
    "leaves": lambda n: randn(3).requires_grad_(),
    "ints": lambda n: n + 2,
    "floats": lambda n: n * 1.5,
    "texts": lambda n: f"text {n}",
    "lists": lambda n: [randn(3), n],
    "tuples": lambda n: (randn(3), n),
    "objects": lambda n: types.SimpleNamespace(v=randn(3), n=n),
    "parameters": lambda n: torch.nn.Parameter(randn(3)),
    "modules": lambda n: torch.nn.Linear(3, 3),
}
NEW = {  # what the program puts there: X and Y
    "tensors": ("x * 2", "x - 1"), "leaves": ("x * 2", "x - 1"), "ints": ("4", "x.shape[0]"), "floats": ("2.5", "0.5"),
    "texts": ("'new'", "'newer'"), "lists": ("[x * 2, 7]", "[x]"), "tuples": ("(x * 2, 7)", "(x, 1)"),
    "objects": ("types.SimpleNamespace(v=x * 2, n=1)", "types.SimpleNamespace(v=x, n=2)"),
    "parameters": ("C", "C"), "modules": ("C", "C"),
}
NUMBER = """
    def number(v):
        if isinstance(v, str) or v is None:
            return 1
        if isinstance(v, (list, tuple)):
            return v[0].sum()
        if isinstance(v, types.SimpleNamespace):
            return v.v.sum() * v.n
        if isinstance(v, nn.Module):
            return v.weight.sum()
        return v
"""


def source_of(place, happens, use, values, pinned=False):
    """The text of a program: module globals, make(v, w) -> the arguments beside x, put(args, v), f."""
    made, a, c = place
    x, y = NEW[values]
    lines = f"{happens}\n{use}"
    holder, key = (a[:a.rindex("[")], a[a.rindex("[") + 1:-1]) if a.endswith("]") else ("", "")

    def fill(text, scope):
        words = {"A": a, "C": c, "B": holder, "K": key, "X": f"({x})", "Y": f"({y})", "SCOPE": scope}
        for _ in range(2):
            text = re.sub(r"\b[A-Z]+\b", lambda word: words.get(word[0], word[0]), text)
        return text

    if made is None:  # cells of the function around f
        return HEAD + NUMBER + f"""
    def make(v, w):
        s, t = v, w
        keep = [{{}}]
        def f(x):
            nonlocal s, t
{indented(fill(lines, "nonlocal s, t"), 12)}
        def put(v):
            nonlocal s
            s = v
        return f, put, (), lambda: f
    """
    head = "global G, H" if pinned else ""
    setup = "G, H = v, w" if pinned and not made else f"G, H = {made}, None" if pinned else f"b = {made}"
    if pinned:
        return HEAD + NUMBER + f"""
    def f(x):
        {head if made == "" else "pass"}
{indented(fill(lines, "global G, H" if made == "" else "pass"), 8)}
    def put(v):
        global G, H
        {a} = v
    def make(v, w):
        global G, H, keep
        {setup}
        keep = [{{}}]
        return f, put, (), lambda: [globals().get('G'), globals().get('H'), keep]
    """
    return HEAD + NUMBER + f"""
    def f(x, b, keep):
{indented(fill(lines, "pass"), 8)}
    def make(v, w):
        {setup}
        keep = [{{}}]
        def put(v):
            {a} = v
        return f, put, (b, keep), lambda: None
    """


def indented(text, width):
    return textwrap.indent(text, " " * width)


COUNT = itertools.count()


def run(source, values, compiled, backend, steps=6):
    """One world: the pictures of all steps."""
    name = f"<program {next(COUNT)}>"
    source = textwrap.dedent(source)
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    module = types.ModuleType("program")
    exec(compile(source, name, "exec"), module.__dict__)
    torch.manual_seed(3)
    function, put, args, state = module.make(VALUES[values](0), VALUES[values](1))
    call = magneto.compile(function, backend=backend) if compiled else function
    for step in range(steps):
        if step == 3:
            with contextlib.suppress(LookupError):  # the list is empty
                put(VALUES[values](5))
        if step == 4 and module.make.__code__.co_cellvars != ("keep", "s", "t"):  # another state of the same kind
            _, put, args, state = module.make(VALUES[values](2), VALUES[values](3))
        x = randn(3).requires_grad_(step == 5)
        picture = Picture()
        result = raised = None
        try:
            result = call(x, *args)
        except Exception as error:
            raised = error
        picture.draw("arguments", [x, *args])
        picture.draw("state", state())
        if raised is None:
            picture.draw("result", result, is_result=True)
        else:
            picture.draw("raised", raised)
        picture.draw_gradients()
        yield picture


def fault_of(source, values, backend):
    """What differs from eager; None: nothing."""
    program = textwrap.dedent(source.removeprefix(HEAD + NUMBER))
    eager, compiled = list(run(source, values, False, backend)), list(run(source, values, True, backend))
    for step, (want, have) in enumerate(zip(eager, compiled, strict=True)):
        try:
            compare(f"step {step} with {values} in\n{program}", want, have, close=backend != "eager")
        except pytest.fail.Exception as fault:
            return str(fault)
    return None


def programs(name, place, pinned, count=None):
    """Some of all combinations for one place: each thing that may happen once, or `count` of them."""
    drawn = random.Random(name)
    happens = dict(HAPPENS)
    if place[1].endswith("]") and "deque" not in name:
        happens |= OF_LISTS if "list" in name else {}
        happens |= OF_DICTS if "dict" in name.lower() else {}
    values = ["tensors", "leaves", "ints", "floats", "texts", "lists", "tuples", "objects"]
    if "module" in name:
        values = ["tensors", "parameters", "modules", "ints"]
    chosen = list(happens) if count is None else drawn.sample(list(happens), count)
    for number, what in enumerate(chosen):
        use = drawn.choice(list(USES))
        kind = drawn.choice(values) if number % 2 else values[0]
        yield source_of(place, happens[what], USES[use], kind, pinned), kind


PLACES = {**{name: (place, False) for name, place in FLOATING.items()}, **{name: (place, True) for name, place in PINNED.items()}}


@pytest.mark.parametrize("backend", ["eager", None])
@pytest.mark.parametrize("name", PLACES)
def test_an_old_value_outlives_its_place_in(name, backend):
    place, pinned = PLACES[name]
    faults = [fault for source, values in programs(name, place, pinned, None if backend == "eager" else 5)
              if (fault := fault_of(source, values, backend or "magneto"))]
    assert not faults, f"{len(faults)} programs differ\n" + "\n".join(faults[:3])


def same_over_calls(build, *calls, options=None):
    """build() -> a function and its state; each call makes the arguments from the state. All of it twice."""

    def world(compiled):
        torch.manual_seed(3)
        function, state = build()
        callee = magneto.compile(function, **(options or {})) if compiled else function
        for make in calls:
            args = make(state)
            picture = Picture()
            result = raised = None
            try:
                result = callee(*args)
            except Exception as error:
                raised = error
            picture.draw("arguments", args)
            picture.draw("state", state)
            picture.draw("raised" if raised else "result", raised or result, is_result=True)
            yield picture

    for number, (want, have) in enumerate(zip(list(world(False)), list(world(True)), strict=True)):
        compare(f"call {number}", want, have)


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def get(self):
        return self.s

    def put(self, value):
        self.s = value


def of_state(f):
    return lambda: (f, Box(box=Box(s=1), list=[1, 2], dict={"s": 1}, x=torch.ones(2)))


# What changes one object is seen through the other, when both are one. (function, arguments that are two, that are one)
ONE_OR_TWO = {
    "two lists": (lambda x, a, b: (a.__setitem__(0, 5), x * b[0])[1],
                  lambda: ([1, 2], [1, 2]), lambda: [[1, 2]] * 2),
    "two dicts": (lambda x, a, b: (a.update(s=5), x * b["s"])[1],
                  lambda: ({"s": 1}, {"s": 1}), lambda: [{"s": 1}] * 2),
    "two objects": (lambda x, a, b: (a.put(5), x * b.s)[1],
                    lambda: (Box(s=1), Box(s=1)), lambda: [Box(s=1)] * 2),
    "an object and a dict": (lambda x, a, b: (a.put(5), x * b["s"])[1],
                             lambda: (Box(s=1), {"s": 1}), lambda: (lambda o: (o, vars(o)))(Box(s=1))),
    "a dict and an object": (lambda x, a, b: (a.update(s=5), x * b.s)[1],
                             lambda: ({"s": 1}, Box(s=1)), lambda: (lambda o: (vars(o), o))(Box(s=1))),
    "objects with one dict": (lambda x, a, b: (a.put(5), x * b.s)[1],
                              lambda: (Box(s=1), Box(s=1)), lambda: (lambda o, p: (setattr(o, "__dict__", vars(p)), o, p)[1:])(Box(), Box(s=1))),
    "an object and its dict, read": (lambda x, a, b: x * a.s + b["s"],
                                     lambda: (Box(s=1), {"s": 3}), lambda: (lambda o: (o, vars(o)))(Box(s=1))),
    "a list and one inside": (lambda x, a, b: (a.s.__setitem__(0, 5), x * b[0])[1],
                              lambda: (Box(s=[1]), [1]), lambda: (lambda o: (o, o.s))(Box(s=[1]))),
    "a method and its object": (lambda x, a, b: x * a() + b.s,
                                lambda: (Box(s=1).get, Box(s=3)), lambda: (lambda o: (o.get, o))(Box(s=1))),
    "a method that changes its object": (lambda x, a, b: (a(5), x * b.s)[1],
                                         lambda: (Box(s=1).put, Box(s=3)), lambda: (lambda o: (o.put, o))(Box(s=1))),
    "append and its list": (lambda x, a, b: (a(5), x * len(b))[1],
                            lambda: ([1].append, [1]), lambda: (lambda o: (o.append, o))([1])),
}


@pytest.mark.parametrize("first", ["two", "one"])
@pytest.mark.parametrize("name", ONE_OR_TWO)
def test_two_that_are_one_at_another_call(name, first):
    f, two, one = ONE_OR_TWO[name]
    makers = (two, one) if first == "two" else (one, two)
    calls = [lambda state, make=make: (state.x, *make()) for make in (makers[0], makers[0], makers[1], makers[0], makers[1])]
    same_over_calls(of_state(f), *calls)


@pytest.mark.parametrize("held", ["box", "list", "dict"])
def test_an_argument_that_is_a_global_at_another_call(held):
    state = Box()

    def build():
        state.__dict__.update(box=Box(s=1), list=[1, 2], dict={"s": 1}, x=torch.ones(2))

        def change_box(x, other):
            state.box.s = 7
            return x * other.s

        def change_list(x, other):
            state.list[0] = 7
            return x * other[0]

        def change_dict(x, other):
            state.dict["s"] = 7
            return x * other["s"]

        return {"box": change_box, "list": change_list, "dict": change_dict}[held], state

    def put_back(state):
        state.box.s = state.list[0] = state.dict["s"] = 1

    other = {"box": lambda: Box(s=1), "list": lambda: [1, 2], "dict": lambda: {"s": 1}}[held]
    mine = lambda state: (put_back(state), (state.x, other()))[1]
    its = lambda state: (put_back(state), (state.x, getattr(state, held)))[1]
    same_over_calls(build, mine, mine, its, mine, its)


class SubList(list):
    pass


class SubSet(set):
    pass


class Counted(collections.OrderedDict):
    calls = 0

    def __setitem__(self, key, value):
        type(self).calls += 1
        super().__setitem__(key, value)


IN_PLACE = {
    "+=": ("c += [x, 1]", [list, SubList, collections.deque]),
    "+= of a tuple": ("c += (x, 1)", [list, SubList]),
    "*=": ("c *= 2", [list, SubList, collections.deque]),
    "|=": ("c |= {'a': 5, 'b': x}", [dict, collections.OrderedDict, collections.Counter, Counted,
                                     lambda: collections.defaultdict(int)]),
    "|= of a set": ("c |= {5}", [set, SubSet]),
    "|= of a list": ("c |= [5]", [set, SubSet]),
    "&=": ("c &= {1}", [lambda: {1, 2}, lambda: SubSet({1, 2}), lambda: collections.Counter("aab")]),
    "-=": ("c -= {1}", [lambda: {1, 2}, lambda: SubSet({1, 2})]),
    "^=": ("c ^= {1}", [lambda: {1, 2}, lambda: SubSet({1, 2})]),
    "+= of bytes": ("c += b'x'", [bytearray]),
    "+= of an array": ("c += array.array('i', [1])", [lambda: array.array("i", [1])]),
    "update": ("c.update({'a': 5, 'b': x})", [dict, collections.OrderedDict, Counted]),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_operator_that_changes_a_container_in_place(name):
    statement, kinds = IN_PLACE[name]
    scope = {"array": array}
    exec(f"def f(x, c):\n    {statement}\n    return x + 1, c", scope)
    for kind in kinds:
        def build():
            Counted.calls = 0
            return scope["f"], Box(counted=Counted)

        same_over_calls(build, *[lambda state: (torch.ones(2), kind())] * 4)


READS = {
    "object.__getattribute__": lambda x, b: x * object.__getattribute__(b, "s"),
    "its __getattribute__": lambda x, b: x * b.__getattribute__("s"),
    "getattr": lambda x, b: x * getattr(b, "s"),
    "vars": lambda x, b: x * vars(b)["s"],
    "get": lambda x, b: x * b.__dict__.get("s"),
    "pop": lambda x, b: x * b.__dict__.pop("s"),
    "values": lambda x, b: x * list(b.__dict__.values())[0],
    "an attribute of a tensor": lambda x, b: x * b.t.s,
    "an attribute of a tensor, by object": lambda x, b: x * object.__getattribute__(b.t, "s"),
}


@pytest.mark.parametrize("name", READS)
def test_a_number_that_changes_is_read_by(name):
    def box(value):
        tensor = torch.ones(1)
        tensor.s = value
        return Box(s=value, t=tensor)

    for values in ((1, 2, 3, 4, 4, -5, 0), (1.5, 2.5, 2.5, 4.0, -0.0, 7.0), (1, 2, 2.5, 3, True)):
        same_over_calls(of_state(READS[name]), *[lambda state, v=v: (state.x, box(v)) for v in values])


def test_keys_of_more_than_64_bits_are_not_minus_one():
    def f(x, d):
        d[-1] = 5
        return x * d.get(2**70, 9), d[2**64], d.get(-2**90)

    same_over_calls(of_state(f), *[lambda state, i=i: (state.x, {2**70: i, -1: i, 2**64: i}) for i in range(4)])


def test_equal_keys_of_different_types():
    def f(x, d):
        d[True] = 5
        d[(1, "k")] = 6
        return x * d[1] + d[1.0] + d[2.0] + d[(1.0, "k")]

    same_over_calls(of_state(f), *[lambda state, i=i: (state.x, {1: i, 2: i, (1, "k"): i}) for i in range(4)])


@pytest.mark.parametrize("f", [
    lambda x, n: (x * n, n + 1, n - 1),
    lambda x, n: (x, n * 2**40, n < 2**70, n + 2**63, n == 2**64, -n, n // 3, n % 7, n << 50),
    lambda x, n: x + 1 if n * n > 2**63 else x - 1,
    lambda x, n: (x, n * n * n, (n * n) // 5, n * 2**40 * 2**40, (n - 1) * 2**62 * 4),
    lambda x, n: (x, [n + 2**62][0] - 2**62, n + 2**62 + 2**62),
], ids=range(5))
def test_ints_around_64_bits(f):
    numbers = (3, 4, 5, 2**33, 2**40, 0, -3, 2**31, 2**62, 2**63 - 1, -2**63, 2**63, 2**64, 2**70, -2**70, 7)
    same_over_calls(of_state(f), *[lambda state, n=n: (state.x, n) for n in numbers], options={"options": {"cache_size_limit": 64}})
    same_over_calls(of_state(f), *[lambda state, n=n: (state.x, n) for n in numbers], options={"dynamic": True})


def test_an_int_attribute_that_grows_beyond_64_bits():
    def f(x, b):
        b.s = b.s * 3 + 2**60
        return x, b.s % 1000

    def same(state):
        return state.x, state.box

    same_over_calls(of_state(f), *[same] * 9)


def tensors_in(count, equal=()):
    made = [torch.full((2,), float(i)) for i in range(count)]
    for i, j in equal:
        made[i] = made[j]
    return made


@pytest.mark.parametrize("count", [3, 40, 70, 300])
def test_many_tensors_of_which_two_are_one_at_another_call(count):
    def f(xs):
        xs[0].add_(1)
        return [x * 2 for x in xs], xs[0] is xs[-1]

    def written(xs):
        xs[0].add_(1)
        return xs[-1] * 2

    for g in (f, written):
        same_over_calls(lambda: (g, Box()), *[lambda state, e=e: (tensors_in(count, e),)
                                              for e in ((), (), ((0, count - 1),), (), ((count // 2, 1),))])


@pytest.mark.needs_capture
def test_guards_have_the_same_order_in_every_run():
    def f(x, boxes):
        for box in boxes:
            box.s = box.s + x
            boxes[0].t = box
        return x

    def guards():
        explained = magneto.explain(f)(torch.ones(2), [Box(s=torch.ones(2), n=i) for i in range(40)])
        return [graph.guards for graph in explained.graphs]

    first = guards()
    kept = []
    for _ in range(3):
        kept.append([Box() for _ in range(100)])  # other addresses
        magneto.reset()
        assert guards() == first


LIST_CHANGES = {
    "append": lambda l, t: l.append(2), "extend": lambda l, t: l.extend([2]), "a result": lambda l, t: l.append(t + 1), "insert": lambda l, t: l.insert(1, 2),
    "slice": lambda l, t: l.__setitem__(slice(1, None), [3]), "add": lambda l, t: l.__iadd__([3]), "twice": lambda l, t: (l.append(1), l.extend([2])),
    "and back": lambda l, t: (l.append(1), l.pop()), "clear": lambda l, t: (l.append(l[0]), l.__delitem__(0)),
}
LIST_READS = {
    "item": lambda l: l[0], "loop": lambda l: [x for x in l][0], "unpacked": lambda l: (lambda x, *rest: x)(*l), "slice": lambda l: l[:1][0],
    "copy": lambda l: l.copy()[0], "builtin": lambda l: max(l[:1], key=lambda v: 1), "iterator": lambda l: next(iter(l)), "zip": lambda l: list(zip(l, l))[0][0],
    "tuple": lambda l: tuple(l)[0], "sum of lists": lambda l: (l + [1])[0], "pop": lambda l: l.pop(0),
}


@pytest.mark.parametrize("place", ["an argument", "an attribute"])
@pytest.mark.parametrize("read", LIST_READS)
@pytest.mark.parametrize("change", LIST_CHANGES)
def test_what_a_list_held_before_it_was_changed_is_guarded(change, read, place):
    """Its element was an argument, too, when the call was recorded, and is none any more."""
    def f(holder, t):
        l = holder if place == "an argument" else holder.items
        LIST_CHANGES[change](l, t)
        return LIST_READS[read](l).abs() + t

    compiled = magneto.compile(f, backend="eager")
    for k in range(5):
        answers = []
        for function in (f, compiled):
            t = torch.tensor([-1.0])
            items = [t if k < 2 else torch.tensor([-1.0 - k])]
            holder = items if place == "an argument" else types.SimpleNamespace(items=items)
            answers.append((function(holder, t).item(), len(items)))
        assert answers[0] == answers[1]


DICT_CHANGES = {
    "update": lambda o: vars(o).update(q=1), "pop": lambda o: vars(o).pop("nothing", None), "pop what is there": lambda o: vars(o).pop("extra", None),
    "setdefault": lambda o: vars(o).setdefault("r", 1), "item": lambda o: vars(o).__setitem__("q", 2), "length": lambda o: len(vars(o)),
    "loop": lambda o: [name for name in vars(o)], "copy": lambda o: vars(o).update(dict(vars(o))),
}
KEPT = types.SimpleNamespace(s=0)
KEPT_MODULE = torch.nn.Module()


@pytest.mark.parametrize("owner", ["an argument", "a global", "a module"])
@pytest.mark.parametrize("how", ["=", "setattr", "object.__setattr__"])
@pytest.mark.parametrize("change", DICT_CHANGES)
def test_an_attribute_is_set_before_its_dict_is_looked_at_as_a_whole(change, how, owner):
    def f(x, o):
        o = {"an argument": o, "a global": KEPT, "a module": KEPT_MODULE}[owner]
        if how == "=":
            o.s = x * 3
        elif how == "setattr":
            setattr(o, "s", x * 3)
        else:
            object.__setattr__(o, "s", x * 3)
        DICT_CHANGES[change](o)

    kept = {"an argument": types.SimpleNamespace(s=0), "a global": KEPT, "a module": KEPT_MODULE}[owner]
    kept.extra = 1
    compiled = magneto.compile(f)
    for _ in range(4):
        x = randn(2)
        compiled(x, kept)
        assert torch.equal(kept.s, x * 3)


def test_a_global_is_set_before_all_of_them_are_looked_at():
    module = types.ModuleType("program")
    exec("def f(x):\n    global S\n    S = x * 3\n    globals().update(R=1)\n    globals().pop('nothing', None)", vars(module))
    compiled = magneto.compile(module.f)
    for _ in range(4):
        x = randn(2)
        compiled(x)
        assert torch.equal(module.S, x * 3)
