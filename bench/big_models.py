"""BERT-base, GPT-2, Llama of eight layers, ResNet-50: time, peak memory, kernel launches, first call; eager and Magneto.

    python bench/big_models.py [--device cuda] [--no-training] [names ...]
"""

import argparse
import os
import pathlib
import resource
import statistics
import sys
import time
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "python"))

import torch

import magneto
from measure import table
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

    def peak(self, f):
        """Megabytes at most during a call; on a CPU what the process has had at most, which only grows."""
        if self.name != "cuda":
            f()
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        torch.cuda.reset_peak_memory_stats()
        f()
        self.wait()
        return torch.cuda.max_memory_allocated() / 1e6

    def launches(self, f):
        if self.name != "cuda":
            return ""
        from torch.profiler import ProfilerActivity, profile

        f()
        self.wait()
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
            f()
            self.wait()
        return sum(event.count for event in seen.key_averages() if "LaunchKernel" in event.key)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-training", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device, rows = Device(options.device), []
    for name, build in MODELS.items():
        if options.names and not any(word in name for word in options.names):
            continue
        torch.manual_seed(0)
        model, make = build()
        model.to(device.name)
        kwargs = {key: value.to(device.name) for key, value in make(0).items()}
        for mode in ("inference", "training")[: 1 if options.no_training else 2]:
            model.train(mode == "training")
            compiled = magneto.compile(model)

            def call(f):
                with torch.set_grad_enabled(mode == "training"):
                    answer = flatten(f(**kwargs))[0]
                    if mode == "training":
                        model.zero_grad()
                        answer.float().pow(2).mean().backward()

            call(model)
            eager_peak = device.peak(lambda: call(model))
            start = time.perf_counter()
            call(compiled)
            device.wait()
            first = time.perf_counter() - start
            call(compiled)
            eager, ours = device.median(lambda: call(model)), device.median(lambda: call(compiled))
            graph = magneto.report().graphs[-1]
            parts = ", ".join(f"{sum(k.runs for k in code.kernels)} runs of {len(code.kernels)} + {len(code.calls)} calls"
                              for code in graph.code)
            rows.append((f"{name}, {mode}", f"{1e3 * eager:.2f}", f"{1e3 * ours:.2f}", f"{ours / eager:.2f}",
                         f"{first:.2f}", f"{eager_peak:.0f}", f"{device.peak(lambda: call(compiled)):.0f}",
                         device.launches(lambda: call(model)), device.launches(lambda: call(compiled)),
                         graph.fallback or parts))
    table(("", "eager ms", "Magneto ms", "ratio", "first call s", "eager MB", "Magneto MB", "launches", "ours", "kernels"), rows)


if __name__ == "__main__":
    main()
