"""What the first call costs: BERT-base inference, above eager's, beside torch.compile(backend="eager").

Each round forgets everything that was compiled and calls again, the candidates in turns. The first round of a process
also imports what tracing needs; it is shown apart.

    python bench/trace.py           the table, and status 1 if the bar is broken
"""

import argparse
import os
import statistics
import sys
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch

import magneto
from measure import Bars, once, table


def bert(layers):
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return BertModel(BertConfig(num_hidden_layers=layers)).eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    model, ids = bert(options.layers), torch.randint(30000, (1, 64))

    def magneto_first():
        magneto.reset()
        compiled = magneto.compile(model)
        return once(lambda: compiled(ids))[0]

    def dynamo_first():
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="eager")
        return once(lambda: compiled(ids))[0]

    seen = {"eager": [], "Magneto": [], "torch.compile": []}
    with torch.no_grad():
        model(ids)
        for _ in range(options.rounds + 1):
            seen["eager"].append(once(lambda: model(ids))[0])
            seen["Magneto"].append(magneto_first())
            seen["torch.compile"].append(dynamo_first())
    medians = {side: statistics.median(times[1:]) for side, times in seen.items()}
    above = {side: medians[side] - medians["eager"] for side in medians}

    def row(name, side):
        times = "" if side == "eager" else f"{above['torch.compile'] / max(above[side], 1e-9):.1f}"
        return name, f"{1e3 * seen[side][0]:.1f}", f"{1e3 * medians[side]:.1f}", f"{1e3 * above[side]:.1f}", times

    table((f"BERT-base, {options.layers} layers, first call", "first round ms", "median ms", "above eager ms",
           "times less than torch.compile"),
          [row("eager (warm)", "eager"), row("Magneto", "Magneto"), row('torch.compile(backend="eager")', "torch.compile")])
    bars = Bars()
    bars.at_most("Magneto's first call above eager's", 1e3 * above["Magneto"], 100, "ms")
    return bars.check()


if __name__ == "__main__":
    sys.exit(main())
