"""When two answers are the same: eager's bits where operators run one by one (MAGNETO_TEST_BACKEND=eager), eager's numbers
up to rounding where kernels compute them: sums in another order, products that are added without being rounded first.

The error may be a few units of the last place of the largest number: an element that is plainly wrong never passes. What is
no floating point number is equal in both cases, and so are NaN and infinities.
"""

import math
import os
import re

import torch

EXACT = os.environ.get("MAGNETO_TEST_BACKEND") == "eager"
UNITS = {torch.float64: 2e-13, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2,
         torch.complex64: 1e-5, torch.complex128: 2e-13}


def close(want, have, units=1):
    """Whether a tensor is what eager gives; `units` more rounding for long computations."""
    if want.dtype != have.dtype or want.shape != have.shape:
        return False
    if EXACT or want.dtype not in UNITS or want.layout is not torch.strided:
        return torch.equal(want, have) or torch.allclose(want, have, rtol=0, atol=0, equal_nan=True)
    tolerance = units * UNITS[want.dtype]
    wide = torch.complex128 if want.is_complex() else torch.float64
    want, have = want.detach().to(wide), have.detach().to(wide)
    finite = want[torch.isfinite(want)].abs()
    scale = max(1.0, finite.max().item()) if finite.numel() else 1.0
    return torch.allclose(have, want, rtol=0, atol=tolerance * scale, equal_nan=True)


def close_texts(want, have):
    """Whether two lists of lines are the same up to rounding of the floating point numbers in them."""
    number = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
    want, have = "\n".join(want), "\n".join(have)
    pairs = zip(number.findall(want), number.findall(have))
    return number.sub("0.0", want) == number.sub("0.0", have) and all(
        math.isclose(float(a), float(b), rel_tol=1e-5, abs_tol=1e-5) for a, b in pairs)
