"""Classes: attributes, properties, descriptors, special methods, metaclasses, super."""

import abc

from torch import ones, randn

from harness import fresh, same_as_eager


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
