"""torch.compiler.set_stance: what calls of compiled functions do, in the whole process."""
import magneto
import pytest
import torch
from device import DEVICE


class Calls:
    """A function that counts how often its Python code runs."""

    def __init__(self, breaks=False):
        self.runs, runs = 0, []

        def f(x, k=1):
            runs.append(torch.compiler.is_compiling())
            x = x * 2
            if breaks:
                torch._dynamo.graph_break()
            return x + k

        self.f, self.seen = f, runs
        self.compiled = magneto.compile(f)

    def ran(self, *args, **kwargs):
        """Whether Python code ran: nothing that was compiled served the call."""
        x, before = torch.randn(3, device=DEVICE), len(magneto.report().graphs)
        assert torch.equal(self.compiled(x, *args, **kwargs), x * 2 + (args[0] if args else kwargs.get("k", 1)))
        return len(magneto.report().graphs) > before


@pytest.fixture(autouse=True)
def nothing_known():
    magneto.reset()
    yield
    assert torch._dynamo.eval_frame._stance.stance == "default"


@pytest.mark.parametrize("breaks", [False, True])
def test_force_eager(breaks):
    calls = Calls(breaks)
    with torch.compiler.set_stance("force_eager"):
        assert not calls.ran() and not calls.ran()
        assert calls.seen == [False, False]
    assert calls.ran() and not calls.ran()
    with magneto.set_stance("force_eager"):
        count = len(calls.seen)
        assert not calls.ran() and len(calls.seen) == count + 1 and not calls.seen[-1]


@pytest.mark.parametrize("breaks", [False, True])
def test_eager_on_recompile(breaks):
    calls = Calls(breaks)
    with torch.compiler.set_stance("eager_on_recompile"):
        assert not calls.ran()
    assert calls.ran()
    with torch.compiler.set_stance("eager_on_recompile"):
        for k in (1, 1, 5, 6, 1, 7.5):
            assert not calls.ran(k)
        assert not magneto.report().recompiles
    assert calls.ran(5)


@pytest.mark.parametrize("breaks", [False, True])
def test_fail_on_recompile(breaks):
    calls = Calls(breaks)
    with torch.compiler.set_stance("fail_on_recompile"):
        with pytest.raises(RuntimeError, match="nothing was compiled here yet"):
            calls.ran(1)
    assert calls.ran(1)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert not calls.ran(1) and not calls.ran(1)
        with pytest.raises(RuntimeError, match="fail_on_recompile.*\n.*where: .*test_stance.py:[1-9].*\n.*why: k was 1, is 5"):
            calls.ran(5)
        with pytest.raises(RuntimeError, match="why: x"):
            calls.compiled(torch.randn(4, 2, device=DEVICE), 1)
        with pytest.raises(RuntimeError, match="why: the call has other arguments"):
            calls.ran(k=1)
        assert not calls.ran(1)
    assert calls.ran(5) and not calls.ran(5)


def test_eager_then_compile():
    calls = Calls()
    with torch.compiler.set_stance("eager_then_compile"):
        assert not calls.ran() and calls.ran() and not calls.ran()


def test_as_a_decorator_and_a_call():
    calls = Calls()

    @torch.compiler.set_stance("force_eager")
    def in_eager():
        return calls.ran()

    assert not in_eager() and calls.ran()
    torch.compiler.set_stance("force_eager")
    try:
        assert not calls.ran(9)
    finally:
        torch.compiler.set_stance("default")
    assert calls.ran(9)


def test_a_backend_of_the_stance_that_is_eager():
    calls = Calls()
    with torch.compiler.set_stance("default", force_backend="eager"):
        assert not calls.ran()
    assert calls.ran()
