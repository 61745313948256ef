"""Functions: every way to pass arguments, closures, defaults, decorators, recursion, functools, itertools."""

import functools
import itertools
import operator

import pytest
import torch
from torch import ones, randn

import magneto
from harness import fresh, made, module_program, same_as_eager


def test_positional_keyword_and_default_arguments():
    def f(a, b=2, /, c=3, *, d=4, e):
        return a * b + c * d - e

    same_as_eager(f, randn(2), kwargs={"e": 1}, more=[((randn(2), 5), {"e": ones(2)}), ((ones(1), 1, 2), {"d": 7, "e": 0})])


def test_star_args_and_star_kwargs():
    def f(*args, **kwargs):
        return sum(args) * kwargs.get("scale", 1), args, kwargs

    same_as_eager(f, randn(2), randn(2), kwargs={"scale": 3, "z": randn(1)}, more=[((randn(2),), {}), ((), {})])


def test_keyword_arguments_in_another_order():
    def f(**kwargs):
        return list(kwargs), list(kwargs.values())[0] * 2

    a, b = randn(2), randn(2)
    same_as_eager(f, kwargs={"a": a, "b": b}, more=[((), {"b": b, "a": a}), ((), {"b": b})])


def test_wrong_arguments_raise_the_same_type_error():
    def f(a, b):
        return a + b

    same_as_eager(f, randn(2), more=[((randn(2), randn(2), randn(2)), {}), ((randn(2),), {"c": 1}),
                                     ((randn(2),), {"a": 1}), ((), {})], raises=TypeError)


def test_a_mutable_default_is_one_object():
    def factory():
        def f(x, seen=[]):
            seen.append(x.shape[0])
            return x * len(seen), seen

        return f

    same_as_eager(fresh(factory), randn(2))


def test_a_default_that_is_a_tensor():
    bias = randn(3)

    def factory():
        def f(x, b=bias.clone()):
            return x + b

        return f

    def change(f):
        f.__defaults__ = (torch.zeros(3),)

    same_as_eager(fresh(factory), randn(3), change=change)


def test_a_closure_over_a_tensor_and_a_number():
    @fresh
    def program():
        w, n = ones(3) * 2, 3

        def f(x):
            return x * w + n

        def change():
            nonlocal w, n
            w, n = ones(3) * 5, 4

        return f, change

    same_as_eager(program, randn(3), change=lambda change: change())


def test_nonlocal_written_inside():
    @fresh
    def program():
        total = torch.zeros(3)
        calls = 0

        def f(x):
            nonlocal total, calls
            total = total + x.detach()
            calls += 1
            return total / calls

        return f

    same_as_eager(program, randn(3))


def test_a_returned_closure_keeps_its_cell():
    def f(x):
        y = x + 1

        def add(z):
            nonlocal y
            y = y + z
            return y

        add(1)
        return add

    def call(g, x):
        add = g(x)
        return add(x), add(x), add

    same_as_eager(f, randn(2), call=call)


def test_late_binding_of_a_loop_variable():
    def f(x):
        late = [lambda: x * i for i in range(3)]
        bound = [lambda i=i: x * i for i in range(3)]
        return [g() for g in late], [g() for g in bound]

    same_as_eager(f, randn(2))


def test_a_deleted_closure_variable_raises():
    def f(x):
        y = x + 1

        def g():
            return y

        del y
        return g()

    same_as_eager(f, randn(2), raises=NameError)


def test_an_unbound_local_raises():
    def f(x):
        if x.dim() > 5:
            y = x
        return y  # noqa: F821

    same_as_eager(f, randn(2), raises=UnboundLocalError)


def test_recursion():
    def power(x, n):
        return x if n == 0 else power(x * 1.5, n - 1)

    same_as_eager(power, randn(2), 6, more=[((randn(2), 2), {})])


def test_mutual_recursion_over_a_tree():
    def total(node):
        return node if isinstance(node, torch.Tensor) else combine(node)

    def combine(nodes):
        return sum(total(node) for node in nodes) * 0.5

    same_as_eager(total, [randn(2), [randn(2), [randn(2)]], randn(2)])


def test_recursion_without_end_raises():
    def f(x):
        return f(x + 1)

    def call(g, x):
        try:
            return g(x)
        except RecursionError as error:
            return type(error)

    same_as_eager(f, randn(1), call=call)


def test_a_decorator_with_wraps():
    def scaled(by):
        def decorate(f):
            @functools.wraps(f)
            def wrapper(*args, **kwargs):
                return f(*args, **kwargs) * by

            return wrapper

        return decorate

    @scaled(2)
    @scaled(by=3)
    def f(x):
        """doc"""
        return x + 1

    same_as_eager(lambda x: (f(x), f.__name__, f.__doc__), randn(2))


def test_partial_of_functions_and_of_torch():
    half = functools.partial(torch.mul, other=0.5)
    add = functools.partial(lambda a, b, c=1: a + b * c, 10, c=3)
    same_as_eager(lambda x: (half(x), add(x), functools.partial(half, x)()), randn(2))


