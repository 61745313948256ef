"""Operators of other libraries, for the fuzzers: what a user's own package registers with torch.

`scaled` has a fake and a gradient, `shifted_` writes to its argument, `unknown` has neither a fake nor a gradient.
"""

import torch


@torch.library.custom_op("fuzz::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


scaled.register_fake(lambda x, by: torch.empty_like(x * by))


def _setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.by = inputs[1]


def _backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * ctx.by + 0 * x, None


scaled.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("fuzz::shifted_", mutates_args={"x"})
def shifted_(x: torch.Tensor, by: float) -> None:
    x.add_(by)


shifted_.register_fake(lambda x, by: None)


@torch.library.custom_op("fuzz::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0) if x.dim() else x.clone()


@torch.library.custom_op("fuzz::two", mutates_args=())
def two(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x + y, x.clone()


two.register_fake(lambda x, y: (torch.empty_like(x + y), torch.empty_like(x)))
two.register_autograd(lambda ctx, a, b: (a + b, a), setup_context=lambda ctx, inputs, output: None)
