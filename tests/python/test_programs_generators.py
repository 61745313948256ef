"""Generators, iterators and coroutines: made inside, passed in, outliving the call, compiled themselves."""

import asyncio
import contextlib
import inspect

import pytest
import torch
from torch import ones, randn

import magneto
from harness import fresh, made, same_as_eager


def test_a_generator_used_up_inside():
    def rows(x):
        for row in x:
            yield row * 2

    same_as_eager(lambda x: torch.stack(list(rows(x))), randn(3, 2))


def test_a_generator_expression():
    same_as_eager(lambda x: sum(row * i for i, row in enumerate(x)), randn(3, 2))


def test_a_generator_left_in_the_middle():
    def rows(x):
        for row in x:
            yield row + 1

    def f(x):
        it = rows(x)
        return next(it), next(it)

    same_as_eager(f, randn(4, 2))


def test_a_generator_passed_in():
    def f(it):
        total = torch.zeros(2)
        for x in it:
            total = total + x
            if total.shape[0] > 5:
                break
        return total

    same_as_eager(f, made(lambda: (ones(2) * i for i in range(4))))


def test_a_generator_passed_in_and_left_for_the_caller():
    same_as_eager(lambda it: next(it) * 2, made(lambda: (ones(2) * i for i in range(1, 4))))


def test_a_generator_that_outlives_the_call():
    def f(x):
        y = x + 1
        return (y * i for i in range(3))

    same_as_eager(f, randn(2))


def test_a_generator_that_outlives_the_call_after_its_first_value():
    def count(x):
        yield x
        yield x + 1
        yield x + 2

    def f(x):
        it = count(x * 2)
        first = next(it)
        return first, it

    same_as_eager(f, randn(2))


def test_a_compiled_generator_function():
    def f(x):
        for i in range(3):
            x = x * 1.5 + i
            yield x

    same_as_eager(f, randn(2), call=lambda g, x: list(g(x)))


def test_send_throw_and_close():
    def machine(x):
        try:
            while True:
                try:
                    got = yield x
                    x = x + (0 if got is None else got)
                except ValueError:
                    x = -x
        finally:
            print("closed")

    def f(x):
        it = machine(x)
        out = [next(it), it.send(2), it.throw(ValueError("flip")), it.send(ones(2))]
        it.close()
        return out

    same_as_eager(f, randn(2))


def test_yield_from_returns_a_value():
    def inner(x):
        yield x
        return x * 10

    def outer(x):
        result = yield from inner(x)
        yield result

    same_as_eager(lambda x: list(outer(x)), randn(2))


def test_an_error_inside_a_generator():
    def rows(x):
        yield x
        raise KeyError("in the generator")

    def f(x):
        out = []
        for row in rows(x):
            out.append(row + 1)
        return out

    same_as_eager(f, randn(2), raises=KeyError)


def test_stop_iteration_inside_a_generator_becomes_a_runtime_error():
    def broken(x):
        yield x
        raise StopIteration

    same_as_eager(lambda x: list(broken(x)), randn(2), raises=RuntimeError)


def test_an_exhausted_iterator_raises():
    def f(x):
        it = iter([x])
        next(it)
        return next(it)

    same_as_eager(f, randn(2), raises=StopIteration)


def test_finally_of_a_generator_that_is_dropped():
    def rows(x, log):
        try:
            yield x
            yield x + 1
        finally:
            log.append("finally")

    def f(x, log):
        it = rows(x, log)
        first = next(it)
        del it
        log.append("after")
        return first

    same_as_eager(f, randn(2), [])


def test_an_iterator_class():
    class Countdown:
        def __init__(self, x, n):
            self.x, self.n = x, n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n == 0:
                raise StopIteration
            self.n -= 1
            return self.x * self.n

    same_as_eager(lambda x: list(Countdown(x, 3)), randn(2))


def test_the_old_sequence_protocol():
    class Rows:
        def __init__(self, x):
            self.x = x

        def __getitem__(self, i):
            return self.x[i]

        def __len__(self):
            return len(self.x)

    def f(x):
        rows = Rows(x)
        return [row + 1 for row in rows], len(rows), list(reversed(rows))

    same_as_eager(f, randn(3, 2))


