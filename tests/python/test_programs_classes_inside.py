"""Classes that the compiled function makes and uses."""

import abc
import collections
import dataclasses
import enum
import typing

import pytest
import torch

from each_call import numbers, same_each_call

pytestmark = pytest.mark.needs_capture


def test_methods_and_what_they_close_over():
    def program():
        def f(x, k):
            class Scaled:
                factor = k + 1

                def __init__(self, value):
                    self.value = value

                def go(self, y):
                    return y * self.factor + x * k + self.value

            return Scaled(x).go(x)

        return f, lambda g, k: g(numbers(k), k)

    same_each_call(program, graphs=3)


class Outer:
    factor = 3

    def scaled(self, x):
        return x * self.factor


def test_a_subclass_of_a_class_outside_that_changes():
    def program():
        class Base:
            factor = 1

            def scaled(self, x):
                return x * self.factor

        def f(x):
            class Own(Base):
                def scaled(self, y):
                    return super().scaled(y) + 1

            return Own().scaled(x)

        def call(g, k):
            if k in (2, 4):
                Base.factor = k
            if k == 5:
                Base.scaled = lambda self, x: x - self.factor
            return g(numbers(k))

        return f, call

    same_each_call(program)


def test_properties_slots_and_functions_of_the_class():
    def f(x):
        class Made:
            __slots__ = ("v",)
            made = 0

            def __init__(self, v):
                self.v = v
                Made.made += 1

            @property
            def w(self):
                return self.v + 1

            @w.setter
            def w(self, value):
                self.v = value

            @classmethod
            def make(cls, v):
                return cls(v * 2)

            @staticmethod
            def add(a, b):
                return a + b

        a = Made.make(x)
        a.w = a.w * 2
        return Made.add(a.w, x) * Made.made

    same_each_call(lambda: f, graphs=1)


def test_dataclasses():
    def program():
        def f(x, k):
            @dataclasses.dataclass(order=True)
            class Pair:
                a: int
                b: object = dataclasses.field(default=k, compare=False)
                c: list = dataclasses.field(default_factory=list)

                def total(self):
                    return self.b * self.a

            pair = Pair(2, x)
            pair.c.append(1)
            return pair.total() + Pair(3).b, Pair(1) < pair, len(Pair(1).c)

        return f, lambda g, k: g(numbers(k), k)

    same_each_call(program)


def test_named_tuples():
    def f(x):
        Point = collections.namedtuple("Point", "a b", defaults=[2])

        class Typed(typing.NamedTuple):
            a: torch.Tensor
            b: int = 4

        p, q = Point(x, x + 1), Typed(x)
        a, b = q
        return p.a * p.b + p[0] + Point(x).b, a * b, q._replace(b=3).b, p._fields

    same_each_call(lambda: f, graphs=1)


def test_enumerations():
    def f(x):
        class Mode(enum.Enum):
            A = 1
            B = 2

            def scaled(self, y):
                return y * self.value

        class Flag(enum.Flag):
            A = enum.auto()
            B = enum.auto()

        mode = Mode.B
        return mode.scaled(x) if mode is Mode.B and Flag.A in (Flag.A | Flag.B) else x, Mode(1).name, len(Mode)

    same_each_call(lambda: f)


def test_abstract_classes_and_metaclasses():
    def f(x):
        class Meta(type):
            def __new__(meta, name, bases, names):
                names["added"] = len(names)
                return super().__new__(meta, name, bases, names)

            def __call__(cls, *args):
                made = super().__call__(*args)
                made.x = x
                return made

        class Base(abc.ABC):
            @abc.abstractmethod
            def go(self): ...

        class Own(Base):
            def go(self):
                return x * 2

        class Other(metaclass=Meta):
            pass

        return Own().go() * isinstance(Own(), Base) + Other().x, Other.added > 0

    same_each_call(lambda: f, graphs=1)


def test_classes_made_by_calls():
    def f(x):
        made = type("Made", (Outer,), {"factor": 5, "go": lambda self, y: self.scaled(y) + 1})
        return made().go(x), made.__name__

    same_each_call(lambda: f, graphs=1)


def test_modules_and_exceptions():
    def f(x):
        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = 2

            def forward(self, y):
                return y.relu() * self.scale

        class Stop(Exception):
            pass

        try:
            raise Stop("a")
        except Stop as error:
            return Layer()(x) + len(error.args[0])

    same_each_call(lambda: f, graphs=1)


def test_a_base_that_keeps_a_list():
    def program():
        class Base:
            names = []

            def __init_subclass__(cls, **rest):
                super().__init_subclass__(**rest)
                Base.names.append(cls.__name__)

        def f(x):
            class Own(Base):
                pass

            return x * len(Base.names)

        return f, lambda g, k: (g(numbers(k)), list(Base.names))

    same_each_call(program, breaks=None)


def test_a_base_that_keeps_the_class():
    def program():
        class Base:
            kept = []

            def __init_subclass__(cls, **rest):
                Base.kept.append(cls)

        def f(x):
            class Own(Base):
                pass

            return x + 1

        return f, lambda g, k: (g(numbers(k)), len(set(Base.kept)))

    same_each_call(program, breaks=None)


def test_an_instance_that_leaves():
    def program():
        def f(x):
            class Own:
                def double(self):
                    return self.x * 2

            own = Own()
            own.x = x + 1
            return own

        def call(g, k):
            own = g(numbers(k))
            return own.x, own.double(), type(own).__name__

        return f, call

    same_each_call(program, breaks=None)


def test_a_class_body_that_reads_what_changes():
    def program():
        state = {"scale": 1}

        def f(x):
            class Own:
                scale = state["scale"]
                total = sum(v for v in [1, scale]) if scale < 100 else 0

            return x * Own.scale

        def call(g, k):
            state["scale"] = k // 2
            return g(numbers(k))

        return f, call

    same_each_call(program)


def test_a_class_that_a_break_finds_alive():
    def program():
        def f(x):
            class Own:
                def go(self, y):
                    return y + 1

            y = Own().go(x)
            torch._dynamo.graph_break()
            return Own().go(y)

        return f, lambda g, k: g(numbers(k))

    same_each_call(program, breaks=None, calls=4)
