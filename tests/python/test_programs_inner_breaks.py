"""Breaks inside of functions that were inlined: the frames around them are left and entered again by a replay."""

import functools
import inspect
import random
import sys
import textwrap
import traceback

import pytest
import torch
from torch import nn, randn

import magneto
from harness import fresh, module_program, same_as_eager


class Layer(nn.Module):
    def __init__(self, prints):
        super().__init__()
        self.linear, self.prints = nn.Linear(4, 4), prints

    def forward(self, x, scale=1.0, *, shift=0.0):
        y = self.linear(x).relu()
        if self.prints:
            print("mean", y.sum() > -1)
        return y * scale + x + shift


class Stack(nn.Module):
    def __init__(self, prints):
        super().__init__()
        self.layers = nn.ModuleList(Layer(p) for p in prints)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for n, layer in enumerate(self.layers):
            x = layer(x, 1.0 + n, shift=0.5)
        return self.head(x).tanh()


def count_graphs(model, *args, calls=3):
    magneto.reset()
    compiled = magneto.compile(model)
    for _ in range(calls):
        torch.testing.assert_close(compiled(*args), model(*args))
    text = str(magneto.report())
    assert "in eager:" not in text and "recompile of" not in text, text
    return int(text.split(" graph")[0])


@pytest.mark.needs_capture
def test_a_print_in_one_of_twelve_layers_makes_two_graphs():
    assert count_graphs(Stack([n == 3 for n in range(12)]), randn(2, 4)) == 2


@pytest.mark.needs_capture
def test_a_print_in_each_of_twelve_layers_makes_a_graph_for_each_rest():
    assert count_graphs(Stack([True] * 12), randn(2, 4)) == 13


@pytest.mark.needs_capture
def test_a_break_five_calls_deep_makes_two_graphs():
    def deep(x, n):
        y = x * n
        if n > 0:
            return deep(y + 1, n - 1) - y
        torch._dynamo.graph_break()
        return y.cos()

    assert count_graphs(lambda x: deep(x, 5).sin(), randn(3)) == 2


def test_training_through_the_layers():
    same_as_eager(Stack([n % 2 == 1 for n in range(4)]), randn(2, 4))


def test_every_way_to_call():
    @fresh
    def program():
        def callee(x, *rest, key=1, **others):
            torch._dynamo.graph_break()
            return x * len(rest) + key + sum(others.values())

        class Callable:
            def __call__(self, x, k):
                torch._dynamo.graph_break()
                return x * k

            def method(self, x, k=3):
                torch._dynamo.graph_break()
                return x - k

            @property
            def value(self):
                torch._dynamo.graph_break()
                return 5

            @staticmethod
            def static(x):
                torch._dynamo.graph_break()
                return x + 11

            @classmethod
            def of(cls, x):
                torch._dynamo.graph_break()
                return x * 13

            def __add__(self, x):
                torch._dynamo.graph_break()
                return x + 17

            def __enter__(self):
                torch._dynamo.graph_break()
                return self

            def __exit__(self, *error):
                torch._dynamo.graph_break()

        def f(x):
            c, bound = Callable(), Callable().method
            y = callee(x, 1, 2, key=3, a=4) + callee(*(x, 1), **{"key": 2, "b": 3})
            y = y + c(x, 2) + c.method(x) + bound(x, k=4) + c.value + Callable.static(x) + c.of(x)
            y = y + functools.partial(callee, x)(7) + (c + x)
            with c:
                y = y * 2
            y = y + sum(callee(x, n) for n in range(3)) + list(map(callee, [x, y]))[1]
            return y + sorted([3, 1, 2], key=lambda n: callee(n))[0]

        return f

    same_as_eager(program, randn(3))


def test_loops_with_and_try_around_a_break():
    @fresh
    def program():
        log = []

        class Scope:
            def __init__(self, name):
                self.name = name

            def __enter__(self):
                log.append("+" + self.name)

            def __exit__(self, kind, error, trace):
                log.append("-" + self.name)
                return kind is KeyError

        def inner(x, n):
            y = x + n
            torch._dynamo.graph_break()
            if n == 1:
                raise ValueError(n)
            if n == 2:
                raise KeyError(n)
            return y * 2

        def middle(x, n):
            with Scope(f"middle{n}"):
                return inner(x, n) + 1
            return x - 100

        def f(x):
            for n in range(4):
                try:
                    x = middle(x, n)
                except ValueError as error:
                    x = x + error.args[0] * 10
                finally:
                    log.append(n)
            return x

        return f, log

    same_as_eager(program, randn(3))


