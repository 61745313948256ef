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
    return run


PROGRAM = """
    import warnings
    import torch
    import magneto

    magneto._C._testing_trace.spoil(%r, %r)
    x = torch.randn(2, 3, requires_grad=%r)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for f in (lambda x: torch.tanh(x.t() + 1), lambda x: torch.tanh(x.t() * 2)):
            g = magneto.compile(f)
            for _ in range(3):
                answers = [h(x) for h in (f, g)]
                torch.testing.assert_close(*answers)
                if x.requires_grad:
                    torch.testing.assert_close(*[torch.autograd.grad(y.sum(), x)[0] for y in answers])
    told = [str(w.message) for w in seen if "verifier" in str(w.message)]
    assert len(told) == 1, seen
    print(told[0])
    for graph in magneto.report().graphs:
        print(graph.fallback)
"""


@pytest.mark.parametrize("trains", [False, True])
def test_a_graph_that_is_not_sound_runs_as_operators_and_is_told_of_once(trains):
    first, *reasons = alone(PROGRAM % ("aten::t", "aten::detach", trains)).stdout.splitlines()
    assert first.startswith("magneto: A bug in Magneto, which its verifier found in <lambda> (<string>:")
    assert "(aten::detach) is f32[" in first and ", which should be f32[" in first
    assert first.endswith("The operators of this graph run one by one, as in eager. Please report this.")
    assert len(reasons) == 2 and all("which should be f32[" in reason for reason in reasons)


@pytest.mark.parametrize("trains", [False, True])
def test_validation_names_the_stage_that_changed_the_meaning(trains):
    first, *reasons = alone(PROGRAM % ("aten::tanh", "aten::sin", trains), MAGNETO_VALIDATE="1").stdout.splitlines()
    assert "functionalise: output 0 is " in first and "before it: recorded" in first
    assert len(reasons) == 2 and all("a bug in Magneto: functionalise: output 0 is " in reason for reason in reasons)


def test_validation_finds_nothing_where_nothing_is_wrong():
    text = """
        import torch
        import magneto

        def f(x, y):
            x[1:].mul_(2)
            z = torch.softmax(x @ y, 1) + torch.rand(3)
            return z.t(), x, torch.topk(z, 2)[0]

        for sizes in ((4, 5), (6, 7)):
            for mode in (torch.no_grad, torch.enable_grad):
                g = magneto.compile(f)
                for _ in range(3):
                    with mode():
                        answers = g(torch.randn(sizes), torch.randn(sizes[1], 3, requires_grad=True))
        assert [graph.fallback for graph in magneto.report().graphs] == [""] * 4, magneto.report()
    """
    told = alone(text, MAGNETO_VALIDATE="1", MAGNETO_LOGS="validate").stderr
    assert told.count("validate: recorded: run") >= 4 and "not compared" not in told
    for stage in ("functionalise", "expand", "lower", "fuse", "assemble", "code"):
        assert told.count(f"validate: {stage}: the same") >= 4, told


def test_a_half_that_runs_as_operators_has_the_dtypes_that_were_recorded():
    alone("""
        import warnings
        import torch
        import magneto

        warnings.simplefilter("ignore")
        magneto._C._testing_trace.spoil("aten::t", "aten::detach")

        def f(x, y):
            return (x.t() * 2).tanh(), (y * 2).lt_(0.5), (y * 1).half().mul_(y)

        g = magneto.compile(f)
        for _ in range(3):
            args = torch.randn(2, 3, requires_grad=True), torch.randn(4)
            for want, have in zip(f(*args), g(*args)):
                torch.testing.assert_close(have, want, rtol=1e-3, atol=1e-3)
        assert "a bug in Magneto" in magneto.report().graphs[0].fallback
    """)
