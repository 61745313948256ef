"""Messages of Python's logging are told again by replays, as of the same line, without a break."""

import logging

import pytest
import torch

import magneto

LOG = logging.getLogger("test_programs_logging")


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append((record.name, record.levelname, record.getMessage(), getattr(record, "unit", None), record.args, record.lineno, record.funcName, record.pathname))


@pytest.fixture
def told():
    handler = Kept()
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    yield lambda f, *args: (handler.records.clear(), f(*args), list(handler.records))[1:]
    LOG.removeHandler(handler)
    LOG.setLevel(logging.NOTSET)


def inner(x, n):
    LOG.info("%d of %s", n, "four")
    return x + n


def program(x, n):
    LOG.warning("first")
    y = inner(x * 2, n)
    LOG.debug("nobody hears it")
    logging.LoggerAdapter(LOG, {"unit": "mm"}).error("an adapter")
    LOG.log(logging.CRITICAL, "last %s", 1.5, stacklevel=1)
    return y


def test_messages_are_told_again(told):
    compiled = magneto.compile(program, fullgraph=True)
    for n in (1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11):
        want, have = told(program, torch.ones(3), n), told(compiled, torch.ones(3), n)
        assert torch.equal(want[0], have[0]) and want[1] == have[1] and len(have[1]) == 4
    assert len(magneto.report().graphs) <= 3


def test_a_level_that_changes(told):
    compiled = magneto.compile(program)
    for level in (logging.INFO, logging.INFO, logging.ERROR, logging.ERROR, logging.DEBUG, logging.INFO):
        LOG.setLevel(level)
        assert told(program, torch.ones(3), 1)[1] == told(compiled, torch.ones(3), 1)[1]


@pytest.mark.parametrize("tell", [
    lambda x: LOG.error("a tensor: %s", x), lambda x: LOG.error("%(a)s", {"a": 1}), lambda x: LOG.error("a stack", stack_info=True),
    lambda x: LOG.error("more", extra={"of": [1]}), lambda x: LOG.error("of the caller", stacklevel=2)])
def test_what_is_not_told_again_is_a_break(told, tell):
    def f(x):
        y = x * 2
        tell(y)
        return y + 1

    compiled = magneto.compile(f)
    for _ in range(3):
        want, have = told(f, torch.ones(3)), told(compiled, torch.ones(3))
        assert torch.equal(want[0], have[0]) and [record[:3] for record in want[1]] == [record[:3] for record in have[1]]


def test_a_handler_that_raises(told):
    class Raising(logging.Handler):
        def handle(self, record):
            raise ValueError(record.getMessage())

    def f(x):
        LOG.error("no")
        return x * 2

    compiled = magneto.compile(f)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    LOG.addHandler(bad := Raising())
    try:
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                compiled(torch.ones(3))
    finally:
        LOG.removeHandler(bad)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
