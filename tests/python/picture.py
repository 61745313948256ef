"""A picture: what a user can see of a set of Python objects, as lines of text.

Objects are walked in a fixed order. Each object with an identity is numbered when first met; met again it is drawn
as "same as <path>", so identity and aliasing are part of the text. So are shared storages:

    argument[0]: Tensor float32 [2] strides [1] offset 0 leaf, storage A, = [1.0, 2.0] #9a3c
    result[0]: same as argument[0]
    result[1]: Tensor float32 [1] strides [1] offset 1, storage A, = [2.0] #77d0
"""

import collections
import collections.abc
import enum
import functools
import random
import re
import traceback
import types
import weakref
import zlib

import numpy
import torch

SCALARS = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range, slice,
           torch.dtype, torch.device, torch.layout, torch.memory_format, re.Pattern)


def is_plain(value):
    """Values without an identity worth comparing: they are drawn by their text alone."""
    return type(value) in SCALARS or isinstance(value, (type, enum.Enum, types.BuiltinFunctionType))


def scrub(text):
    """Addresses differ between any two runs."""
    return re.sub(r"0x[0-9a-f]{6,}", "0x...", re.sub(r"<program \d+>", "<program>", text))


def user_frames(error):
    """The program's own frames of a traceback: neither ours, nor torch's, nor the harness's."""
    for frame in traceback.extract_tb(error.__traceback__):
        name = frame.filename.rsplit("/", 1)[-1]
        if frame.filename.startswith("<program") or name.startswith("test_"):
            yield f"{scrub(name)}:{frame.lineno} in {frame.name}"


