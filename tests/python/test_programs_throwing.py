"""Generators that the program throws into, sends to and closes; errors that it expects; what C code calls."""

import contextlib
import functools
import operator
import typing
import unittest
import warnings
import weakref

import pytest
import torch

import magneto
from harness import fresh, same_as_eager


def thrown(x):
    def steps():
        try:
            yield x
        except ValueError as error:
            yield x * len(error.args)

    it = steps()
    next(it)
    y = it.throw(ValueError(1, 2))
    return y * (1 + len(list(it)))


def thrown_through(x):
    def inner():
        try:
            yield x
        except KeyError:
            x2 = x + 1
        yield x2

    def outer():
        yield from inner()

    it = outer()
    next(it)
    return it.throw(KeyError)


def ending_with_an_entry(x, log):
    """A generator that waits, and logs when it ends."""
    def steps():
        try:
            yield x
        finally:
            log.append(x + 1)

    it = steps()
    next(it)
    return it


def thrown_and_not_caught(x):
    log = []
    it = ending_with_an_entry(x, log)
    try:
        it.throw(KeyError("a"))
    except KeyError as error:
        return log[0] * len(error.args)


def thrown_at_the_start(x):
    def steps():
        yield x

    it = steps()
    try:
        it.throw(KeyError("a"))
    except KeyError:
        return x * len(list(it)) + 1


def closed(x):
    log = []
    it = ending_with_an_entry(x, log)
    it.close()
    it.close()
    return log[0] * len(log)


def refuses_to_close(x):
    def steps():
        try:
            yield x
        except GeneratorExit:
            yield x

    it = steps()
    next(it)
    try:
        it.close()
    except RuntimeError as error:
        return x * len(str(error))


def sent(x):
    def steps():
        y = yield x
        while True:
            y = yield y * 2

    it = steps()
    return next(it) + it.send(x + 3) + it.send(x)


def returned(x):
    def steps():
        try:
            yield x
        except KeyError:
            return x + 5

    it = steps()
    next(it)
    try:
        it.throw(KeyError)
    except StopIteration as stop:
        return stop.value


@contextlib.contextmanager
def catching(log):
    try:
        yield log
    except ValueError as error:
        log.append(len(error.args))


@contextlib.contextmanager
def passing(log):
    try:
        yield log
    finally:
        log.append(2)


def caught_by_a_context(x):
    log = []
    with catching(log) as it:
        it.append(x)
        raise ValueError("a")
    return log[0] * log[1]


def through_a_context(x):
    log = []
    try:
        with passing(log):
            raise ValueError("a")
    except ValueError:
        return x * log[0]


class Case(unittest.TestCase):
    pass


def expected(x):
    case = Case()
    with case.assertRaises(KeyError) as found:
        {}["none"]
    case.assertRaises(TypeError, len, 3)
    return x * len(found.exception.args)


class Holder:
    def __init__(self, value=2):
        self.value, self.inner = value, [value, value + 1]

    def scaled(self, x, by=1):
        return x * self.value * by


HOLDER = Holder()


class Typed(typing.TypedDict):
    a: torch.Tensor
    b: int


class Checked:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __set__(self, owner, value):
        setattr(owner, self.name, value * 2)

    def __get__(self, owner, cls):
        return getattr(owner, self.name)


class WithChecked:
    field = Checked()


def descriptor(x):
    made = WithChecked()
    made.field = x
    return made.field


@functools.singledispatch
def kind(value):
    return 1


@kind.register
def _(value: int):
    return 2


@torch.compiler.allow_in_graph
def allowed(x):
    torch._dynamo.graph_break()
    return x + 1


