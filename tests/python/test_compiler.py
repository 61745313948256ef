"""Kernels behind magneto.compile: that there are some, that passes and toolchains may be left out, that faults cost nothing."""

import os
import subprocess
import sys
import textwrap

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


@pytest.mark.parametrize("skipped", ["inline", "split", "fuse", "inline,split,fuse"])
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


def test_two_threads_compile_and_call_one_function():
    import threading

    f = lambda x: torch.softmax(x * 2, -1).sum(0)  # noqa: E731
    g, wrong = magneto.compile(f), []

    def work(seed):
        x = moved(torch.randn(6 + seed, 5, generator=torch.Generator().manual_seed(seed)))
        for _ in range(20):
            if not close(f(x), g(x)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong
