"""The examples run, in a small size; a wrong answer makes the demo end non-zero."""

import os
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
SMALL = ["--layers", "2", "--width", "48", "--vocabulary", "100", "--length", "16", "--rounds", "2"]


def run(code, *args):
    path = os.pathsep.join(p for p in sys.path if p)
    return subprocess.run([sys.executable, *code, *args], capture_output=True, text=True, cwd=EXAMPLES,
                          env=dict(os.environ, PYTHONPATH=path), timeout=300)


def test_the_demo_ends_well_and_prints_its_table():
    done = run(["demo.py"], *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("eager ms", "Magneto ms", "first call s", "graphs", "breaks", "guards", "largest difference",
                  "GPT-2, inference", "GPT-2, 3 training steps", "print, .numpy()", "the sum is"):
        assert words in done.stdout, done.stdout
    assert "training: Magneto, step 3 of 3" in done.stderr  # the progress line


SABOTAGE = """
import runpy, sys, torch, magneto
real = magneto.compile
def compile(f):
    g = real(f)
    return g if isinstance(f, torch.nn.Module) else lambda *args: g(*args) * 1.01
magneto.compile = compile
sys.path.insert(0, ".")
runpy.run_path("demo.py", run_name="__main__")
"""


def test_the_demo_ends_non_zero_when_a_result_differs():
    done = run(["-c", SABOTAGE], *SMALL)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DIFFERENT FROM EAGER: print, .numpy()" in done.stdout


@pytest.mark.needs_capture
def test_the_demo_explains_the_two_breaks():
    done = run(["demo.py"], *SMALL)
    for source in ("print(", "if y.numpy().mean() > limit"):
        assert source in done.stdout, done.stdout
    assert "cure" in done.stdout
