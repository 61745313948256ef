"""Real models, call by call: eager, torch.compile(backend="eager") and Magneto in turns; first calls, graphs, breaks.

    python bench/models.py                       the eight main models in small sizes
    python bench/models.py resnet18 llama        these; any name of tests/python/zoo.py
    python bench/models.py --large               BERT-base, GPT-2, Llama of eight layers, ResNet-50
    python bench/models.py --no-dynamo           without torch.compile, which takes most of the time
"""

import argparse
import os
import pathlib
import sys
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "python"))

import torch

import magneto
from measure import in_turns, once, table
from zoo import ALL, MAIN, build, flatten


def chosen(options):
    if options.large:
        from test_models_big import MODELS

        for name, make in MODELS.items():
            torch.manual_seed(0)
            model, inputs = make()
            yield name, model.eval(), (), inputs(0)
    for name in options.names or ([] if options.large else MAIN):
        model, make = build(name)
        yield name, model, *make(0)


def measured(name, model, args, kwargs, with_dynamo):
    sides = {"eager": model, "Magneto": magneto.compile(model)}
    first = {}
    model(*args, **kwargs)
    if with_dynamo:
        torch._dynamo.reset()
        sides["torch.compile"] = torch.compile(model, backend="eager")
    for side, f in sides.items():
        first[side], _ = once(lambda: f(*args, **kwargs))
    want, have = flatten(model(*args, **kwargs)), flatten(sides["Magneto"](*args, **kwargs))
    largest = max(float((a.double() - b.double()).abs().max()) for a, b in zip(want, have, strict=True))
    times = in_turns({side: (lambda f=f: f(*args, **kwargs), ()) for side, f in sides.items()}, rounds=9, budget=0.1)
    found = magneto.explain(model)(*args, **kwargs)
    theirs = [f"{1e3 * times['torch.compile']:.2f}", f"{first['torch.compile']:.2f}"] if with_dynamo else ["", ""]
    return (name, f"{1e3 * times['eager']:.2f}", f"{1e3 * times['Magneto']:.2f}", theirs[0],
            f"{times['Magneto'] / times['eager']:.2f}", f"{first['Magneto']:.3f}", theirs[1], found.graph_count,
            found.break_count, f"{largest:.2g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="model", help="names of the zoo")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--no-dynamo", action="store_true")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in ALL]
    if unknown:
        parser.error(f"no model {unknown[0]!r}; known: {', '.join(ALL)}")
    warnings.simplefilter("ignore")
    rows = []
    with torch.no_grad():
        for name, model, args, kwargs in chosen(options):
            print(f"{name} ...", end="\r", file=sys.stderr, flush=True)
            rows.append(measured(name, model, args, kwargs, not options.no_dynamo))
    table(("inference", "eager ms", "Magneto ms", "torch.compile ms", "Magneto / eager", "Magneto first s",
           "torch.compile first s", "graphs", "breaks", "difference"), rows)
    return 1 if any(float(row[-1]) != 0 for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
