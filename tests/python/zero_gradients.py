"""Gradients of every differentiable operator of torch's own samples (OpInfo), trained: which are None, which are zeros.

    python tests/python/zero_gradients.py [--only NAME,...] [--samples N] [--part k/n]

Each sample is trained as a program of its own, three calls: the second and third run the compiled forward and backward. Every
argument of floating point asks for a gradient, then only the first, then only the last. The gradients must be eager's: None
where eager's is None, the same numbers, shape, dtype and strides, in memory that can be read. So must be the gradients that
come through the operator to what was computed before it (a product), and those of a sum of it with its own argument.
"""

import argparse
import sys

import torch

import magneto
from forked import told_by
from opinfo import BROKEN, mapped, operators, tensors_of
from rounding import UNITS

SKIP = {name for name, _ in BROKEN if name.startswith("nn.functional.embedding_bag")}


def programs(call):
    """What is made of one operator."""
    def plain(first, args, kwargs):
        return call(first, *args, **kwargs)

    def behind(first, args, kwargs):
        change = lambda t: t * 1 if t.requires_grad else t  # noqa: E731
        return call(mapped(first, change), *mapped(args, change), **mapped(kwargs, change))

    def beside(first, args, kwargs):
        result = call(first, *args, **kwargs)
        return [result, *(t * 2 for t in tensors_of((first, args, kwargs)) if t.requires_grad)]

    return plain, behind, beside


def leaves_of(sample, wants):
    """The arguments again, each tensor of floating point a leaf of its own; `wants` chooses who asks for a gradient."""
    made = []

    def change(tensor):
        if tensor.layout is not torch.strided:
            return tensor.detach().clone()
        there = tensor.detach().clone()
        if tensor.is_floating_point() or tensor.is_complex():
            made.append(there)
        return there

    arguments = mapped((sample.input, tuple(sample.args), dict(sample.kwargs)), change)
    wanted = [t for k, t in enumerate(made) if wants == "all" or k == (0 if wants == "first" else len(made) - 1)]
    for t in wanted:
        t.requires_grad_()
    return arguments, wanted


def gradients(program, arguments, wanted):
    torch.manual_seed(0)
    results = [t for t in tensors_of(program(*arguments)) if t.requires_grad and t.layout is torch.strided]
    if not results:
        return None
    torch.manual_seed(1)
    loss = sum((t * torch.rand(t.shape, dtype=t.dtype)).sum().abs() for t in results)
    loss.backward()
    return [t.grad for t in wanted]


def difference(want, have):
    if (want is None) != (have is None):
        return f"{'None' if have is None else 'a tensor'} instead of {'None' if want is None else 'a tensor'}"
    if want is None:
        return None
    for fact in ("dtype", "shape", "layout"):
        if getattr(want, fact) != getattr(have, fact):
            return f"{fact} {getattr(have, fact)} instead of {getattr(want, fact)}"
    if want.layout is not torch.strided:
        want, have = want.to_dense(), have.to_dense()
    if any(a != b for a, b, n in zip(want.stride(), have.stride(), want.shape) if n > 1) and want.numel():
        return f"strides {have.stride()} instead of {want.stride()}"
    if have.numel() and not have._is_zerotensor() and have.data_ptr() == 0:
        return "no memory"
    if not want.numel():
        return None
    wide = torch.complex128 if want.is_complex() else torch.float64
    a, b = want.to(wide), have.to(wide)
    scale = a[torch.isfinite(a)].abs().max().item() if torch.isfinite(a).any() else 0.0
    if not torch.allclose(a, b, rtol=0, atol=64 * UNITS[want.dtype] * scale, equal_nan=True):
        return f"{have.flatten()[:6].tolist()} instead of {want.flatten()[:6].tolist()}"
    return None


def check(op, samples, tell):
    torch.manual_seed(0)
    try:
        chosen = list(op.sample_inputs("cpu", torch.float32, requires_grad=True))
    except Exception:  # samples that this torch cannot make
        return
    chosen = chosen[:: max(1, len(chosen) // samples)][:samples]
    count = 0
    for number, sample in enumerate(chosen):
        for wants in ("all", "first", "last"):
            for program in programs(op.op):
                text = f"{op.full_name}, sample {number}, {wants}, {program.__name__}"
                try:
                    arguments, wanted = leaves_of(sample, wants)
                    if not wanted:
                        continue
                    want = gradients(program, arguments, wanted)
                except Exception:  # no gradient in eager
                    continue
                if want is None:
                    continue
                count += 1
                magneto.reset()
                compiled = magneto.compile(program)
                tell(("doing", text))
                for call in range(3):
                    try:
                        arguments, wanted = leaves_of(sample, wants)
                        have = gradients(compiled, arguments, wanted)
                    except Exception as error:
                        tell(("wrong", f"{text}, call {call}: {type(error).__name__}: {str(error)[:200]}"))
                        break
                    found = "no result needs a gradient" if have is None else next(
                        (f"gradient {k}: {d}" for k, (a, b) in enumerate(zip(want, have)) if (d := difference(a, b))), None)
                    if found:
                        tell(("wrong", f"{text}, call {call}: {found}"))
                        break
    tell(("cases", count))


def in_a_process(op, samples, seconds):
    told, ended = told_by(lambda tell: check(op, samples, tell), seconds)
    if ended:
        doing = next((text for kind, text in reversed(told) if kind == "doing"), op.full_name)
        told.append(("wrong", f"{doing}: {ended}"))
    return told


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", help="names, with commas")
    parser.add_argument("--samples", type=int, default=3, help="of each operator")
    parser.add_argument("--seconds", type=int, default=300, help="for one operator")
    parser.add_argument("--part", default="0/1", help="k/n: every n-th operator from the k-th on")
    options = parser.parse_args()
    torch.set_num_threads(1)
    k, n = map(int, options.part.split("/"))
    chosen = [op for op in operators() if op.supports_autograd and op.name not in SKIP
              and torch.float32 in op.supported_backward_dtypes("cpu")
              and (not options.only or op.full_name in options.only.split(","))][k::n]
    cases, wrong = 0, 0
    for op in chosen:
        told = in_a_process(op, options.samples, options.seconds)
        cases += sum(what for kind, what in told if kind == "cases")
        for kind, text in told:
            if kind == "wrong":
                wrong += 1
                print(text, flush=True)
    print(f"{len(chosen)} operators, {cases} cases, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
