"""Classes and objects: attributes, properties, descriptors, special methods, metaclasses, super, identity."""

import abc
import copy
import types

import torch
from torch import ones, randn

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


def test_reading_and_writing_attributes():
    class Meter:
        def __init__(self):
            self.total, self.count, self.last = 0, 0, None

        def update(self, x):
            self.total = self.total + x.detach().sum()
            self.count += 1
            self.last = x
            return self.total / self.count

    same_as_eager(with_object(Meter, lambda m, x: m.update(x)), randn(3), change=lambda m: setattr(m, "count", 10))


def test_an_attribute_deleted_inside():
    def f(box, x):
        box.tmp = x + 1
        y = box.tmp * 2
        del box.tmp
        return y, hasattr(box, "tmp")

    same_as_eager(with_object(Box, f), randn(3))


def test_hasattr_getattr_setattr_delattr():
    def f(box, x):
        before = getattr(box, "v", None)
        setattr(box, "v", x.shape[0])
        return hasattr(box, "v"), getattr(box, "nothing", x) + 1, before, vars(box)

    same_as_eager(with_object(Box, f), randn(3))


def test_a_property_with_a_setter():
    class Temperature:
        def __init__(self):
            self._t = 1.0

        @property
        def t(self):
            return self._t * 2

        @t.setter
        def t(self, value):
            self._t = value + 1

    def f(thing, x):
        y = x * thing.t
        thing.t = 3
        return y + thing.t

    same_as_eager(with_object(Temperature, f), randn(3), change=lambda thing: setattr(thing, "_t", 5))


def test_a_property_without_a_setter_raises():
    class ReadOnly:
        @property
        def v(self):
            return 1

    def f(x):
        thing = ReadOnly()
        thing.v = x
        return thing

    same_as_eager(f, randn(2), raises=AttributeError)


def test_descriptors():
    class Scaled:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, thing, owner):
            return self if thing is None else getattr(thing, self.name) * 2

        def __set__(self, thing, value):
            setattr(thing, self.name, value + 1)

    class Thing:
        v = Scaled()

        def __init__(self):
            self.v = 1

    def f(thing, x):
        y = x * thing.v
        thing.v = 4
        return y * thing.v

    same_as_eager(with_object(Thing, f), randn(3), change=lambda thing: setattr(thing, "_v", 9))


def test_getattr_and_getattribute():
    class Lazy:
        def __init__(self):
            self.data = {"scale": 2}

        def __getattr__(self, name):
            if name in self.data:
                return self.data[name]
            raise AttributeError(f"no {name} here")

    class Logged:
        def __init__(self):
            self.log, self.v = [], 3

        def __getattribute__(self, name):
            if name != "log":
                self.log.append(name)
            return object.__getattribute__(self, name)

    same_as_eager(with_object(Lazy, lambda o, x: x * o.scale), randn(2), change=lambda o: o.data.update(scale=7))
    same_as_eager(with_object(Lazy, lambda o, x: x * o.missing), randn(2), raises=AttributeError)
    same_as_eager(with_object(Logged, lambda o, x: x * o.v), randn(2))


def test_setattr_and_delattr_of_its_own():
    class Strict:
        def __setattr__(self, name, value):
            if name.startswith("bad"):
                raise AttributeError(f"{name} is not allowed")
            object.__setattr__(self, name, (value, "set"))

    def f(thing, x):
        thing.good = x.shape[0]
        return thing.good

    def g(thing, x):
        thing.badly = x
        return 1

    same_as_eager(with_object(Strict, f), randn(2))
    same_as_eager(with_object(Strict, g), randn(2), raises=AttributeError)


def test_a_callable_object():
    class Affine:
        def __init__(self):
            self.w, self.b = ones(3) * 2, 1

        def __call__(self, x, *, twice=False):
            y = x * self.w + self.b
            return y * 2 if twice else y

    @fresh
    def program():
        affine = Affine()
        return affine, affine

    same_as_eager(program, randn(3), change=lambda a: setattr(a, "b", 5), more=[((randn(3),), {"twice": True})])


