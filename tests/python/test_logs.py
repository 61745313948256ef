"""MAGNETO_LOGS, TORCH_LOGS, set_logs: what is told as it happens, through Python's logging."""

import logging
import os
import subprocess
import sys
import textwrap

import pytest
import torch
import torch._dynamo

import magneto

PROGRAM = """
    import torch
    import torch._dynamo
    import magneto

    def f(x, n):
        y = x * n
        torch._dynamo.graph_break()
        return torch.linalg.det(y @ y.T) + 1

    g = magneto.compile(f, dynamic=False)
    for n in (2, 2, 3, 3):
        g(torch.ones(3, 3, requires_grad=True), n).sum().backward()
"""


@pytest.fixture
def told(tmp_path):
    """What a script writes to stderr."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PROGRAM))

    def run(names, **environment):
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300,
                              env={**os.environ, "MAGNETO_LOGS": names, **environment})
        assert done.returncode == 0, done.stderr
        return done.stderr

    return run


@pytest.fixture
def heard():
    """The records of all loggers of ours."""
    records = []

    class Handler(logging.Handler):
        def emit(self, record):
            records.append(record)

    handler, logger = Handler(), logging.getLogger("magneto")
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)
    magneto.set_logs()


def test_nothing_is_told_unasked(told):
    assert told("") == ""


def test_a_break_is_told_where_it_happens(told):
    text = told("graph_breaks")
    assert text.count("# magneto: graph_breaks\n") == 1, text
    assert "    torch._dynamo.graph_break()\n" in text and "  what: " in text and "  cure: " in text and " in f\n" in text


def test_a_recompile_tells_both_values(told):
    text = told("recompiles")
    assert text.count("# magneto: recompiles\n") >= 1 and "recompile of f (" in text and "2" in text and "3" in text, text


@pytest.mark.parametrize("name, what", [("guards", "graph of f ("), ("graph_code", "aten::mul.Tensor"), ("perf_hints", "aten::_linalg_det"),
                                        ("passes", "kernels, run"), ("schedule", "plan {"), ("aot_graphs", "graph {")])
def test_each_name_tells_its_own(name, what, told):
    text = told(name)
    assert what in text, text


def test_torch_logs_are_heard_and_their_other_names_are_not_ours(told):
    assert "# magneto: graph_breaks" in told("", TORCH_LOGS="graph_breaks")
    assert "RuntimeWarning" not in told("", TORCH_LOGS="ddp_graphs")


def test_a_name_that_nobody_knows(told):
    text = told("graph_brakes")
    assert "RuntimeWarning" in text and "nothing is called graph_brakes" in text and "graph_breaks" in text
    with pytest.raises(ValueError, match="graph_brakes.*graph_breaks"):
        magneto.set_logs("graph_brakes")


def test_set_logs(heard):
    def f(x):
        torch._dynamo.graph_break()
        return x + 1

    magneto.set_logs(graph_breaks=True)
    magneto.compile(f)(torch.ones(3))
    assert [(r.name, r.levelno) for r in heard] == [("magneto.graph_breaks", logging.INFO)]
    magneto.set_logs("+graph_code", graph_breaks=False)
    magneto.compile(f)(torch.ones(3))
    assert {(r.name, r.levelno) for r in heard[1:]} == {("magneto.graph_code", logging.DEBUG)}
    heard.clear()
    magneto.set_logs()
    magneto.compile(f)(torch.ones(3))
    assert not heard


def test_a_backward_is_told_from_whatever_thread_it_is_made_in(heard):
    magneto.set_logs("graph,passes")
    g = magneto.compile(lambda x, y: ((x * y).sin(), (x + y).cos()))
    for _ in range(2):
        x, y = (torch.randn(4, requires_grad=True) for _ in range(2))
        g(x, y)[1].sum().backward()
    assert any("graph, backward" in r.getMessage() for r in heard) and any("passes, backward" in r.getMessage() for r in heard)


def test_a_logger_that_raises_changes_nothing(heard):
    class Bad(logging.Handler):
        def emit(self, record):
            raise KeyError("no")

    bad, logger = Bad(), logging.getLogger("magneto")
    logger.addHandler(bad)
    try:
        magneto.set_logs("all")
        g = magneto.compile(lambda x: x * 2)
        for _ in range(2):
            assert torch.equal(g(torch.ones(3)), torch.full((3,), 2.0))
    finally:
        logger.removeHandler(bad)


def test_without_docstrings():
    subprocess.run([sys.executable, "-OO", "-W", "ignore", "-c", "import magneto; magneto.set_logs('graph_breaks')"], check=True, timeout=300)
