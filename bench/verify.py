"""What the verifiers take of the time of a compile, and what they could not prove.

    python bench/verify.py [name ...]

Seconds are those of the report: all passes of all graphs of a model, forward and backward, machine code included.
"""

import os
import pathlib
import sys
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "python"))

import torch

import magneto
from measure import Bars, table
from test_models_big import MODELS
from zoo import flatten

NAMES = ("BERT-base", "GPT-2", "ResNet-50")


def compiled(name, trains):
    """Seconds of the compile, those of the verifiers, kernels, operators that are calls because a place is not proved."""
    magneto.reset()
    model, make = MODELS[name]()
    model.train(trains)
    with torch.set_grad_enabled(trains):
        answer = flatten(magneto.compile(model)(**make(0)))[0]
        if trains:
            answer.float().pow(2).mean().backward()
    total = verify = kernels = unproved = 0
    for graph in magneto.report().graphs:
        assert not graph.fallback, graph.fallback
        for code in graph.code:
            kernels += len(code.kernels)
            unproved += sum("not known to stay inside" in call.reason for call in code.calls)
            for stage, seconds in code.times:
                total += seconds
                verify += seconds if stage == "verify" else 0
    return total, verify, kernels, unproved


def main():
    warnings.simplefilter("ignore")
    rows, bars = [], Bars()
    for name in sys.argv[1:] or [name for name in NAMES if name in MODELS]:
        for trains in (False, True):
            total, verify, kernels, unproved = compiled(name, trains)
            what = f"{name}, {'training' if trains else 'inference'}"
            rows.append((what, f"{total:.2f}", f"{verify:.3f}", f"{100 * verify / total:.1f} %", str(kernels), str(unproved)))
            bars.at_most(f"verifiers of {what}, of the compile", verify / total, 0.05, "")
            bars.at_most(f"unproved operators of {what}", unproved, 0, "")
    table(("seconds", "compile", "verifiers", "share", "kernels", "unproved"), rows)
    return bars.check()


if __name__ == "__main__":
    sys.exit(main())