def test_a_compiled_partial():
    def f(a, b, c=1):
        return a * b + c

    same_as_eager(fresh(lambda: functools.partial(f, 2.0, c=ones(2))), randn(2))


def test_partialmethod_and_cached_property():
    class Box:
        def __init__(self, x):
            self.x, self.runs = x, 0

        def scaled(self, by):
            return self.x * by

        twice = functools.partialmethod(scaled, 2)

        @functools.cached_property
        def total(self):
            self.runs += 1
            return self.x.sum()

    def f(x):
        box = Box(x)
        return box.twice(), box.total, box.total, box.runs

    same_as_eager(f, randn(3))


def test_lru_cache_of_an_impure_function():
    same_as_eager(module_program("""
        import functools
        scale = 2
        @functools.lru_cache
        def factor(n):
            return n * scale
        def f(x):
            return x * factor(x.shape[0])
        def change():
            global scale
            scale = 5
            factor.cache_clear()
    """), randn(3), change=lambda m: m.change())


def test_lru_cache_keeps_counting():
    @fresh
    def program():
        @functools.lru_cache(maxsize=2)
        def table(n):
            return torch.arange(n, dtype=torch.float32)

        def f(x):
            return x + table(x.shape[0]), tuple(table.cache_info())

        return f

    same_as_eager(program, randn(3))


def test_reduce_and_operator():
    def f(xs):
        return functools.reduce(operator.add, xs), operator.itemgetter(1)(xs), operator.attrgetter("shape")(xs[0])

    same_as_eager(f, [randn(2), randn(2), randn(2)])


def test_singledispatch():
    @functools.singledispatch
    def size(v):
        return "object"

    @size.register
    def _(v: int):
        return v + 1

    @size.register(torch.Tensor)
    def _(v):
        return v.sum()

    same_as_eager(lambda x: (size(x), size(3), size("s")), randn(3))


def test_map_filter_zip_enumerate_reversed():
    def f(xs):
        doubled = list(map(lambda x: x * 2, xs))
        long = list(filter(lambda x: x.shape[0] > 1, xs))
        return doubled, long, [a.sum() * i for i, (a, b) in enumerate(zip(xs, reversed(xs)), 1)], dict(zip("abc", xs))

    same_as_eager(f, [randn(1), randn(2), randn(3)])


def test_any_all_sum_min_max_on_sizes():
    def f(x):
        s = x.shape
        return any(n > 3 for n in s), all(s), sum(s), min(s), max(*s, 9), sorted(s, reverse=True), abs(-s[0]), divmod(s[1], 3)

    same_as_eager(f, randn(3, 4))


def test_any_all_sum_min_max_on_tensors():
    def f(x):
        return any(x > 0), all(x > 0), sum(x), min(x), max(x), sorted(x), max(x[0], x[1]), round(x[0].item(), 3)

    same_as_eager(f, randn(4))


def test_itertools():
    def f(xs):
        return (list(itertools.chain(xs, xs)), list(itertools.accumulate(xs, torch.add)), list(itertools.pairwise("abc")),
                list(itertools.product((0, 1), repeat=2)), list(itertools.islice(itertools.count(2), 3)),
                [list(g) for _, g in itertools.groupby([1, 1, 2])], list(itertools.zip_longest("ab", "c")),
                list(itertools.starmap(torch.add, [(xs[0], 1)])), list(itertools.takewhile(lambda n: n < 2, range(5))))

    same_as_eager(f, [randn(2), randn(2)])


def test_an_iterator_argument_is_left_where_it_stopped():
    def f(it):
        return next(it) + next(it), next(it, None)

    same_as_eager(f, made(lambda: iter([ones(2), ones(2) * 2, ones(2) * 3, ones(2) * 4])))


def test_functions_as_arguments():
    def f(x, activation):
        return activation(x) * 2

    same_as_eager(f, randn(3), torch.relu, more=[((randn(3), torch.tanh), {}), ((randn(3), lambda x: x + 1), {}),
                                                 ((randn(3), torch.nn.functional.gelu), {}), ((randn(3), 3), {})])


def test_a_function_with_attributes():
    @fresh
    def program():
        def f(x):
            f.calls += 1
            return x * f.scale, f.calls

        f.calls, f.scale = 0, 2
        return f

    same_as_eager(program, randn(2), change=lambda f: setattr(f, "scale", 7))


def test_a_method_a_classmethod_and_a_staticmethod():
    class Scaler:
        factor = 3

        def __init__(self):
            self.own = 2

        def go(self, x):
            return x * self.own + self.of_class(x) + self.plain(x)

        @classmethod
        def of_class(cls, x):
            return x * cls.factor

        @staticmethod
        def plain(x):
            return x + 1

    @fresh
    def program():
        scaler = Scaler()
        return scaler.go, scaler

    same_as_eager(program, randn(2), change=lambda s: setattr(s, "own", 9))
    same_as_eager(Scaler.of_class, randn(2))
    same_as_eager(Scaler.plain, randn(2))


def test_redefining_a_callee():
    same_as_eager(module_program("""
        def helper(x):
            return x + 1
        def f(x):
            return helper(x) * 2
    """), randn(2), change=lambda m: setattr(m, "helper", lambda x: x - 1))


