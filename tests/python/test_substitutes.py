"""Functions that stand for others, what torch's own decorators ask for, and parts of torch that must not break a graph."""

import contextlib
import itertools
import math
import re
import threading
import warnings

import pytest
import torch
import torch._dynamo
from torch import nn, randn
from torch.utils._pytree import tree_leaves

import magneto
from forked import told_by


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


def outcome(f, *args):
    try:
        return tree_leaves(f(*args))
    except Exception as raised:
        return type(raised)


ODD_SCANS = {
    "lengths that differ": ((randn(3), randn(4)), 0, "generic"),
    "no tensor": ((randn(3), 1), 0, "generic"),
    "no such dimension": ((randn(3), randn(3)), 2, "generic"),
    "nothing to scan": ((randn(0), randn(0)), 0, "generic"),
    "for a GPU": ((randn(3), randn(3)), 0, "pointwise"),
}


@pytest.mark.parametrize("name", ODD_SCANS)
def test_an_associative_scan_that_is_torchs_own(name):
    """It refuses, or scans: versions differ. In a process of its own, for it may compile."""
    from torch._higher_order_ops.associative_scan import associative_scan

    xs, dim, mode = ODD_SCANS[name]

    def scan(xs):
        return associative_scan(combine, xs, dim, combine_mode=mode)

    def work(tell):
        c = magneto.compile(scan)
        for _ in range(3):
            want, have = outcome(scan, xs), outcome(c, xs)
            tell(want is have if isinstance(want, type) else isinstance(have, list) and all(map(torch.equal, want, have)))

    assert told_by(work, 120) == ([True] * 3, None)


# ---- torch.compiler.is_compiling() -----------------------------------------------------------------------------------

NAMES = {
    "torch.compiler.is_compiling": torch.compiler.is_compiling,
    "torch.compiler.is_dynamo_compiling": torch.compiler.is_dynamo_compiling,
    "torch._dynamo.is_compiling": torch._dynamo.is_compiling,
}


@pytest.mark.needs_capture
@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_told_of_its_compiler(name):
    asks = NAMES[name]

    def wrapped():
        return asks()

    c = magneto.compile(lambda x: (x + 1 if asks() else x - 1) * (2 if wrapped() else 3))
    for _ in range(3):
        x = randn(3)
        torch.testing.assert_close(c(x), (x + 1) * 2)
        assert not asks()
    assert magneto.report().break_count == 0


@pytest.mark.needs_capture
def test_what_runs_outside_of_graphs_is_not_told():
    @torch.compiler.disable
    def apart(x):
        return x + torch.compiler.is_compiling()

    c = magneto.compile(lambda x: apart(x * 2) + torch.compiler.is_compiling())
    for _ in range(3):
        x = randn(3)
        torch.testing.assert_close(c(x), x * 2 + 1)


def dropped(x):
    return torch.nn.functional.dropout(x, 0.5)


def python_error(x):
    if torch.compiler.is_compiling():
        return dropped(x) * None
    return dropped(x) * 2


def operator_error(x):
    mask = None if torch.compiler.is_compiling() else x > 0
    return dropped(x).masked_fill(torch.zeros(7, dtype=torch.bool) if mask is None else mask, 1.0)


def error_in_a_region(x):
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        return operator_error(x)


def error_in_inner_functions(x):
    def inner(x):
        try:
            return [python_error(x * 2)]
        finally:
            x = None

    return inner(x)[0] + 1


def error_of_its_own(x):
    if torch.compiler.is_compiling():
        raise NotImplementedError("not for compilers")
    return dropped(x)


@pytest.mark.parametrize("f", [python_error, operator_error, error_in_a_region, error_in_inner_functions, error_of_its_own])
def test_a_path_for_compilers_that_raises(f):
    """Nothing has happened: the call is made again, in eager, and nobody is told any more."""
    c = magneto.compile(f)
    for call in range(5):
        x = randn(5, requires_grad=call % 2 == 1)
        torch.manual_seed(call)
        want = f(x)
        after = torch.rand(3)
        torch.manual_seed(call)
        torch.testing.assert_close(c(x), want)
        torch.testing.assert_close(torch.rand(3), after)


