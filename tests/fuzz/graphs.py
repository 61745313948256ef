"""Random straight-line tensor programs, against eager: views, in-place operators, library calls, gradients.

    python tests/fuzz/graphs.py --seed 1 --programs 2000 [--device cuda] [--jobs 2] [--shrink] [--out folder] [--seconds 150]

A program is the text of a function, the inputs it is called with (`inputs.py`), and how it is called: grad mode, sizes that
change between calls, what the caller does with the results (backward, gradients of a subset, hooks). Lines come from
`statements.py`, each run in eager as it is written, so that programs are valid. Then the program runs in eager and compiled,
several calls with other data each, and everything a user can see must be the same (`observe.py`).
"""

import copy
import dataclasses
import functools
import itertools
import linecache
import math
import os
import random
import re
import sys
import types
import warnings

import observe  # also makes the modules of tests/python known
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import fuzz_library
import magneto
from inputs import DTYPES, Input, World, span, strides_of
from runner import Fuzzer, Outcome, alone, operators, violated
from statements import TABLE, Draw, Line, Names, Skip, Var

try:
    import torchvision
except ImportError:
    torchvision = None

fuzz = fuzz_library
GLOBALS = {"torch": torch, "F": F, "fuzz": fuzz, "torchvision": torchvision}


@dataclasses.dataclass
class Program:
    inputs: list
    lines: list = dataclasses.field(default_factory=list)  # (block, text); block: "", "no_grad" or "enable_grad"
    outputs: list = dataclasses.field(default_factory=list)  # names
    container: str = "tuple"  # "one", "tuple", "list", "dict", "nested"
    storages: dict = dataclasses.field(default_factory=dict)
    numbers: list = dataclasses.field(default_factory=list)  # names of arguments that are Python numbers
    mode: str = "grad"
    dynamic: object = None
    backward: dict = None
    calls: list = dataclasses.field(default_factory=list)


def source(program):
    text = [f"def f({', '.join([item.name for item in program.inputs] + program.numbers)}):"]
    inside = ""
    for block, line in program.lines:
        if block != inside and block:
            text.append(f"    with torch.{block}():")
        inside = block
        text.append(("        " if block else "    ") + line)
    o = program.outputs
    if program.container == "one" and len(o) == 1:
        value = o[0]
    elif program.container == "list":
        value = f"[{', '.join(o)}]"
    elif program.container == "dict":
        value = "{" + ", ".join(f"{f'k{n}'!r}: {name}" for n, name in enumerate(o)) + "}"
    elif program.container == "nested" and o:
        value = f"({o[0]}, [{', '.join(o[1:2])}], {{'k': ({''.join(name + ', ' for name in o[2:])})}})"
    else:
        value = f"({''.join(name + ', ' for name in o)})"
    return "\n".join(text + [f"    return {value}"]) + "\n"


_numbers = itertools.count()


def function_of(program):
    text, name = source(program), f"<program {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = dict(GLOBALS)
    exec(compile(text, name, "exec"), scope)
    return scope["f"]


# ---- making a program -----------------------------------------------------------------------------------------------

class Undefined(Exception):
    """An operator whose answer torch does not define."""


def elements(t):
    """The places of a tensor's elements in its storage, in bytes."""
    size = t.element_size()
    places = torch.zeros(1, dtype=torch.int64)
    for n, s in zip(t.shape, t.stride()):
        places = (places[:, None] + torch.arange(n) * (s * size)).reshape(-1)
    return (places + t.storage_offset() * size).tolist(), size