def test_special_methods_of_numbers():
    class Money:
        def __init__(self, v):
            self.v = v

        def __add__(self, other):
            return Money(self.v + (other.v if isinstance(other, Money) else other))

        __radd__ = __add__

        def __mul__(self, k):
            return Money(self.v * k)

        def __iadd__(self, other):
            self.v = self.v + other
            return self

        def __neg__(self):
            return Money(-self.v)

        def __eq__(self, other):
            return bool((self.v == other.v).all())

        __hash__ = None

        def __bool__(self):
            return True

        def __getitem__(self, i):
            return self.v[i]

        def __contains__(self, n):
            return n == 3

        def __len__(self):
            return 2

        def __matmul__(self, other):
            return self.v @ other

        def __format__(self, spec):
            return f"money {spec}"

    def f(x):
        m = Money(x)
        n = m
        n += 1
        return (m + 1).v, (2 + m).v, (m * 3).v, (-m).v, m == n, m is n, bool(m), m[0], 3 in m, len(m), m @ x, f"{m:usd}"

    same_as_eager(f, randn(3))


def test_a_reflected_operator_meets_a_tensor():
    class Right:
        def __radd__(self, other):
            return ("radd", other)

        def __rmul__(self, other):
            return NotImplemented

    same_as_eager(lambda x: x + Right(), randn(2))
    same_as_eager(lambda x: x * Right(), randn(2), raises=TypeError)


def test_super_in_a_diamond():
    class A:
        def go(self, x):
            return x + 1

    class B(A):
        def go(self, x):
            return super().go(x) * 2

    class C(A):
        def go(self, x):
            return super().go(x) - 3

    class D(B, C):
        def go(self, x):
            return super().go(x) / 2 + super(B, self).go(x)

    same_as_eager(with_object(D, lambda d, x: d.go(x)), randn(2))


def test_a_class_made_inside():
    def f(x):
        class Local:
            scale = x.shape[0]

            def go(self):
                return x * self.scale

        made = type("Made", (Local,), {"extra": 2})
        return Local().go(), made().go() * made.extra, made.__name__, isinstance(made(), Local)

    same_as_eager(f, randn(3))


def test_a_metaclass():
    class Counting(type):
        made = 0

        def __call__(cls, *args):
            thing = super().__call__(*args)
            thing.kind = cls.__name__
            return thing

        def __instancecheck__(cls, thing):
            return hasattr(thing, "kind")

        def __getattr__(cls, name):
            return f"{cls.__name__}.{name}"

    class Thing(metaclass=Counting):
        def __init__(self, x):
            self.x = x

    def f(x):
        thing = Thing(x + 1)
        return thing, isinstance(thing, Thing), isinstance(3, Thing), Thing.anything

    same_as_eager(f, randn(2))


def test_init_subclass_and_class_getitem():
    class Base:
        registry = []

        def __init_subclass__(cls, tag=None):
            cls.tag = tag

        def __class_getitem__(cls, item):
            return (cls.__name__, item)

    def f(x):
        class Child(Base, tag="t"):
            pass

        return x + 1, Child.tag, Base[int]

    same_as_eager(f, randn(2))


def test_new_that_returns_a_cached_instance():
    @fresh
    def program():
        class Single:
            instance = None

            def __new__(cls, x):
                if cls.instance is None:
                    cls.instance = super().__new__(cls)
                return cls.instance

            def __init__(self, x):
                self.x = x

        return (lambda x: (Single(x), Single(x + 1), Single(x) is Single(x))), Single

    same_as_eager(program, randn(2))


def test_abstract_classes():
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...

    class Square(Shape):
        def __init__(self, x):
            self.x = x

        def area(self):
            return self.x**2

    same_as_eager(lambda x: (Square(x).area(), isinstance(Square(x), Shape)), randn(2))
    same_as_eager(lambda x: Shape(), randn(2), raises=TypeError)


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