@pytest.mark.needs_capture
def test_a_path_for_compilers_that_raises_is_reported():
    c = magneto.compile(python_error)
    for _ in range(4):
        c(randn(3))
    (note,) = [note for note in magneto.report().fallbacks if "is_compiling" in note.reason]
    assert "TypeError" in note.reason
    assert len(magneto.report().graphs) == 1


def test_an_error_for_compilers_after_an_effect():
    """The call cannot be made again. The next one is not told."""
    seen = []

    def f(x):
        seen.append(1)
        x.add_(1)
        return python_error(x)

    c = magneto.compile(f)
    x = randn(3)
    try:
        c(x)
    except TypeError:
        pass
    assert len(seen) == 1
    for call in range(3):
        x = randn(3)
        torch.manual_seed(call)
        want = f(x.clone())
        torch.manual_seed(call)
        torch.testing.assert_close(c(x), want)


def test_an_error_of_both_ways_is_the_programs_own():
    def f(x, y):
        return x @ y + torch.compiler.is_compiling()

    c = magneto.compile(f)
    x = randn(3, 3)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="shape|size"):
            c(x, randn(4, 4))
        c(x, x)  # and it is told as before
    assert not magneto.report().fallbacks


def test_an_error_that_is_caught_where_a_compiler_is_told_of():
    def f(x, y):
        told = torch.compiler.is_compiling()
        try:
            return x @ y
        except RuntimeError:
            return x * (2 if told in (False, True) else 3)

    c = magneto.compile(f)
    for _ in range(4):
        x = randn(3, 3)
        torch.testing.assert_close(c(x, randn(4, 4)), x * 2)
        torch.testing.assert_close(c(x, x), x @ x)


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


# ---- warnings, locks, regions ----------------------------------------------------------------------------------------


def warns(x):
    y = x * 2
    warnings.warn("careful", FutureWarning)
    inner_warns()
    return y + 1


def inner_warns(level=2):
    warnings.warn(f"level {level}", stacklevel=level)


def shown(f, action, calls=3):
    """What is shown, with the lines, when f is called so often."""
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        for _ in range(calls):
            f(randn(3))
    return [(str(w.message), w.category, w.filename, w.lineno) for w in caught]


@pytest.mark.parametrize("action", ["always", "default", "ignore", "once", "module"])
def test_warnings_are_given_again(action):
    c = magneto.compile(warns)
    for _ in range(3):
        assert shown(c, action) == shown(warns, action)


@pytest.mark.needs_capture
def test_a_warning_breaks_no_graph():
    c = magneto.compile(warns)
    shown(c, "always")
    assert magneto.report().break_count == 0 and len(magneto.report().graphs) == 1


def test_warnings_that_are_errors():
    c = magneto.compile(warns)
    shown(c, "always")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            with pytest.raises(FutureWarning, match="careful"):
                c(randn(3))
    assert shown(c, "always") == shown(warns, "always")


def test_a_size_that_is_asserted():
    def f(x):
        torch._check(x.shape[0] > 1, lambda: "too small")
        torch._check_value(x.shape[0] < 90)
        return x * 2

    c = magneto.compile(f)
    for n in (3, 4, 5):
        torch.testing.assert_close(c(torch.ones(n)), torch.ones(n) * 2)
    with pytest.raises(RuntimeError, match="too small"):
        c(torch.ones(1))
    with pytest.raises(ValueError):
        c(torch.ones(100))
    torch.testing.assert_close(c(torch.ones(7)), torch.ones(7) * 2)


LOCK, RLOCK = threading.Lock(), threading.RLock()


def locked(x):
    with LOCK, RLOCK:
        y = x * 2
    LOCK.acquire()
    try:
        return y + 1
    finally:
        LOCK.release()


@pytest.mark.needs_capture
def test_locks_are_taken_and_left():
    c = magneto.compile(locked)
    for _ in range(4):
        x = randn(3)
        torch.testing.assert_close(c(x), locked(x))
        assert not LOCK.locked()
    assert magneto.report().break_count == 0


