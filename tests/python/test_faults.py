"""A fault of Magneto's own, anywhere: the call returns what eager returns, with eager's effects, and says so once."""

import warnings

import pytest
import torch

import magneto

testing = pytest.importorskip("magneto._C")._testing_trace

pytestmark = pytest.mark.needs_capture


class Counter:
    def __init__(self):
        self.calls, self.seen = 0, []

    def note(self, x):
        self.calls += 1
        self.seen.append(x.shape[0])
        return x * 2


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2


def program():
    """A function that does a bit of everything, each part of it once and visibly; and what it changes."""
    counter, log, table = Counter(), [], {"n": 0}

    def helper(x, *rest, scale=2):
        log.append(("helper", len(rest)))
        return x * scale + sum(rest)

    def f(x, items):
        y = helper(x, 1, scale=3)
        y = counter.note(y)
        table["n"] += 1
        for item in items:
            y = y + item
            log.append(item)
        items.append("end")
        y.mul_(2)
        log.append("before")
        torch._dynamo.graph_break()
        try:
            y = y + {"k": 1}["missing"]
        except KeyError as error:
            log.append(error.args)
        first, *others = [helper(y), Doubled.apply(y)]
        made = Counter()
        made.calls = len(others)
        return first, others, made.calls, f"{len(items)}"

    return f, (counter.__dict__, log, table)


def observe(f, state, count=6):
    seen = []
    for call in range(count):
        items = [1, 2]
        first, others, *rest = f(torch.full((2,), 1.0 + call), items)
        seen.append((first.tolist(), [o.tolist() for o in others], rest, items, repr(state)))
    return seen


@pytest.fixture
def no_faults_afterwards():
    yield
    testing.throw_at(None, 0)


POINTS = ["note", "primitive", "flush", "boundary", "begin", "stop", "finish", "replay", "guards"]


@pytest.mark.parametrize("where", POINTS)
def test_a_fault_anywhere_leaves_the_program_as_it_is(where, no_faults_afterwards, capsys):
    want = observe(*program())
    met, thrown = 0, True
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for countdown in range(20_000):  # until there is no such place any more
            f, state = program()
            compiled = magneto.compile(f)
            testing.throw_at(where, countdown)
            have = observe(compiled, state)
            thrown = testing.has_thrown()
            testing.throw_at(None, 0)
            assert have == want, f"a fault at the {countdown}th {where}"
            if not thrown:
                break
            met += 1
            magneto.reset()
    assert met > 0 and not thrown, "there are places that were not reached"
    texts = [str(w.message) for w in warned]
    assert len(texts) == met and all("fault of its own" in t and "report" in t for t in texts), "one for each callable"


def test_a_fault_is_a_break_that_asks_to_be_reported(no_faults_afterwards):
    compiled = magneto.compile(lambda x: (x * 2 + 1).relu())
    testing.throw_at("primitive", 2)
    with pytest.warns(RuntimeWarning, match=r"test_faults.py:\d+ in .*lambda.*Please report"):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    (stop,) = magneto.report().breaks
    assert "a fault of Magneto's own" in stop.reason and "report" in stop.cure
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert not magneto.report().fallbacks


def test_a_fault_where_warnings_are_errors(no_faults_afterwards):
    compiled = magneto.compile(lambda x: x * 2)
    testing.throw_at("note", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_a_fault_while_an_exception_leaves_the_function(no_faults_afterwards):
    def f(x, d):
        return (x * 2) + d["missing"]

    compiled = magneto.compile(f)
    testing.throw_at("finish", 0)
    with warnings.catch_warnings(record=True), pytest.raises(KeyError, match="missing"):
        compiled(torch.ones(2), {})
