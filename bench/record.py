"""What recording costs, without compiling: BERT-base, a loop of 1,000 steps, 80 equal layers; beside torch.compile(backend="eager").

Each round forgets everything that was compiled and calls again, the candidates in turns. Instructions are those of this process in user mode,
where the machine counts them.

    python bench/record.py          the table, and status 1 if a bar is broken
"""

import ctypes
import os
import platform
import statistics
import struct
import sys
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from torch import nn

import magneto
from measure import Bars, once, table


class Instructions:
    """Counts the instructions that this thread executes in user mode (perf_event_open). None: the machine does not tell."""

    def __init__(self):
        number = {"x86_64": 298, "aarch64": 241}.get(platform.machine())
        attributes = bytearray(128)
        struct.pack_into("IIQ", attributes, 0, 0, 128, 1)  # a hardware counter: instructions
        struct.pack_into("Q", attributes, 40, 1 << 5 | 1 << 6)  # not the kernel's, not the hypervisor's
        buffer = ctypes.create_string_buffer(bytes(attributes), 128)
        self.file = ctypes.CDLL(None).syscall(number, buffer, 0, -1, -1, 0) if number else -1

    def of(self, run):
        if self.file < 0:
            run()
            return None
        before = struct.unpack("Q", os.read(self.file, 8))[0]
        run()
        return struct.unpack("Q", os.read(self.file, 8))[0] - before


def bert():
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return BertModel(BertConfig()).eval(), (torch.randint(30000, (1, 64)),)


def add_loop():
    def f(x):
        for _ in range(1000):
            x = (x + 1).sin()
        return x

    return f, (torch.randn(8),)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


def layers():
    return nn.Sequential(*[Layer() for _ in range(80)]).eval(), (torch.randn(2, 32),)


def main():
    warnings.simplefilter("ignore")
    count, bars, rows = Instructions(), Bars(), []
    for name, make, limit in (("BERT-base", bert, 40), ("a loop of 1,000 steps", add_loop, None), ("80 equal layers", layers, 1000)):
        model, args = make()

        def first(side):
            (magneto if side == "Magneto" else torch._dynamo).reset()
            compiled = (magneto if side == "Magneto" else torch).compile(model, backend="eager")
            return count.of(lambda: seen[side].append(once(lambda: compiled(*args))[0]))

        seen = {"eager": [], "Magneto": [], "torch.compile": []}
        with torch.no_grad():
            model(*args)
            for _ in range(4):
                seen["eager"].append(once(lambda: model(*args))[0])
                instructions = first("Magneto")
                first("torch.compile")
        eager, ours, theirs = (1e3 * statistics.median(times[1:]) for times in seen.values())
        rows.append((name, f"{eager:.1f}", f"{ours - eager:.1f}", f"{theirs - eager:.1f}", "not told" if instructions is None else f"{instructions / 1e9:.3f}"))
        if limit:
            bars.at_most(f"recording {name}", ours - eager, limit, "ms")
        elif instructions is not None:
            bars.at_most(f"recording {name}", instructions / 1e9, 0.2, "G instructions")
    table(("first call", "eager ms", "Magneto above it", "torch.compile above it", "Magneto, G instructions"), rows)
    return bars.check()


if __name__ == "__main__":
    sys.exit(main())
