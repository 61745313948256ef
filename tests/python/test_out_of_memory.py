"""Memory that runs out while kernels run: operators one by one for this call, torch's own error where that fails, too."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F

import magneto
import rounding
from device import DEVICE
from rounding import close

testing = pytest.importorskip("magneto._C")._testing_trace

pytestmark = [pytest.mark.needs_capture, pytest.mark.skipif(rounding.EXACT, reason="operator by operator"),
              pytest.mark.skipif(DEVICE != "cpu", reason="the allocator of the CPU refuses"),
              pytest.mark.filterwarnings("ignore:magneto. there is not enough memory")]

BYTES = 4000  # what the programs here make is larger, what torch makes on the side is smaller
ALL = 1 << 40


@pytest.fixture(autouse=True)
def memory_afterwards():
    # oneDNN takes memory of its own on some machines, and another way once that was refused
    with torch.backends.mkldnn.flags(enabled=False):
        yield
    testing.refuse_memory(1 << 60)


def asked(work):
    """How often work asks for memory."""
    testing.refuse_memory(BYTES)
    work()
    return testing.asked_for_memory()


def attention(q, k, v):
    return torch.softmax(q @ k.t() * 0.1, -1).add(1).t() @ v


def test_each_piece_of_memory_once():
    q, k, v = torch.randn(3, 40, 40).unbind()
    f = magneto.compile(attention)
    want = attention(q, k, v)
    f(q, k, v)
    usual, eager = asked(lambda: f(q, k, v)), asked(lambda: attention(q, k, v))
    assert 2 <= usual < eager, "the first of them are the arena's and an output's, and no others"
    for spared in range(usual):
        testing.refuse_memory(BYTES, spared, 1)
        assert close(f(q, k, v), want)
        assert testing.asked_for_memory() > eager, "operators one by one"
        assert asked(lambda: f(q, k, v)) == usual, "the next call tries kernels again"


def test_no_memory_at_all_is_torchs_error():
    q, k, v = torch.randn(3, 40, 40).unbind()
    f = magneto.compile(attention)
    f(q, k, v)
    usual, want, references = asked(lambda: f(q, k, v)), attention(q, k, v), sys.getrefcount(q)
    for spared in range(usual):
        testing.refuse_memory(BYTES, spared, ALL)
        with pytest.raises(torch.OutOfMemoryError, match="a test has no memory for"):
            f(q, k, v)
        assert sys.getrefcount(q) == references
        assert asked(lambda: f(q, k, v)) == usual and close(f(q, k, v), want)


def test_what_is_written_is_written_once():
    def program(x, w):
        x.mul_(2)
        return torch.softmax(x, -1).t().add(1) @ w

    x, w = torch.randn(2, 40, 40).unbind()
    f = magneto.compile(program)
    f(x.clone(), w)
    ours, eager = x.clone(), x.clone()
    want = program(eager, w)
    for spared in range(asked(lambda: f(x.clone(), w))):
        ours = x.clone()
        version = ours._version
        testing.refuse_memory(BYTES, spared, 1)
        have = f(ours, w)
        testing.refuse_memory(1 << 60)
        assert close(have, want) and close(ours, eager) and ours._version == version + 1


def test_a_random_number_is_drawn_again():
    """What was drawn before the memory was missing is taken back: operators one by one draw the same."""
    def program(x, w):
        return (F.dropout(x, 0.5) * 2).t().exp() @ w

    x, w = torch.ones(40, 40), torch.randn(40, 40)
    f = magneto.compile(program)
    torch.manual_seed(3)
    want = program(x, w)
    f(x, w)
    for spared in range(asked(lambda: f(x, w))):
        torch.manual_seed(3)
        testing.refuse_memory(BYTES, spared, 1)
        assert close(f(x, w), want)
        testing.refuse_memory(1 << 60)
        torch.manual_seed(3)
        assert close(f(x, w), want)


def test_forward_and_backward():
    q, k, v = (t.clone().requires_grad_() for t in torch.randn(3, 40, 40).unbind())
    loss = lambda q, k, v: attention(q, k, v).pow(2).sum()  # noqa: E731
    want = torch.autograd.grad(loss(q, k, v), (q, k, v))
    f = magneto.compile(loss)
    for _ in range(2):
        torch.autograd.grad(f(q, k, v), (q, k, v))
    for spared in range(asked(lambda: f(q, k, v))):
        testing.refuse_memory(BYTES, spared, 1)
        y = f(q, k, v)
        testing.refuse_memory(1 << 60)
        assert all(map(close, torch.autograd.grad(y, (q, k, v)), want))
    y = f(q, k, v)
    for spared in range(asked(lambda: torch.autograd.grad(y, (q, k, v), retain_graph=True))):
        testing.refuse_memory(BYTES, spared, 1)
        have = torch.autograd.grad(y, (q, k, v), retain_graph=True)
        testing.refuse_memory(1 << 60)
        assert all(map(close, have, want))
    testing.refuse_memory(BYTES, 0, ALL)
    with pytest.raises(torch.OutOfMemoryError):
        torch.autograd.grad(y, (q, k, v), retain_graph=True)
    testing.refuse_memory(1 << 60)
    assert all(map(close, torch.autograd.grad(y, (q, k, v)), want))


@pytest.mark.parametrize("flag", ["always", "error"])
def test_there_is_one_warning(flag):
    code = """
        import torch, magneto
        from magneto._C import _testing_trace as testing
        f = magneto.compile(lambda x, w: (x.exp() + 1) @ w)
        g = magneto.compile(lambda x, w: (x.exp() + 2) @ w)
        x = torch.ones(40, 40)
        want = f(x, x), g(x, x)
        for h, y in zip((f, g, f), (*want, want[0])):
            testing.refuse_memory(4000, 0, 1)
            assert torch.allclose(h(x, x), y)
    """
    done = subprocess.run([sys.executable, "-W", flag, "-c", textwrap.dedent(code)], env=os.environ, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("RuntimeWarning: magneto: there is not enough memory") == (flag == "always"), done.stdout


def test_while_it_is_recorded_the_functions_own_handler_sees_it():
    """The operators wait until the break, and fail there, inside the block that would have caught them in eager."""
    def program(x):
        try:
            y = x.exp() + 1
            torch._dynamo.graph_break()
            z = y * 2
        except RuntimeError as error:
            return str(error)
        return z

    x = torch.randn(40, 40)
    f = magneto.compile(program)
    testing.refuse_memory(BYTES, 0, 1)
    assert f(x) == "a test has no memory for 6400 bytes"
    testing.refuse_memory(1 << 60)
    for _ in range(3):
        assert close(f(x), program(x))
