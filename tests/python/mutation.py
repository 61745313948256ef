"""The mutation fuzz: change one thing in a model's world, call, and compare with eager. Nothing may go unnoticed.

Two copies of a model live side by side; one is compiled. A *change* is applied to both (or once, where the place is
shared: a module's globals, a class, a function), both are called with the same inputs and seed, and must answer
alike, errors included. Then the change is undone and the compiled copy must answer as before. The compiled copy has
always seen the unchanged world first, so a missing guard shows as a stale answer.

The arguments of the call belong to the world. Those of the models are changed one among five changes; small generated
programs (`argument_programs.py`) take what the models do not, and unpack it and hand it on in many ways.

    python tests/python/mutation.py --full            at least 10,000 changes over eight models, and all programs
    python tests/python/mutation.py --changes 50      as many for each model; --seed, --model to choose
    python tests/python/mutation.py --programs 900    as many programs, and no models; --first to begin at one
"""

import argparse
import collections
import copy
import dataclasses
import inspect
import itertools
import os
import pathlib
import random
import re
import sys
import time
import types
import warnings

HERE = pathlib.Path(__file__).parent
if os.environ.get("MAGNETO_STUB") == "1":
    sys.path.insert(0, str(HERE / "stub"))
sys.path.insert(0, str(HERE))

import torch
from torch import nn

import arguments
import magneto
from argument_programs import USES, Program
from rounding import close
from variants import copied
from zoo import MAIN, build, flatten

FULL = 10_000
PROGRAM_CHANGES = 8  # of the arguments of one program
ENTRIES = 5  # changes between two resets: the cache holds eight entries, and beyond them all is eager


def others(value):
    """Makers of other values in place of one: what a user might store there instead."""
    if isinstance(value, bool):
        return [lambda: not value, lambda: None]
    if isinstance(value, int):
        # Never zero: torch divides by some of these in C++ (num_heads), and then eager's process dies.
        return [lambda: value + 1, lambda: value - 1 if value > 1 else value + 2, lambda: float(value)]
    if isinstance(value, float):
        return [lambda: value * 1.5 + 0.1, lambda: -value, lambda: None]
    if isinstance(value, str):
        return [lambda: value + "x", lambda: ""]
    if value is None:
        return [lambda: True, lambda: 1]
    if isinstance(value, tuple) and value and all(isinstance(item, int) for item in value):
        return [lambda: tuple(item + 1 for item in value), lambda: tuple(float(item) for item in value)]
    if isinstance(value, nn.Parameter):
        return [lambda: nn.Parameter(value.detach() * 2), lambda: nn.Parameter(value.detach().double()), lambda: None]
    if isinstance(value, torch.Tensor):
        return [lambda: value * 2 if value.dtype.is_floating_point else value + 0, lambda: value.clone()[..., None]]
    if isinstance(value, nn.Module):
        small = isinstance(value, (nn.Identity, nn.Dropout))
        return [lambda: nn.Tanh() if small else nn.Identity(), lambda: copy.deepcopy(value)]
    if isinstance(value, types.FunctionType):
        return [lambda: lambda *args, **kwargs: None]
    if isinstance(value, dict) and not value:
        return [lambda: {"zz": lambda *args, **kwargs: None}]
    return []


def other(value, index):
    """One of them; a value that an earlier changed run replaced by something of no known kind stays."""
    makers = others(value)
    return makers[index % len(makers)]() if makers else value


class Change:
    """One change at one place. `apply(worlds)` makes it and returns what undoes it."""

    def __init__(self, where, apply):
        self.where, self.apply = where, apply


def stored(where, holders, key, index):
    """Another value under a key, in each of the dicts (or lists) given: one per world, or one that is shared."""

    def apply():
        if any(key not in holder for holder in holders):  # an earlier changed run took it away for good
            return lambda: None
        old = [holder[key] for holder in holders]
        for holder, value in zip(holders, old):
            holder[key] = other(value, index)
        return lambda: [holder.__setitem__(key, value) for holder, value in zip(holders, old)]

    return Change(f"{where}[{key!r}] := other {index}", apply)