class Watch(TorchDispatchMode):
    """Refuses what has no defined answer: reading and writing memory that overlaps partly, writing to one place twice,
    converting a number to an int that cannot hold it."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        schema = function._schema
        if schema.is_mutable:
            flat = [(a, args[k] if k < len(args) else kwargs.get(a.name)) for k, a in enumerate(schema.arguments)]
            written = [v for a, v in flat if a.is_write for v in (v if isinstance(v, (list, tuple)) else [v]) if isinstance(v, torch.Tensor)]
            read = [v for a, v in flat if not a.is_write for v in (v if isinstance(v, (list, tuple)) else [v]) if isinstance(v, torch.Tensor)]
            for w in written:
                self.look(w, read + [other for other in written if other is not w])
        name = schema.name.split("::")[1]
        if observe.no_answer(function, args):
            raise Undefined
        if name in ("_to_copy", "copy_") and (source := args[1 if name == "copy_" else 0]).dtype.is_floating_point:
            made = args[0].dtype if name == "copy_" else kwargs.get("dtype") or source.dtype
            if not (made.is_floating_point or made.is_complex or made is torch.bool) and source.numel():
                low, high, info = *source.double().aminmax(), torch.iinfo(made)
                if not (low > info.min - 1 and high < info.max + 1):
                    raise Undefined
        return function(*args, **kwargs)

    @staticmethod
    def look(w, others):
        if not w.numel() or w.is_meta:
            return
        key = w.untyped_storage()._cdata
        near = [o for o in others if o.untyped_storage()._cdata == key and o.numel()]
        if not near and (w.is_contiguous() or w.is_non_overlapping_and_dense()):
            return
        places, size = elements(w)
        if len(set(places)) != len(places):
            raise Undefined
        for o in near:
            if (o.shape, o.stride(), o.storage_offset(), o.dtype) == (w.shape, w.stride(), w.storage_offset(), w.dtype):
                continue
            mine = {p + k for p in places for k in range(size)}
            theirs, wide = elements(o)
            if any(p + k in mine for p in theirs for k in range(wide)):
                raise Undefined


# One of these, and the whole graph may run operator by operator. Most programs do without them, so that kernels are tested.
RARE = re.compile(r"out=|index_fill_|index_copy_|masked_scatter_|reduce=|scatter_reduce_|view\(torch|_foreach|renorm_|_dynamo|item\(|nonzero"
                  r"|unique|masked_select|one_hot|cov\(|\.values|detach_|\[v\d+ > 0\]|where\(v\d+ > 0\)|fuzz\.(unknown|shifted)|addmm_|baddbmm_")


def summed(g):
    """All inputs, each as it is or as a view, added up."""
    looks = ["{}", "{}", "{}", "{}.view(-1).view({}.shape)", "{}.clone()", "{}.unsqueeze(0).squeeze(0)"]
    terms = [g.one_of(*looks).replace("{}", str(v)) for v in g.vars()]
    return g.one_of("torch.relu({})", "torch.tanh({})", "({}).sin()", "{}", "F.layer_norm({}, (1,))", "({}).sum()").format(g.one_of(" + ", " + ", " - ").join(terms))


class Maker:
    MOST = 400  # elements of a tensor

    def __init__(self, seed, number, device="cpu", avoid=None, offsets=True):
        self.rng, self.device = random.Random(f"graph {seed} {number}"), device
        self.avoid, self.offsets = avoid and re.compile(avoid), offsets
        self.common = self.rng.random() < 0.6
        self.first, self.most = None, 15  # a template; lines
        self.prefer = self.kind = None  # names of templates; of gradients

    def layout(self, sizes):
        rng, rank = self.rng, len(sizes)
        kind = rng.choices(["contiguous", "permuted", "sliced", "stepped", "expanded", "strided"], [50, 14, 12, 9, 7, 5])[0]
        if rank == 0 or kind == "contiguous":
            return ("contiguous",)
        if kind == "permuted":
            return ("permuted", tuple(rng.sample(range(rank), rank)))
        if kind == "sliced":
            return ("sliced", tuple(rng.choice([0, 1, 2]) for _ in sizes))
        if kind == "stepped":
            return ("stepped", tuple(rng.choice([1, 2, 2, 3]) for _ in sizes))
        if kind == "expanded":
            return ("expanded", tuple(sorted(rng.sample(range(rank), rng.randint(1, max(1, rank - 1))))))
        return ("strided", tuple(rng.choice([1, 1, 2, 3]) for _ in sizes))

    def sizes(self):
        rng = self.rng
        a, b, c = self.pool
        found = list(rng.choice([(a, b)] * 5 + [(b,)] * 3 + [(b, c)] * 3 + [(a, b, c)] * 3 + [(a, c, b), (c, b), (c,), (b, b), (2, a, b, b), (a, b, c, c), (2, a, b, c), (), (a, a, b), (b, a)]))
        for d in range(len(found)):
            if rng.random() < 0.05:
                found[d] = rng.choice([1, 1, 1, 0])
        return tuple(found)

    def inputs(self, program):
        rng = self.rng
        main = rng.choices(list(DTYPES), [5, 7, 60, 8, 6, 5, 3, 1, 1, 2, 1])[0]
        self.pool = rng.sample([2, 3, 4, 5, 6], 3)
        if rng.random() < 0.1:  # more than one vector, row or warp
            self.pool[rng.randrange(3)] = rng.choice([17, 33, 64, 130])
        letters = iter("ABCDEFGH")
        if program.mode == "grad" and rng.random() < 0.12:  # parameters of one shape: their gradients may be one tensor
            sizes, dtype = self.sizes(), main if main in ("f32", "f64", "bf16") else "f32"
            for k in range(rng.randint(2, 4)):
                letter = next(letters)
                program.storages[letter] = {}
                program.inputs.append(Input(f"x{k}", dtype, sizes, storage=letter, grad=rng.random() < 0.9))
            self.first, self.most = summed, 5
            return
        for k in range(rng.randint(1, 4)):
            name, sizes = f"x{k}", self.sizes()
            if program.inputs and rng.random() < 0.05:
                program.inputs.append(Input(name, same=rng.choice([i.name for i in program.inputs if i.same is None])))
                continue
            dtype = main if rng.random() < 0.75 else rng.choices(list(DTYPES), [5, 7, 40, 10, 5, 15, 5, 2, 2, 3, 10])[0]
            content = rng.choices(["normal", "ties", "special", "positive", "constants"], [67, 8, 4, 13, 8])[0]
            if dtype == "i64" and rng.random() < 0.6:
                content, sizes = min(self.pool), sizes[:1]
            shared = [i for i in program.inputs if i.same is None]
            if shared and rng.random() < 0.15:
                other = rng.choice(shared)
                dtype, content, letter = other.dtype, other.content, other.storage
                offset = other.offset + rng.choice([0, 0, 1, 2, 3, span(other.sizes, strides_of(other.sizes, other.layout))])
            else:
                letter = next(letters)
                offset = 0 if rng.random() < 0.5 or not self.offsets else rng.choice([1, 2, 3, 4, 5, 8])
                program.storages[letter] = {"tail": rng.choice([0, 0, 1, 5])}
                if program.mode == "grad" and rng.random() < 0.4:
                    program.storages[letter]["graph"] = True
            program.inputs.append(Input(name, dtype, sizes, self.layout(sizes), letter, offset, content,
                                        program.mode == "grad" and rng.random() < 0.5))
        if rng.random() < 0.15:
            program.numbers = rng.sample(["n0", "s0"], rng.randint(1, 2))

    def calls(self, program):
        rng = self.rng

        def call(**rest):
            return {"seed": rng.randrange(1 << 30), "numbers": {name: rng.choice([1, 2, 3]) if name == "n0" else rng.choice([0.5, 2.5, -1.5, 0.1, 0.3, -0.7])
                                                                for name in program.numbers}, **rest}

        program.calls = [call() for _ in range(3)]
        if len({tuple(sorted(c["numbers"].items())) for c in program.calls}) > 1 and rng.random() < 0.5:
            for c in program.calls:
                c["numbers"] = program.calls[0]["numbers"]
        what, others = rng.random(), None
        if what < 0.4:
            old = rng.choice(self.pool)
            other = {"sizes": {str(old): rng.choice([old + 1, old + 1, old + 2, old * 2, 1])}}
        elif what < 0.55 and self.offsets:  # parts of a data set: where an input begins is another place each time
            moved = rng.sample([i for i in program.inputs if i.same is None], 1)
            if rng.random() < 0.3:  # all that lies in that storage
                moved = [i for i in program.inputs if i.same is None and i.storage == moved[0].storage]
            steps = rng.choice([(1, 2, 3), (7, 14, 21), (16, 32, 0), (4, 24, 3), (1, 0, 5)])
            others = [{"offsets": {i.name: i.offset + step for i in moved}} for step in steps]
            if rng.random() < 0.3:
                old = rng.choice(self.pool)
                others[1]["sizes"] = others[2]["sizes"] = {str(old): old + 1}
        elif what < 0.65:
            item = rng.choice([i for i in program.inputs if i.same is None])
            other = {"layouts": {item.name: self.layout(item.sizes)}}
        elif what < 0.72:
            item = rng.choice([i for i in program.inputs if i.same is None])
            other = {"dtypes": {item.storage: rng.choice(list(DTYPES))}}
        else:
            return
        program.calls += [call(**one) for one in others or [other, other]]
        if rng.random() < 0.3:
            program.calls.append(call())

    def backward(self, program):
        rng = self.rng
        if program.mode != "grad" or rng.random() < 0.12:
            return
        names = [i.name for i in program.inputs if i.same is None]
        letters = [letter for letter, facts in program.storages.items() if facts.get("graph")]
        wanted = rng.sample(names + letters, rng.randint(1, len(names + letters)))
        kind = rng.choices(["backward", "grad", "each", "double"], [60, 20, 15, 3])[0]
        program.backward = {"kind": self.kind or kind, "wanted": wanted,
                            "weights": rng.choices(["plain", "ones", "strides"], [6, 3, 1])[0]}
        if rng.random() < 0.12 and program.backward["kind"] != "double":  # a graph that was kept may be used once more
            program.backward["rounds"] = 2
        if rng.random() < 0.12:
            program.backward["output hooks"] = True
        if rng.random() < 0.12:
            program.backward["input hooks"] = rng.sample(names, 1)
        if rng.random() < 0.1:
            program.backward["wanted inputs"] = rng.sample(names, 1)
        if rng.random() < 0.1:
            program.backward["ends"] = [rng.randrange(3)]
        if rng.random() < 0.08:
            program.backward["after"] = [rng.randrange(4), rng.choice(["y.mul_(2)", "y.zero_()", "y.detach().add_(1)", "y.t_()", "y.add_(1)"])]

    def make(self):
        rng = self.rng
        program = Program([], mode=rng.choices(["grad", "no_grad", "inference"], [60, 30, 10])[0])
        program.dynamic = rng.choices([None, True, False], [65, 25, 10])[0]
        self.inputs(program)
        self.calls(program)
        self.backward(program)
        g = Draw(rng, self.device, program.dynamic is True or any("sizes" in call for call in program.calls))
        world = World(program, program.calls[0], self.device)
        g.order = [item.name for item in program.inputs]
        g.env = dict(zip(g.order + program.numbers, world.args))
        g.numbers = program.numbers
        g.env.update(GLOBALS)
        families = {name: rng.uniform(0.3, 1.0) * weight for name, weight in (("view", 3.0), ("inplace", 3.0), ("compute", 2.0), ("library", 2.0))}
        totals = {name: sum(w for w, family, _ in TABLE if family == name) for name in families}
        weights = [w * families[family] / totals[family] * (10 if self.prefer and self.prefer.search(template.__name__) else 1)
                   for w, family, template in TABLE]
        wanted, block, left = rng.randint(min(3, self.most - 2), self.most), "", 0
        errors = rng.random() < 0.03
        torch.manual_seed(1)
        with observe.MODES[program.mode](), Watch():
            if self.first and (line := self.line(g, self.first, "", False)):
                program.lines.append(("", line))
            for _ in range(wanted * 5):
                if len(program.lines) >= wanted:
                    break
                if not left:
                    block, left = "", 0
                    if program.mode != "inference" and rng.random() < 0.03:
                        block, left = rng.choice(["no_grad", "no_grad", "enable_grad"]), rng.randint(1, 3)
                line = self.line(g, rng.choices(TABLE, weights)[0][2], block, errors and len(program.lines) + 1 >= wanted)
                if line is not None:
                    program.lines.append((block, line))
                    left = max(0, left - 1)
        names = [name for name in g.order if isinstance(g.env[name], torch.Tensor)]
        fresh = [name for name in names if not name.startswith("x")] or names
        # what nobody uses any more is dead unless it is returned
        sinks = [name for name in fresh if not any(re.search(rf"= .*\b{name}\b", line) for _, line in program.lines)]
        rng.shuffle(sinks)
        count = rng.choices([1, 2, 3, 4, 5, 6], [25, 25, 20, 15, 10, 5])[0]
        program.outputs = [fresh[-1]] + [name for name in sinks if name != fresh[-1]][:count - 1]
        while len(program.outputs) < count:
            program.outputs.append(rng.choice(fresh * 3 + names))
        rng.shuffle(program.outputs)
        program.container = rng.choices(["one" if count == 1 else "tuple", "tuple", "list", "dict", "nested"], [70, 10, 7, 7, 6])[0]
        return program if program.lines else None

    def line(self, g, template, block, keep_errors):
        rng = self.rng
        try:
            text = template(g)
        except Skip:
            return None
        except (ZeroDivisionError, IndexError, ValueError, RuntimeError, TypeError):
            return None  # a template's own look at a tensor failed
        names = []
        if isinstance(text, Line):
            full = str(text)
        else:
            count = text.count if isinstance(text, Names) else 1
            taken = len(g.order)
            names = [f"v{taken + k}" for k in range(count)]
            if count == 1 and rng.random() < 0.04:
                names = [rng.choice(g.order)]
            full = f"{', '.join(names)} = {text}"
        if len(full) > 300 or self.avoid and self.avoid.search(full) or self.common and RARE.search(full):
            return None
        saved = dict(g.env)
        try:
            context = getattr(torch, block)() if block else observe.contextlib.nullcontext()
            with context:
                exec(full, g.env)
        except Undefined:
            g.env = saved
            return None
        except Exception:
            g.env = saved
            return full if keep_errors and not names else None
        for name in names:
            made = g.env[name]
            known = isinstance(made, torch.Tensor) and made.layout is torch.strided and made.dtype is not torch.complex32
            if not known or made.numel() > self.MOST or made.dim() > 5:
                g.env = saved
                return None
            if made.numel() and (made.dtype.is_floating_point or made.is_complex()):
                most = made.detach().abs().nan_to_num(0, 0, 0).max().item()
                if (most > 1e4 or bool(made.detach().isnan().all())) and rng.random() < 0.9:
                    g.env = saved
                    return None
        for name in names:
            if name in g.order:
                g.order.remove(name)
            g.order.append(name)
        return full


# ---- checking -------------------------------------------------------------------------------------------------------

# Compared with --strict only: the order in which the hooks of several outputs run; how often a new tensor was written to;
# strides of gradients beyond .grad, which follow those of the gradients that come in, and which torch does not promise.
IGNORED = {"output version", "hook order", "grad strides", "hook strides"}


def check(program, device="cpu", backend="magneto", ignored=IGNORED):
    """Eager and compiled, call by call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        magneto.reset()
        plain, other = function_of(program), function_of(program)
        compiled = magneto.compile(other, dynamic=program.dynamic, backend=backend)
        earlier, outcome = [], Outcome()
        for number, call in enumerate(program.calls):
            if device == "cuda" and raises_on_cpu(program, call):  # on a GPU an index out of range ends the process
                continue
            want = observe.observe(program, call, plain, device)
            have = observe.observe(program, call, compiled, device)
            found = observe.differences(program, call, plain, device, want, have, ignored, exact=backend == "eager")
            only_numbers = all(kind in ("value", "mutation", "grad", "hook") for kind, _ in found)
            second_opinion = device == "cuda" and found and only_numbers and observe.same_values(observed_on_cpu(program, call), have)
            if found and (found[0][0] == "unsure" or second_opinion):
                outcome.kind = "unsure"
                continue
            if found:
                outcome = Outcome(kind=f"wrong {found[0][0]}", text="\n".join(f"call {number}: {text}" for _, text in found))
                break
            earlier.append((number, have))
        else:
            for number, have in earlier:  # what an earlier call returned is the caller's
                for path, t in have.tensors.items():
                    then = have.values.get(("value", path))
                    if "after" not in (program.backward or {}) and then is not None and not bool((observe.bits(observe.snapshot(t)) == observe.bits(then)).all()):
                        outcome = Outcome(kind="wrong later", text=f"call {number}: {path} changed after the call")
        if outcome.kind is None:
            outcome = violated()
    if device == "cuda":
        torch.cuda.synchronize()  # what fails there late is this program's
    if outcome.failed:
        outcome.facts = facts_of(program, device)
    return outcome


