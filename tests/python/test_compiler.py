"""Kernels behind magneto.compile: that there are some, that passes and toolchains may be left out, that faults cost nothing."""

import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch
from torch import nn

import magneto
import rounding
from device import DEVICE, moved
from rounding import close

pytestmark = [pytest.mark.needs_capture, pytest.mark.skipif(rounding.EXACT, reason="operator by operator")]

MODEL = """
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8), nn.Softmax(-1))
x = torch.randn(16, 32)
compiled = magneto.compile(model)
def step(f):
    model.zero_grad()
    y = f(x)
    y.pow(2).sum().backward()
    return [y.detach(), *(p.grad.clone() for p in model.parameters())]
want = step(model)
for _ in range(3):
    have = step(compiled)
assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(want, have, strict=True))
with torch.no_grad():
    compiled(x)
    assert torch.allclose(compiled(x), want[0], rtol=1e-4, atol=1e-6)
graphs = magneto.report().graphs
"""


def run(code, **env):
    """Runs code in a process of its own, with these variables; gives what it printed, its warnings among it."""
    text = "import torch, magneto\nfrom torch import nn\n" + MODEL + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-W", "always::RuntimeWarning", "-c", text], env={**os.environ, **env},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_chain_is_one_kernel():
    def f(x):
        return torch.tanh(torch.sigmoid(torch.relu(x * 2 + 1)) - 0.5) * 3

    x = moved(torch.randn(100, 7))
    found = magneto.explain(f)(x)
    (code,) = found.graphs[0].code
    assert (len(code.kernels), len(code.calls), code.bytes_after) == (1, 0, 2 * x.nbytes)
    assert code.bytes_before > 5 * code.bytes_after
    assert code.kernels[0].lines and code.kernels[0].lines[0][0] == __file__
    assert set(code.texts) == {"graph", "loop", "fusion", "plan", "output_code"} and "kernel" in found.code


@pytest.mark.parametrize("f", [lambda x: torch.softmax(x, -1), nn.LayerNorm(48)], ids=["softmax", "layer norm"])
def test_a_norm_is_one_kernel(f):
    f = moved(f)
    with torch.no_grad():
        (code,) = magneto.explain(f)(moved(torch.randn(20, 48))).graphs[0].code
    assert (len(code.kernels), len(code.calls)) == (1, 0)


def test_extern_calls_have_reasons():
    with torch.no_grad():
        (code,) = magneto.explain(moved(nn.Linear(8, 8)))(moved(torch.randn(4, 8))).graphs[0].code
    assert [call.op for call in code.calls] == ["aten::addmm"] and all(call.reason for call in code.calls)


def test_a_program_that_trains_has_one_node():
    f = magneto.compile(lambda x: torch.sin(x) * x.exp())
    x = moved(torch.randn(5)).requires_grad_()
    f(x)
    y = f(x)
    assert y.grad_fn.name() == "MagnetoBackward" and y.grad_fn.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"
    y.sum().backward()
    assert close(torch.autograd.grad((torch.sin(x) * x.exp()).sum(), x)[0], x.grad)
    assert {code.part for code in magneto.report().graphs[-1].code} == {"forward", "backward"}


def test_an_index_out_of_bounds_raises_what_eager_raises():
    if DEVICE != "cpu":
        pytest.skip("a device-side assert ends the process's CUDA, in eager as well")
    f = lambda x, i: (x + 1)[i] * 2  # noqa: E731
    g, x = magneto.compile(f), torch.randn(4)
    good, bad = torch.tensor([0, 3]), torch.tensor([0, 4])
    for _ in range(2):
        assert close(f(x, good), g(x, good))
    with pytest.raises(IndexError) as eager:
        f(x, bad)
    with pytest.raises(IndexError) as ours:
        g(x, bad)
    assert str(ours.value) == str(eager.value)
    assert close(f(x, good), g(x, good))


@pytest.mark.parametrize("skipped", ["sink", "inline", "split", "fuse", "sink,inline,split,fuse"])
def test_without_a_pass_the_results_are_the_same(skipped):
    run("assert all(not g.fallback for g in graphs), [g.fallback for g in graphs]", MAGNETO_SKIP_PASSES=skipped)


def test_logs_show_the_stages():
    out = run("", MAGNETO_LOGS="graph,loop,plan,output_code,fusion")
    for name in ("graph", "loop", "plan", "output_code", "fusion"):
        assert f"# magneto: {name}, forward" in out


@pytest.mark.skipif(DEVICE != "cpu", reason="toolchains of the CPU")
def test_toolchains_stand_in_for_one_another():
    out = run("print({code.toolchain for g in graphs for code in g.code})", MAGNETO_LLVMLITE="/nowhere/libllvmlite.so")
    assert "{'c++'}" in out and "RuntimeWarning" not in out


@pytest.mark.skipif(DEVICE != "cpu", reason="toolchains of the CPU")
def test_without_any_toolchain_there_is_one_warning(tmp_path):
    out = run("print({g.fallback != '' for g in graphs})", MAGNETO_LLVMLITE="/nowhere/libllvmlite.so", PATH=str(tmp_path))
    assert out.count("RuntimeWarning") == 1 and "{True}" in out, out