def reordered(where, holders):
    def apply():
        old = [dict(holder) for holder in holders]
        for holder in holders:
            first = next(iter(holder), None)
            if first is not None:
                holder[first] = holder.pop(first)

        def undo():
            for holder, items in zip(holders, old):
                holder.clear()
                holder.update(items)

        return undo

    return Change(f"{where} reordered", apply)


def edited(where, lists):
    def apply():
        old = [list(items) for items in lists]
        for items in lists:
            items.extend(items[-1:])
        return lambda: [items.__setitem__(slice(None), was) for items, was in zip(lists, old)]

    return Change(f"{where} appended to", apply)


def of_modules(models):
    """Attributes, parameters, buffers, submodules, hook tables, and the contents of lists, of every submodule."""
    for (name, module), *rest in zip(*(model.named_modules() for model in models)):
        same = [module, *(m for _, m in rest)]
        tables = {"__dict__": [m.__dict__ for m in same]}
        for table in ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks"):
            tables[table] = [getattr(m, table) for m in same]
        for table, holders in tables.items():
            for key in list(holders[0]):
                value = holders[0][key]
                for index in range(len(others(value))):
                    yield stored(f"{name}.{table}", holders, key, index)
                if isinstance(value, list) and value:
                    yield edited(f"{name}.{key}", [holder[key] for holder in holders])
                if table == "__dict__" and type(value) is dict and len(value) > 1:
                    yield reordered(f"{name}.{key}", [holder[key] for holder in holders])
        yield hooked(name, same, "register_forward_hook", lambda module, args, out: None)
        if not any(module.children()):
            yield hooked(name, same, "register_forward_hook", doubled)
            yield hooked(name, same, "register_forward_pre_hook", lambda module, args: None)


def doubled(module, args, out):
    return out * 2 if isinstance(out, torch.Tensor) and out.is_floating_point() else None


def hooked(name, modules, register, hook):
    def apply():
        handles = [getattr(module, register)(hook) for module in modules]
        return lambda: [handle.remove() for handle in handles]

    return Change(f"{name}.{register}({hook.__name__})", apply)


def of_parameters(models):
    """What a parameter has besides its place: values, requires_grad, dtype and layout of its data, a gradient."""

    def change(name, parameters, what, do, undo):
        def apply():
            old = [do(p) for p in parameters]
            return lambda: [undo(p, was) for p, was in zip(parameters, old)]

        return Change(f"{name} {what}", apply)

    def put_data(p, value):
        old, p.data = p.data, value
        return old

    def back(p, old):
        p.data = old

    for (name, parameter), *rest in zip(*(model.named_parameters() for model in models)):
        same = [parameter, *(p for _, p in rest)]
        yield change(name, same, "values", lambda p: p.data.mul_(2), lambda p, _: p.data.div_(2))
        yield change(name, same, "requires_grad", lambda p: p.requires_grad_(False), lambda p, _: p.requires_grad_(True))
        yield change(name, same, "dtype", lambda p: put_data(p, p.data.double()), back)
        yield change(name, same, "grad", lambda p: setattr(p, "grad", torch.zeros_like(p)),
                     lambda p, _: setattr(p, "grad", None))
        if parameter.dim() > 1:
            yield change(name, same, "strides", lambda p: put_data(p, p.data.mT.contiguous().mT), back)


def of_config(models):
    configs = [getattr(model, "config", None) for model in models]
    if configs[0] is not None:
        for key, value in list(configs[0].__dict__.items()):
            for index in range(len(others(value))):
                yield stored("config", [config.__dict__ for config in configs], key, index)
            if isinstance(value, list) and value:
                yield edited(f"config.{key}", [getattr(config, key) for config in configs])
            if type(value) is dict:
                for inner in value:
                    for index in range(len(others(value[inner]))):
                        yield stored(f"config.{key}", [getattr(config, key) for config in configs], inner, index)