def test_new_code_for_a_callee_and_for_the_function():
    def change(m):
        m.helper.__code__ = m.other.__code__

    same_as_eager(module_program("""
        def helper(x):
            return x + 1
        def other(x):
            return x * 10
        def f(x):
            return helper(x) * 2
    """), randn(2), change=change)


def test_exec_and_eval_inside():
    def f(x):
        scope = {"x": x}
        exec("y = x + 1", scope)
        return scope["y"], eval("x * 2", {"x": x})

    same_as_eager(f, randn(2))


def test_locals_globals_and_dir():
    def f(x):
        y = x + 1
        return sorted(locals()), "torch" in globals(), "shape" in dir(x), y

    same_as_eager(f, randn(2))


def test_a_call_through_a_table_of_functions():
    table = {"add": torch.add, "sub": lambda a, b: a - b}
    same_as_eager(lambda x, op: table[op](x, 2), randn(2), "add", more=[((randn(2), "sub"), {}), ((randn(2), "div"), {})])


def a_local_function_that_is_not_called_any_more(x):
    def g(y):
        return y + 1

    z = g(x)
    torch._dynamo.graph_break()
    return z * 2


def a_local_function_with_a_closure_and_a_default(x):
    k, seen = x.shape[0], []

    def g(y, n=2):
        seen.append(n)
        return y + k * n

    z = g(x)
    torch._dynamo.graph_break()
    k = k + 1
    return g(z, 3) * 2, seen, g.__name__, g is g


def two_local_functions_of_one_definition(x):
    def scaled(n):
        return lambda y: y * n

    f, g = scaled(2), scaled(3)
    torch._dynamo.graph_break()
    return f(x) + g(x), list(map(f, [x])), f is g


LOCAL = [a_local_function_that_is_not_called_any_more, a_local_function_with_a_closure_and_a_default, two_local_functions_of_one_definition]


@pytest.mark.parametrize("f", LOCAL)
def test_local_functions_that_are_alive_at_a_break(f):
    same_as_eager(f, randn(3))


@pytest.mark.needs_capture
@pytest.mark.parametrize("f", LOCAL)
def test_local_functions_that_are_alive_at_a_break_are_no_reason_to_record_again(f):
    compiled = magneto.compile(f)
    for _ in range(12):
        compiled(randn(3))
    assert not magneto.report().recompiles and not magneto.report().fallbacks, str(magneto.report())


def _after_a_break(f):
    def g(*args, **kwargs):
        torch._dynamo.graph_break()
        return f(*args, **kwargs)
    return g


def _packed(f):
    def g(*args, **kwargs):
        more = args + ()
        rest = {**kwargs}
        torch._dynamo.graph_break()
        return f(*more, **rest)
    return g


STARS = {
    "a tuple": lambda *sizes: (lambda xs: torch.zeros(*xs))(sizes),
    "*args": lambda *sizes: torch.zeros(*sizes),
    "*args as one": lambda *sizes: torch.zeros(sizes),
    "first and rest": lambda first, *rest: torch.zeros(first, *rest),
    "a keyword-only one": lambda *sizes, last=1: torch.zeros(*sizes, last),
    "**kwargs": lambda first, **rest: torch.zeros(first, rest.get("last", 1)),
    "one name twice": lambda first, /, **rest: torch.zeros(first, rest.get("first", 1)),
}


@pytest.mark.parametrize("around", [lambda f: f, _after_a_break, _packed], ids=["plain", "after a break", "packed"])
@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("name", STARS)
def test_how_many_and_which_arguments_are_guarded(name, dynamic, around):
    keyword = {"a keyword-only one": "last", "**kwargs": "last", "one name twice": "first"}.get(name)
    f = around(STARS[name])
    compiled = magneto.compile(f, dynamic=dynamic)
    for sizes in [(5, 5), (5, 6), (6, 6), (6, 7), (5,), (3,), (7, 7), (4, 7), (7, 4), (3,), (5, 5)]:
        args, kwargs = (sizes[:1], {keyword: sizes[-1]}) if keyword else (sizes, {})
        assert compiled(*args, **kwargs).shape == f(*args, **kwargs).shape


def test_a_tuple_from_outside_as_arguments():
    def f(sizes):
        return torch.zeros(*sizes)

    compiled = magneto.compile(f)
    for sizes in [(5,), (5, 5), (3,), (0, 5), (7,), [2, 3], (5,)]:
        assert compiled(sizes).shape == f(sizes).shape


def test_a_dtype_from_outside_is_guarded():
    def direct(dtype):
        return torch.zeros(3, dtype=dtype)

    def keywords(given):
        return torch.zeros(3, **given)

    def item(given):
        torch._dynamo.graph_break()
        return torch.zeros(3, dtype=given[0])

    for f, wrap in [(direct, lambda d: d), (keywords, lambda d: {"dtype": d}), (item, lambda d: (d,))]:
        compiled = magneto.compile(f)
        for dtype in [torch.float32, torch.float64, torch.int32, torch.float32, torch.int64, torch.float64]:
            assert compiled(wrap(dtype)).dtype is dtype