def test_an_exception_after_the_break_leaves_all_frames():
    def inner(x):
        torch._dynamo.graph_break()
        y = x * 2
        raise RuntimeError("no")

    def middle(x):
        return inner(x + 1)

    same_as_eager(lambda x: middle(x), randn(3), raises=RuntimeError)


def test_a_frame_that_returns_nothing_but_constants():
    """Since 3.12 such a function has no instruction that could return another value."""
    def is_fine(x):
        if x is None:
            return False
        torch._dynamo.graph_break()
        return True

    def through(x):
        if is_fine(x):
            return 1
        return 2

    def silent(x):
        is_fine(x)
        through(x)

    same_as_eager(lambda x: (through(x + 1), silent(x * 2), x * through(x)), randn(3))


def test_a_call_of_the_chain_that_raises_in_a_replay():
    """Nothing is left of what was to be entered: the frames go on as they are."""
    def inner(x):
        torch._dynamo.graph_break()
        return x * 2

    def outer(x):
        try:
            return inner(x + 1) - 1
        except RecursionError:
            return x

    def deep(n, f, x):
        return deep(n - 1, f, x) if n else f(x)

    compiled, x, limit = magneto.compile(outer), randn(3), sys.getrecursionlimit()
    for _ in range(3):
        assert torch.equal(compiled(x), outer(x))
    here = len(traceback.extract_stack())
    sys.setrecursionlimit(here + 120)
    try:
        for left in range(0, 100):  # somewhere on the way there is no room for one frame more
            try:
                assert any(torch.equal(deep(left + 15, compiled, x), answer) for answer in (outer(x), x))
            except RecursionError:
                pass
    finally:
        sys.setrecursionlimit(limit)
    assert torch.equal(compiled(x), outer(x))


def test_what_frames_hold_is_theirs():
    @fresh
    def program():
        def inner(items, table, x):
            items.append(x + 1)
            other = items
            torch._dynamo.graph_break()
            other.append(x * 2)
            table["sum"] = sum(items)
            del other
            return items

        def f(x):
            items, table = [x], {}
            same = items
            found = inner(items, table, x)
            assert found is same and len(same) == 3
            count = 0

            def counted(y):
                nonlocal count
                count += 1
                torch._dynamo.graph_break()
                count += 10
                return y * count

            z = counted(x) + counted(table["sum"])
            return z + count, same

        return f

    same_as_eager(program, randn(3))


def test_iterators_that_are_alive():
    def inner(x, n):
        torch._dynamo.graph_break()
        return x * n + 1

    def f(x, table):
        for key, value in table.items():
            for a, b in zip([1, 2], (3, 4)):
                for n, t in enumerate(reversed([x, x + 1])):
                    x = inner(x, a) + t * n + b
        for key in table:
            x = inner(x, table[key])
        for part in x.unbind(0):
            x = x + inner(part, 2)
        return x

    same_as_eager(f, randn(3), {"a": 1, "b": 2})


def test_an_iterator_that_another_has_too():
    @fresh
    def program():
        it = iter([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14])

        def inner(x, it):
            torch._dynamo.graph_break()
            return x * next(it)

        def f(x):
            for n in it:
                x = inner(x, it) + n
                if n > 3:
                    break
            return x

        return f, it

    same_as_eager(program, randn(3))


def test_a_dict_that_changes_while_it_is_walked():
    def inner(table):
        torch._dynamo.graph_break()
        table["new"] = 1

    def f(x, table):
        for key in table:
            inner(table)
            x = x + 1
        return x

    same_as_eager(f, randn(3), {"a": 1, "b": 2}, raises=RuntimeError)


def test_a_long_loop_of_breaks():
    def inner(x, n):
        if n % 7 == 0:
            torch._dynamo.graph_break()
        return x + n

    def f(x):
        for n in range(60):
            x = inner(x, n)
        return x

    same_as_eager(f, randn(3))


def test_a_step_of_data_that_decides():
    def clip(x):
        if x.norm() > 1.5:
            return x / x.norm()
        return x

    def f(x, weights):
        for w in weights:
            x = clip(x @ w) * 2
        return x

    same_as_eager(f, randn(3, 3), [randn(3, 3), randn(3, 3) / 9, randn(3, 3)])