def test_a_generator_based_context_manager():
    @contextlib.contextmanager
    def scaled(x, log):
        log.append("in")
        try:
            yield x * 2
        finally:
            log.append("out")

    def f(x, log):
        with scaled(x, log) as y:
            log.append("body")
            return y + 1

    same_as_eager(f, randn(2), [])


def test_iter_with_a_sentinel():
    def f(x):
        values = [3, 2, 1, 0]
        return [x * n for n in iter(lambda: values.pop(0), 0)]

    same_as_eager(f, randn(2))


def test_a_coroutine():
    async def double(x):
        return x * 2

    async def f(x):
        y = await double(x)
        await asyncio.sleep(0)
        return y + 1

    same_as_eager(f, randn(2), call=lambda g, x: asyncio.run(g(x)))


def test_a_compiled_step_inside_a_coroutine():
    def step(x):
        return x * 2 + 1

    def call(g, x):
        async def worker(n):
            y = x
            for _ in range(n):
                y = g(y)
                await asyncio.sleep(0)
            return y

        async def both():
            return await asyncio.gather(worker(2), worker(3))

        return asyncio.run(both())

    same_as_eager(step, randn(2), call=call)


def test_an_async_generator_and_async_with():
    class Scope:
        async def __aenter__(self):
            return 3

        async def __aexit__(self, *error):
            return False

    async def rows(x):
        for row in x:
            yield row

    async def f(x):
        async with Scope() as scale:
            return [row * scale async for row in rows(x)]

    same_as_eager(f, randn(3, 2), call=lambda g, x: asyncio.run(g(x)))


ENDS = {
    "a local": "it = steps(x, log)\n    y = next(it)",
    "two of them": "it, other = steps(x, log), steps(x, log)\n    y = next(it) + next(other)",
    "in a list": "its = [steps(x, log) for _ in range(2)]\n    y = next(its[0]) + next(its[1])",
    "of a loop that breaks": "for y in steps(x, log):\n        break",
    "behind another": "it = through(x, log)\n    y = next(it)",
    "in a with": "it = steps(x, log)\n    with torch.no_grad():\n        y = next(it)",
    "sent to": "it = steps(x, log)\n    next(it)\n    y = it.send(1)",
    "an attribute of what is made": "class Box: pass\n    box = Box()\n    box.it = steps(x, log)\n    y = next(box.it)",
    "not started": "it = steps(x, log)\n    y = x",
    "at its end": "it = steps(x, log)\n    y = sum(it)",
    "deleted": "it = steps(x, log)\n    y = next(it)\n    del it\n    log.append('deleted')",
    "closed": "it = steps(x, log)\n    y = next(it)\n    it.close()\n    log.append('closed')",
    "under a name that is used again": "it = steps(x, log)\n    y = next(it)\n    it = 1\n    log.append('gone')",
    "in an inner function": "def inner():\n        it = steps(x, log)\n        return next(it)\n    y = inner()\n    log.append('back')",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_generator_that_waits_ends_with_its_frame(end):
    text = """
def steps(x, log):
    try:
        log.append("starts")
        yield x + 1
        yield x + 2
    finally:
        log.append("ends")
def through(x, log):
    yield from steps(x, log)
def f(x, log):
    BODY
    log.append("returns")
    return y * 2
""".replace("BODY", ENDS[end])
    answers = []
    for compiled in (False, True):
        space = {"torch": torch}
        exec(text, space)
        f = magneto.compile(space["f"]) if compiled else space["f"]
        answers.append([])
        for k in range(4):
            log = []
            y = f(torch.full((2,), float(k)), log)
            answers[-1].append((y.tolist(), list(log)))
    assert answers[0] == answers[1]


def test_what_a_function_says_it_is():
    async def coroutine(x):
        return x

    def generator(x):
        yield x

    @fresh
    def program():
        def f(x):
            it = generator(x)
            coro = coroutine(x)
            coro.close()
            return inspect.isgenerator(it), inspect.iscoroutinefunction(coroutine), it.gi_frame is not None, next(it) + 1

        return f

    same_as_eager(program, randn(2))
