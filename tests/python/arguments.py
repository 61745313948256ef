"""Changes of a call's arguments: one leaf, or the structure of one container, at one place of a tree.

A *tree* is the arguments of a call, `[list of positional ones, dict of keywords]`, with containers inside one another.
`changes(tree)` names what can be changed; a change is made in the trees of all worlds alike and can be undone. Lists,
dicts and objects stay the same objects and get other contents; what cannot be changed (tuples, slices, ranges,
partials) is built anew on the way up to them.
"""

import dataclasses
import enum
import functools
import types

import numpy
import torch
from torch import nn

import argument_programs as programs


def children(value):
    """The places inside of a value: (key, what is there)."""
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, (slice, range)):
        return [(key, getattr(value, key)) for key in ("start", "stop", "step")]
    if isinstance(value, functools.partial):
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    if isinstance(value, (types.SimpleNamespace, programs.Plain)) or dataclasses.is_dataclass(type(value)):
        return list(vars(value).items())
    if isinstance(value, programs.Slots):
        return [("v", value.v), ("n", value.n)]
    return []


def with_child(value, key, child):
    """The value with something else at one of its places: itself where it can be changed, or a new one."""
    if isinstance(value, (list, dict)):
        value[key] = child
        return value
    if isinstance(value, tuple):
        items = [*value[:key], child, *value[key + 1:]]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, (slice, range)):
        parts = {name: getattr(value, name) for name in ("start", "stop", "step")}
        return type(value)(*{**parts, key: child}.values())
    if isinstance(value, functools.partial):
        parts = {**dict(children(value)), key: child}
        return functools.partial(parts["func"], *parts["args"], **parts["keywords"])
    setattr(value, key, child)
    return value


def at(tree, path):
    for key in path:
        tree = dict(children(tree))[key]
    return tree


def put(tree, path, value):
    if not path:
        return value
    return with_child(tree, path[0], put(dict(children(tree))[path[0]], path[1:], value))


def next_of(group, value):
    """The members of a group that follow a value, the nearest first."""
    for position, member in enumerate(group):
        if member is value or (type(member) is type(value) and member == value):
            return [*group[position + 1:], *group[:position]]
    return list(group)


def other_tensors(value):
    plain = value.detach().clone()
    yield "values", lambda: plain.clone() + 1 if plain.dtype != torch.bool else ~plain
    if value.is_floating_point():
        yield "requires_grad", lambda: plain.clone().requires_grad_(not value.requires_grad)
    for dtype in (torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool):
        if dtype != value.dtype:
            yield str(dtype), lambda dtype=dtype: plain.to(dtype)
    yield "a parameter", lambda: nn.Parameter(plain.clone(), requires_grad=False)
    yield "one more dimension", lambda: plain.clone()[None]
    yield "on meta", lambda: plain.to("meta")
    yield "an int", lambda: 1
    if value.dim():
        yield "other strides", lambda: plain.mT.contiguous().mT if plain.dim() > 1 else plain.repeat_interleave(2)[::2]
        yield "an offset", lambda: torch.cat([plain[:1], plain])[1:]
        yield "fewer rows", lambda: plain[:-1].clone()
        yield "fewer columns", lambda: plain[..., :-1].clone()
        yield "more rows", lambda: torch.cat([plain, plain])
        yield "one row", lambda: plain[:1].clone()
        yield "no rows", lambda: plain[:0].clone()
        yield "expanded", lambda: plain[:1].expand(plain.shape)
        yield "no dimensions", lambda: plain.flatten()[0].clone() if plain.numel() else plain.sum()
    if value.dim() == 4:
        yield "channels last", lambda: plain.clone(memory_format=torch.channels_last)


def others(value):
    """What a caller might pass instead: (name, maker)."""
    if isinstance(value, torch.Tensor):
        return list(other_tensors(value))
    return [(repr(new), lambda new=new: new) for new in other_values(value)]


def other(value, index):
    """One of them; a value that an earlier changed run replaced by something of no known kind stays."""
    makers = others(value)
    return makers[index % len(makers)][1]() if makers else value


