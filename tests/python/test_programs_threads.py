"""Compiled code inside compiled code, and in several threads at once."""

import sys
import threading

import torch
from torch import randn

import magneto
from harness import fresh, same_as_eager


def in_threads(count, work):
    """Runs work(index) in threads at once; raises what they raise."""
    results, errors = [None] * count, []
    start = threading.Barrier(count)

    def body(index):
        try:
            start.wait()
            results[index] = work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]
    return results


def test_a_compiled_function_called_in_a_compiled_function():
    @fresh
    def program():
        inner = magneto.compile(lambda x: x * 2 + 1)

        def f(x):
            return inner(x) + inner(inner(x))

        return f

    same_as_eager(program, randn(3))


def test_a_compiled_module_inside_a_compiled_module():
    @fresh
    def program():
        torch.manual_seed(1)
        inner = torch.nn.Linear(4, 4)
        model = torch.nn.Sequential(magneto.compile(inner), torch.nn.ReLU())
        return model, inner

    same_as_eager(program, randn(3, 4), change=lambda inner: inner.weight.data.mul_(2))


def test_a_compiled_function_that_calls_itself():
    @fresh
    def program():
        def f(x, n):
            return x if n == 0 else compiled(x * 2, n - 1) + 1

        compiled = magneto.compile(f)
        return lambda x: f(x, 3)

    same_as_eager(program, randn(2))


def test_two_threads_call_one_compiled_function():
    def f(x):
        y = x * 2
        for i in range(3):
            y = y + i
        return y.relu()

    g = magneto.compile(f)
    inputs = [randn(4) for _ in range(4)]

    def work(index):
        return [g(inputs[index]) for _ in range(50)]

    for index, results in enumerate(in_threads(4, work)):
        assert all(torch.equal(result, f(inputs[index])) for result in results)


def test_threads_compile_different_functions_at_once():
    def make(k):
        def f(x):
            total = x * k
            for i in range(k):
                total = total + (x if i % 2 else -x)
            return [total, k]

        return f

    def work(index):
        f = make(index)
        g = magneto.compile(f)
        out = []
        for n in range(1, 6):
            x = torch.arange(float(n)) + index
            out.append(torch.equal(g(x)[0], f(x)[0]) and g(x)[1] == index)
        return all(out)

    assert all(in_threads(4, work))


def test_a_thread_resets_while_another_calls():
    g = magneto.compile(lambda x: x * 3 + 1)

    def work(index):
        for n in range(50):
            if index == 0:
                magneto.reset()
            x = torch.full((3,), float(n))
            assert torch.equal(g(x), x * 3 + 1)

    in_threads(3, work)


def test_other_threads_run_python_while_one_traces():
    stop, turns = threading.Event(), [0]

    def noise():
        table = {}
        while not stop.is_set():
            table[turns[0] % 7] = [turns[0]]
            turns[0] += 1
            (torch.ones(3) + 1).sum().item()

    thread = threading.Thread(target=noise)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        same_as_eager(lambda x: [x * i + torch.ones(3) for i in range(20)], randn(3))
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert turns[0] > 0


def test_a_thread_started_inside():
    def f(x):
        out = []
        thread = threading.Thread(target=lambda: out.append(x * 2))
        thread.start()
        thread.join()
        return out[0] + 1

    same_as_eager(f, randn(3))


def test_locks_and_thread_locals():
    @fresh
    def program():
        lock, local = threading.Lock(), threading.local()
        local.scale = 2

        def f(x):
            with lock:
                local.count = getattr(local, "count", 0) + 1
                return x * local.scale, local.count, lock.locked()

        return f

    same_as_eager(program, randn(3))