def test_the_stack_is_whole_at_the_break():
    @fresh
    def program():
        seen = []

        def look():
            seen.append([(f.name, f.lineno) for f in traceback.extract_stack() if f.filename == __file__][-3:])

        def inner(x):
            torch.compiler.disable(look)()
            return x + 1

        def outer(x):
            return inner(x * 2) * 3

        def f(x):
            return outer(x)

        return f, seen

    same_as_eager(program, randn(3))


def test_a_frame_that_is_held():
    @fresh
    def program():
        kept = []

        def hold():
            kept.append(inspect.currentframe().f_back.f_back.f_back)  # of outer: disable has a frame, too

        def inner(x):
            torch.compiler.disable(hold)()
            return x + 1

        def outer(x):
            y = x * 2
            z = inner(y)
            y = z * 5
            return y

        def f(x):
            result = outer(x)
            value = kept.pop().f_locals["y"]
            return result, value

        return f

    same_as_eager(program, randn(3))


def test_tracing_that_begins_at_the_break():
    @fresh
    def program():
        events = []

        def trace(frame, event, argument):
            if frame.f_code.co_name == "traced":
                events.append(event)
            return trace

        def begin():
            sys.settrace(trace)

        def traced(x):
            return x * 3

        def inner(x):
            torch.compiler.disable(begin)()
            return traced(x) + 1

        def f(x):
            try:
                return inner(x + 1) * 2
            finally:
                sys.settrace(None)

        return f, events

    same_as_eager(program, randn(3))


def test_objects_that_end_with_their_frame():
    @fresh
    def program():
        log = []

        class Ends:
            def __init__(self, name):
                self.name = name

            def __del__(self):
                log.append(self.name)

        def inner(x, n):
            held = Ends(f"inner{n}")
            torch._dynamo.graph_break()
            log.append("after")
            return x * n

        def f(x):
            held = Ends("outer")
            y = inner(x, 2)
            log.append("between")
            y = y + inner(x, 3)
            del held
            log.append("end")
            return y

        return f, log

    same_as_eager(program, randn(3))


def test_other_sizes_and_modules():
    def body(layer, x):
        y = layer(x)
        torch._dynamo.graph_break()
        return y.relu() * x.shape[0]

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = body(layer, x)
            return x

    same_as_eager(Layers(), randn(2, 3))


# ---- all orders --------------------------------------------------------------------------------------------------------


def nested_program(seed):
    """Functions that call each other, with breaks, loops, handlers and containers at random places."""
    r = random.Random(seed)
    count = r.randint(2, 5)
    lines = ["import torch", "LOG = []", ""]
    for n in reversed(range(count)):
        star = r.random() < 0.3
        lines += [f"def f{n}(x, k, items{', *rest' if star else ''}):", "    y = x * 2"]
        for _ in range(r.randint(1, 4)):
            what = r.randrange(9)
            call = f"f{r.randint(n + 1, count - 1)}" if n + 1 < count else None
            argument = r.choice(["x", "y", "x + k", "items[0]"])
            if what == 0:
                lines.append("    torch._dynamo.graph_break()")
            elif what == 1:
                lines.append(f"    items.append(y + {r.randint(1, 3)})")
            elif what == 2:
                lines.append(f"    LOG.append(('f{n}', k, len(items)))")
            elif what == 3:
                lines += [f"    if float(y.sum()) > {r.choice([-100.0, 0.0])}:", "        y = y - 1"]
            elif call and what in (4, 5):
                lines.append(f"    y = y + {call}({argument}, k + 1, items)")
            elif call and what == 6:
                walked = r.choice(["range(3)", "list(items)[:3]", "zip([1, 2], (3, 4))", "enumerate({'a': 1, 'b': 2}.items())"])
                lines += [f"    for i in {walked}:", f"        y = y + {call}(y, k, items) * 0.5"]
            elif call and what == 7:
                lines += ["    try:", f"        y = y + {call}({argument}, k, items)", "    except ValueError as error:",
                          "        y = y + error.args[0]", "    finally:", f"        LOG.append('finally {n}')"]
            else:
                lines += [f"    if k == {r.randint(0, 2)} and len(items) > {r.randint(1, 4)}:", f"        raise ValueError({r.randint(1, 5)})"]
        lines += ["    return y.cos()", ""]
    lines += ["def f(x):", "    items = [x]", "    try:", "        y = f0(x, 0, items)", "    except ValueError as error:", "        y = x - error.args[0]",
              "    return y, items, len(LOG)"]
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(40))
def test_programs_of_nested_calls(seed):
    same_as_eager(module_program(textwrap.dedent(nested_program(seed))), randn(3))
