"""The garbage collector sees what compiled callables hold: modules, closures and functions that refer to themselves by
way of their own recordings go when nobody else has them."""

import collections
import copy
import functools
import gc
import sys
import types
import weakref

import pytest
import torch
from torch import nn, ones, randn

import magneto


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.last, self.count, self.names = None, 0, {"a": 1.0}

    def forward(self, x):
        return self.layer(x) * self.names["a"]


def calls(f, *args, times=3):
    for _ in range(times):
        f(*args)


def keeps_its_method():
    m = Net()
    m.fast = magneto.compile(m.forward)
    calls(m.fast, randn(2, 3))
    return m


def keeps_its_forward():
    m = Net()
    m.forward = magneto.compile(m.forward)
    calls(m, randn(2, 3))
    return m


def keeps_its_compiled_self():
    m = Net()
    object.__setattr__(m, "me", magneto.compile(m))
    calls(m.me, randn(2, 3))
    return m


def keeps_it_in_a_list():
    m = Net()
    object.__setattr__(m, "all", [magneto.compile(m), magneto.compile(m.forward), functools.partial(magneto.compile(m.forward))])
    for f in m.all:
        calls(f, randn(2, 3))
    return m


def a_child_keeps_its_parent():
    m = Net()
    object.__setattr__(m.layer, "parent", magneto.compile(m))
    calls(m.layer.parent, randn(2, 3))
    return m


def a_closure():
    box = []

    def f(x):
        return x * len(box) + box[0].layer.weight.sum()

    m = Net()
    box.extend([m, magneto.compile(f)])
    calls(box[1], randn(3))
    return m


def a_global():
    module = types.ModuleType("mine")
    exec("def f(x):\n    return holder.forward(x) + len(names)\n", module.__dict__)
    module.holder, module.names = Net(), {}
    module.f = magneto.compile(module.f)
    calls(module.f, randn(2, 3))
    return module.holder


def a_default():
    m = Net()

    def f(x, of=m):
        return of.forward(x)

    m.f = magneto.compile(f)
    calls(m.f, randn(2, 3))
    return m


def effects():
    class Counts(Net):
        def forward(self, x):
            self.count += 1
            self.last = x.detach() * 2
            self.names["me"] = self
            self.names.setdefault("list", []).append(self)
            return self.layer(x), self

    m = Counts()
    m.fast = magneto.compile(m.forward)
    calls(m.fast, randn(2, 3))
    return m


def breaks():
    class Reads(Net):
        def inner(self, x):
            y = x * 2
            self.last = y.sum().item()
            return [self, y]

        def forward(self, x):
            h = self.layer(x)
            torch._dynamo.graph_break()
            me, y = self.inner(h)
            return me.layer(y)

    m = Reads()
    m.fast = magneto.compile(m.forward)
    calls(m.fast, randn(2, 3), times=5)
    return m


def sizes_that_change():
    m = Net()
    m.fast = magneto.compile(m.forward)
    for rows in (2, 3, 4, 5):
        m.fast(randn(rows, 3))
    return m


def training():
    m = Net()
    m.fast = magneto.compile(m.forward)
    for _ in range(3):
        m.fast(randn(2, 3)).sum().backward()
        m.zero_grad()
    return m


def hooks():
    m = Net()
    c = magneto.compile(m)
    c.register_forward_hook(lambda module, args, out: out + len(c.names))
    calls(c, randn(2, 3))
    return m


def copies():
    m = keeps_its_method()
    return copy.deepcopy(m)


def compiled_inside_compiled():
    m = Net()
    m.inner = magneto.compile(m.forward)

    def f(x):
        return m.inner(x) + 1

    m.outer = magneto.compile(f)
    calls(m.outer, randn(2, 3))
    return m


def never_called():
    m = Net()
    m.fast = magneto.compile(m.forward)
    return m


ALL = [keeps_its_method, keeps_its_forward, keeps_its_compiled_self, keeps_it_in_a_list, a_child_keeps_its_parent, a_closure,
       a_global, a_default, effects, breaks, sizes_that_change, training, hooks, copies, compiled_inside_compiled, never_called]


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_it_goes(make):
    m = make()
    gone = [weakref.ref(m), weakref.ref(m.layer), weakref.ref(m.layer.weight)]
    gc.collect()
    assert all(ref() is not None for ref in gone)
    del m
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)


@pytest.mark.parametrize("make", [keeps_its_method, keeps_its_compiled_self, a_closure, breaks], ids=lambda make: make.__name__)
def test_hundreds_of_them_leave_nothing(make):
    def count():
        gc.collect()
        return len(gc.get_objects())

    for _ in range(10):
        make()
    before = count()
    for _ in range(100):
        make()
    magneto.reset()
    after = count()
    assert after - before < 50, f"{(after - before) / 100} objects each"


def test_compiled_functions_themselves_go():
    def f(x):
        return x * 2

    g = magneto.compile(f)
    g.me = g
    g(ones(2)), g(ones(2))
    gone = weakref.ref(g)
    del g
    gc.collect()
    assert gone() is None and torch.equal(magneto.compile(f)(ones(2)), ones(2) * 2)


def test_no_reference_is_told_twice():
    """What a compiled callable says that it holds, it holds: at least as many references exist."""

    def check(g):
        held = collections.Counter(map(id, gc.get_referents(g)))
        for thing in {id(o): o for o in gc.get_referents(g)}.values():
            assert sys.getrefcount(thing) - 2 >= held[id(thing)], type(thing)
        return held

    for make in ALL:
        m = make()
        for name in ("fast", "me", "outer", "f"):
            if name in m.__dict__:
                g = m.__dict__[name]
                g = type(g).__dict__["__call__"] if isinstance(g, nn.Module) else g
                assert sum(check(g).values()) > 3


def test_collections_at_every_moment():
    m, x = Net(), randn(2, 3)
    g = magneto.compile(lambda x: m(x) + len([m.names, [x], {"x": x}]))
    expected = g(x)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for make in ALL:
            make()
        for _ in range(20):
            assert torch.equal(g(x), expected)
    finally:
        gc.set_threshold(*threshold)


def test_a_finalizer_calls_what_is_about_to_go():
    answers = []

    class Last:
        def __init__(self):
            self.f = magneto.compile(self.step)
            self.f(ones(2))

        def step(self, x):
            return x + 1

        def __del__(self):
            answers.append(self.f(ones(2)).tolist())

    Last()
    gc.collect()
    assert answers == [[2.0, 2.0]]
