"""Objects: slots, identity, changed classes, copies, namespaces, tensors with attributes and tensor subclasses."""

import copy
import traceback
import types

import pytest
import torch
from torch import randn

import magneto
from harness import fresh, module_program, same_as_eager


class Box:
    pass


def with_object(cls, f, *args):
    """A program with one object of its own as state."""

    @fresh
    def program():
        thing = cls(*args)
        return (lambda x: f(thing, x)), thing

    return program


def test_slots():
    class Slotted:
        __slots__ = ("a", "b")

        def __init__(self):
            self.a = 1

    def f(thing, x):
        thing.a += 1
        thing.b = x
        return x * thing.a

    same_as_eager(with_object(Slotted, f), randn(2), change=lambda thing: setattr(thing, "a", 9))
    same_as_eager(with_object(Slotted, lambda thing, x: setattr(thing, "c", x)), randn(2), raises=AttributeError)


def test_identity_and_id():
    def f(x, y):
        z = x
        return x is z, x is y, id(x) == id(z), x is not None, type(x) is torch.Tensor, x.shape is x.shape

    x = randn(2)
    same_as_eager(f, x, x, more=[((x, randn(2)), {})])


def test_isinstance_and_issubclass():
    def f(x, v):
        return (isinstance(x, torch.Tensor), isinstance(x, (int, str)), isinstance(v, int | float), issubclass(bool, int),
                isinstance(x, torch.nn.Parameter), isinstance(x.shape, tuple), isinstance(x.shape[0], int),
                type(x.shape[0]) is int, callable(f), isinstance(v, bool))

    same_as_eager(f, randn(2), 3, more=[((randn(2), 2.5), {}), ((torch.nn.Parameter(randn(2)), True), {})])


def test_changing_the_class_of_an_object():
    class A:
        def go(self, x):
            return x + 1

    class B:
        def go(self, x):
            return x * 5

    same_as_eager(with_object(A, lambda a, x: a.go(x)), randn(2), change=lambda a: setattr(a, "__class__", B))


def test_changing_a_class_attribute_and_a_method():
    program = module_program("""
        class Scaler:
            k = 2
            def go(self, x):
                return x * self.k
        scaler = Scaler()
        def f(x):
            return scaler.go(x)
    """)
    same_as_eager(program, randn(2), change=lambda m: setattr(m.Scaler, "k", 5))
    same_as_eager(program, randn(2), change=lambda m: setattr(m.Scaler, "go", lambda self, x: x - 1))
    same_as_eager(program, randn(2), change=lambda m: setattr(m.scaler, "k", 9))
    same_as_eager(program, randn(2), change=lambda m: setattr(m.scaler, "go", lambda x: x / 2))


def test_an_object_passed_in_is_written_to():
    def f(box, x):
        box.out = x * box.scale
        box.history = [*getattr(box, "history", []), box.out]
        return box

    @fresh
    def program():
        box = Box()
        box.scale = 2
        return (lambda x: f(box, x)), box

    same_as_eager(program, randn(2), change=lambda box: setattr(box, "scale", 3))


def test_copies_made_inside():
    def f(box, x):
        box.inner = [x]
        shallow, deep = copy.copy(box), copy.deepcopy({"n": [1, 2]})
        shallow.inner.append(x + 1)
        return shallow, deep, copy.copy([x])

    same_as_eager(with_object(Box, f), randn(2))


class Settings:
    def __init__(self):
        self.scale, self.shift, self.names = 2.0, None, {"a": [1, 2], "b": {"c": "d"}}


class Layer:
    def __init__(self):
        self.settings = Settings()

    def run(self, x):
        torch._dynamo.graph_break()  # inside: from then on this frame has segments of its own
        mine = copy.deepcopy(self.settings)
        mine.scale *= len(mine.names["a"])
        return x * mine.scale, mine


def test_a_deep_copy_of_what_an_argument_holds():
    def change(layer):
        layer.settings.names["a"].append(3)
        layer.settings.extra = [4]

    same_as_eager(with_object(Layer, lambda layer, x: layer.run(x)), randn(2), change=change)


