"""The harness sees what it must: each test breaks eager in one way, and the comparison has to name it."""

import functools
import random

import pytest
import torch
from torch import randn

import harness
from harness import fresh, made, module_program, same_as_eager


def fails_with(words, monkeypatch, sabotage, program, *args, **options):
    monkeypatch.setattr(harness.magneto, "compile", lambda f, **_: sabotage(f))
    with pytest.raises(pytest.fail.Exception, match=words):
        same_as_eager(program, *args, **options)


def changes_the_result(how):
    return lambda f: lambda *args, **kwargs: how(f(*args, **kwargs))


@pytest.mark.parametrize("how", [
    pytest.param(lambda y: y + 1e-7, id="value"),
    pytest.param(lambda y: y.double(), id="dtype"),
    pytest.param(lambda y: y.t().contiguous().t(), id="strides"),
    pytest.param(lambda y: torch.cat([y[:1], y])[1:], id="offset"),
    pytest.param(lambda y: y.detach(), id="graph"),
    pytest.param(lambda y: y.clone(), id="aliasing"),
    pytest.param(lambda y: y * 1, id="identity"),
    pytest.param(lambda y: (y,), id="container"),
    pytest.param(lambda y: y.mul_(2), id="mutation"),
    pytest.param(lambda y: (print("hello"), y)[1], id="printed output"),
    pytest.param(lambda y: (torch.rand(1), y)[1], id="rng of torch"),
    pytest.param(lambda y: (random.random(), y)[1], id="rng of random"),
    pytest.param(lambda y: (torch.set_grad_enabled(False), y)[1], id="grad mode"),
])
def test_a_changed_result_is_seen(how, monkeypatch):
    try:
        fails_with("compiled differs from eager", monkeypatch, changes_the_result(how), lambda x: x,
                   randn(3, 4) * 2)
    finally:
        torch.set_grad_enabled(True)


def test_a_lost_gradient_is_seen(monkeypatch):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    fails_with("grad after backward", monkeypatch, lambda f: Wrong.apply, lambda x: x * 2, randn(3, requires_grad=True))


def test_a_stale_state_is_seen(monkeypatch):
    program = module_program("scale = 2\ndef f(x):\n    return x * scale\n")

    def freeze(f):
        return lambda x: x * 2

    fails_with("after the change", monkeypatch, freeze, program, randn(3), change=lambda m: setattr(m, "scale", 3))


def test_a_lost_effect_on_the_state_is_seen(monkeypatch):
    @fresh
    def program():
        log = []

        def f(x):
            log.append(x)
            return x

        return f, log

    fails_with("state", monkeypatch, lambda f: lambda x: x, program, randn(3))


def test_a_cached_answer_is_seen(monkeypatch):
    fails_with("other values", monkeypatch, lambda f: functools.lru_cache(lambda x: constant), lambda x: constant + 0 * x
               if x.sum() == constant.sum() else x, constant)


constant = torch.ones(3)


def test_another_line_in_the_traceback_is_seen(monkeypatch):
    def f(x):
        raise ValueError("no")

    def another_line(f):
        def g(x):

            raise ValueError("no")

        g.__name__ = "f"
        return g

    fails_with("at test_harness.py", monkeypatch, another_line, f, randn(3), raises=ValueError)


def test_another_cause_of_an_exception_is_seen(monkeypatch):
    def f(x):
        raise ValueError("no") from KeyError("k")

    def without(f):
        def g(x):
            try:
                f(x)
            except ValueError as error:
                error.__cause__ = None
                raise

        return g

    fails_with("__cause__|context suppressed|at test_harness", monkeypatch, without, f, randn(3), raises=ValueError)


def test_a_generator_at_another_place_is_seen(monkeypatch):
    fails_with("rest", monkeypatch, lambda f: lambda g: torch.ones(1), lambda g: next(g),
               made(lambda: iter([torch.ones(1), torch.ones(1)])))


def test_a_warning_that_is_not_given_is_seen(monkeypatch):
    import warnings

    def f(x):
        warnings.warn("careful")
        return x

    fails_with("warning: UserWarning: careful", monkeypatch, lambda f: lambda x: x, f, randn(3))


def test_equal_worlds_pass():
    same_as_eager(lambda x: [x + 1, x, x[1:]], randn(3, 4))
