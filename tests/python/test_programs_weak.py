"""Weak references, and except* clauses."""

import textwrap
import weakref

import pytest
import torch

from each_call import numbers, same_each_call

pytestmark = pytest.mark.needs_capture


class Thing:
    pass


def test_a_reference_to_an_argument_and_to_what_is_made_here():
    def f(x):
        thing, y = Thing(), x + 1
        thing.x = x
        a, b, c = weakref.ref(x), weakref.ref(thing), weakref.ref(y)
        return a() * 2 + b().x + c(), a() is x, b() is thing, weakref.ref(thing) is b

    same_each_call(lambda: f, graphs=1)


def test_one_whose_object_has_ended():
    def f(x):
        thing, y = Thing(), x + 1
        a, b = weakref.ref(thing), weakref.ref(y)
        z = b() * 2
        del thing, y
        return z, a() is None, b() is None

    same_each_call(lambda: f, breaks=None)


def test_one_that_leaves():
    def program():
        def f(x):
            thing = Thing()
            thing.x = x + 1
            return thing, weakref.ref(thing), weakref.ref(x)

        def call(g, k):
            x = numbers(k)
            thing, a, b = g(x)
            assert a() is thing and b() is x
            del thing
            return a() is None

        return f, call

    same_each_call(program, graphs=1)


def test_one_from_outside_whose_object_is_another():
    def program():
        things = [Thing(), Thing()]
        things[0].x, things[1].x = numbers(3), numbers(5)
        holder = Thing()
        holder.ref = weakref.ref(things[0])

        def f(x):
            return x + holder.ref().x

        def call(g, k):
            if k == 2:
                holder.ref = weakref.ref(things[1])
            return g(numbers(k))

        return f, call

    same_each_call(program, breaks=None)


GROUPS = {
    "both": "raise ExceptionGroup('g', [ValueError(1), KeyError(2)])",
    "nested": "raise ExceptionGroup('g', [ValueError(1), ExceptionGroup('h', [KeyError(2), ValueError(3)])])",
    "alone": "raise ValueError(1)",
    "none": "pass",
    "left over": "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])",
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups_of_exceptions(name):
    names = {"torch": torch}
    source = f"""
    def f(x):
        y = x
        try:
            try:
                y = y + 1
                {GROUPS[name]}
            except* ValueError as error:
                y = y + len(error.exceptions)
            except* KeyError:
                y = y * 2
        except ExceptionGroup as group:
            y = y - len(group.exceptions)
        return y
    """
    exec(textwrap.dedent(source), names)
    same_each_call(lambda: names["f"], graphs=1)