class Picture:
    """`rough`: without the elements of tensors, which `values` has."""

    def __init__(self, rough=False):
        self.rough = rough
        self.lines = []
        self.values = []  # (path, tensor), for comparisons that allow rounding
        self.seen = {}
        self.storages = {}
        self.leaves = []
        self.outputs = []
        self.keep = []  # numbered objects stay alive, or a new one could take the address of an old one
        self.rough_lines = {}
        self.raised = None

    def text(self, rough=False):
        return [self.rough_lines.get(n, line) for n, line in enumerate(self.lines)] if rough else self.lines

    def let_go(self):
        """Of what was drawn: a picture that is kept must not keep objects alive whose end can be seen."""
        self.seen, self.leaves, self.outputs, self.keep, self.raised = {}, [], [], [], None

    def add(self, path, text):
        self.lines.append(f"{path}: {text}")

    def draw(self, path, value, drain=False, is_result=False):
        if is_plain(value):
            text = f"class {value.__qualname__}" if isinstance(value, type) else scrub(repr(value))
            return self.add(path, f"{type(value).__name__} {text}")
        numbered = not isinstance(value, (tuple, frozenset, weakref.ref, types.MethodType))
        if numbered:
            if id(value) in self.seen:
                return self.add(path, f"same as {self.seen[id(value)]}")
            self.seen[id(value)] = path
            self.keep.append(value)
        if isinstance(value, torch.Tensor):
            return self.draw_tensor(path, value, is_result)
        self.draw_object(path, value, functools.partial(self.draw, drain=drain, is_result=is_result), drain)

    def draw_tensor(self, path, t, is_result):
        try:
            t.is_leaf
        except RuntimeError as error:  # a view whose base was written to where it must not be
            return self.add(path, f"{type(t).__name__} that cannot be used: {scrub(str(error))}")
        storage = "none"
        if t.layout is torch.strided and t._is_zerotensor():  # zeros without memory: as good as zeros
            t = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).zero_()
        if t.layout is torch.strided:
            key = t.untyped_storage().data_ptr() or t.untyped_storage()._cdata
            storage = self.storages.setdefault(key, f"S{len(self.storages)}")
            place = f"strides {list(t.stride())} offset {t.storage_offset()}"
        else:
            place = str(t.layout)
        marks = "".join(f", {word}" for word, holds in (
            ("leaf", t.is_leaf), ("requires grad", t.requires_grad), ("inference", t.is_inference()),
            ("conj", t.is_conj()), ("neg", t.is_neg()), (f"on {t.device}", t.device.type != "cpu")) if holds)
        dtype = str(t.dtype).removeprefix("torch.")
        head = f"{type(t).__name__} {dtype} {list(t.shape)} {place}{marks}, storage {storage}"
        data = t.detach()
        if t.layout is not torch.strided:
            data = data.to_dense()
        data = data.cpu().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1)
        self.values.append((path, data))
        if self.rough:
            self.add(path, head)
        else:
            crc = zlib.crc32(data.view(torch.uint8).numpy().tobytes()) if data.numel() else 0
            self.rough_lines[len(self.lines)] = f"{path}: {head}"
            self.add(path, f"{head}, = {data[:8].tolist()}{' ...' if data.numel() > 8 else ''} #{crc:08x}")
        if t.is_leaf and t.requires_grad and not is_result:
            self.leaves.append((path, t))
        # An argument that is no leaf any more was written to: its gradient is a result, too.
        if t.requires_grad and t.dtype.is_floating_point and (is_result or path.startswith("argument") and not t.is_leaf):
            self.outputs.append(t)
        if t.is_leaf and t.grad is not None:
            self.draw(f"{path}.grad", t.grad)
        if getattr(t, "__dict__", None):
            self.draw(f"{path}.__dict__", t.__dict__)

    def draw_object(self, path, value, draw, drain):
        kind = type(value).__qualname__
        if isinstance(value, types.FunctionType):
            self.add(path, f"function {value.__qualname__}")
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
                draw(f"{path}.<{name}>", cell.cell_contents if holds_something(cell) else "an empty cell")
            for part in ("__defaults__", "__kwdefaults__", "__dict__"):
                if getattr(value, part):
                    draw(f"{path}.{part}", getattr(value, part))
            return
        if isinstance(value, types.MethodType):
            self.add(path, "bound method")
            draw(f"{path}.__func__", value.__func__)
            return draw(f"{path}.__self__", value.__self__)
        if isinstance(value, functools.partial):
            self.add(path, kind)
            draw(f"{path}.func", value.func)
            draw(f"{path}.args", value.args)
            return draw(f"{path}.keywords", value.keywords)
        if isinstance(value, types.ModuleType):
            self.add(path, f"module {value.__name__}")
            if path != "state":
                return  # somebody else's; a program's own globals are its state
            for name, item in value.__dict__.items():
                if not name.startswith("__") and not isinstance(item, types.ModuleType):
                    draw(f"{path}.{name}", item)
            return
        if isinstance(value, BaseException):
            return self.draw_exception(path, value, draw)
        if isinstance(value, weakref.ref):
            return self.add(path, f"weakref, {'dead' if value() is None else 'alive'}")
        if isinstance(value, numpy.ndarray):
            owner = self.storages.get(value.__array_interface__["data"][0], "its own")
            bits = zlib.crc32(value.tobytes())
            return self.add(path, f"ndarray {value.dtype} {value.shape} {value.strides} memory {owner} "
                                  f"= {value.reshape(-1)[:8].tolist()} #{bits:08x}")
        if isinstance(value, (list, tuple, collections.deque)):
            self.add(path, f"{kind} of {len(value)}" + (f" maxlen {value.maxlen}" if hasattr(value, "maxlen") else ""))
            for index, item in enumerate(value):
                draw(f"{path}[{index}]", item)
        elif isinstance(value, dict):
            self.add(path, f"{kind} with keys {scrub(repr([k for k in value if is_plain(k)]))}")
            for index, (key, item) in enumerate(value.items()):
                if not is_plain(key):
                    draw(f"{path}.key{index}", key)
                draw(f"{path}[{key!r}]" if is_plain(key) else f"{path}[{index}]", item)
        elif isinstance(value, (set, frozenset)):
            self.add(path, f"{kind} of {len(value)}")
            for index, item in enumerate(sorted(value, key=lambda item: scrub(repr(item)))):
                draw(f"{path}{{{index}}}", item)
        elif isinstance(value, collections.abc.Iterator):
            self.add(path, f"iterator {kind}")
            if drain:
                draw(f"{path}.rest", [item for item, _ in zip(value, range(50))])
            return
        elif isinstance(value, (type({}.keys()), type({}.values()), type({}.items()))):
            return draw(f"{path}.{kind}", list(value))
        else:
            self.add(path, f"instance of {kind}")
        for name, item in getattr(value, "__dict__", {}).items():
            draw(f"{path}.{name}", item)
        for base in type(value).__mro__:
            slots = base.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    draw(f"{path}.{name}", getattr(value, name))

    def draw_exception(self, path, error, draw):
        self.add(path, f"{type(error).__module__}.{type(error).__qualname__}: {scrub(str(error))}")
        for frame in user_frames(error):
            self.add(path, f"  at {frame}")
        draw(f"{path}.args", [a if is_plain(a) else type(a).__name__ for a in error.args])
        for name in getattr(error, "__notes__", ()):
            self.add(path, f"note {name}")
        if error.__suppress_context__:
            self.add(path, "context suppressed")
        for link in ("__cause__", "__context__"):
            if getattr(error, link) is not None:
                draw(f"{path}.{link}", getattr(error, link))

    def draw_process_state(self):
        """The generators' states and the modes, as the call left them."""
        kind, numbers, *place = numpy.random.get_state()
        draws = (torch.get_rng_state().numpy().tobytes(), repr(hash(random.getstate())).encode(),
                 numbers.tobytes() + repr((kind, place)).encode())
        for name, bits in zip(("torch", "random", "numpy"), draws):
            self.add(f"rng of {name}", f"#{zlib.crc32(bits):08x}")
        self.add("modes", f"grad {torch.is_grad_enabled()}, inference {torch.is_inference_mode_enabled()}, "
                          f"autocast {torch.is_autocast_enabled('cpu')}, default {torch.get_default_dtype()}, "
                          f"deterministic {torch.are_deterministic_algorithms_enabled()}")

    def draw_gradients(self):
        """Runs backward from everything the program returned, and draws every leaf's gradient."""
        if not self.outputs:
            return
        weights = [torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype, device=t.device).reshape(t.shape) for t in self.outputs]
        try:
            torch.autograd.backward(self.outputs, weights)
        except RuntimeError as error:
            first = re.sub(r"(modified by an inplace operation): .*", r"\1", scrub(str(error)).splitlines()[0])  # which tensor an operator saved, torch decides
            self.add("backward", f"raised {type(error).__name__}: {first}")
            for _, t in self.leaves:  # what came through before depends on the engine's order
                t.grad = None
        for path, t in self.leaves:
            if t.grad is None:
                self.add(f"{path}.grad after backward", "None")
            else:
                self.draw_tensor(f"{path}.grad after backward", t.grad, False)


def holds_something(cell):
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True