def function_on_cpu(program):
    scope = dict(GLOBALS)
    exec(source(program).replace('device="cuda"', 'device="cpu"'), scope)
    return scope["f"]


def raises_on_cpu(program, call):
    try:
        with observe.MODES[program.mode]():
            function_on_cpu(program)(*World(program, call, "cpu").args)
    except Exception:
        return True
    return False


def observed_on_cpu(program, call):
    """A second opinion: some kernels of torch's for a GPU are wrong (the gradient of avg_pool2d with padding, channels last)."""
    return observe.observe(program, call, function_on_cpu(program), "cpu")


def facts_of(program, device="cpu"):
    """What each name of the program is when eager's first call returns: (dtype, sizes, strides, offset, requires grad)."""
    function, found = function_of(program), {}

    def profile(frame, event, _):
        if event == "return" and frame.f_code is function.__code__:
            for name, t in frame.f_locals.items():
                if isinstance(t, torch.Tensor) and observe.unusable(t) is None:
                    found[name] = (str(t.dtype), tuple(t.shape), tuple(t.stride()), t.storage_offset(), t.requires_grad)

    world = World(program, program.calls[0], device)
    sys.setprofile(profile)
    try:
        with observe.MODES[program.mode]():
            function(*world.args)
    except Exception:
        pass
    finally:
        sys.setprofile(None)
    return found


