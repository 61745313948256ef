"""Calls and recompiles without end: memory and reference counts stay flat.

By default a tenth of the real counts, for CI; MAGNETO_LEAKS=full runs 100,000 calls and 1,000 recompiles.
"""

import ctypes
import gc
import os
import sys

import pytest
import torch
from torch import nn, ones, randn

import magneto

FULL = os.environ.get("MAGNETO_LEAKS") == "full"
CALLS = 100_000 if FULL else 10_000
RECOMPILES = 1_000 if FULL else 200


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
                                                      "fsmblks", "uordblks", "fordblks", "keepcost")]


libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Mallinfo


def held():
    """Bytes in use, in blocks of C and of Python. Resident memory would hide a small leak in the heap's holes."""
    gc.collect()
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd + 64 * sys.getallocatedblocks(), len(gc.get_objects())


def resident():
    with open("/proc/self/smaps_rollup") as file:
        (line,) = (line for line in file if line.startswith("Rss:"))
    return int(line.split()[1]) * 1024


def grows(work, times, warm_up):
    """What a round of work adds after the warm-up, in bytes and in Python objects: the least of four windows.
    A leak shows in every window; a table that doubles now and then does not."""
    for _ in range(warm_up):
        work()
    windows, before_all = [], resident()
    for _ in range(4):
        before = held()
        for _ in range(times // 4):
            work()
        windows.append([after - was for was, after in zip(before, held())])
    assert resident() - before_all < 32 << 20, "the process grew by more than 32 MiB"
    return tuple(min(column) / (times // 4) for column in zip(*windows))


def test_the_measure_sees_a_leak():
    kept = []
    bytes_each, objects_each = grows(lambda: kept.append([ones(100)]), 4_000, 100)
    assert bytes_each > 400 and objects_each >= 0.99


def plain(x):
    return x * 2 + 1


def with_containers(x):
    rows = [x * i for i in range(3)]
    return {"rows": rows, "sum": sum(rows), "self": x}


def with_a_break(x):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y - 1


def with_a_view(x):
    y = x.view(-1)
    y.add_(0)
    return y[1:], x


def raising(x):
    y = x + 1
    try:
        raise ValueError(y)
    except ValueError as error:
        return error.args[0]


@pytest.mark.parametrize("f", [plain, with_containers, with_a_break, with_a_view, raising], ids=lambda f: f.__name__)
def test_calls_keep_nothing(f):
    g = magneto.compile(f)
    x = randn(16)
    g(x)
    count = sys.getrefcount(x)
    bytes_each, objects_each = grows(lambda: g(x), CALLS, 500)
    assert sys.getrefcount(x) == count
    assert objects_each < 0.01, f"{objects_each:.3f} objects a call"
    assert bytes_each < 20, f"{bytes_each:.0f} bytes a call"


def test_training_calls_keep_nothing():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    g = magneto.compile(model)
    x = randn(4, 8)

    def work():
        g(x).sum().backward()
        model.zero_grad()

    work()
    counts = [sys.getrefcount(p) for p in model.parameters()]
    bytes_each, objects_each = grows(work, CALLS // 10, 100)
    assert [sys.getrefcount(p) for p in model.parameters()] == counts
    assert objects_each < 0.05 and bytes_each < 100, f"{objects_each:.3f} objects, {bytes_each:.0f} bytes a step"


def test_a_call_that_raises_keeps_nothing():
    def f(x):
        y = x * 2
        raise ValueError("always")

    g = magneto.compile(f)
    x = randn(16)

    def work():
        try:
            g(x)
        except ValueError:
            pass

    work()
    count = sys.getrefcount(x)
    bytes_each, objects_each = grows(work, CALLS // 10, 100)
    assert sys.getrefcount(x) == count
    assert objects_each < 0.05 and bytes_each < 100, f"{objects_each:.3f} objects, {bytes_each:.0f} bytes a call"


def test_recompiles_of_one_function_keep_nothing():
    g = magneto.compile(with_containers)
    x = randn(16)
    count = sys.getrefcount(x)

    def work():
        magneto.reset()
        g(x)

    bytes_each, objects_each = grows(work, RECOMPILES, 30)
    magneto.reset()
    assert sys.getrefcount(x) == count
    assert objects_each < 0.5 and bytes_each < 2_000, f"{objects_each:.2f} objects, {bytes_each:.0f} bytes a recompile"


@pytest.mark.parametrize("reset, least", [(True, 300), (False, 4_000)], ids=["with a reset", "but the report"])
def test_functions_that_come_and_go_keep_nothing(reset, least):
    x = randn(16)
    count = sys.getrefcount(x)

    def work():
        k = [3]

        def f(x):
            return [x * k[0], {"x": x}]

        g = magneto.compile(f)
        g(x), g(x)
        if reset:  # the report keeps a note of each graph until then
            magneto.reset()

    bytes_each, objects_each = grows(work, RECOMPILES, 30)
    magneto.reset()
    assert sys.getrefcount(x) == count
    assert objects_each < 0.5 and bytes_each < least, f"{objects_each:.2f} objects, {bytes_each:.0f} bytes a function"


def test_recompiles_by_changed_state_keep_nothing():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 2))
    model.scale = 0
    g = magneto.compile(model)
    x = randn(4, 8)
    rounds = [0]

    def work():
        rounds[0] += 1
        if rounds[0] % 5 == 0:
            magneto.reset()
        model[1].p = rounds[0] % 5 / 10
        with torch.no_grad():
            g(x)

    bytes_each, objects_each = grows(work, RECOMPILES, 30)
    assert objects_each < 0.5 and bytes_each < 4_000, f"{objects_each:.2f} objects, {bytes_each:.0f} bytes a recompile"


def test_past_the_limit_nothing_is_kept():
    def f(x, name):
        return x * len(name)

    g = magneto.compile(f)
    x = randn(16)
    names = ["a" * n for n in range(50)]
    rounds = [0]

    def work():
        rounds[0] += 1
        g(x, names[rounds[0] % 50])

    bytes_each, objects_each = grows(work, CALLS // 10, 100)
    assert objects_each < 0.05 and bytes_each < 100, f"{objects_each:.3f} objects, {bytes_each:.0f} bytes a call"
