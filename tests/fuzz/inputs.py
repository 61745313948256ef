"""What a generated graph program is called with: tensors in every layout, inside of storages that are watched.

An input is a view (sizes, layout, offset) of a storage that is larger than it needs: before, after and between its elements
lie *guards*, numbers that no program may read or change. Several inputs can lie in one storage, over one another too. A
storage can be a leaf's, or the result of an operator on a leaf, so that its views are no leaves.
"""

import dataclasses
import functools

import torch

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "c64": torch.complex64,
          "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool}


@dataclasses.dataclass
class Input:
    """`layout`: ("contiguous",), ("permuted", order), ("sliced", padding), ("stepped", steps), ("expanded", dims) or
    ("strided", strides). `content`: "normal", "ties", "special", "positive", "constants" (those of the programs), "mask" or an upper bound of indices."""

    name: str
    dtype: str = "f32"
    sizes: tuple = ()
    layout: tuple = ("contiguous",)
    storage: str = "A"
    offset: int = 0
    content: object = "normal"
    grad: bool = False
    same: str = None  # another input: the very same object


def dense(sizes, order):
    strides, step = [0] * len(sizes), 1
    for d in reversed(order):
        strides[d] = step
        step *= max(sizes[d], 1)
    return strides


def strides_of(sizes, layout):
    kind, *rest = layout
    plain = range(len(sizes))
    if kind == "contiguous":
        return dense(sizes, plain)
    (detail,) = rest
    if kind == "permuted":
        return dense(sizes, detail)
    if kind == "sliced":
        return dense([n + p for n, p in zip(sizes, detail)], plain)
    if kind == "stepped":
        return [s * step for s, step in zip(dense([n * step for n, step in zip(sizes, detail)], plain), detail)]
    if kind == "expanded":
        return [0 if d in detail else s for d, s in enumerate(dense([1 if d in detail else n for d, n in enumerate(sizes)], plain))]
    assert kind == "strided", layout
    return list(detail)


def span(sizes, strides):
    return 1 + sum((n - 1) * s for n, s in zip(sizes, strides)) if all(sizes) else 0


@functools.lru_cache(4096)
def places(count, items):
    """Which elements of a storage its inputs have: items are sizes, strides and offset of each."""
    inside = torch.zeros(count, dtype=torch.bool)
    for sizes, strides, offset in items:
        inside[torch.arange(count).as_strided(sizes, strides, offset).reshape(-1)] = True
    return inside, int(inside.sum())


def guard(count, dtype, device):
    """Numbers that show up at once where they are read."""
    at = torch.arange(count, device=device)
    if dtype is torch.bool:
        return at % 3 == 0
    if dtype.is_floating_point or dtype.is_complex:
        return (at * 8 + 4096).to(dtype)
    return (at % 7 + 100).to(dtype)


CONSTANTS = torch.tensor([0.1, 0.3, -0.7, 0.001, 1 / 3, 0.5, -1.5, 0.25, 1, 2, 0, 3], dtype=torch.float64)


def numbers(content, count, dtype, generator):
    if dtype is torch.bool or content == "mask":
        return (torch.rand(count, generator=generator) < 0.5).to(dtype)
    if isinstance(content, int):
        return torch.randint(0, max(content, 1), (count,), generator=generator).to(dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(0 if dtype is torch.uint8 else -5, 9, (count,), generator=generator).to(dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    made = torch.randn(count, generator=generator, dtype=wide)
    if content == "ties":
        made = made.real.mul(2).round().to(wide) / 2
    elif content == "constants":
        made = CONSTANTS[torch.randint(0, len(CONSTANTS), (count,), generator=generator)].to(wide)
    elif content == "positive":
        made = made.abs() + 0.25
    elif content == "special" and count:
        where = torch.randint(0, count, (max(1, count // 4),), generator=generator)
        which = torch.randint(0, 7, where.shape, generator=generator)
        made[where] = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e4, 1.0], dtype=wide)[which]
    return made.to(dtype)


class World:
    """The arguments of one call, and all that is to be watched: storages, leaves."""

    def __init__(self, program, call, device="cpu", perturb=None):
        generator = torch.Generator().manual_seed(call["seed"])
        inputs = [self.varied(item, call) for item in program.inputs if item.same is None]
        strides = {item.name: strides_of(item.sizes, item.layout) for item in inputs}
        self.flats, self.inside, self.leaves, made = {}, {}, {}, {}
        for letter in sorted({item.storage for item in inputs}):
            here = [item for item in inputs if item.storage == letter]
            dtype = DTYPES[here[0].dtype]
            facts = program.storages.get(letter, {})
            count = max(item.offset + span(item.sizes, strides[item.name]) for item in here) + facts.get("tail", 0)
            flat = guard(count, dtype, "cpu")
            inside, how_many = places(count, tuple((tuple(item.sizes), tuple(strides[item.name]), item.offset) for item in here))
            flat[inside] = numbers(here[0].content, how_many, dtype, generator)
            if perturb is not None:
                flat = perturb(flat, inside)
            flat = flat.to(device)
            base = flat
            if facts.get("graph") and (dtype.is_floating_point or dtype.is_complex):
                self.leaves[letter] = leaf = flat.requires_grad_()
                base = leaf.clone()
            self.flats[letter], self.inside[letter] = base.detach(), inside
            for item in here:
                view = base.as_strided(item.sizes, strides[item.name], item.offset)
                if not facts.get("graph"):
                    view = view.detach()
                    if item.grad and (dtype.is_floating_point or dtype.is_complex):
                        self.leaves[item.name] = view.requires_grad_()
                made[item.name] = view
        self.tensors = made
        for item in program.inputs:
            if item.same is not None:
                made[item.name] = made[item.same]
        self.args = [made[item.name] for item in program.inputs] + [call.get("numbers", {})[name] for name in program.numbers]

    @staticmethod
    def varied(item, call):
        sizes = tuple(call.get("sizes", {}).get(str(n), n) for n in item.sizes)
        layout = call.get("layouts", {}).get(item.name, item.layout)
        offset = call.get("offsets", {}).get(item.name, item.offset)
        return dataclasses.replace(item, sizes=sizes, layout=tuple(layout), offset=offset, dtype=call.get("dtypes", {}).get(item.storage, item.dtype))
