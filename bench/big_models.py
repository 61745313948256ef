"""BERT-base, GPT-2, Llama of eight layers, ResNet-50: time, peak memory, kernel launches, first call; eager and Magneto.

    python bench/big_models.py [--device cuda] [--no-training] [--only-memory] [names ...]

The peak is what torch's allocator has given out at most during a call, above what it had before.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "python"))

import torch
from torch.profiler import ProfilerActivity, profile

import magneto
from measure import table
from memory import peak
from test_models_big import MODELS
from zoo import flatten


class Device:
    def __init__(self, name):
        self.name = name

    def wait(self):
        if self.name == "cuda":
            torch.cuda.synchronize()

    def median(self, f, rounds=9):
        times = []
        for _ in range(rounds):
            self.wait()
            start = time.perf_counter()
            f()
            self.wait()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    def launches(self, f):
        if self.name != "cuda":
            return ""
        f()
        self.wait()
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
            f()
            self.wait()
        return sum(event.count for event in seen.key_averages() if "LaunchKernel" in event.key)


def made(name, device):
    torch.manual_seed(0)
    model, make = MODELS[name]()
    model.to(device)
    return model, {key: value.to(device) for key, value in make(0).items()}


def call(f, model, kwargs, mode):
    with torch.set_grad_enabled(mode == "training"):
        answer = flatten(f(**kwargs))[0]
        if mode == "training":
            model.zero_grad()
            answer.float().pow(2).mean().backward()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-training", action="store_true")
    parser.add_argument("--only-memory", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device, rows = Device(options.device), []
    for name in MODELS:
        if options.names and not any(word in name for word in options.names):
            continue
        model, kwargs = made(name, device.name)
        for mode in ("inference", "training")[: 1 if options.no_training else 2]:
            model.train(mode == "training")
            compiled = magneto.compile(model)
            eager_call, our_call = (lambda f=f: call(f, model, kwargs, mode) for f in (model, compiled))
            eager_call()
            start = time.perf_counter()
            our_call()
            device.wait()
            first = time.perf_counter() - start
            our_call()
            peaks = []
            for one in (eager_call, our_call):
                model.zero_grad()
                peaks.append(peak(one, device.name) / 1e6)
            eager_peak, our_peak = peaks
            if options.only_memory:
                rows.append((f"{name}, {mode}", f"{eager_peak:.1f}", f"{our_peak:.1f}", f"{our_peak / eager_peak:.3f}"))
                continue
            eager, ours = device.median(eager_call), device.median(our_call)
            graph = magneto.report().graphs[-1]
            parts = ", ".join(f"{sum(k.runs for k in code.kernels)} runs of {len(code.kernels)} + {len(code.calls)} calls"
                              for code in graph.code)
            rows.append((f"{name}, {mode}", f"{1e3 * eager:.2f}", f"{1e3 * ours:.2f}", f"{ours / eager:.2f}",
                         f"{first:.2f}", f"{eager_peak:.0f}", f"{our_peak:.0f}",
                         device.launches(eager_call), device.launches(our_call), graph.fallback or parts))
    if options.only_memory:
        return table(("peak", "eager MB", "Magneto MB", "ratio"), rows)
    table(("", "eager ms", "Magneto ms", "ratio", "first call s", "eager MB", "Magneto MB", "launches", "ours", "kernels"), rows)


if __name__ == "__main__":
    main()