def of_globals(models):
    """Globals of the modules that define the model's classes, and of torch's own that every forward goes through."""
    modules = {sys.modules[type(m).__module__] for m in models[0].modules()} | {nn.functional, nn.modules.module}
    for module in sorted(modules, key=lambda module: module.__name__):
        for key, value in list(module.__dict__.items()):
            for index in range(len(others(value))):
                if not key.startswith("__"):
                    yield stored(module.__name__, [module.__dict__], key, index)


def functions_of(models):
    for cls in sorted({type(m) for m in models[0].modules()}, key=lambda cls: cls.__module__ + cls.__qualname__):
        for name, value in list(cls.__dict__.items()):
            if isinstance(value, types.FunctionType):
                yield f"{cls.__qualname__}.{name}", value
    for name in ("dropout", "layer_norm", "softmax", "batch_norm", "relu", "adaptive_avg_pool2d"):
        yield f"functional.{name}", getattr(nn.functional, name)


def of_classes(models):
    """Class attributes and methods, of the model's own classes and of torch's layers, but not of nn.Module itself."""
    for cls in sorted({type(m) for m in models[0].modules()}, key=lambda cls: cls.__module__ + cls.__qualname__):
        for name, value in list(cls.__dict__.items()):
            if name.startswith("__") or name.startswith("_abc"):
                continue
            for index in range(len(others(value))):
                def apply(cls=cls, name=name, value=value, index=index):
                    setattr(cls, name, other(value, index))
                    return lambda: setattr(cls, name, value)

                yield Change(f"class {cls.__qualname__}.{name} := other {index}", apply)


def of_functions(models):
    """Defaults, keyword defaults and closure cells."""
    for name, function in functions_of(models):
        for position, value in enumerate(function.__defaults__ or ()):
            for index in range(len(others(value))):
                def apply(function=function, position=position, value=value, index=index):
                    old = function.__defaults__
                    function.__defaults__ = (*old[:position], other(value, index), *old[position + 1:])
                    return lambda: setattr(function, "__defaults__", old)

                yield Change(f"{name}.__defaults__[{position}] := other {index}", apply)
        for key, value in (function.__kwdefaults__ or {}).items():
            for index in range(len(others(value))):
                yield stored(f"{name}.__kwdefaults__", [function.__kwdefaults__], key, index)
        for free, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if free == "__class__":
                continue
            for index in range(len(others(cell.cell_contents))):
                def apply(cell=cell, index=index):
                    old = cell.cell_contents
                    cell.cell_contents = other(old, index)
                    return lambda: setattr(cell, "cell_contents", old)

                yield Change(f"{name}.<{free}> := other {index}", apply)


KINDS = (of_modules, of_parameters, of_config, of_globals, of_classes, of_functions)


# What a forward takes besides the inputs of the zoo: none of these is passed unless a change does so.
OPTIONAL = {
    "attention_mask": [lambda: torch.ones(2, 16, dtype=torch.long), lambda: torch.ones(2, 16, dtype=torch.bool),
                       lambda: torch.ones(2, 16).tril(), lambda: torch.zeros(2, 1, 16, 16)],
    "position_ids": [lambda: torch.arange(16)[None], lambda: torch.arange(16).flip(0).expand(2, 16)],
    "token_type_ids": [lambda: torch.ones(2, 16, dtype=torch.long), lambda: torch.zeros(2, 16, dtype=torch.long)],
    "labels": [lambda: torch.ones(2, 16, dtype=torch.long)],
    "logits_to_keep": [lambda: 1, lambda: 3, lambda: slice(2, 5), lambda: torch.tensor([0, 2])],
    "inputs_embeds": [lambda: torch.linspace(-1, 1, 2 * 16 * 32).view(2, 16, 32)],
}


