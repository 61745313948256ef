"""Where the tests compute: MAGNETO_TEST_DEVICE=cuda moves every input, module and model to the GPU first.

A program that makes tensors of its own on the CPU cannot take such inputs, in eager either; same_as_eager leaves it out.
"""

import os

import torch

DEVICE = os.environ.get("MAGNETO_TEST_DEVICE", "cpu")


def moved(value, storages=None):
    """A tensor, a module, or a tuple, list or dict of them, on the device of the tests; anything else as it is. Tensors
    over one storage stay so."""
    if DEVICE == "cpu":
        return value
    storages = {} if storages is None else storages
    if isinstance(value, torch.nn.Module):
        return value.to(DEVICE)
    if isinstance(value, torch.Tensor):
        key = value.untyped_storage().data_ptr()
        if key not in storages:
            storages[key] = value.untyped_storage().to(device=DEVICE)
        there = torch.empty(0, dtype=value.dtype, device=DEVICE)
        there.set_(storages[key], value.storage_offset(), value.size(), value.stride())
        return there.requires_grad_(value.requires_grad)
    if type(value) in (tuple, list):
        return type(value)(moved(item, storages) for item in value)
    if type(value) is dict:
        return {key: moved(item, storages) for key, item in value.items()}
    return value