def other_values(value):
    if isinstance(value, bool):
        return [not value, int(value), None]
    if isinstance(value, enum.Enum):
        return [*next_of(list(type(value)), value), value.value]
    if isinstance(value, int):
        return [value + 1, -value, 0, value + 2, float(value), bool(value), numpy.int64(value), None, value + 10]
    if isinstance(value, float):
        return [value * 1.5 + 0.1, -value, 0.0, -0.0, float("nan"), float("inf"), int(value), None, numpy.float64(value)]
    if isinstance(value, complex):
        return [value.conjugate(), value.real]
    if isinstance(value, str):
        group = next((group for group in programs.WORDS if value in group), ())
        return [*next_of(group, value), value + "x", "", None]
    if isinstance(value, bytes):
        return [value + b"x", b""]
    if value is None:
        return [0, 1, True, "none", 0.5]
    if value is Ellipsis:
        return [None, 0, slice(0, 1)]
    if isinstance(value, slice):
        return [slice(1, None), slice(None), 1]
    if isinstance(value, range):
        return [range(2), list(value)]
    if isinstance(value, list):
        return [value + value[-1:], value[:-1], value[::-1], tuple(value), []]
    if isinstance(value, torch.Size):
        return [torch.Size(value[::-1]), value[:-1], list(value)]
    if isinstance(value, tuple):
        plain = tuple(value)
        return [plain + plain[-1:], plain[:-1], plain[::-1], list(plain)] + ([plain] if hasattr(value, "_fields") else [])
    if isinstance(value, dict):
        items = list(value.items())
        return [dict(items[::-1]), dict(items[:-1]), {**value, "zz": 1}, type("Dict", (dict,), {})(value)]
    if isinstance(value, (set, frozenset)):
        kind = type(value)
        return [kind([*value, 7]), kind(list(value)[1:]), kind(), sorted(value)]
    if isinstance(value, numpy.ndarray):
        return [value + 1, value.astype("float32"), value[:1], value[::-1].copy()]
    if isinstance(value, numpy.generic):
        return [type(value)(value + 1), value.item(), numpy.float32(value)]
    for group in programs.GROUPS:
        if any(member is value or (type(member) is type(value) and member == value) for member in group):
            return next_of(group, value)
    if isinstance(value, programs.Plain):
        return [programs.Other(**vars(value))]
    if isinstance(value, (types.FunctionType, nn.Module)):
        return [torch.neg, None]
    return []


class Change:
    """Something else at one place of the trees of all worlds. `apply()` makes it and returns what undoes it, or None
    where the place does not take it (a range of floats) or was taken away by an earlier changed run."""

    def __init__(self, where, trees, path, maker):
        self.where, self.trees, self.path, self.maker = where, trees, path, maker

    def apply(self):
        try:
            old = [at(tree, self.path) for tree in self.trees]
            for tree in self.trees:
                put(tree, self.path, self.maker(tree))
        except (TypeError, ValueError, LookupError):
            return None
        return lambda: [put(tree, self.path, value) for tree, value in zip(self.trees, old)]


class Edit(Change):
    """The contents of a list, dict or set change, and the object stays."""

    def apply(self):
        try:
            holders = [at(tree, self.path) for tree in self.trees]
            old = [holder.copy() for holder in holders]
            for holder in holders:
                self.maker(holder)
        except (LookupError, ValueError, StopIteration):  # it is empty
            return None

        def undo():
            for holder, was in zip(holders, old):
                holder.clear()
                (holder.extend if isinstance(holder, list) else holder.update)(was)

        return undo


EDITS = {
    list: [("appended to", lambda items: items.append(items[-1])), ("shortened", lambda items: items.pop()),
           ("reversed", lambda items: items.reverse())],
    dict: [("reordered", lambda items: items.update([(first := next(iter(items)), items.pop(first))])),
           ("given a key", lambda items: items.update(zz=1)), ("shortened", lambda items: items.popitem())],
    set: [("added to", lambda items: items.add(7)), ("shortened", lambda items: items.remove(min(items)))],
}


def changes(trees):
    """All changes of equal trees, one for each world."""

    def walk(value, path, name):
        for index, (what, _) in enumerate(others(value) if len(path) > 1 else ()):
            yield Change(f"{name} := {what}", trees, path, lambda tree, index=index: other(at(tree, path), index))
        for what, edit in EDITS.get(type(value), ()) if path else ():
            yield Edit(f"{name} {what}", trees, path, edit)
        if path and isinstance(value, (list, tuple)) and len(value) > 1:
            yield Change(f"{name}[1] := {name}[0]", trees, (*path, 1), lambda tree: at(tree, (*path, 0)))
        for key, child in children(value):
            yield from walk(child, (*path, key), f"{name}[{key!r}]" if path else ("args", "kwargs")[key])

    return list(walk(trees[0], (), ""))