def test_a_lock_that_somebody_holds_is_waited_for():
    c = magneto.compile(locked)
    for _ in range(3):
        c(randn(3))
    done = []
    LOCK.acquire()
    thread = threading.Thread(target=lambda: done.append(c(torch.ones(3))))
    thread.start()
    thread.join(0.2)
    assert not done
    LOCK.release()
    thread.join()
    torch.testing.assert_close(done[0], torch.ones(3) * 3)


def region(x):
    with torch.autograd.profiler.record_function("mine"):
        y = x * 2
        with torch.profiler.record_function("inner"):
            return y + 1


@pytest.mark.needs_capture
def test_a_region_of_the_profiler():
    c = magneto.compile(region)
    for _ in range(3):
        x = randn(3, requires_grad=True)
        torch.testing.assert_close(c(x), region(x))
    assert magneto.report().break_count == 0


def test_a_region_of_the_profiler_with_a_break():
    def f(x):
        with torch.profiler.record_function("mine"):
            y = x * 2
            torch._dynamo.graph_break()
            return y + 1

    c = magneto.compile(f)
    for _ in range(4):
        x = randn(3)
        torch.testing.assert_close(c(x), f(x))
    with torch.profiler.profile() as profile:
        torch.testing.assert_close(c(x), f(x))
    assert any(event.key == "mine" for event in profile.key_averages())


@pytest.mark.needs_capture
def test_which_attention_is_a_region():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def f(x):
        with sdpa_kernel(SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x) * 2

    c = magneto.compile(f)
    for _ in range(3):
        x = randn(2, 2, 4, 8, requires_grad=True)
        torch.testing.assert_close(c(x), f(x))
        (want,), (have,) = (torch.autograd.grad(g(x).sum(), x) for g in (f, c))
        torch.testing.assert_close(have, want)
        assert torch.backends.cuda.flash_sdp_enabled()
    assert magneto.report().break_count == 0


@pytest.mark.needs_capture
def test_a_stack_of_regions():
    def f(x):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(contextlib.nullcontext())
            stack.callback(lambda: None)
            return x * 2

    c = magneto.compile(f)
    for _ in range(3):
        x = randn(3, requires_grad=True)
        torch.testing.assert_close(c(x), f(x))
        assert not c(x).requires_grad and torch.is_grad_enabled()
    assert magneto.report().break_count == 0


# ---- calls that a substitute does not take, and what it must not show ------------------------------------------------


def names_here(x):
    y = 2
    return x * y, sorted(vars())


SMALL_THINGS = {
    "vars of the frame": names_here,
    "vars of a module": lambda x: (x, "pi" in vars(math)),
    "vars of an int": lambda x: (x, vars(3)),
    "bool by name": lambda x: (x + 1, bool(x=1)),
    "int by name": lambda x: (x + 1, int(x=x.shape[0])),
    "a group of nothing": lambda x: (x, itertools.groupby(None)),
    "a group that leaves": lambda x: (x * 2, [k for k, _ in [itertools.groupby([1, 1, 2])][0]]),
    "sum from zero": lambda x: (x, sum(n for n in range(4)), sum(n * 0.5 for n in range(4)), sum(map(float, [0, 1]))),
    "sum of nothing": lambda x: (x, sum(n for n in ()), sum((n for n in ()), x)),
    "sum with a start": lambda x: (sum((t for t in (x, 2, 0.5)), 1), sum(([n] for n in range(2)), []), sum((t > 1 for t in range(3)), True)),
    "sum of texts": lambda x: (x, sum((t for t in "ab"), "")),
    "sum of sizes": lambda x: (x, sum(n for n in x.shape), sum(map(len, [x, x]))),
}


def outcome_of(f, x):
    try:
        return f(x)
    except TypeError as error:
        return type(error)


@pytest.mark.parametrize("name", SMALL_THINGS)
def test_small_things_of_the_language(name):
    f, x = SMALL_THINGS[name], torch.ones(2, 3)
    expected = outcome_of(f, x)
    compiled = magneto.compile(f)
    for _ in range(3):
        assert str(outcome_of(compiled, x)) == str(expected)
