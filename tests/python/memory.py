"""How much memory a call wants at most."""

import gc
import itertools

import torch
from torch.profiler import ProfilerActivity, profile


def changes(f):
    """What torch's allocator of the CPU gives (positive) and takes back while f runs, in order."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        f()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    return [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]


def peak(f, device="cpu"):
    """Bytes that torch's allocator has given out at most while f runs, above those before it."""
    if device == "cpu":
        return max(itertools.accumulate(changes(f)), default=0)
    gc.collect()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    f()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def held(f, device="cpu"):
    """Bytes that are still given out when f has run, above those before it."""
    if device == "cpu":
        return sum(changes(f))
    gc.collect()
    before = torch.cuda.memory_allocated()
    f()
    return torch.cuda.memory_allocated() - before
