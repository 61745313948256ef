"""torch's own operator samples: a few of each operator, other ones with MAGNETO_SEED. All of them: opinfo.py --full."""

import os

import pytest

import opinfo
import rounding

pytestmark = [pytest.mark.needs_capture, pytest.mark.skipif(rounding.EXACT, reason="operator by operator")]
SEED = int(os.environ.get("MAGNETO_SEED", "0"))
OPERATORS = opinfo.operators()


@pytest.fixture(scope="module")
def server():
    made = opinfo.Server()
    yield made
    made.end()


@pytest.mark.parametrize("number", range(len(OPERATORS)), ids=[op.full_name for op in OPERATORS])
def test_samples(number, server):
    outcome = server.ask(number, SEED)
    assert not outcome.failures, "\n".join(outcome.failures)
