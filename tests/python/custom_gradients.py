"""Programs with custom autograd.Functions, made by chance: eager and compiled, what they give, change, raise and warn.

    python tests/python/custom_gradients.py --seed 1 --programs 1000
"""

import argparse
import collections
import random

import torch

import magneto

UNARY = ["{0}.sin()", "{0} * 2", "{0}.exp()", "torch.relu({0})", "{0} + 1", "{0}.sigmoid()", "-{0}", "{0} * {0}"]
BINARY = ["{0} * {1}", "{0} + {1}", "{0} - {1}", "torch.where({0} > 0, {1}, {0})", "torch.maximum({0}, {1})"]
VIEWS = ["{0}.view_as({0})", "{0}.t()", "{0}[:]", "{0}.view(-1).view({0}.shape)", "{0}.detach()"]


class Maker:
    """One class, and a program that uses it."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.lines = []
        self.gives_none = False

    def pick(self, *items):
        return self.rng.choice(items)

    def chance(self, share):
        return self.rng.random() < share

    def value(self, names):
        if self.chance(0.6):
            return self.pick(*UNARY).format(self.pick(*names))
        return self.pick(*BINARY).format(self.pick(*names), self.pick(*names))

    def function(self, name, known):
        """`known`: functions that a forward or a backward may use."""
        rng = self.rng
        inputs = ["x", "w"][:rng.randint(1, 2)]
        setup = self.chance(0.25)
        outputs = rng.randint(1, 3) if self.chance(0.4) else 1
        body, names = [], list(inputs)
        for k in range(rng.randint(0, 3)):
            made = f"t{k}"
            body.append(f"{made} = {self.value(names)}")
            names.append(made)
            if self.chance(0.1):
                body.append(f"{made} = {made}.{self.pick('add_(1)', 'mul_(2)', 'relu_()')}")
        if known and self.chance(0.2):
            body.append(f"n = {self.pick(*known)}.apply(*[{self.pick(*names)}] * 2)")
            body.append("n = n[0] if isinstance(n, tuple) else n")
            names.append("n")
        results = []
        for k in range(outputs):
            text = self.value(names)
            if self.chance(0.12):
                text = self.pick(*VIEWS).format(self.pick(*names))
            elif self.chance(0.05):
                text = self.pick(*names)
            body.append(f"r{k} = {text}")
            results.append(f"r{k}")
        flags = []
        if outputs > 1 and self.chance(0.3):
            flags.append(f"ctx.mark_non_differentiable({results[-1]})")
        if self.chance(0.08):
            flags.append("ctx.set_materialize_grads(False)")
        if self.chance(0.05):
            body.insert(0, f"{inputs[0]}.mul_(2)")
            flags.append(f"ctx.mark_dirty({inputs[0]})")
            body[-1] = f"r{outputs - 1} = {inputs[0]}"
        pool = (inputs + results) if setup else names + results
        saved = [n for n in pool if self.chance(0.5)]
        held = [n for n in pool if self.chance(0.2)]
        if saved:
            flags.append(f"ctx.save_for_backward({', '.join(saved)})")
        flags += [f"ctx.h_{n} = {n}" for n in held]
        flags.append("ctx.scale = scale")
        out = results[0] if outputs == 1 else f"({', '.join(results)},)"
        lines = [f"class {name}(torch.autograd.Function):", "    @staticmethod"]
        arguments = ", ".join(inputs + ["scale=2.0"])
        if setup:
            lines += [f"    def forward({arguments}):", *("        " + line for line in body), f"        return {out}",
                      "    @staticmethod", "    def setup_context(ctx, inputs, output):",
                      f"        {', '.join(inputs + ['scale'])}, = inputs",
                      f"        {', '.join(results)}, = output" if outputs > 1 else "        r0 = output",
                      *("        " + line for line in flags)]
        else:
            lines += [f"    def forward(ctx, {arguments}):", *("        " + line for line in body),
                      *("        " + line for line in flags), f"        return {out}"]
        gradients = [f"g{k}" for k in range(outputs)]
        back, known_there = [], list(gradients)
        if saved:
            back.append(f"{', '.join('s' + str(k) for k in range(len(saved)))}, = ctx.saved_tensors")
            known_there += [f"s{k}" for k in range(len(saved))]
        known_there += [f"ctx.h_{n}" for n in held]
        for k in range(rng.randint(0, 3)):
            back.append(f"b{k} = {self.value(known_there)}")
            known_there.append(f"b{k}")
        if self.chance(0.1):
            back.append(f"b = {self.pick(*known_there)}.clone()")
            back.append("b[0] = 0")
            known_there.append("b")
        if known and self.chance(0.1):
            back.append(f"n = {self.pick(*known)}.apply(*[{self.pick(*known_there)}] * 2)")
            back.append("n = n[0] if isinstance(n, tuple) else n")
            known_there.append("n")
        if self.chance(0.1):
            back += ["with torch.no_grad():", f"    c = {self.value(known_there)}"]
            known_there.append("c")
        if self.chance(0.08):
            back.append(self.pick("seen.append(1)", "ctx.again = 3", "print('backward')", f"{gradients[0]}.mul_(2)",
                                  f"{gradients[0]}.sum().item()", "torch.rand(2)", "assert not torch.is_grad_enabled() or True"))
        made = []
        linear = [name for name in known_there if name.startswith(("s", "ctx."))] if self.chance(0.6) else []
        for name_of_input in inputs:
            text = f"({self.value(linear or known_there)}) * {self.pick(*gradients)} * ctx.scale"
            if linear and self.chance(0.3):
                text = f"{text} + {self.pick(*gradients)}"
            if self.chance(0.2):
                text = self.pick(*gradients)
            if self.chance(0.2):
                text = f"{text} if ctx.needs_input_grad[{inputs.index(name_of_input)}] else None"
            if self.chance(0.05):
                text = "None"
                self.gives_none = True
            made.append(text)
        once = self.chance(0.15)
        lines += ["    @staticmethod", *(["    @once_differentiable"] if once else []),
                  f"    def backward(ctx, {', '.join(gradients)}):", *("        " + line for line in back),
                  f"        return {', '.join(made)}, None"]
        self.lines += lines
        return outputs

    def program(self):
        functions = []
        for k in range(self.rng.randint(1, 2)):
            self.function(f"F{k}", [name for name, _ in functions])
            functions.append((f"F{k}", None))
        body, names = [], ["x", "w"]
        for k in range(self.rng.randint(1, 4)):
            if k == 0 or self.chance(0.4):
                name = self.pick(*functions)[0]
                one, other = self.pick(*names), self.pick(*names)
                scale = self.pick("", ", 3.0", ", scale", ", scale * 2")
                body.append(f"v{k} = call({name}, {one}, {other}{scale})")
            else:
                body.append(f"v{k} = {self.value(names)}")
            names.append(f"v{k}")
            if self.chance(0.1):
                body.append(f"v{k} = v{k}.{self.pick('mul_(2)', 'add_(1)')}" if self.chance(0.5) else f"v{k} = v{k}.t()")
        outputs = self.rng.sample(names[2:], self.rng.randint(1, len(names) - 2))
        self.lines += ["def f(x, w, scale):", *("    " + line for line in body), f"    return {', '.join(outputs)},"]
        return "\n".join(self.lines)


def call(function, x, w, *scale):
    """As many tensors as its forward takes; its first result."""
    taken = function.forward.__code__.co_varnames[:function.forward.__code__.co_argcount]
    out = function.apply(*((x, w) if "w" in taken else (x,)), *scale)
    return out[0] if isinstance(out, tuple) else out


def observed(f, seen, plan, seed, nudge=0.0):
    """What a call and its backward show, as a list."""
    generator = torch.Generator().manual_seed(seed)
    shape = (3, 3) if not plan["sizes"] or seed % 2 else (4, 4)
    x, w = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    x, w = x * (1 + nudge), w * (1 + nudge)
    x.requires_grad_(plan["x"])
    w.requires_grad_(plan["w"])
    given = [x * 1, w * 1] if plan["inner"] else [x, w]
    notes = []
    try:
        outputs = f(*given, plan["scale"] + (seed if plan["scales"] else 0))
        notes += [o.detach().clone() for o in outputs] + [o.requires_grad for o in outputs]
        notes += [o._version for o in outputs if not plan["dirty"]]  # eager counts once more what is marked dirty
        if plan["write"]:
            with torch.no_grad():
                (given[0] if plan["write"] == 1 else outputs[0]).add_(1)
        wanted = [t for t in (x, w) if t.requires_grad]
        ends = [o for o in outputs if o.requires_grad][:plan["ends"]]
        for _ in range(plan["times"]):
            loss = sum((o * o).sum() for o in ends)
            first = torch.autograd.grad(loss, wanted, create_graph=plan["double"], retain_graph=plan["times"] > 1 or None,
                                        allow_unused=True)
            # Eager makes zeros of a gradient that does not come where it comes to a custom function next, we leave it out.
            notes += [torch.zeros_like(t) if g is None and plan["none"] else g for g, t in zip(first, wanted)]
        if plan["double"]:
            notes += torch.autograd.grad(sum((g * g).sum() for g in first if g is not None and g.requires_grad), wanted,
                                         allow_unused=True)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        notes.append("written to" if "modified by an inplace operation" in text or "modified inplace" in text else text)
    return notes + [given[0].detach().clone(), len(seen)]


def different(a, b):
    if len(a) != len(b):
        return f"{a} and {b}"
    for k, (p, q) in enumerate(zip(a, b)):
        if isinstance(p, torch.Tensor) and isinstance(q, torch.Tensor):
            if p.shape != q.shape or not torch.allclose(p, q, 1e-9, 1e-11, equal_nan=True):
                return f"{k}: {p} and {q}"
        elif isinstance(p, torch.Tensor) or isinstance(q, torch.Tensor) or p != q:
            return f"{k}: {p} and {q}"
    return ""


def check(seed):
    """(the program, what differs)"""
    maker = Maker(seed)
    text = maker.program()
    rng = random.Random(~seed)
    plan = {"x": rng.random() < 0.9, "w": rng.random() < 0.5, "inner": rng.random() < 0.7, "scale": 1.5,
            "scales": rng.random() < 0.3, "sizes": rng.random() < 0.3, "write": rng.choice([0, 0, 0, 0, 1, 2]),
            "ends": rng.choice([9, 9, 1]), "times": rng.choice([1, 1, 1, 2]), "double": rng.random() < 0.3}
    plan["dirty"], plan["none"] = "mark_dirty" in text, maker.gives_none
    dynamic = rng.choice([None, None, True])
    if plan["dirty"] and plan["none"]:  # such zeros make eager look at what was written to, and refuse
        return text, ""
    worlds = []
    for _ in range(2):
        seen = []
        scope = {"torch": torch, "seen": seen, "call": call, "once_differentiable": torch.autograd.function.once_differentiable}
        exec(compile(text, f"<program {seed}>", "exec"), scope)
        worlds.append((scope["f"], seen))
    (eager, seen), (plain, seen_there) = worlds
    compiled = magneto.compile(plain, dynamic=dynamic)
    for k in range(4):
        want = observed(eager, seen, plan, k)
        found = different(want, observed(compiled, seen_there, plan, k))
        if found and different(want[:-1], observed(eager, seen, plan, k, 1e-15)[:-1]):  # sin of what is huge: eager's answer is noise
            return text, ""
        if found:
            return text + f"\n# {plan} dynamic={dynamic}", f"call {k}: {found}"
    return text, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=200)
    options = parser.parse_args()
    wrong = one = several = 0
    reasons = collections.Counter()
    for n in range(options.programs):
        magneto.reset()
        text, found = check(options.seed * 1_000_000 + n)
        breaks = len(magneto.report().breaks)
        one, several = one + (not breaks), several + bool(breaks)
        reasons.update(stop.reason for stop in magneto.report().breaks)
        if found:
            wrong += 1
            print(f"# seed {options.seed * 1_000_000 + n}: {found}\n{text}\n")
    for reason, count in reasons.most_common():
        print(f"{count:6} {reason}")
    print(f"{options.programs} programs, {wrong} wrong; {one} without a break, {several} with some")


if __name__ == "__main__":
    main()
