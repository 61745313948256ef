"""The first call: BERT-base inference and a training step of GPT-2, each in a fresh process with fresh caches.

    python bench/cold.py [--no-inductor]
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from measure import Bars, table

CHILD = """
import os, sys, time, warnings
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path[:0] = {paths!r}
warnings.simplefilter("ignore")
import torch, magneto
from test_models_big import MODELS
from zoo import flatten
model, make = MODELS[{name!r}]()
model.train({trains})
kwargs = make(0)
def call(f):
    with torch.set_grad_enabled({trains}):
        answer = flatten(f(**kwargs))[0]
        if {trains}:
            answer.float().pow(2).mean().backward()
call(model)
compiled = torch.compile(model) if {side!r} == "torch.compile" else magneto.compile(model)
start = time.perf_counter()
call(compiled)
print(time.perf_counter() - start)
"""


def first_call(side, name, trains):
    here = pathlib.Path(__file__).parent
    code = CHILD.format(paths=[str(here), str(here.parent / "tests" / "python")], name=name, trains=trains, side=side)
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache}
        return float(subprocess.run([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-inductor", action="store_true")
    options = parser.parse_args()
    rows, bars = [], Bars()
    for name, trains in (("BERT-base", False), ("GPT-2", True)):
        what = f"{name}, {'a training step' if trains else 'inference'}"
        ours = first_call("magneto", name, trains)
        theirs = None if options.no_inductor else first_call("torch.compile", name, trains)
        rows.append((what, f"{theirs:.2f}" if theirs else "", f"{ours:.2f}", f"{theirs / ours:.1f}" if theirs else ""))
        if theirs:
            bars.at_most(f"first call of {what}, of torch.compile's", ours / theirs, 0.1, "")
    table(("seconds of the first call", "torch.compile", "Magneto", "times faster"), rows)
    return bars.check()


if __name__ == "__main__":
    sys.exit(main())
