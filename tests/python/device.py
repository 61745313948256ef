"""Where the tests compute: MAGNETO_TEST_DEVICE=cuda moves every input, module and model to the GPU first.

A program that makes tensors of its own on the CPU cannot take such inputs, in eager either; same_as_eager leaves it out.
"""

import os

import torch

DEVICE = os.environ.get("MAGNETO_TEST_DEVICE", "cpu")


def moved(value):
    """A tensor, a module, or a tuple, list or dict of them, on the device of the tests; anything else as it is."""
    if DEVICE == "cpu":
        return value
    if isinstance(value, torch.nn.Module):
        return value.to(DEVICE)
    if isinstance(value, torch.Tensor):
        there = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)
        there.copy_(value.detach())
        return there.requires_grad_(value.requires_grad)
    if type(value) in (tuple, list):
        return type(value)(moved(item) for item in value)
    if type(value) is dict:
        return {key: moved(item) for key, item in value.items()}
    return value
