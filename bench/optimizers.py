"""A compiled optimizer step beside eager's, interleaved, medians; then the same for torch.compile in a process of its own.

    OMP_NUM_THREADS=1 python bench/optimizers.py [--layers 10] [--width 64] [--device cpu]

The gradients are those of a real backward each time, which is not measured. One process cannot hold both: TorchDynamo marks methods of
optimizers with torch.compiler.disable once it has compiled one, and we keep to that.
"""

import argparse
import statistics
import subprocess
import sys
import time

import torch

import magneto

MAKERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD, momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "AdamW, foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-3),
}


def setting(make, compile, options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(options.width, options.width) for _ in range(options.layers)]).to(options.device)
    optimizer = make(model.parameters())
    return model, optimizer, compile(lambda: optimizer.step())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--compiler", choices=["magneto", "torch.compile"])
    options = parser.parse_args()
    if not options.compiler:
        for compiler in ("magneto", "torch.compile"):
            subprocess.run([sys.executable, *sys.argv, "--compiler", compiler], check=True)
        return
    compilers = {"eager": lambda f: f, options.compiler: magneto.compile if options.compiler == "magneto" else torch.compile}
    x = torch.randn(8, options.width, device=options.device)
    for name, make in MAKERS.items():
        settings = {key: setting(make, compile, options) for key, compile in compilers.items()}
        times = {key: [] for key in settings}
        for n in range(options.steps + 8):
            for key, (model, optimizer, step) in settings.items():
                optimizer.zero_grad()
                model(x).square().mean().backward()
                if options.device != "cpu":
                    torch.cuda.synchronize()
                begun = time.perf_counter()
                step()
                if options.device != "cpu":
                    torch.cuda.synchronize()
                if n >= 8:
                    times[key].append(time.perf_counter() - begun)
        eager = statistics.median(times["eager"])
        ratios = ", ".join(f"{key} {statistics.median(times[key]) / eager:.2f}" for key in settings if key != "eager")
        print(f"{name:16} eager {eager * 1e6:7.0f} us; of it: {ratios}", flush=True)


if __name__ == "__main__":
    main()