def of_arguments(model, tree):
    """The arguments of the call: what is passed becomes something else, and what is not passed is."""
    # An embedding of ids on meta reads memory that nobody has written, in eager too.
    yield from (change for change in arguments.changes([tree]) if not change.where.endswith("on meta"))
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if parameter.default is not inspect.Parameter.empty and name not in tree[1] and tree[1]:
            for maker in OPTIONAL.get(name, [lambda: True, lambda: False, lambda: 1]):
                yield arguments.Edit(f"kwargs given {name}={brief_value(maker())}", [tree], (1,),
                                     lambda kwargs, name=name, maker=maker: kwargs.update({name: maker()}))


def brief_value(value):
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


def answer(callee, tree, parts=flatten):
    """What a call gives, in a form that can be compared: bits and strides of all tensors, or the error's text."""
    torch.manual_seed(1)
    args, kwargs = tree
    try:
        result = callee(*args, **kwargs)
    except Exception as error:
        return plain_text(f"{type(error).__name__}: {error}")
    return [type(result).__name__] + [(t, t.stride()) if isinstance(t, torch.Tensor) else t for t in parts(result)]


def plain_text(text):
    """Without addresses and C++ stacks, which no two runs share."""
    return re.sub(r"0x[0-9a-f]+", "0x", text.split("\nException raised from")[0])


def parts_of(value):
    """All a program's answer consists of: tensors, and everything else as text."""
    if isinstance(value, torch.Tensor):
        return [value] if value.layout is torch.strided else [value.layout, value.to_dense()]
    inner = value if isinstance(value, (list, tuple)) else value.items() if isinstance(value, dict) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = vars(value).items()
    if inner is None:
        return [plain_text(f"{type(value).__name__} {value!r}")]
    return [f"{type(value).__name__} of {len(inner)}"] + [part for item in inner for part in parts_of(item)]


def same_tensor(want, have):
    if want.dtype != have.dtype or want.requires_grad != have.requires_grad or want.device != have.device:
        return False
    return want.shape == have.shape if want.is_meta else close(want, have)


def equal(want, have):
    if isinstance(want, str) or isinstance(have, str):
        return want == have
    return len(want) == len(have) and all(
        a[1] == b[1] and same_tensor(a[0], b[0]) if isinstance(a, tuple) and isinstance(b, tuple) else type(a) is type(b) and a == b
        for a, b in zip(want, have))


def fuzz(name, count, seed, progress=lambda text: None):
    """Makes up to `count` changes of one model. Returns the counts and the list of what went unnoticed."""
    model, make = build(name)
    models = [model, copy.deepcopy(model)]
    args, kwargs = make(3)
    tree = [list(args), dict(kwargs)]
    lists = [change for kind in KINDS for change in kind(models)], list(of_arguments(model, tree))
    for changes in lists:
        random.Random(seed).shuffle(changes)
    others, own = map(iter, lists)
    changes = []
    while len(changes) < sum(map(len, lists)):
        changes += [*itertools.islice(others, 4), *itertools.islice(own, 1)]
    with torch.no_grad():
        return compare(name, models[0], magneto.compile(models[1]), [tree, tree], changes, count, progress)


def fuzz_program(program, count, seed, progress=lambda text: None):
    """Up to `count` changes of the arguments of one generated program. Every other program gets new objects at each
    call, as a caller makes them; the rest get the same ones with other contents."""
    functions, trees, same = zip(*(program.world() for _ in range(2)))
    rng = random.Random(f"{program.name} {seed}")
    # Few changes of the tensor that every program has.
    own = lambda change: tuple(change.path) == (0, 0) and rng.random() < 0.8
    changes = [change for change in arguments.changes(trees) if not own(change)]
    if not program.shares:  # what the function also reaches otherwise comes in as an argument
        changes += [arguments.Change(f"argument {place} := same{place}", trees, program.leaf(place),
                                     lambda tree, place=place: same[tree is trees[1]][place]) for place in same[0]] * 3
    rng.shuffle(changes)
    fresh = rng.random() < 0.5

    def call(callee, tree):
        tree = copied(tree) if fresh else tree
        # What a program does to its arguments is part of its answer.
        return answer(lambda *args, **kwargs: [callee(*args, **kwargs), *tree], tree, parts_of)

    compiled = magneto.compile(functions[1], dynamic=rng.choice((None, None, True, False)))
    return compare(program.name, functions[0], compiled, trees, changes, count, progress, call)


