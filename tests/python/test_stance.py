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


def test_a_break_is_an_error_where_that_is_asked_for():
    def f(x, strict):
        y = x * 2
        with magneto.error_on_graph_break(strict):
            torch._dynamo.graph_break()
            y = y + 1
        torch._dynamo.graph_break()
        return y * 3

    g, x = magneto.compile(f), torch.randn(3, device=DEVICE)
    for _ in range(3):
        with pytest.raises(RuntimeError, match=r"error_on_graph_break=True, but [^\n]* has 1 break[^$]*graph_break asks for a break"):
            g(x, True)
        assert torch.equal(g(x, False), f(x, False))
    with magneto.error_on_graph_break(True):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="has 2 break"):
                magneto.compile(lambda x: (torch._dynamo.graph_break(), x + 1, torch._dynamo.graph_break()))(x)
    with magneto.error_on_graph_break(True):
        assert torch.equal(magneto.compile(lambda x: x + 1)(x), x + 1)


def test_a_break_is_no_error_where_that_is_asked_for():
    @magneto.error_on_graph_break(False)
    def tolerant(x):
        torch._dynamo.graph_break()
        return x * 3

    @magneto.error_on_graph_break(True)
    def f(x):
        return tolerant(x + 1) * 2

    g, x = magneto.compile(f), torch.randn(3, device=DEVICE)
    for _ in range(3):
        assert torch.equal(g(x), f(x))


def test_a_nested_compile_region_is_part_of_the_graph():
    @torch.compiler.nested_compile_region
    def layer(x, w):
        return (x @ w).relu() + x

    def f(x, w):
        for _ in range(3):
            x = layer(x, w)
        return x

    x, w = torch.randn(2, 3, device=DEVICE), torch.randn(3, 3, device=DEVICE)
    found = magneto.explain(f)(x, w)
    assert (found.graph_count, found.break_count) == (1, 0), str(found)
    g = magneto.compile(f)
    for _ in range(2):
        torch.testing.assert_close(g(x, w), f(x, w))