# ---- shrinking ------------------------------------------------------------------------------------------------------

def changed(program, **rest):
    made = dataclasses.replace(copy.deepcopy(program), **rest)
    letters = {item.storage for item in made.inputs if item.same is None}
    made.storages = {letter: {k: v for k, v in facts.items() if v} for letter, facts in made.storages.items() if letter in letters}
    for call in made.calls:
        call["numbers"] = {name: value for name, value in call.get("numbers", {}).items() if name in made.numbers}
    return made


def used(program, name):
    pattern = re.compile(rf"\b{name}\b")
    return any(pattern.search(line) for _, line in program.lines) or name in program.outputs


def renamed(program, old, new):
    pattern = re.compile(rf"\b{old}\b")
    return changed(program, lines=[(block, pattern.sub(new, line)) for block, line in program.lines],
                   outputs=[new if name == old else name for name in program.outputs])


def names_defined(line):
    match = re.match(r"^((?:\w+)(?:, \w+)*) = (.*)$", line)
    return (match[1].split(", "), match[2]) if match else ([], line)


def without_line(program, k):
    """The program without a line; what it defined becomes one of its operands, or an input of its own."""
    block, line = program.lines[k]
    rest = changed(program, lines=program.lines[:k] + program.lines[k + 1:])
    names, text = names_defined(line)
    later = [name for name in names if any(re.search(rf"\b{name}\b", other) for _, other in program.lines[k + 1:]) or name in program.outputs]
    redefined = [name for name in names if name in [i.name for i in program.inputs] or any(name in names_defined(other)[0] for _, other in program.lines[:k])]
    if not later or redefined:
        yield rest
        return
    operands = list(dict.fromkeys(re.findall(r"\b[xv]\d+\b", text)))
    for operand in operands:
        made = rest
        for name in later:
            made = renamed(made, name, operand)
        yield made
    if len(later) == 1 and operands:  # a copy instead of what was computed
        yield changed(program, lines=program.lines[:k] + [(block, f"{later[0]} = {operands[0]} * 2")] + program.lines[k + 1:])
    pruned = changed(rest, outputs=[name for name in rest.outputs if name not in later])
    if pruned.outputs and len(pruned.outputs) < len(rest.outputs):
        yield pruned