@pytest.mark.needs_capture
def test_a_deep_copy_of_what_an_argument_holds_is_recorded_once():
    a, b = Layer(), Layer()
    compiled = magneto.compile(lambda x: a.run(x)[0] + b.run(x)[0])
    for _ in range(4):
        compiled(torch.ones(2))
    assert {stop.reason for stop in magneto.report().breaks} == {"graph_break asks for a break"}
    graphs = len(magneto.report().graphs)
    compiled(torch.ones(2))
    assert len(magneto.report().graphs) == graphs and not magneto.report().recompiles, str(magneto.report())


def test_a_slot_that_a_subclass_hides():
    """A base keeps something in a slot; a class between reads it through a property of that name, or keeps nothing there."""
    @fresh
    def program():
        class Base:
            __slots__ = ("raw", "kept")

        class Between(Base):
            __slots__ = ("paths",)

            @property
            def raw(self):
                return self.paths[0]

        class Full(Between):
            __slots__ = ()

            def __init__(self, value):
                self.paths = [value]
                self.kept = value
                Base.raw.__set__(self, value)

        def f(x):
            empty, full = Between(), Full("b")
            empty.paths = ["a"]
            torch._dynamo.graph_break()
            return x + len(empty.raw + full.raw), empty, full, Base.raw.__get__(full)

        return f

    same_as_eager(program, randn(3))


def test_a_copy_of_an_object_with_slots_and_of_containers_with_attributes():
    class Slotted:
        __slots__ = ("n",)

    class Bag(list):
        pass

    class Table(dict):
        pass

    @fresh
    def program():
        slotted, bag, table = Slotted(), Bag([1, 2]), Table(a=1)
        slotted.n, bag.mark, table.mark = 2, 3, 4
        state = [slotted, bag, table]

        def f(x):
            a, b, c = (copy.copy(each) for each in state)
            return x * a.n * b[1] * b.mark * c["a"] * c.mark, copy.deepcopy(bag), copy.deepcopy(table)

        return f, state

    def change(state):
        state[0].n, state[1][1], state[1].mark, state[2]["a"], state[2].mark = 5, 6, 7, 8, 9

    same_as_eager(program, randn(2), change=change)


def test_deepcopy_of_a_tensor():
    same_as_eager(lambda x: copy.deepcopy(x) * 2, randn(2))


def test_simple_namespace_and_mapping_proxy():
    def f(x):
        ns = types.SimpleNamespace(a=x, b=1)
        ns.c = ns.a + ns.b
        return ns, types.MappingProxyType({"k": x})["k"]

    same_as_eager(f, randn(2))


def test_a_linked_list_of_nodes():
    class Node:
        def __init__(self, v, rest):
            self.v, self.rest = v, rest

    def f(x):
        head = None
        for row in x:
            head = Node(row * 2, head)
        head.rest.back = head
        return head

    same_as_eager(f, randn(3, 2))


def test_bound_methods_and_unbound_methods_of_tensors():
    def f(x):
        relu, add = x.relu, torch.Tensor.add
        return relu(), add(x, 1), getattr(x, "exp")(), torch.Tensor.sum(x), list(map(torch.Tensor.neg, [x]))

    same_as_eager(f, randn(3))


def test_a_bound_method_of_a_base_class_that_is_alive_at_a_break():
    class Twice(list):
        def append(self, item):
            super().append(item)
            super().append(item)

    def f(box, x):
        append = super(Twice, box).append
        y = x * 2
        torch._dynamo.graph_break()
        append(3)
        return y, len(box)

    same_as_eager(with_object(Twice, f), randn(3))


def test_attributes_on_a_tensor():
    def f(x):
        seen = getattr(x, "tag", None)
        y = x + 1
        y.tag = "made"
        x.tag = "mine"
        return y, seen

    same_as_eager(f, randn(3))


def test_a_tensor_subclass():
    class Tagged(torch.Tensor):
        pass

    def f(x):
        y = x.as_subclass(Tagged)
        return y + 1, type(y * 2).__name__, isinstance(y, Tagged), torch.relu(y)

    same_as_eager(f, randn(3))


