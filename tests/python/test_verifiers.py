"""What the verifiers do about a fault of ours: eager's answer, one warning, the reason in the report."""

import os
import subprocess
import sys
import textwrap

import pytest

import rounding

pytest.importorskip("magneto._C")
pytestmark = [pytest.mark.needs_capture, pytest.mark.skipif(rounding.EXACT, reason="operator by operator")]


def alone(text, **environment):
    """Runs a program in a process of its own: a violation is told of once in each."""
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=300,
                         env={**os.environ, **environment})
    assert run.returncode == 0, run.stderr
    return run.stdout


PROGRAM = """
    import warnings
    import torch
    import magneto

    magneto._C._testing_trace.spoil("aten::t", "aten::detach")
    x = torch.randn(2, 3, requires_grad=%s)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for f in (lambda x: torch.exp(x.t() + 1), lambda x: torch.tanh(x.t() * 2)):
            g = magneto.compile(f)
            for _ in range(3):
                answers = [h(x) for h in (f, g)]
                assert torch.equal(*answers)
                if x.requires_grad:
                    assert torch.equal(*[torch.autograd.grad(y.sum(), x)[0] for y in answers])
    told = [str(w.message) for w in seen if "verifier" in str(w.message)]
    assert len(told) == 1, seen
    print(told[0])
    for graph in magneto.report().graphs:
        print(graph.fallback)
"""


@pytest.mark.parametrize("trains", [False, True])
def test_a_graph_that_is_not_sound_runs_as_operators_and_is_told_of_once(trains):
    first, *reasons = alone(PROGRAM % trains).splitlines()
    assert first.startswith("magneto: A bug in Magneto, which its verifier found in <lambda> (<string>:")
    assert "(aten::detach) is f32[3, 2]{1, 3}, which should be f32[2, 3]" in first
    assert first.endswith("The operators of this graph run one by one, as in eager. Please report this.")
    assert len(reasons) == 2 and all("which should be f32[2, 3]" in reason for reason in reasons)
