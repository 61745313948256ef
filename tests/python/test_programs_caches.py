"""functools.lru_cache: wrappers made inside and outside."""

import functools

import pytest
import torch

from each_call import numbers, same_each_call

pytestmark = pytest.mark.needs_capture


def test_made_inside():
    def program():
        def f(x, k):
            @functools.lru_cache(maxsize=None)
            def fib(n):
                return n if n < 2 else fib(n - 1) + fib(n - 2)

            @functools.cache
            def scaled(t, by=1):
                return t * by

            y = x + 1
            assert scaled(x) is scaled(x) and scaled(y) is not scaled(x) and scaled(x, by=2) is scaled(x, by=2)
            return scaled(x) * fib(7) + scaled(y, by=k), scaled.cache_info().hits, fib.cache_info().misses

        return f, lambda g, k: g(numbers(k), k % 3)

    same_each_call(program, graphs=3)


def test_two_arguments_that_may_be_one():
    def program():
        def f(x, y):
            @functools.cache
            def once(t):
                return t * 2

            return once(x) is once(y), once.cache_info().hits

        def call(g, k):
            x, y = numbers(k), numbers(k)
            return g(x, x if k in (1, 3) else y)

        return f, call

    same_each_call(program, calls=5)


def test_values_from_outside():
    def program():
        calls = []

        @functools.lru_cache
        def table(n):
            calls.append(n)
            return torch.arange(float(n))

        def f(x, k):
            t = table(3)
            return x + t, t, x * len(table(k % 2 + 1))

        def call(g, k):
            if k == 4:
                table.cache_clear()
            y, t, z = g(numbers(k), k)
            return y, z, t is table(3), list(calls)

        return f, call

    same_each_call(program, calls=7)


def test_tensors_given_to_one_from_outside():
    def program():
        kept = [numbers(1), numbers(2)]

        @functools.lru_cache
        def twice(t):
            return t * 2

        def f(x):
            return twice(x) + 1, twice(x)

        def call(g, k):
            x = kept[k % 2] if k < 5 else numbers(k)
            y, t = g(x)
            return y, t is twice(x), twice.cache_info().misses

        return f, call

    same_each_call(program, calls=8, breaks=None)