def quiet(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x + 1


SEEN = {1}


def updated(x):
    SEEN.update(map(int, ["1", "2"]))
    return x * len(SEEN)


PROGRAMS = {
    "thrown": thrown,
    "thrown through": thrown_through,
    "thrown and not caught": thrown_and_not_caught,
    "thrown at the start": thrown_at_the_start,
    "closed": closed,
    "sent": sent,
    "returned": returned,
    "caught by a context": caught_by_a_context,
    "through a context": through_a_context,
    "an error that is expected": expected,
    "itemgetter of several": lambda x: operator.itemgetter(0, -1)([x, x + 1])[1],
    "itemgetter of a text": lambda x: x * len(operator.itemgetter(1, 2)("abc")),
    "attrgetter of a path": lambda x: x * operator.attrgetter("__class__.__name__", "value")(HOLDER)[1],
    "methodcaller": lambda x: operator.methodcaller("scaled", x, by=3)(HOLDER),
    "methodcaller of a tensor": lambda x: operator.methodcaller("sum", dim=0)(x),
    "a class that C calls": lambda x: x * sum(map(lambda made: made.value, map(Holder, [1, 2, 3]))),
    "a descriptor": descriptor,
    "a weak reference": lambda x: x * weakref.ref(HOLDER)().value,
    "singledispatch": lambda x: x * kind(3) * kind("a"),
    "allow_in_graph": lambda x: allowed(x) * 2,
    "catch_warnings": quiet,
    "a set, by a map": updated,
    "a dict of one value": lambda x: dict.fromkeys(["a", "b"], x + 1)["b"],
    "reduce": lambda x: functools.reduce(operator.add, [x, x + 1], x * 2),
    "a dict with types": lambda x: Typed(a=x, b=2)["a"] * 2,
    "tensors by device and dtype": lambda x: torch._C._group_tensors_by_device_and_dtype([[x, x.double(), x + 1], []], True),
    "a norm of several": lambda x: torch.nn.utils.get_total_norm([x, x + 1]),
    "new of sizes": lambda x: x.new(2, 3).fill_(1) * x.new(x.size()).zero_().sum(),
    "a list times two": lambda x: x * len([1, 2].__imul__(2)),
    "iterators of iterators": lambda x: x * next(iter(range(3)).__iter__()) + next([x].__iter__()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name):
    program = PROGRAMS[name]
    same_as_eager(program, torch.ones(2), options={"fullgraph": True}, more=[((torch.full((2,), 3.0),), {})])


@pytest.mark.parametrize("name", ["thrown", "thrown through", "thrown and not caught", "closed", "caught by a context"])
def test_with_a_gradient(name):
    program = PROGRAMS[name]
    compiled = magneto.compile(program, fullgraph=True)
    for k in range(3):
        grads = []
        for f in (program, compiled):
            x = torch.full((2,), float(k), requires_grad=True)
            f(x).sum().backward()
            grads.append(x.grad.tolist())
        assert grads[0] == grads[1]


def test_a_generator_that_changes_what_it_extends():
    @fresh
    def program():
        log = []

        def steps(x):
            try:
                yield x.shape[0]
                yield 2
            finally:
                log.append(-1)

        def f(x):
            log.extend(steps(x))
            log.extend(map(lambda k: log.append(k) or k, [5, 6]))
            return x * len(log), list(log)

        return f, log

    same_as_eager(program, torch.ones(2))


def test_an_operator_that_is_looked_for_the_first_time():
    @torch.library.custom_op("magneto_first::looked_for", mutates_args=())
    def looked_for(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    looked_for.register_fake(torch.empty_like)
    compiled = magneto.compile(lambda x: torch.ops.magneto_first.looked_for(x) * 2, fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]


def test_a_generator_that_refuses_to_close():
    same_as_eager(refuses_to_close, torch.ones(2))


def test_a_break_while_an_exception_is_thrown():
    def f(x):
        def steps():
            try:
                yield x
            except ValueError:
                torch._dynamo.graph_break()
                yield x + 1

        it = steps()
        y = next(it)
        return it.throw(ValueError) * y

    same_as_eager(f, torch.ones(2))
