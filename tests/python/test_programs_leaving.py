"""Objects of C types that leave a graph: iterators, deques, views of dicts, exceptions, generators. Each call makes new ones."""

import collections
import itertools
import traceback
import types

import pytest
import torch

import magneto


def contents(value):
    """What can be compared: tensors as numbers, iterators as what they give, exceptions with where they came from."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.tolist())
    if isinstance(value, BaseException):
        places = [(frame.name, frame.lineno) for frame in traceback.extract_tb(value.__traceback__)]
        return (type(value), contents(value.args), contents(value.__cause__), contents(value.__context__), value.__suppress_context__,
                contents(vars(value)), places)
    if isinstance(value, collections.deque):
        return (type(value), [contents(part) for part in value], value.maxlen)
    if isinstance(value, collections.defaultdict):
        return (type(value), value.default_factory, [(key, contents(part)) for key, part in value.items()])
    if isinstance(value, (dict, types.MappingProxyType)):
        return (type(value), [(key, contents(part)) for key, part in value.items()])
    if isinstance(value, (list, tuple, type({}.keys()), type({}.values()), type({}.items()))):
        return (type(value), [contents(part) for part in value])
    if isinstance(value, types.FunctionType):
        return (value.__name__, contents(vars(value)), contents(value(torch.ones(2))))
    if hasattr(value, "__next__"):
        return (type(value), [contents(part) for part in itertools.islice(value, 5)])
    return (type(value), value)


def begun(iterator):
    next(iterator)
    return iterator


def raised(x):
    def inner():
        raise KeyError("key", x + 1)

    try:
        inner()
    except KeyError as error:
        return error


def chained(x):
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            second = ValueError("second")
            second.detail = x * 2
            raise second from error
    except ValueError as error:
        return error


def with_attributes(x):
    def inner(y):
        return y + x

    inner.factor = x * 2
    inner.name = "a"
    return inner


def of_a_dict(x):
    d = {"a": x + 1, "b": x + 2}
    return d.items(), d.keys(), d.values(), types.MappingProxyType(d), d


def of_itself(x):
    d = collections.deque([x + 1])
    d.append(d)
    return d[0], len(d), d[1] is d


def steps(x, *rest, last=3, **more):
    for y in (x, *rest, last, *more.values()):
        yield x + y


def generator(x):
    return steps(x, 1, x * 2, last=4, further=5)


def generator_with_a_closure(x):
    def inner(k):
        def scaled(y):
            return y * k

        yield scaled(x)
        k += 1
        yield scaled(x)

    return inner(2)


def a_default_dict(x):
    d = collections.defaultdict(list)
    d["a"].append(x + 1)
    return d


class Named(collections.UserDict):
    pass


class Queue(collections.deque):
    pass


class Number(int):
    pass


class Text(str):
    pass


class Refused(Exception):
    def __init__(self, what, code):
        super().__init__(what)
        self.code = code


PROGRAMS = {
    "zip": lambda x: zip([x + 1, x + 2], [1, 2]),
    "zip, begun": lambda x: begun(zip([x + 1, x + 2], [1, 2])),
    "strict zip": lambda x: zip([x + 1], [1], strict=True),
    "map": lambda x: map(lambda y: y * 2, [x + 1, x + 2]),
    "map over map": lambda x: map(lambda y: y[0] * y[1], zip([x, x + 1], map(lambda y: y + 1, [1, 2]))),
    "filter": lambda x: filter(lambda y: y > 1, [1, 2, 3]),
    "enumerate": lambda x: begun(enumerate([x, x + 1, x + 2], start=3)),
    "a list of enumerate": lambda x: list(enumerate([x, x + 1], start=1)),
    "a list of zip": lambda x: list(zip([x, x + 1], enumerate([x]))),
    "reversed": lambda x: begun(reversed([x, x + 1])),
    "islice": lambda x: itertools.islice([x, x + 1, x + 2], 1, 3),
    "islice, begun": lambda x: begun(itertools.islice([x, x + 1, x + 2, x + 3], 1, 4)),
    "chain": lambda x: begun(itertools.chain([x, x + 1], (x + 2,))),
    "repeat": lambda x: itertools.repeat(x + 1, 3),
    "count": lambda x: begun(itertools.count(3)),
    "cycle": lambda x: begun(itertools.cycle([x, x + 1])),
    "product": lambda x: itertools.product([x], [1, 2]),
    "permutations": lambda x: itertools.permutations([1, 2, x], 2),
    "combinations": lambda x: begun(itertools.combinations([1, x, 2], 2)),
    "accumulate": lambda x: itertools.accumulate([x, x + 1, x + 2]),
    "accumulate, begun": lambda x: begun(itertools.accumulate([x, x + 1, x + 2])),
    "accumulate with a function": lambda x: itertools.accumulate([x, x + 1], lambda a, b: a * b, initial=x),
    "compress": lambda x: itertools.compress([x, x + 1, x + 2], [1, 0, 1]),
    "takewhile": lambda x: itertools.takewhile(lambda y: y < 3, [1, 2, 3, 4]),
    "dropwhile": lambda x: begun(itertools.dropwhile(lambda y: y < 3, [1, 2, 3, 4, 5])),
    "starmap": lambda x: itertools.starmap(lambda a, b: a + b, [(x, 1), (x, 2)]),
    "zip_longest": lambda x: itertools.zip_longest([x, x + 1], [1], fillvalue=x),
    "a deque": lambda x: collections.deque([x, x + 1, x + 2], maxlen=2),
    "a deque of a class": lambda x: Queue([x, x + 1]),
    "a deque in itself": of_itself,
    "a default dict": a_default_dict,
    "a default dict without": lambda x: collections.defaultdict(None, {"a": x}),
    "views of a dict": of_a_dict,
    "a number of a class": lambda x: (Number(3), x + 1),
    "a text of a class": lambda x: (Text("abc"), x + 1),
    "a function with attributes": with_attributes,
    "an exception": lambda x: ValueError("a", x + 1),
    "an exception of a class": lambda x: Refused("no", 3),
    "an exception that was raised": raised,
    "an exception from another": chained,
    "StopIteration": lambda x: StopIteration(x + 1),
    "a generator": generator,
    "a generator with a closure": generator_with_a_closure,
    "zip over a generator": lambda x: zip(range(3), steps(x)),
    "a tuple with names": lambda x: torch.return_types.max((x + 1, x + 2)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_leaves_is_made_again(name):
    program = PROGRAMS[name]
    compiled = magneto.compile(program, fullgraph=True)
    last = None
    for k in range(3):
        x = torch.full((2,), float(k))
        expected, got = program(x), compiled(x)
        assert got is not last
        last = got
        assert contents(got) == contents(expected)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if "begun" not in name])
def test_what_is_alive_across_a_break(name):
    program = PROGRAMS[name]

    def f(x):
        made = program(x)
        torch._dynamo.graph_break()
        return made

    compiled = magneto.compile(f)
    for k in range(3):
        x = torch.full((2,), float(k))
        assert contents(compiled(x)) == contents(program(x))


@pytest.mark.parametrize("method", ["keys", "values", "items"])
def test_an_iterator_over_a_dict_that_has_begun(method):
    def f(x):
        it = iter(getattr({"a": x, "b": x + 1}, method)())
        next(it)
        torch._dynamo.graph_break()
        return next(it)

    compiled = magneto.compile(f)
    for _ in range(3):
        assert contents(compiled(torch.ones(2))) == contents(f(torch.ones(2)))


def test_parts_that_are_shared_stay_so():
    def f(x):
        parts = [x, x + 1]
        return iter(parts), parts

    compiled = magneto.compile(f, fullgraph=True)
    for _ in range(3):
        iterator, parts = compiled(torch.ones(2))
        parts.append(3)
        assert len(list(iterator)) == 3


def test_an_error_that_leaves_reads_as_in_eager():
    def f(x):
        try:
            return x + 1, {}["none"]
        except KeyError as error:
            return x + 1, error

    compiled = magneto.compile(f, fullgraph=True)
    expected = traceback.format_exception(f(torch.ones(2))[1])
    for _ in range(3):
        assert traceback.format_exception(compiled(torch.ones(2))[1]) == expected
