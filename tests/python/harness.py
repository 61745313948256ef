"""same_as_eager: one program, two worlds, everything a user could see compared.

A compiled function must be indistinguishable from the plain one. So the program is built twice, once for eager and
once for Magneto, with its own closures, attributes and globals; both worlds go through the same *steps* (a first
call, the same call again, other values, other sizes, ..., after a reset), and after each step a *picture* is taken:
lines of text that name every object reachable from the arguments, the function and the result, with type, dtype,
strides, storage, identity and bits, together with what was printed, warned and raised, the generators' states and
the gradients of all leaves. The two pictures must be the same text; if not, the test fails with their difference.

    def test_a_list_keeps_its_tensors():
        same_as_eager(lambda xs: [x + 1 for x in xs], [randn(3), randn(3)])

A program with state is a factory, so that each world has its own:

    def test_a_counter_in_a_closure():
        @fresh
        def program():
            n = 0
            def f(x):
                nonlocal n
                n += 1
                return x * n
            return f
        same_as_eager(program, randn(3))
"""

import contextlib
import copy
import difflib
import io
import itertools
import linecache
import random
import textwrap
import types
import warnings

import numpy
import pytest
import torch

import magneto
from device import DEVICE, moved
from picture import Picture, scrub
import rounding
from variants import Made, copied, other_dtype, other_grad, other_sizes, other_strides, other_values


def fresh(factory):
    """Marks a factory: it returns the function, or the function and the state to watch, new for each world."""
    factory.builds_a_program = True
    return factory


def made(build):
    """An argument that cannot be copied (a generator, an open context): built anew for each call."""
    return Made(build)


_names = (f"<program {n}>" for n in itertools.count())


def module_program(source, function="f"):
    """A program with module globals of its own, from its source text. The state is the module's namespace."""
    source = textwrap.dedent(source)

    @fresh
    def program():
        name = next(_names)
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        module = types.ModuleType("program")
        exec(compile(source, name, "exec"), module.__dict__)
        return module.__dict__[function], module

    return program


class Step:
    """One call. `prepare(state)` changes the world before it; `under` is a context manager that holds around it."""

    def __init__(self, name, args=(), kwargs=None, prepare=None, under=contextlib.nullcontext, reset=False):
        self.name, self.args, self.kwargs = name, args, kwargs or {}
        self.prepare, self.under, self.reset = prepare, under, reset


def plan(args, kwargs, change, more):
    """The calls every program goes through. Sizes, dtypes or strides a program cannot take are good, too:
    eager raises, and so must we, with the same words and lines."""

    def step(name, vary=None, **rest):
        both = (args, kwargs) if vary is None else vary((args, kwargs))
        return Step(name, *both, **rest)

    yield step("the first call")
    yield step("the same again")
    yield step("other values", other_values)
    if change is not None:
        yield step("after the change", prepare=change)
        yield step("after the change, again", other_values)
    for number, (more_args, more_kwargs) in enumerate(more):
        yield Step(f"more call {number}", more_args, more_kwargs)
    yield step("other sizes", other_sizes)
    yield step("without gradients", under=torch.no_grad)
    yield step("other dtype", other_dtype)
    yield step("other strides", other_strides)
    yield step("requires_grad the other way", other_grad)
    yield step("the first call once more")
    yield step("after a reset", reset=True)
    yield step("after a reset, again", other_values)


class World:
    """One side: the program built anew, called as it is or compiled."""

    def __init__(self, program, call, compile):
        torch.utils.hooks.RemovableHandle.next_id = 100_000  # hooks are named by a counter of the process
        built = program() if hasattr(program, "builds_a_program") else program
        if isinstance(program, torch.nn.Module):
            built = copy.deepcopy(program)
        self.function, self.state = moved(built) if isinstance(built, tuple) else (moved(built), None)
        self.callee, self.call = compile(self.function), call

    def seed(self):
        torch.manual_seed(7)
        random.seed(7)
        numpy.random.seed(7)

    def observe(self, step, index):
        """Goes through one step and returns its picture."""
        if step.reset:
            magneto.reset()
        if step.prepare is not None:
            step.prepare(self.state if self.state is not None else self.function)
        self.seed()
        args, kwargs = copied((step.args, step.kwargs))
        picture = Picture()
        out, err = io.StringIO(), io.StringIO()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            torch.set_warn_always(True)
            try:
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    result, raised = None, None
                    try:
                        with step.under():
                            result = self.call(self.callee, *args, **kwargs)
                    except BaseException as error:  # a KeyboardInterrupt is an answer, too
                        raised = error
                    picture.draw("argument", [*args, *kwargs.values()], drain=True)
                    picture.draw("state", self.state)
                    picture.draw("function", self.function)
                    if raised is None:
                        picture.draw("result", result, drain=True, is_result=True)
                    else:
                        picture.raised = raised
                        picture.draw("raised", raised)
                    picture.draw_process_state()
                    picture.draw_gradients()
            finally:
                torch.set_warn_always(False)
        for stream, text in (("stdout", out.getvalue()), ("stderr", err.getvalue())):
            picture.lines += [f"{stream}: {scrub(line)}" for line in text.splitlines()]
        for warning in warned:
            # Our own words (the recompile limit, say) are no part of the program's behaviour.
            if not str(warning.message).lower().startswith("magneto"):
                picture.lines.append(f"warning: {warning.category.__name__}: {scrub(str(warning.message))}")
        return picture


def same_as_eager(program, *args, kwargs=None, change=None, more=(), call=None, options=None, close=False, units=1,
                  raises=None):
    """Compares a program with eager through all steps of `plan`.

    program   a function, a module (copied for each side), or a factory marked with @fresh or made by module_program
    change    change(state), applied to both worlds between calls; state is what the factory returned beside the
              function, or the function itself
    more      further calls: a list of (args, kwargs)
    call      call(g, *args, **kwargs): how to use the function, where a plain call is not enough
    options   keywords for magneto.compile
    close     compare floats within rounding even where operators run one by one: eager itself does not repeat its bits
    units     more rounding, where small numbers are differences of large ones
    raises    the exception the first call ends with; without it a program that fails in eager is a faulty test
    """
    call = call or (lambda g, *a, **k: g(*a, **k))
    steps = list(plan(moved(args), moved(kwargs or {}), change, moved(list(more))))
    eager = World(program, call, lambda f: f)
    seen = [eager.observe(step, index) for index, step in enumerate(steps)]
    if (type(seen[0].raised) if seen[0].raised else None) is not raises:
        if DEVICE != "cpu":
            pytest.skip("the program makes tensors of its own on the CPU")
        pytest.fail(f"the program itself: expected {raises}, but eager's first call gave {seen[0].raised!r}", pytrace=False)
    compiled = World(program, call, lambda f: magneto.compile(f, **(options or {})))
    for index, step in enumerate(steps):
        compare(step.name, seen[index], compiled.observe(step, index), close, units)


def compare(name, eager, compiled, close=False, units=1):
    close = close or not rounding.EXACT
    expected, got = eager.text(close), compiled.text(close)
    if expected != got and not (close and rounding.close_texts(expected, got)):
        diff = difflib.unified_diff(expected, got, "eager", "compiled", lineterm="", n=2)
        pytest.fail(f"{name}: compiled differs from eager\n" + "\n".join(diff), pytrace=False)
    if close:
        for (path, want), (_, have) in zip(eager.values, compiled.values, strict=True):
            if not rounding.close(want, have, units=2 if rounding.EXACT else units):
                pytest.fail(f"{name}: {path}: compiled differs from eager\n-{want}\n+{have}", pytrace=False)
