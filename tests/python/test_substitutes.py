"""Functions that stand for others, what torch's own decorators ask for, and parts of torch that must not break a graph."""

import re

import pytest
import torch
import torch._dynamo
from torch import nn, randn

import magneto


@pytest.mark.filterwarnings("error::RuntimeWarning")  # faults of our own: nested tensors have no sizes
def test_padding_in_an_encoder():
    """It makes a nested tensor."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    c = magneto.compile(encoder)
    with torch.no_grad():
        for _ in range(3):
            x = randn(2, 5, 8)
            torch.testing.assert_close(c(x, src_key_padding_mask=padding), encoder(x, src_key_padding_mask=padding))


# ---- functions that stand for others ---------------------------------------------------------------------------------


def opaque(x, n):
    return x + len(re.sub("a", lambda found: "bb", "a" * n))


@pytest.mark.needs_capture
def test_a_function_that_stands_for_another():
    original = lambda x, n: opaque(x, n)

    @magneto.substitute_in_graph(original)
    def other(x, n):
        return x + 2 * n if n > 0 else original(x, n)

    c = magneto.compile(lambda x, n: original(x, n) * 2)
    for n in (3, 3, 3):
        x = randn(3)
        torch.testing.assert_close(c(x, n), (x + 6) * 2)
    assert magneto.report().break_count == 0
    for _ in range(3):  # it may call the original
        x = randn(3)
        torch.testing.assert_close(c(x, 0), x * 2)


def test_parameters_must_agree():
    with pytest.raises(TypeError, match="parameters"):
        magneto.substitute_in_graph(opaque)(lambda x: x)
    with pytest.raises(TypeError, match="two functions"):
        magneto.substitute_in_graph(opaque)(3)


def combine(left, right):
    (a, b), (c, d) = left, right
    return a * c, c * b + d


@pytest.mark.needs_capture
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_an_associative_scan(dim, reverse):
    from torch._higher_order_ops.associative_scan import associative_scan

    def f(x, y):
        return associative_scan(combine, (x, y), dim, reverse=reverse, combine_mode="generic")

    c = magneto.compile(f)
    for _ in range(3):
        x, y = (randn(3, 4, 5, requires_grad=True) for _ in "xy")
        want, have = f(x, y), c(x, y)
        for a, b in zip(want, have):
            torch.testing.assert_close(b, a)
            assert b.stride() == a.stride()
        wanted = torch.autograd.grad(want[1].sum(), (x, y))
        torch.testing.assert_close(torch.autograd.grad(have[1].sum(), (x, y)), wanted)
    assert magneto.report().break_count == 0


def test_an_associative_scan_that_torch_refuses():
    from torch._higher_order_ops.associative_scan import associative_scan

    def scan(xs, dim=0):
        return associative_scan(combine, xs, dim, combine_mode="generic")

    g = magneto.compile(scan)
    for xs, dim in [((randn(3), randn(4)), 0), ((randn(3), 1), 0), ((randn(3), randn(3)), 2), ((randn(0), randn(0)), 0)]:
        for _ in range(3):
            with pytest.raises(Exception) as want:
                scan(xs, dim)
            with pytest.raises(want.type):
                g(xs, dim)


def test_a_pointwise_scan_on_a_cpu_is_left_to_torch():
    from torch._higher_order_ops.associative_scan import associative_scan

    def scan(x):
        return associative_scan(torch.add, x, 0)

    c = magneto.compile(scan)
    for _ in range(3):
        x = randn(3)
        try:
            want = scan(x)
        except ValueError as refused:  # torch 2.11; later ones scan
            with pytest.raises(ValueError, match=re.escape(str(refused))):
                c(x)
        else:
            torch.testing.assert_close(c(x), want)


def test_nobody_is_told_of_a_compiler_yet():
    c = magneto.compile(lambda x: x + torch.compiler.is_compiling())
    for _ in range(3):
        x = randn(3)
        torch.testing.assert_close(c(x), x)


# ---- what else stands for functions of torch -------------------------------------------------------------------------


def encoded(x, k):
    return torch.nn.functional.one_hot(k, 4) * x, torch.nn.functional.one_hot(k.reshape(-1), num_classes=7).float().mean(0)


@pytest.mark.needs_capture
def test_one_hot_is_part_of_a_graph():
    c = magneto.compile(encoded)
    for _ in range(3):
        x, k = randn(4), torch.randint(0, 4, (2, 3))
        torch.testing.assert_close(c(x, k), encoded(x, k))
    assert magneto.report().break_count == 0
    for k in (torch.tensor([1, 9]), torch.tensor([-1]), torch.tensor([1.0])):  # in torch's words, each time
        for _ in range(3):
            with pytest.raises(RuntimeError) as want:
                encoded(randn(4), k)
            with pytest.raises(RuntimeError) as have:
                c(randn(4), k)
            assert str(have.value) == str(want.value)
    counted = magneto.compile(lambda k: torch.nn.functional.one_hot(k))  # how many there are is read
    for n in (3, 5, 3):
        assert counted(torch.arange(n)).shape == (n, n)


@pytest.mark.needs_capture
def test_a_region_of_autocast():
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
        return y, y.float() + 1, torch.is_autocast_enabled("cpu")

    c = magneto.compile(f)
    for _ in range(3):
        x, w = randn(3, 4, requires_grad=True), randn(4, 5, requires_grad=True)
        want, have = f(x, w), c(x, w)
        torch.testing.assert_close(have, want)
        assert have[0].dtype is torch.bfloat16
        torch.testing.assert_close(*(torch.autograd.grad(out[1].sum(), (x, w)) for out in (have, want)))
    assert magneto.report().break_count == 0


@pytest.mark.needs_capture
def test_sorting_and_tensors_of_tensors():
    def f(x, n):
        order = [3, n, 1]
        order.sort(key=lambda item: -item)
        names = ["b", "a"]
        names.sort(reverse=True)
        return torch.as_tensor(x, dtype=torch.float64) * order[0], torch.as_tensor(x) + order[-1], names, order

    c = magneto.compile(f)
    for n in (2, 2, 5, 0, 7):
        x = randn(3)
        want, have = f(x, n), c(x, n)
        torch.testing.assert_close(have[:2], want[:2])
        assert have[2:] == want[2:]
    assert magneto.report().break_count == 0
    assert magneto.compile(torch.as_tensor)(x) is x


# ---- what torch's own decorators ask for -----------------------------------------------------------------------------


@torch.compiler.disable
def disabled(x):
    return x.sin() + 1


class Half(nn.Module):
    @torch.compiler.disable
    def forward(self, x):
        return x.sin() + 1


@pytest.mark.needs_capture
@pytest.mark.parametrize("marked", ["function", "method", "not recursive", "a function made here"])
def test_what_is_disabled_runs_as_in_eager(marked):
    half, shallow = Half(), torch._dynamo.disable(lambda x: x.sin() + 1, recursive=False)
    call = {"function": disabled, "method": half, "not recursive": shallow,
            "a function made here": lambda x: torch.compiler.disable(lambda y: y.sin() + 1)(x)}[marked]
    c = magneto.compile(lambda x: call(x * 2) * 3)
    for _ in range(4):
        x = randn(3)
        torch.testing.assert_close(c(x), ((x * 2).sin() + 1) * 3)
    report = magneto.report()
    assert any("disable" in stop.reason for stop in report.breaks) or marked == "a function made here"
    assert not any("aten::sin" in graph.text for graph in report.graphs)


@pytest.mark.needs_capture
def test_a_break_that_is_asked_for():
    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    c = magneto.compile(f)
    for _ in range(3):
        x = randn(3)
        torch.testing.assert_close(c(x), (x + 1) * 2)
    report = magneto.report()
    assert (len(report.graphs), report.break_count) == (2, 1)
    assert "asks for a break" in report.breaks[0].reason
