"""torch's own operator samples: a few of each operator, other ones with MAGNETO_SEED. All of them: opinfo.py --full."""

import os

import pytest

import opinfo
import rounding

pytestmark = [pytest.mark.needs_capture, pytest.mark.skipif(rounding.EXACT, reason="operator by operator")]
SEED = int(os.environ.get("MAGNETO_SEED", "0"))


@pytest.mark.parametrize("op", opinfo.operators(), ids=lambda op: op.full_name)
def test_samples(op):
    outcome = opinfo.in_a_process(op, seed=SEED)
    assert not outcome.failures, "\n".join(outcome.failures)
