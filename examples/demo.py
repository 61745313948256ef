"""What Magneto does to a real model and to an awkward one. `make demo` runs this.

First a GPT-2-size transformer, inference and three training steps, next to eager; then a small program that prints a
tensor and gives one to numpy, and the explanation of what stopped the capture. Ends non-zero if a result differs.
"""

import argparse
import contextlib
import copy
import io
import statistics
import sys
import time

import torch

import magneto
from gpt2 import GPT2, Config

ALLOWED = 1e-5  # largest difference, relative to the largest value: fused kernels round in other places


class Progress:
    """One line that says what is going on; cleared when something is to be read."""

    def __init__(self):
        self.start, self.width = time.perf_counter(), 0

    def __call__(self, text):
        line = f"[{time.perf_counter() - self.start:5.1f} s] {text}"
        print(f"\r{line:<{self.width}}", end="", file=sys.stderr, flush=True)
        self.width = len(line)

    def clear(self):
        print("\r" + " " * self.width + "\r", end="", file=sys.stderr, flush=True)


def timed(f):
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = f()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def difference(want, have):
    """The largest difference between two lists of tensors, and whether it is too large."""
    largest = max((float((a.double() - b.double()).abs().max()) for a, b in zip(want, have, strict=True)), default=0.0)
    scale = max((float(a.double().abs().max()) for a in want), default=1.0)
    return largest, not largest <= ALLOWED * max(scale, 1.0)  # a nan is a difference


class Row:
    def __init__(self, name, eager, compiled, first, found, largest, differs):
        self.cells = [name, f"{1e3 * eager:.2f}", f"{1e3 * compiled:.2f}", f"{first:.3f}", str(found.graph_count),
                      str(found.break_count), str(len(found.guards)), f"{largest:.2g}"]
        self.differs = differs


def inference(model, ids, rounds, progress):
    model.eval()
    compiled = magneto.compile(model)
    with torch.no_grad():
        progress("inference: eager")
        model(ids)
        progress("inference: Magneto's first call")
        first, have = timed(lambda: compiled(ids))
        pairs = []
        for n in range(rounds):
            progress(f"inference: round {n + 1} of {rounds}, eager and Magneto in turns")
            pairs.append((timed(lambda: model(ids))[0], timed(lambda: compiled(ids))[0]))
        largest, differs = difference([model(ids)] * 2, [have, compiled(ids)])
        progress("inference: explaining")
        found = magneto.explain(model)(ids)
    eager, ours = (statistics.median(side) for side in zip(*pairs))
    return Row("GPT-2, inference", eager, ours, first, found, largest, differs)


def training(model, ids, steps, progress):
    targets = ids.roll(-1, 1)
    results = {}
    for side in ("eager", "Magneto"):
        twin = copy.deepcopy(model).train()
        callee = twin if side == "eager" else magneto.compile(twin)
        optimizer = torch.optim.SGD(twin.parameters(), lr=0.01)
        torch.manual_seed(1)  # dropout draws the same masks on both sides

        def step():
            optimizer.zero_grad()
            _, loss = callee(ids, targets)
            loss.backward()
            optimizer.step()
            return loss.detach()

        times, losses = [], []
        for n in range(steps):
            progress(f"training: {side}, step {n + 1} of {steps}")
            seconds, loss = timed(step)
            times.append(seconds)
            losses.append(loss)
        results[side] = times, losses + [p.detach() for p in twin.parameters()]
    largest, differs = difference(results["eager"][1], results["Magneto"][1])
    progress("training: explaining")
    found = magneto.explain(model.train())(ids, targets)
    eager, ours = (statistics.median(results[side][0][1:] or results[side][0]) for side in ("eager", "Magneto"))
    return Row(f"GPT-2, {steps} training steps", eager, ours, results["Magneto"][0][0], found, largest, differs)


def awkward(x, limit):
    """A program that no capture can take as one graph."""
    y = torch.tanh(x @ x)
    print("the sum is", y.sum().round())
    if y.numpy().mean() > limit:
        y = y * 2
    return y.relu() + 1


def quietly(f):
    """Runs f and returns what it printed and its result."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = f()
    return out.getvalue(), result


def small_program(progress):
    torch.manual_seed(0)
    inputs = [(torch.randn(32, 32), 0.0), (torch.randn(32, 32), 9.0), (torch.randn(16, 16), -9.0)]
    progress("the small program")
    compiled = magneto.compile(awkward)
    progress.clear()
    first, _ = timed(lambda: compiled(*inputs[0]))
    want = [quietly(lambda: awkward(*each)) for each in inputs]
    have = [quietly(lambda: compiled(*each)) for each in inputs]
    largest, differs = difference([result for _, result in want], [result for _, result in have])
    differs = differs or [text for text, _ in want] != [text for text, _ in have]
    _, pairs = quietly(lambda: [(timed(lambda: awkward(*inputs[0]))[0], timed(lambda: compiled(*inputs[0]))[0])
                                for _ in range(9)])
    _, found = quietly(lambda: magneto.explain(awkward)(*inputs[0]))
    eager, ours = (statistics.median(side) for side in zip(*pairs))
    return Row("print, .numpy()", eager, ours, first, found, largest, differs), found


def table(rows):
    head = ["", "eager ms", "Magneto ms", "first call s", "graphs", "breaks", "guards", "largest difference"]
    lines = [head] + [row.cells for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for number, line in enumerate(lines):
        print("  ".join(cell.ljust(width) if column == 0 else cell.rjust(width)
                        for column, (cell, width) in enumerate(zip(line, widths))))
        if number == 0:
            print("  ".join("-" * width for width in widths))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()

    progress = Progress()
    progress("building the model")
    torch.manual_seed(0)
    config = Config(layers=options.layers, width=options.width, heads=options.heads, vocabulary=options.vocabulary)
    model = GPT2(config).to(options.device)
    ids = torch.randint(options.vocabulary, (options.batch, options.length), device=options.device)

    rows = [inference(model, ids, options.rounds, progress), training(model, ids, 3, progress)]
    progress.clear()
    parameters = sum(p.numel() for p in model.parameters()) / 1e6
    print(f"GPT-2: {options.layers} layers, {options.width} wide, {parameters:.0f} million parameters, "
          f"{options.batch} x {options.length} tokens on {options.device}\n")
    table(rows)
    print("\nA program that prints a tensor and gives one to numpy; its first call prints:\n")
    row, found = small_program(progress)
    print()
    table([row])
    print(f"\n{found}")
    different = [line.cells[0] for line in (*rows, row) if line.differs]
    if different:
        print("\nDIFFERENT FROM EAGER: " + "; ".join(different))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
