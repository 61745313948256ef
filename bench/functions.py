"""Each elementwise function alone, of eager's time: nothing to fuse, so what is slow is the function's own arithmetic.

    python bench/functions.py [--device cuda] [--dtype bfloat16] [--threads 1] [--size 1048576] [word ...]

Prints the slowest first. With words, only the functions whose name has one of them.
"""

import torch
from torch.nn import functional as F

import magneto
from measure import in_turns, settings, table

# what becomes of x and y before a function takes them
ANY, POSITIVE, INSIDE = (lambda t: t), (lambda t: t.abs() + 0.1), (lambda t: t * 0.4)


def functions():
    for name in ("exp expm1 sin cos tan tanh sigmoid erf erfc atan sinh cosh asinh relu abs floor round trunc frac neg sign sinc square "
                 "exp2 deg2rad logit").split():
        if hasattr(torch, name):
            yield name, (lambda x, y, f=getattr(torch, name): f(x)), ANY
    for name in "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma".split():
        yield name, (lambda x, y, f=getattr(torch, name): f(x)), POSITIVE
    for name in "asin acos atanh erfinv".split():
        yield name, (lambda x, y, f=getattr(torch, name): f(x)), INSIDE
    for name in ("gelu silu mish softplus elu selu celu logsigmoid leaky_relu hardswish hardsigmoid hardtanh relu6 softsign tanhshrink "
                 "softshrink hardshrink").split():
        yield name, (lambda x, y, f=getattr(F, name): f(x)), ANY
    yield "gelu, tanh", lambda x, y: F.gelu(x, approximate="tanh"), ANY
    yield "clamp", lambda x, y: x.clamp(-1, 1), ANY
    yield "x ** 1.5", lambda x, y: x ** 1.5, POSITIVE
    yield "x ** 3", lambda x, y: x ** 3, ANY
    yield "acosh", lambda x, y: torch.acosh(x + 1), POSITIVE
    for name in ("add mul div pow atan2 hypot fmod remainder floor_divide logaddexp xlogy maximum minimum fmax copysign "
                 "nextafter").split():
        yield name, getattr(torch, name), POSITIVE
    yield "where", lambda x, y: torch.where(x > y, x, y), ANY
    yield "lerp", lambda x, y: torch.lerp(x, y, 0.3), ANY
    yield "addcmul", lambda x, y: torch.addcmul(x, x, y), ANY
    yield "addcdiv", lambda x, y: torch.addcdiv(x, x, y), POSITIVE


def main():
    options = settings(size=1 << 20)
    torch.manual_seed(0)
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    rows = []
    for name, f, prepared in functions():
        if not options.chosen(name):
            continue
        x, y = (prepared(torch.rand(options.size, device=options.device) * 4 - 2).to(options.dtype) for _ in range(2))

        def timed(g):
            def run():
                g(x, y)
                wait()
            return run

        try:
            with torch.no_grad():
                f(x, y)
                seen = in_turns({"eager": (timed(f), ()), "magneto": (timed(magneto.compile(f)), ())}, rounds=7, budget=0.01, clock=options.clock)
        except (NotImplementedError, RuntimeError):
            continue  # not for this dtype
        rows.append((seen["magneto"] / seen["eager"], name, seen))
    rows.sort(key=lambda row: -row[0])
    table(("function", "of eager", "eager us", "ours us"),
          [(name, f"{ratio:.2f}", *(f"{seen[side] * 1e6:.0f}" for side in ("eager", "magneto"))) for ratio, name, seen in rows])


if __name__ == "__main__":
    main()