def as_input(program, k, facts):
    """The program with an input in place of what a line defines."""
    names, _ = names_defined(program.lines[k][1])
    if len(names) != 1 or not facts or names[0] not in facts or names[0] in [i.name for i in program.inputs]:
        return
    dtype, sizes, strides, offset, grad = facts[names[0]]
    letter = next((c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in program.storages), None)
    short = {str(d): s for s, d in DTYPES.items()}.get(dtype)
    if letter is None or short is None:
        return
    name = f"x{max([int(i.name[1:]) for i in program.inputs] + [-1]) + 1}"
    for layout, at in ((("contiguous",), 0), (("strided", tuple(strides)), offset)):
        made = renamed(changed(program, lines=program.lines[:k] + program.lines[k + 1:]), names[0], name)
        made.inputs.append(Input(name, short, tuple(sizes), layout, letter, at, "normal", False))
        made.storages[letter] = {"graph": True} if grad else {}
        yield made


def smaller(program, facts=None):
    """Simpler programs, the most promising first."""
    n = len(program.lines)
    # fewer calls
    if len(program.calls) > 2:
        yield changed(program, calls=program.calls[:2])
        yield changed(program, calls=program.calls[:1] + program.calls[-1:])
        for k in range(len(program.calls)):
            yield changed(program, calls=program.calls[:k] + program.calls[k + 1:])
    elif len(program.calls) == 2:
        for k in range(2):
            yield changed(program, calls=[program.calls[k]])
    # lines, from the back: halves, then one by one
    used_outputs = set(program.outputs)
    for size in (n // 2, n // 4):
        for start in range(n - size, -1, -max(size, 1)) if size > 1 else ():
            kept = program.lines[:start] + program.lines[start + size:]
            defined = {i.name for i in program.inputs} | {name for _, line in kept for name in names_defined(line)[0]}
            outputs = [name for name in program.outputs if name in defined]
            if not outputs:
                candidates = [name for _, line in kept for name in names_defined(line)[0]] or [i.name for i in program.inputs]
                outputs = candidates[-1:]
            yield changed(program, lines=kept, outputs=outputs)
    for k in reversed(range(n)):
        yield from without_line(program, k)
    # outputs
    if len(program.outputs) > 1:
        for name in dict.fromkeys(program.outputs):
            yield changed(program, outputs=[name])
        for k in range(len(program.outputs)):
            yield changed(program, outputs=program.outputs[:k] + program.outputs[k + 1:])
    if program.outputs:
        yield changed(program, outputs=[], container="tuple")
    if program.container != "one":
        yield changed(program, container="one" if len(program.outputs) == 1 else "tuple")
    for k in reversed(range(n)):
        yield from as_input(program, k, facts)
    # how it is called
    if program.backward:
        yield changed(program, backward=None)
        for key in ("rounds", "output hooks", "input hooks", "wanted inputs", "ends", "after"):
            if key in program.backward:
                yield changed(program, backward={k: v for k, v in program.backward.items() if k != key})
        if program.backward["kind"] != "backward":
            yield changed(program, backward={**program.backward, "kind": "backward"})
        if program.backward["weights"] != "plain":
            yield changed(program, backward={**program.backward, "weights": "plain"})
    if program.mode == "inference":
        yield changed(program, mode="no_grad")
    if program.mode == "grad" and program.backward is None:
        yield changed(program, mode="no_grad", storages={k: {a: b for a, b in f.items() if a != "graph"} for k, f in program.storages.items()})
    if program.dynamic is not None:
        yield changed(program, dynamic=None)
        if program.dynamic:
            yield changed(program, dynamic=False)
    if any(block for block, _ in program.lines):
        yield changed(program, lines=[("", line) for _, line in program.lines])
        for k, (block, line) in enumerate(program.lines):
            if block:
                yield changed(program, lines=program.lines[:k] + [("", line)] + program.lines[k + 1:])
    for key in ("layouts", "dtypes", "sizes", "offsets"):
        if any(key in call for call in program.calls):
            yield changed(program, calls=[{k: v for k, v in call.items() if k != key} for call in program.calls])
    if program.numbers:
        for name in program.numbers:
            rest = [other for other in program.numbers if other != name]
            if used(program, name):
                value = program.calls[0]["numbers"][name]
                yield changed(program, numbers=rest, lines=[(b, re.sub(rf"\b{name}\b", str(value), line)) for b, line in program.lines])
            else:
                yield changed(program, numbers=rest)
        if any(call["numbers"] != program.calls[0]["numbers"] for call in program.calls):
            yield changed(program, calls=[{**call, "numbers": program.calls[0]["numbers"]} for call in program.calls])
    # inputs
    for k, item in enumerate(program.inputs):
        others = program.inputs[:k] + program.inputs[k + 1:]
        if not used(program, item.name) and not any(other.same == item.name for other in others) and others:
            yield changed(program, inputs=others)
        if item.same is not None:
            yield changed(renamed(program, item.name, item.same), inputs=others)
            continue

        def with_item(**rest):
            return changed(program, inputs=program.inputs[:k] + [dataclasses.replace(item, **rest)] + program.inputs[k + 1:])

        for other in others:
            if other.same is None and other.sizes == item.sizes and other.dtype == item.dtype:
                yield changed(renamed(program, item.name, other.name), inputs=others)
                break
        alone = all(other.storage != item.storage for other in others)
        if item.layout != ("contiguous",):
            yield with_item(layout=("contiguous",))
        if item.offset:
            yield with_item(offset=0)
            if item.offset != 1:
                yield with_item(offset=1)
        if not alone:
            letter = next(c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in program.storages)
            made = with_item(storage=letter)
            made.storages[letter] = {k: v for k, v in program.storages.get(item.storage, {}).items()}
            yield made
        if item.grad:
            yield with_item(grad=False)
        if item.content not in ("normal",) and not isinstance(item.content, int):
            yield with_item(content="normal")
        if alone and item.dtype != "f32" and item.dtype not in ("bool",):
            yield with_item(dtype="f32", content="normal")
            if item.dtype not in ("f64", "i64"):
                yield with_item(dtype="i64")
        for d, size in enumerate(item.sizes):
            if size > 2:
                yield with_item(sizes=item.sizes[:d] + (2,) + item.sizes[d + 1:])
        if len(item.layout) == 2 and item.layout[0] in ("sliced", "stepped"):
            plain = 0 if item.layout[0] == "sliced" else 1
            for d, amount in enumerate(item.layout[1]):
                if amount != plain:
                    yield with_item(layout=(item.layout[0], item.layout[1][:d] + (plain,) + item.layout[1][d + 1:]))
    for letter, facts in program.storages.items():
        for key in facts:
            if facts[key]:
                made = changed(program)
                del made.storages[letter][key]
                yield made
    sizes = sorted({size for item in program.inputs for size in item.sizes if size > 2})
    for size in sizes:  # one size everywhere, in the text as well
        made = changed(program, inputs=[dataclasses.replace(i, sizes=tuple(2 if s == size else s for s in i.sizes)) for i in program.inputs])
        yield made
        yield changed(made, lines=[(b, re.sub(rf"\b{size}\b", "2", line)) for b, line in made.lines])
    # simpler texts
    for k, (block, line) in enumerate(program.lines):
        for simpler in simpler_lines(line):
            yield changed(program, lines=program.lines[:k] + [(block, simpler)] + program.lines[k + 1:])


def simpler_lines(line):
    """The same line with a simpler expression in place of a part."""
    names, text = names_defined(line)
    operands = list(dict.fromkeys(re.findall(r"\b[xv]\d+\b", text)))
    if names and len(names) == 1 and operands:
        for plain in (f"{operands[0]} * 2", f"{operands[0]}.clone()"):
            if text not in (f"{operands[0]} * 2", f"{operands[0]}.clone()"):
                yield f"{names[0]} = {plain}"
    match = re.match(r"^(.*)\.(\w+_)\((.*)\)$", line)
    if match and not names and match[2] not in ("mul_", "zero_"):
        yield f"{match[1]}.mul_(2)"
    match = re.match(r"^(\S+) ([-+*/]=) (.*)$", line)
    if match and match[3] != "2":
        yield f"{match[1]} *= 2"
    match = re.match(r"^(\S+\[.*\]) = (.*)$", line)
    if match and match[2] != "2":
        yield f"{match[1]} = 2"


# ---- the script of a program ----------------------------------------------------------------------------------------

def program_text(program):
    defaults = Program([])
    parts = [f"    inputs=[{(',' + chr(10) + '            ').join(input_text(item) for item in program.inputs)}],"]
    for field in dataclasses.fields(Program):
        if field.name in ("inputs", "lines", "outputs", "container"):
            continue
        value = getattr(program, field.name)
        if field.name == "calls":
            parts.append("    calls=[" + ",\n           ".join(repr({k: v for k, v in call.items() if v != {}}) for call in value) + "],")
        elif value != (defaults.storages if field.name == "storages" else getattr(defaults, field.name)):
            if field.name == "storages":
                value = {letter: facts for letter, facts in value.items() if any(facts.values())}
            if value != {}:
                parts.append(f"    {field.name}={value!r},")
    return "\n".join(parts)


def input_text(item):
    if item.same is not None:
        return f"Input({item.name!r}, same={item.same!r})"
    text = f"Input({item.name!r}, {item.dtype!r}, {item.sizes!r}"
    for field in dataclasses.fields(Input)[3:]:
        if getattr(item, field.name) != field.default or field.name == "storage":
            text += f", {field.name}={getattr(item, field.name)!r}"
    return text + ")"


def script(program, outcome):
    words = "".join(f"# {line}\n" for line in f"{outcome.kind}: {outcome.text}".strip().splitlines()[:8])
    if outcome.stage:
        words += f"# stage: {outcome.stage}\n"
    return f"""{words}import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


{source(program)}

run_script(
    f,
{program_text(program)}
)
"""


def run_script(f, inputs, **rest):
    """What the scripts of failures call: eager against compiled, each call; says what differs."""
    program = Program(inputs, **rest)
    torch.set_num_threads(1)
    backend = os.environ.get("MAGNETO_TEST_BACKEND", "magneto")
    global function_of
    make, function_of = function_of, lambda program: types.FunctionType(f.__code__, f.__globals__)
    outcome = check(program, "cuda" if "--cuda" in sys.argv else "cpu", backend)
    function_of = make
    print(outcome.kind or "right", outcome.text, sep="\n")
    sys.exit(int(outcome.failed))


class Graphs(Fuzzer):
    name = "graph"
    smaller = staticmethod(smaller)
    source = staticmethod(lambda program: source(program) + program_text(program))
    script = staticmethod(script)

    def arguments(self, parser):
        parser.add_argument("--backend", default="magneto", choices=["magneto", "eager"], help="eager: answers must be equal to the last bit")
        parser.add_argument("--strict", action="store_true", help="compare what hardly anybody looks at, too")
        parser.add_argument("--avoid", metavar="REGEX", help="no line that matches: what is known to fail would hide the rest")
        parser.add_argument("--prefer", metavar="REGEX", help="ten times as many lines of templates whose names match (statements.py)")
        parser.add_argument("--gradients", choices=["backward", "grad", "each", "double"], help="how gradients are asked for, always")
        parser.add_argument("--no-offsets", action="store_true", help="every input's storage begins with it")

    def operators(self, program):
        return operators(source(program))

    def setup(self):
        torch.set_num_threads(1)

    def generate(self, seed, number):
        maker = Maker(seed, number, self.options.device, self.options.avoid, not self.options.no_offsets)
        maker.prefer, maker.kind = self.options.prefer and re.compile(self.options.prefer), self.options.gradients
        return maker.make()

    def plainly(self, program):
        for call in program.calls:
            if self.options.device == "cuda":
                raises_on_cpu(program, call)  # which `check` does, too
            observe.observe(program, call, function_of(program), self.options.device)
        return Outcome()

    def check(self, program):
        return check(program, self.options.device, self.options.backend, set() if self.options.strict else IGNORED)

    def stage(self, outcome, folder):
        """Where the fault is, as far as switches tell: what fails in the same way without kernels, without fusing."""
        def fails(program=outcome.program, backend=self.options.backend, **environment):
            def task(program):
                os.environ.update(environment)
                return check(program, self.options.device, backend)
            return alone(task, program, self.limit, folder).failed

        found = []
        if fails(backend="eager"):
            return "backend='eager' fails, too: capture, replay or recording"
        if fails(MAGNETO_SKIP_PASSES="sink,inline,split,fuse"):
            found.append("fails without sink, inline, split and fuse: functionalise, lower, codegen or launch")
        else:
            one = [name for name in ("sink", "inline", "split", "fuse") if not fails(MAGNETO_SKIP_PASSES=name)]
            found.append(f"right without {' or '.join(one) or 'sink, inline, split and fuse'}: schedule")
        if outcome.program.mode == "grad":
            forward = fails(program=changed(outcome.program, mode="no_grad", backward=None))
            found.append("forward alone fails" if forward else "only with gradients")
        return "; ".join(found)


if __name__ == "__main__":
    sys.exit(Graphs().main())