def compare(name, eager, compiled, trees, changes, count, progress, answer=answer):
    counts, unsound = collections.Counter(), []

    def call(what, change):
        want = answer(eager, trees[0])
        have = answer(compiled, trees[1])
        if not equal(want, have):
            unsound.append(f"{name}: {change.where}, {what}: eager {difference(want, have)}, compiled {difference(have, want)}")
        return want

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = answer(eager, trees[0])
        magneto.reset()
        answer(compiled, trees[1])
        for change in changes:
            undo = change.apply()
            if undo is None:
                continue
            try:
                want = call("changed", change)
            finally:
                undo()
            after = call("undone", change)
            counts["changes"] += 1
            counts["of arguments"] += isinstance(change, arguments.Change)
            counts["eager raises"] += isinstance(want, str)
            counts["eager differs"] += not isinstance(want, str) and not equal(reference, want)
            reference = after
            if counts["changes"] % 50 == 0:
                progress(f"{name}: {counts['changes']} of {min(count, len(changes))}, unnoticed {len(unsound)}")
            if counts["changes"] == count:
                break
            if counts["changes"] % ENTRIES == 0:
                magneto.reset()
                call("anew", change)
    counts["possible"] = len(changes)
    magneto.reset()
    return counts, unsound


def difference(value, other):
    """The first part of an answer that another one has not."""
    if isinstance(value, str):
        return value[:160]
    if isinstance(other, str) or len(value) != len(other):
        return f"{len(value) - 1} parts"
    for a, b in zip(value, other):
        if not equal([a], [b]):
            if not isinstance(a, tuple):
                return str(a)[:160]
            tensor, strides = a
            return f"{brief_value(tensor)} strides {strides} {'meta' if tensor.is_meta else tensor.flatten()[:4].tolist()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help=f"at least {FULL} changes")
    parser.add_argument("--changes", type=int, default=50, help="changes for each model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", choices=list(MAIN), action="append")
    parser.add_argument("--programs", type=int, help="generated programs instead of models")
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [] if options.programs else options.model or list(MAIN)
    programs = options.programs or (len(USES) if options.full and not options.model else 0)
    total, wrong, start = collections.Counter(), [], time.time()

    def add(name, counts, unsound):
        total.update(counts)
        wrong.extend(unsound)
        if name:
            print(f"{name:20s} {dict(counts)} unnoticed {len(unsound)}", flush=True)

    progress = lambda text: print(text, end="\r", file=sys.stderr)
    for number in range(options.first, options.first + programs):
        program = Program(number, options.seed)
        counts, unsound = fuzz_program(program, PROGRAM_CHANGES, options.seed)
        add(None, counts, unsound)
        if unsound and options.programs:
            print(program.name, program.source, "\n".join(unsound), "", sep="\n", flush=True)
        if number % 10 == 9:
            progress(f"{program.name}: {total['changes']} changes, unnoticed {len(wrong)}")
    if programs:
        print(f"{programs} programs: {dict(total)} unnoticed {len(wrong)}", flush=True)
    of_models = 0
    for index, name in enumerate(names):
        if options.full:  # what the models before this one could not give, the others must
            options.changes = max(1, -(-(FULL - of_models) // (len(names) - index)))
        counts, unsound = fuzz(name, options.changes, options.seed, progress)
        add(name, counts, unsound)
        of_models += counts["changes"]
    print(f"{'all':20s} {dict(total)} unnoticed {len(wrong)}, {time.time() - start:.0f} s")
    for line in wrong[:60]:
        print("   ", line)
    enough = not options.full or of_models >= FULL
    if not enough:
        print(f"only {of_models} of {FULL} changes of models were made")
    return 0 if enough and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
