"""Arguments, copied and varied. A copy keeps what the original had: identity, shared storage, strides, leaves."""

import dataclasses

import torch


class Made:
    """An argument that is built anew for each call, because nobody can copy it."""

    def __init__(self, build):
        self.build = build


def mapped(tree, tensor, memo=None):
    """The tree with every tensor replaced; the same object stays one object."""
    memo = {} if memo is None else memo
    if isinstance(tree, Made):
        return tree
    if id(tree) in memo:
        return memo[id(tree)][0]

    def keep(new):
        memo[id(tree)] = (new, tree)  # the original too, so that its address is not used again
        return new

    if isinstance(tree, torch.Tensor):
        return keep(tensor(tree))
    if type(tree) in (list, set):
        new = keep(type(tree)())
        (new.extend if type(tree) is list else new.update)(mapped(item, tensor, memo) for item in tree)
        return new
    if type(tree) is tuple:
        return tuple(mapped(item, tensor, memo) for item in tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(item, tensor, memo) for item in tree))
    if type(tree) is dict:
        new = keep({})
        new.update((key, mapped(value, tensor, memo)) for key, value in tree.items())
        return new
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        new = keep(object.__new__(type(tree)))
        for field in dataclasses.fields(tree):
            object.__setattr__(new, field.name, mapped(getattr(tree, field.name), tensor, memo))
        return new
    return tree


def leaf(new, old):
    if isinstance(old, torch.nn.Parameter):
        return torch.nn.Parameter(new, old.requires_grad)
    return new.requires_grad_(old.requires_grad)


def copier(change=None):
    """Copies tensors storage by storage, so that views of one storage stay views of one; `change` edits each
    copied storage, seen as a flat tensor."""
    storages = {}

    def tensor(old):
        key = old.untyped_storage()._cdata
        if key not in storages:
            storage = old.untyped_storage().clone()
            storages[key] = storage
            if change is not None:
                change(torch.empty(0, dtype=old.dtype, device=old.device).set_(storage))
        new = torch.empty(0, dtype=old.dtype, device=old.device).set_(storages[key], old.storage_offset(), old.size(), old.stride())
        return leaf(new, old)

    return tensor


def copied(tree):
    built = mapped(tree, copier())

    def build(value):
        if isinstance(value, Made):
            return value.build()
        if type(value) in (list, tuple):
            return type(value)(build(item) for item in value) if contains_made(value) else value
        if type(value) is dict:
            return {key: build(item) for key, item in value.items()} if contains_made(value) else value
        return value

    return build(built)


def contains_made(value):
    items = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
    return any(isinstance(item, Made) or contains_made(item) for item in items)


def other_values(tree):
    def change(flat):
        if flat.dtype.is_floating_point or flat.dtype.is_complex:
            flat.mul_(-0.75).add_(0.125)
        elif flat.dtype is torch.bool:
            flat.logical_not_()
        else:
            flat.copy_(flat.flip(0))  # indices stay within their range

    return mapped(tree, copier(change))


def other_sizes(tree):
    """Every dimension that has the length of the first tensor's first one gets one longer: a larger batch."""
    lengths = []

    def find(old):
        if old.dim() and not lengths:
            lengths.append(old.size(0))
        return old

    mapped(tree, find)
    if not lengths:
        return tree

    def tensor(old):
        new = old.detach().clone()
        for dim, length in enumerate(old.shape):
            if length == lengths[0] and length > 0:
                new = torch.cat([new, new.narrow(dim, 0, 1)], dim)
        return leaf(new, old)

    return mapped(tree, tensor)


def other_dtype(tree):
    others = {torch.float32: torch.float64, torch.float64: torch.float32, torch.int64: torch.int32}
    return mapped(tree, lambda old: leaf(old.detach().clone().to(others.get(old.dtype, old.dtype)), old))


def other_strides(tree):
    """Column-major, or every second element of a longer row."""

    def tensor(old):
        new = old.detach()
        if old.dim() == 1:
            new = torch.stack([new, new], 1)[:, 0]
        elif old.dim() > 1:
            new = new.mT.contiguous().mT
        else:
            new = new.clone()
        return leaf(new, old)

    return mapped(tree, tensor)


def other_grad(tree):
    def tensor(old):
        new = old.detach().clone()
        can = new.dtype.is_floating_point or new.dtype.is_complex
        return new.requires_grad_(can and not old.requires_grad)

    return mapped(tree, tensor)
