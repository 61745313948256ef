"""What kernels are worth: eager, torch.compile and Magneto in turns, on the CPU or a GPU.

    python bench/kernels.py [--device cuda] [--no-inductor] [--dtype bfloat16] [--threads 1] [word ...]

With words, only the cases whose name has one of them. With one thread the time of this thread is measured.
"""

import sys

import torch
from torch import nn

import magneto
from measure import Bars, in_turns, settings, table

F = nn.functional


def seven(x):
    return torch.tanh(torch.sigmoid(torch.relu(x * 2 + 1)) - 0.5) * 3


def forward_and_backward(f):
    def run(x, g):
        x.grad = None
        f(x).backward(g)

    return run


def cases(device, dtype):
    big = 1 << (26 if device == "cuda" else 22)
    make = lambda *size: torch.randn(*size, device=device, dtype=dtype)
    yield "seven operators on 16 floats", seven, (make(16),), False
    yield "seven operators on many floats", seven, (make(big),), False
    for rows, columns in ((8192, 1024), (4096, 768), (128, 50257)):
        shape = f"{rows} x {columns}"
        norm = nn.LayerNorm(columns, device=device, dtype=dtype)
        yield f"softmax, {shape}", lambda x: torch.softmax(x, -1), (make(rows, columns),), False
        yield f"layer norm, {shape}", norm, (make(rows, columns),), False
        x = make(rows, columns).requires_grad_()
        yield f"softmax, forward and backward, {shape}", lambda x: torch.softmax(x, -1), (x, make(rows, columns)), True
        yield f"layer norm, forward and backward, {shape}", norm, (x, make(rows, columns)), True


def main():
    options = settings(no_inductor=False)
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    bars, rows = Bars(), []
    for name, f, args, trains in cases(options.device, options.dtype):
        if not options.chosen(name):
            continue
        sides = {"eager": f, "Magneto": magneto.compile(f)}
        if not options.no_inductor:
            torch._dynamo.reset()
            sides["torch.compile"] = torch.compile(f)
        candidates = {}
        for side, g in sides.items():
            run = forward_and_backward(g) if trains else g

            def waited(*a, run=run):
                run(*a)
                wait()

            candidates[side] = run if name.endswith("16 floats") else waited, args
        with torch.set_grad_enabled(trains):
            times = in_turns(candidates, rounds=9, clock=options.clock)
        if "many" in name and options.device == "cuda":
            target = torch.empty_like(args[0])
            times["copy"] = in_turns({"copy": (lambda: (target.copy_(args[0]), wait()), ())}, rounds=9)["copy"]
            bars.at_most(f"{name}, of a copy", times["Magneto"] / times["copy"], 1.3, "")
        eager, ours, theirs = times["eager"], times["Magneto"], times.get("torch.compile")
        rows.append((name, f"{1e6 * eager:.1f}", f"{1e6 * theirs:.1f}" if theirs else "", f"{1e6 * ours:.1f}",
                     f"{ours / eager:.2f}", f"{ours / theirs:.2f}" if theirs else ""))
        if name.endswith("16 floats"):
            bars.at_most(name, 1e6 * ours, 8 if options.device == "cuda" else 5, "us")
        elif "many" in name:
            bars.at_most(f"{name}, of eager", ours / eager, 1 / 3, "")
        else:
            bars.at_most(f"{name}, of eager", ours / eager, 1, "")
    table(("microseconds", "eager", "torch.compile", "Magneto", "of eager", "of torch.compile"), rows)
    return bars.check()


if __name__ == "__main__":
    sys.exit(main())