def test_a_tensor_subclass_with_torch_function():
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            print(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    same_as_eager(lambda x: (x.as_subclass(Loud) + 1).sum(), randn(3))


DELETES = {
    "an attribute": ("del o.extra", "o.extra = 1"),
    "an attribute of a global": ("del BOX.extra", "BOX.extra = [1]"),
    "an attribute, by delattr": ("delattr(o, 'extra')", "o.extra = x"),
    "a slot": ("del s.extra", "s.extra = x"),
    "a slot of a global": ("del SLOTS.extra", "SLOTS.extra = 1"),
    "an attribute of a tensor": ("del x.extra", "x.extra = 1"),
    "an entry": ("del d['k']", "d['k'] = x"),
    "an entry of __dict__": ("del o.__dict__['extra']", "o.extra = x"),
    "a global": ("global G\n    del G", "G = 1"),
    "an attribute of a module": ("del MODULE.extra", "MODULE.extra = x"),
    "a variable of the function around": ("nonlocal_of()", "refill()"),
}


@pytest.mark.parametrize("what", DELETES)
def test_what_is_deleted_may_be_gone(what):
    """It is there in the first calls, not in the last ones: eager's error, at its line, and nothing after it."""
    delete, put_back = DELETES[what]
    text = f"""
import types
class Box: pass
class Slots:
    __slots__ = ("extra",)
BOX, SLOTS, MODULE = Box(), Slots(), types.ModuleType("m")
def around():
    held = 1
    def nonlocal_of():
        nonlocal held
        del held
    def refill():
        nonlocal held
        held = 1
    return nonlocal_of, refill
nonlocal_of, refill = around()
def f(x, o, s, d, log):
    log.append(x * 2)
    {delete}
    log.append(3)
    return x + 1
"""
    answers = []
    for compiled in (False, True):
        space = {}
        exec(compile(text, "<deletes>", "exec"), space)
        f, answer = magneto.compile(space["f"]) if compiled else space["f"], []
        o, s, d, log = space["Box"](), space["Slots"](), {}, []
        for k in range(6):
            x = torch.full((2,), float(k))
            space |= dict(x=x, o=o, s=s, d=d)
            if k not in (3, 5):
                exec(put_back, space)
            try:
                answer.append(f(x, o, s, d, log).tolist())
            except Exception as error:
                lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<deletes>"]
                answer.append((type(error).__name__, str(error), lines))
            answer.append([getattr(entry, "tolist", lambda: entry)() for entry in log])
            log.clear()
        answers.append(answer)
    assert answers[0] == answers[1]


# ---- methods of C types that are alive across a break, or come as arguments -------------------------------------------


def appends_across_a_break(x, items):
    add, join, text = items.append, ", ".join, "a b".split
    torch._dynamo.graph_break()
    add(x.shape[0])
    return x + len(items), join(["a", "b"]), text()


def calls_what_it_is_given(x, method):
    return x + 1, method(3)


def test_methods_alive_across_a_break():
    compiled = magneto.compile(appends_across_a_break)
    for n in range(12):
        mine, eagers = list(range(n % 3)), list(range(n % 3))
        assert str(compiled(torch.ones(2), mine)) == str(appends_across_a_break(torch.ones(2), eagers))
        assert mine == eagers
    assert not magneto.report().fallbacks


def test_methods_as_arguments():
    compiled = magneto.compile(calls_what_it_is_given)
    for n in range(12):
        mine, eagers = [n], [n]
        for method, other in ((mine.append, eagers.append), ([4].count, [4].count), ({3: n}.get, {3: n}.get), ((3).__add__, (3).__add__)):
            assert str(compiled(torch.ones(2), method)) == str(calls_what_it_is_given(torch.ones(2), other))
        assert mine == eagers == [n, 3]
        assert str(compiled(torch.ones(2), mine.index)) == str(calls_what_it_is_given(torch.ones(2), eagers.index))