@pytest.mark.skipif(DEVICE != "cpu", reason="toolchains of the CPU")
@pytest.mark.parametrize("script", ["exit 1", "kill -9 $$", "true"], ids=["fails", "is killed", "makes nothing"])
def test_a_compiler_that_fails_is_left_out(tmp_path, script):
    for name in ("g++", "clang++", "c++"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    out = run("", MAGNETO_TOOLCHAINS="c++", PATH=f"{tmp_path}:/bin")
    assert out.count("RuntimeWarning") == 1, out


@pytest.mark.skipif(DEVICE != "cpu", reason="toolchains of the CPU")
def test_a_temp_folder_that_cannot_be_written(tmp_path):
    out = run("", MAGNETO_TOOLCHAINS="c++", TMPDIR=str(tmp_path / "none"))
    assert out.count("RuntimeWarning") <= 1
    run("assert all(not g.fallback for g in graphs)", TMPDIR=str(tmp_path / "none"))


def in_threads(count, work):
    """Runs work(number) in threads at once; raises what they raise."""
    errors, start = [], threading.Barrier(count)

    def body(number):
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    [thread.start() for thread in threads]
    [thread.join(120) for thread in threads]
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("threads", [2, 8])
def test_threads_compile_and_call_one_function(threads):
    f = lambda x: torch.softmax(x * 2, -1).sum(0)  # noqa: E731
    g = magneto.compile(f)

    def work(seed):
        x = moved(torch.randn(6 + seed, 5, generator=torch.Generator().manual_seed(seed)))
        for _ in range(20):
            assert close(f(x), g(x))

    in_threads(threads, work)
    assert not magneto.report().fallbacks


@pytest.mark.parametrize("threads", [2, 8])
def test_threads_that_record_the_same_at_once_leave_one_graph(threads):
    """Eight copies would be all the entries there are: the next size would be the end of it."""
    def build():
        torch.manual_seed(1)
        return moved(nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 3)))

    model, x = build(), moved(torch.randn(5, 12))
    g = magneto.compile(model)

    def gradients(f, x):
        y = f(x)
        return [y.detach(), *torch.autograd.grad(y.pow(2).sum(), list(model.parameters()))]

    want = gradients(model, x)

    def work(number):
        for _ in range(5):
            assert all(map(close, gradients(g, x), want))

    in_threads(threads, work)
    assert len(magneto.report().graphs) == 1 and not magneto.report().fallbacks
    longer = moved(torch.randn(9, 12))
    assert all(map(close, gradients(g, longer), gradients(model, longer)))
    assert not magneto.report().fallbacks


def test_threads_compile_functions_of_their_own():
    """Kernels, calls and gradients, of other sizes and other lines in each thread."""
    def work(number):
        generator = torch.Generator().manual_seed(number)
        w = moved(torch.randn(8 + number, 8, generator=generator)).requires_grad_()
        x = moved(torch.randn(4, 8 + number, generator=generator))

        def f(x):
            y = torch.tanh(x @ w * (1 + number)).cumsum(0)
            return (y - y.mean(0)).pow(2).sum()

        for turn in range(3):
            g = magneto.compile(f)
            for _ in range(3):
                have, want = g(x), f(x)
                assert close(have.detach(), want.detach())
                assert close(torch.autograd.grad(have, w)[0], torch.autograd.grad(want, w)[0])

    in_threads(8, work)


def test_other_threads_run_while_one_compiles(tmp_path):
    """A compiler that takes its time holds nobody up but its caller."""
    if DEVICE != "cpu":
        pytest.skip("toolchains of the CPU")
    (tmp_path / "g++").write_text("#!/bin/sh\nsleep 2\nexit 1\n")
    (tmp_path / "g++").chmod(0o755)
    run("""
        import threading, time
        turns, busy = [], True
        def work():
            while busy:
                turns.append(time.monotonic())
                time.sleep(0.01)
        thread = threading.Thread(target=work)
        thread.start()
        magneto.compile(lambda x: x.sin() + 7)(x)
        busy = False
        thread.join()
        slowest = max(b - a for a, b in zip(turns, turns[1:]))
        assert slowest < 1, slowest
    """, MAGNETO_TOOLCHAINS="c++", PATH=f"{tmp_path}:/bin:/usr/bin")


@pytest.fixture
def doubles():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("f", [lambda x: torch.sin(x), lambda x: torch.sigmoid(x), lambda x: x / 7 + 0.1,
                               lambda x: torch.where(x > 2, 1 / 3, x * 0.1),
                               lambda x: torch.nn.functional.layer_norm(x / 3, (7,)), lambda x: (x * 0.3).softmax(-1)],
                         ids=["sin", "sigmoid", "division", "where", "layer norm", "softmax"])
def test_integers_become_what_the_default_dtype_says(f, doubles):
    x = moved(torch.arange(35).reshape(5, 7))
    g = magneto.compile(f)
    for _ in range(2):
        assert g(x).dtype == torch.float64 and torch.allclose(g(x), f(x), rtol=1e-12, atol=1e-14)
    found = magneto.explain(f)(x).graphs[0]
    assert not found.fallback and found.code[0].kernels
