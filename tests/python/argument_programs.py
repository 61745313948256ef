"""Small generated programs that take all kinds of arguments and use them in all the ways a program does.

A program is put together from three tables: KINDS (a value and the expressions that use it), WRAPS (where in a container
the value comes in, and how the program takes it out) and WAYS (how it is handed on to the place of its use). Program
`number` takes the uses in turn, so that the first `len(USES)` programs have every use, and draws the rest by its seed:

    def f(x, *rest):
        out = []
        def use0(x, v):
            return x.to(v)
        v0 = rest[0]['v']
        out.append((lambda v: use0(x, v))(*[v0]))
        return out
"""

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import linecache
import math
import operator
import random
import re
import textwrap
import types
import typing

import numpy
import torch
import torch.nn.functional as F
from torch import nn


class Mode(enum.Enum):
    FIRST = "first"
    SECOND = "second"
    THIRD = "third"


class Level(enum.IntEnum):
    LOW = 0
    HIGH = 1


@dataclasses.dataclass
class Config:
    v: typing.Any = None
    n: typing.Any = 1


class Pair(typing.NamedTuple):
    v: typing.Any = None
    n: typing.Any = 1


class Plain:
    def __init__(self, v=None, n=1):
        self.v, self.n = v, n

    def scale(self):
        return 2


class Other(Plain):
    def scale(self):
        return 3


class Slots:
    __slots__ = ("v", "n")

    def __init__(self, v=None, n=1):
        self.v, self.n = v, n


class Doubler:
    def __call__(self, x):
        return x * 2


def twice(x):
    return x * 2


def thrice(x, by=3):
    return x * by


thrice.flag = 5


def adder(n):
    return lambda x: x + n


DOUBLER = Doubler()
RELU = nn.ReLU()

# Values that stand for one another: a change takes the next of the group.
WORDS = [
    ("relu", "tanh", "sigmoid"), ("sum", "mean", "amax"), ("mean", "sum", "none"), ("floor", "trunc"), ("ij,ij->i", "ij,ij->j"),
    ("ij", "xy"), ("none", "tanh"), ("shape", "dtype", "ndim"), ("reflect", "replicate", "circular"), ("v", "n"),
    ("float32", "float64", "int32"), ("cpu", "meta"),
]
GROUPS = [
    (torch.float32, torch.float64, torch.int32, torch.bfloat16, torch.bool, torch.complex64),
    (torch.device("cpu"), torch.device("meta"), "cpu", torch.device("cpu", 0)),
    (torch.contiguous_format, torch.channels_last, torch.preserve_format),
    (torch.strided, torch.sparse_coo),
    (twice, thrice, torch.relu, torch.tanh, DOUBLER, RELU, F.gelu, math.sqrt, operator.neg),
    (int, float, str, list, torch.Tensor, nn.Parameter, Plain, Other, Config, dict, tuple, bool),
    (re.compile("a+"), re.compile("b+")),
    (torch.finfo(torch.float32), torch.finfo(torch.float64)),
]

# kind: (makers of a value, uses). In a use, `x` is a tensor of 4 rows and 6 columns and `v` the value.
KINDS = {
    "int": ([lambda: 1, lambda: 2, lambda: 3], """
        x * v ; x + v / 2 ; x.sum(dim=v % 2) ; x[:, :v] ; x[v % 4] ; x[v] ; x.flatten()[v:] ; x.repeat(v, 1) ; torch.zeros(v, 3) + v
        sum([x + i for i in range(v)]) ; x * [5, 6, 7, 8][v % 4] ; x if v > 2 else -x ; f"{v:03d}" ; x.chunk(v)[0] ; torch.arange(v)
        F.pad(x, [v, 0]) ; F.pad(x, (0, v, 1, 0)) ; x.roll(v, 0) ; x * (v in (1, 2, 7)) ; str(v) ; x.new_full((2, v), v) ; divmod(v, 3)
        x ** v ; x.unsqueeze(v % 3) ; torch.full((v,), 1.5) ; torch.tensor(v) ; torch.tensor([v, 1]) ; x.tril(v) ; x.expand(v, 4, 6)
        isinstance(v, bool) ; v is True ; type(v).__name__ ; x.split(v, dim=1)[-1] ; torch.linspace(0, 1, v) ; x.reshape(v, -1)
        x.unflatten(1, (v, -1)) ; torch.eye(v) ; torch.randn(v) ; torch.where(x > v, x, v) ; x.clamp(min=v) ; x.masked_fill(x > 0, v)
        x.add(x, alpha=v) ; x.topk(v)[0] ; x.cumsum(v % 2) ; F.one_hot(torch.arange(3), v + 3) ; {1: x, 2: -x}.get(v, x * 3) ; hash(v)
        x.view(2, 2, 6).transpose(0, v) ; x.size(v) ; x.shape[v] * v ; x[..., v - 1:v + 1] ; x[v:, None] ; -v * x ; abs(v) * x
        round(v / 2) * x ; v // 2 * x ; (v & 1) * x ; (v << 1) + x ; int(v) * x ; float(v) * x ; bool(v) * x ; min(v, 2) * x
        torch.ones(2, v).shape ; x.softmax(v % 2) ; x.diagonal(v) ; x.narrow(1, v, 2) ; x.select(0, v) ; x.index_select(0, torch.tensor([v]))
        x.movedim(0, v) ; x.flip(v) ; x.std(v % 2)
        [x, -x, x * 2, x * 3][v] ; (x, -x)[v - 1] ; "abcd"[v] ; list(range(v)) ; [0] * v ; (v,) * 2 ; [*range(0, 10, v)] ; v == 2
        len({v, 2}) * x ; {2: x, v: -x}[2] ; sum(t for t in (v, 2)) * x ; max(t for t in (v, 2)) * x ; sum(iter([v, 2])) * x ; operator.mul(v, 2)
        sorted([1, 2, 3], key=lambda t: abs(t - v))[0] * x ; all(t for t in (v, 1)) ; tuple(map(abs, (t for t in (v,))))[0] * x ; pow(v, 2, 3)
        [i for i, _ in enumerate("ab", v)][0] * x ; sum(map(lambda t: t * v, (1, 2))) * x ; collections.Counter([v, 2]) ; x * operator.lt(v, 2)
        x.to(torch.int32) // v ; x % v ; 1 / v + x ; v - x ; v ** x.abs() ; x.to(torch.int32) << v ; -(-4 // v) * x ; math.sqrt(v) * x
        """),
    "float": ([lambda: 0.5, lambda: 2.0, lambda: 1.25], """
        x * v ; x + v ; x.clamp(-v, v) ; x if v > 0.6 else -x ; round(v, 1) ; f"{v:.2f}" ; v == 0 ; math.floor(v) * x ; torch.full((2,), v)
        F.leaky_relu(x, v) ; math.isnan(v) ; str(v) ; {0.5: 2}.get(v, 3) * x ; x.abs().pow(v) ; torch.tensor(v) ; v.is_integer()
        x.add(x, alpha=v) ; torch.lerp(x, -x, v) ; int(v) * x ; x.new_full((2,), v) ; torch.arange(0, 3, v) ; x / v ; v - x ; x ** v
        math.copysign(1, v) * x ; abs(v) ; max(v, 1.0) * x ; v or x ; x.fill_(v) ; torch.tensor([v, 1]) ; F.threshold(x, v, 0.0)
        F.dropout(x, v, False) ; x.masked_fill(x > 0, v) ; F.layer_norm(x, (6,), eps=v) ; v in (0.5, 1.0) ; hash(v) == hash(0.5) ; isinstance(v, float)
        len({v, 2.0}) * x ; {2.0: x, v: -x}[2.0] ; sum(t for t in (v, 2)) * x ; min(t for t in (v, 1.0)) * x ; sorted((v, 1.0), key=lambda t: -t)[0] * x
        F.interpolate(x[None], scale_factor=v) ; x.quantile(v) ; torch.where(x > 0, v, x) ; x > v ; x.to(torch.int32) * v ; type(v) is int
        """),
    "complex": ([lambda: 1 + 2j], "x * v ; v.real * x ; abs(v) ; v.imag + x ; torch.tensor(v) ; v == 1 ; str(v)"),
    "bool": ([lambda: True, lambda: False], """
        x.sum(0, keepdim=v) ; x if v else -x ; x * v ; torch.tensor(v) ; not v ; F.dropout(x, 0.5, v) ; x.sort(descending=v)[0]
        v is True ; torch.zeros(2, requires_grad=v) ; x.var(0, unbiased=v) ; int(v) ; (x, -x)[v] ; v and x ; v or x ; [x][:v]
        x.std(0, correction=v) ; F.interpolate(x[None], 3, mode="linear", align_corners=v) ; x.to(torch.float64, copy=v) ; f"{v}"
        x.cumsum(0) if not v else x ; x[v] ; torch.full((2,), v) ; x.masked_fill(x > 0, v) ; v == 1 ; x + v ; isinstance(v, int)
        def use(x, v):
            with torch.set_grad_enabled(v):
                return (x * torch.ones(1, requires_grad=True), torch.is_grad_enabled())
        def use(x, v):
            while v:
                v, x = False, x + 1
            return x
        """),
    "word": ([lambda: "relu", lambda: "tanh"], """
        getattr(torch, v)(x) ; getattr(x, v)() ; {"relu": torch.relu, "tanh": torch.tanh}[v](x) ; f"{v}!" ; v.upper() ; len(v) * x
        x if v == "relu" else -x ; x * (v in ("relu", "sigmoid")) ; v.startswith("r") ; v + "x" ; "-".join([v, "a"]) ; sorted(v)
        {"relu": 2}.get(v, 3) * x ; "%s" % v ; "{}".format(v) ; v[0] ; v * 2 ; v < "s" ; "e" in v ; repr(v) ; v.split("e") ; hash(v) == 0
        hasattr(x, v) ; vars(F).get(v, torch.neg)(x) ; {**{v: x}} ; dict(a=1, **{v: x}) ; v.encode() ; [c for c in v] ; v is None
        operator.attrgetter(v)(torch)(x) ; operator.methodcaller(v)(x) ; re.match("r", v) is None ; isinstance(v, str) ; ord(v[0]) * x
        def use(x, v):
            match v:
                case "relu":
                    return x.relu()
                case "tanh" | "sigmoid":
                    return x.tanh()
                case _:
                    return x
        """),
    "reduction": ([lambda: "mean"], "F.mse_loss(x, x * 2, reduction=v) ; F.l1_loss(x, -x, reduction=v) ; getattr(x, v)(0)"),
    "rounding": ([lambda: "floor"], "torch.div(x, 0.3, rounding_mode=v)"),
    "equation": ([lambda: "ij,ij->i"], "torch.einsum(v, x, x)"),
    "indexing": ([lambda: "ij"], "torch.meshgrid(x[0], x[1], indexing=v)"),
    "approximation": ([lambda: "none"], "F.gelu(x, approximate=v) ; F.gelu(x, **{'approximate': v})"),
    "padding": ([lambda: "reflect"], "F.pad(x[None], (1, 2), mode=v) ; F.pad(x[None], [1, 1], v)"),
    "attribute": ([lambda: "shape", lambda: "ndim"], "getattr(x, v) ; str(getattr(x, v, 3)) ; operator.attrgetter(v)(x)"),
    "dtype name": ([lambda: "float64"], "x.to(getattr(torch, v)) ; torch.zeros(2, dtype=vars(torch)[v])"),
    "device name": ([lambda: "cpu"], "x.to(v) ; torch.zeros(2, device=v) ; torch.device(v).type ; torch.empty(2, device=v).fill_(1)"),
    "bytes": ([lambda: b"abc"], "len(v) * x ; v == b'abc' ; v.decode() ; v[0] * x ; list(v)"),
    "dtype": ([lambda: torch.float32, lambda: torch.float64], """
        x.to(v) ; torch.zeros(3, dtype=v) ; x.sum(dtype=v) ; x.type(v) ; torch.tensor([1.5], dtype=v) ; torch.arange(4, dtype=v)
        v.is_floating_point ; v == torch.float32 ; v is torch.float64 ; str(v) ; {torch.float32: 2, torch.float64: 3}.get(v, 5) * x
        torch.finfo(v).max if v.is_floating_point else 0 ; x.new_zeros(3, dtype=v) ; torch.softmax(x, -1, dtype=v) ; torch.zeros_like(x, dtype=v)
        x.view(v) ; torch.promote_types(v, torch.int32) ; v.itemsize * x ; x.to(dtype=v, copy=True) ; x.to(x.device, v) ; v in (torch.float32,)
        torch.ones(2, 2, dtype=v) @ torch.ones(2, 2, dtype=v) ; x.dtype == v ; torch.eye(2, dtype=v) ; torch.full((2,), 1, dtype=v)
        torch.linspace(0, 1, 3, dtype=v) ; torch.empty(2, dtype=v).fill_(1) ; x.cumsum(0, dtype=v) ; x.mean(dtype=v) ; torch.zeros(2).to(v)
        torch.can_cast(torch.int32, v) ; F.softmax(x, 0, dtype=v) ; torch.as_tensor(2, dtype=v) ; v.is_complex ; hash(v) == 0 ; f"{v}"
        x.double().to(v) if v != torch.int32 else x ; nn.Linear(2, 2, dtype=v).weight.dtype ; torch.ones(3, dtype=v, device=x.device)
        def use(x, v):
            with torch.autocast("cpu", dtype=v):
                return x @ x.T
        """),
    "device": ([lambda: torch.device("cpu")], """
        x.to(v) ; torch.zeros(3, device=v) ; v.type ; str(v) ; v == x.device ; torch.device(v) ; v.index ; x.device == v ; x.to(device=v)
        torch.arange(3, device=v) ; torch.zeros_like(x, device=v) ; {"cpu": 2}.get(v.type, 3) * x ; x.new_zeros(3, device=v) ; f"{v}"
        torch.tensor([1.5], device=v) ; x.to(v, torch.float64) ; x.to(v, copy=True) ; v in (torch.device("cpu"),) ; repr(v) ; hash(v) == 0
        def use(x, v):
            with torch.device(v):
                return torch.zeros(2)
        """),
    "memory format": ([lambda: torch.channels_last, lambda: torch.contiguous_format], """
        x.view(2, 2, 2, 3).to(memory_format=v) ; x.view(2, 2, 2, 3).contiguous(memory_format=v) ; x.view(2, 2, 2, 3).clone(memory_format=v)
        torch.zeros_like(x.view(2, 2, 2, 3), memory_format=v) ; x.view(2, 2, 2, 3).is_contiguous(memory_format=v)
        v == torch.channels_last ; v is torch.channels_last ; str(v) ; torch.empty(2, 2, 2, 3, memory_format=v).fill_(1)
        """),
    "layout": ([lambda: torch.strided], "torch.zeros(2, layout=v) ; x.layout == v ; v is torch.strided ; str(v)"),
    "slice": ([lambda: slice(0, 2), lambda: slice(1, None, 2)], """
        x[v] ; x[:, v] ; x[..., v] ; [1, 2, 3, 4][v] ; v.start ; x[v, v] ; v.indices(4) ; v == slice(0, 2) ; "abcd"[v] ; range(4)[v]
        (x, -x, x * 2)[v] ; x[v, 0] ; x[None, v] ; v.stop ; str(v) ; x.shape[v] ; isinstance(v, slice) ; x[v] + x[v] ; list(range(5))[v]
        torch.cat([x[v], x[:, v].T[:, :1].expand(-1, 6)]) ; operator.getitem(x, v) ; x.__getitem__(v) ; slice(v.start, 3)
        def use(x, v):
            y = x.clone()
            y[v] = 0
            return y
        def use(x, v):
            y = x.clone()
            y[:, v] += 1
            return y
        """),
    "index": ([lambda: (slice(0, 2), 1), lambda: (Ellipsis, 0), lambda: (None, slice(None), [0, 2]), lambda: (1, 2)], """
        x[v] ; x[*v] ; len(v) ; x[v[0]] ; x[(v)] ; operator.getitem(x, v) ; x[v].shape
        def use(x, v):
            y = x.clone()
            y[v] = 1
            return y
        """),
    "ellipsis": ([lambda: Ellipsis], "x[v, 0] ; x[v] ; v is Ellipsis ; x[0, v] ; x[v, None] ; str(v)"),
    "none": ([lambda: None], """
        x[v] ; x.clamp(v, 1.0) ; x if v is None else x * 2 ; x.sum(dim=v) ; F.layer_norm(x, (6,), v, v) ; v or x ; str(v) ; x[:v] ; x[v:, 0]
        x[0, v] ; torch.zeros(2, dtype=v) ; torch.zeros(2, device=v) ; x.sum(dtype=v) ; v == 0 ; not v ; (x if v else -x) ; x.std(0, correction=v)
        F.interpolate(x[None], size=3, scale_factor=v) ; F.linear(x, x, v) ; x.quantile(0.5, dim=v) ; type(v) is int ; x[::v] ; {None: x}.get(v, -x)
        """),
    "shape": ([lambda: (2, 12), lambda: [2, 2, 6], lambda: torch.Size((3, 8)), lambda: (4, -1)], """
        x.view(*v) ; x.view(v) ; x.reshape(v) ; x.reshape(*v) ; torch.Size(v) ; x.view(v).size() ; len(v) * x ; sum(v) ; max(v) ; sorted(v)
        v == (2, 12) ; math.prod(v) * x ; list(zip(v, x.shape)) ; list(reversed(v)) ; tuple(v) ; [n + 1 for n in v] ; v[0] * x ; v[-1]
        x.new_zeros(2).expand(abs(v[0]), 2) ; torch.ones([abs(n) for n in v]) ; [i * n for i, n in enumerate(v)] ; x.reshape(-1, v[0])
        isinstance(v, torch.Size) ; isinstance(v, tuple) ; type(v).__name__ ; 2 in v ; x.reshape(v).sum(-1) ; v.index(v[0]) ; v.count(2)
        x.reshape((v[0],) + (-1,)) ; x.reshape([*v[:1], -1]) ; torch.zeros(*map(abs, v)) ; functools.reduce(operator.mul, v, 1) ; str(v)
        """),
    "positive shape": ([lambda: (2, 3), lambda: [4, 1], lambda: torch.Size((1, 6))], """
        torch.zeros(v) ; torch.zeros(*v) ; torch.ones(size=v) ; torch.randn(v) ; torch.full(v, 2) ; torch.empty(v).fill_(1) ; x.new_ones(v)
        torch.rand(*v) ; x[:1, :1].expand(v) ; x[:1, :1].expand(*v) ; torch.broadcast_to(x[0, 0], v) ; x[:1, :1].repeat(v) ; x.tile(v)
        torch.zeros((3, *v)) ; torch.zeros(v + v) ; torch.zeros(v[0]) ; torch.randint(0, 5, v) ; F.interpolate(x[None, None], size=v)
        x.unfold(0, *v) ; x.as_strided(v, v) ; torch.broadcast_shapes(v, (1, 1))
        """),
    "dims": ([lambda: (0, 1), lambda: [1, 0], lambda: (-1, 0)], """
        x.permute(*v) ; x.permute(v) ; x.sum(dim=v) ; x.sum(v, keepdim=True) ; x.transpose(*v) ; x.mean(v) ; x.amax(v) ; x.flip(v) ; x.flip(*v)
        x.swapaxes(*v) ; x.std(dim=v) ; torch.movedim(x, v, (0, 1)) ; x.roll((1, 1), v) ; x.unsqueeze(v[0]) ; torch.tensordot(x, x, (v, v))
        x.norm(dim=v) ; x.squeeze(v) ; x.softmax(v[0]) ; x.logsumexp(v) ; torch.permute(x, dims=v) ; x.rot90(1, v) ; F.normalize(x, dim=v[0])
        """),
    "pads": ([lambda: [1, 2], lambda: (0, 1, 2, 0)], """
        F.pad(x, v) ; F.pad(x, v, value=2.0) ; F.pad(x, [*v]) ; F.pad(x, tuple(v)) ; F.pad(x, [p + 1 for p in v]) ; len(v) // 2
        F.pad(x, sum([list(v), [1, 1]], [])[:4]) ; torch.constant_pad_nd(x, v)
        """),
    "tensors": ([lambda: [rows(1), rows(2)], lambda: (rows(1), rows(1)), lambda: [rows(3)]], """
        torch.cat(v) ; torch.stack([v[0], v[-1]]) ; sum(v) ; torch.cat([*v, x]) ; torch.cat((x, *v), dim=0) ; len(v) * x ; v[-1] * 2 ; v[0] is v[-1]
        [t.shape for t in v] ; [i * t for i, t in enumerate(v)] ; torch.vstack(v) ; torch.broadcast_tensors(*v) ; torch.block_diag(*v)
        [a + b for a, b in zip(v, v)] ; list(map(torch.relu, v)) ; max(len(t) for t in v) ; functools.reduce(torch.add, v) ; list(v) ; v
        [t for t in v if t.requires_grad] ; [t.dtype for t in v] ; torch._foreach_add(v, 1) ; any(t is x for t in v) ; x + v[0][:1]
        sum(t.max() for t in v) ; max(v, key=lambda t: t[0, 0]) ; any(t[0, 1] > 0 for t in v) ; sorted(v, key=lambda t: t[0, 0])[0] ; sum(iter(v), x[:1])
        len(list(filter(lambda t: t[0, 0] > 0, v))) * x ; functools.reduce(operator.add, (t[:1] for t in v)) ; torch.tensor([t[0, 0] for t in v]) ; [*map(abs, v)]
        torch.cat([t * 2 for t in v], -1) ; v + v ; v[::-1] ; torch.atleast_2d(*v) ; (lambda a, *b: [a, len(b)])(*v) ; torch.cat(tensors=v, dim=0)
        def use(x, v):
            for t in v:
                t.add_(1)
            return x
        """),
    "tensor": ([lambda: rows(4), lambda: rows(4).requires_grad_(), lambda: torch.arange(6), lambda: torch.tensor(2.0)], """
        x + v ; v.dtype ; v.shape ; v.stride() ; v.is_contiguous() ; v.requires_grad ; v.device ; isinstance(v, nn.Parameter) ; v is x ; v.dim()
        v.numel() * x ; len(v) ; v.view(-1) ; v.T ; v.is_leaf ; v.storage_offset() ; v.clone() ; v[0] ; torch.zeros_like(v) ; v.is_floating_point()
        [row * 2 for row in v] ; v.size(-1) ; v.shape == x.shape ; v.grad_fn is None ; v.type() ; v.element_size() ; v * 2
        torch.cat([x, v]) ; x.to(v.dtype) ; torch.zeros(v.shape) ; x.type_as(v) ; v.expand_as(x) ; v.nbytes ; v.itemsize ; v.sum() ; v.mean(0)
        x if v.is_contiguous() else -x ; x.reshape(v.shape) ; torch.where(x > 0, x, v) ; x[:, :v.shape[0]] ; v is None ; v.new_zeros(2) ; -v
        any(t for t in (v.max() > 0,)) ; max([v.max(), x.max()]) ; abs(v) ; operator.mul(v, 2) ; sorted([v.max(), x.max()])[0] ; v.max() in [1.0, 2.0]
        torch.tensor([v.max(), 1]) ; torch.tensor([[v.flatten()[0]]]) ; sum(t for t in (v, v)) ; list(map(float, [v.max()])) ; [v.max()] == [x.max()]
        v.to(torch.float32) @ x ; v.detach() ; v.data ; v.flatten() ; v.contiguous() ; v.is_meta ; v.layout ; type(v).__name__ ; v.ndim ; v == v
        x.mul(v) ; torch.result_type(x, v) ; x.add_(1) if v.requires_grad else x ; v.double() ; v.T.contiguous().stride() ; torch.empty_like(v).stride()
        def use(x, v):
            v += 1
            return v
        def use(x, v):
            v.mul_(2)
            return x + v
        """),
    "dict": ([lambda: {"a": 1, "b": 2}, lambda: {"b": 3, "a": 0.5, "c": 2}], """
        [x * u for k, u in v.items()] ; sum(v.values()) ; list(v) ; "a" in v ; "zz" in v ; v.get("a", 7) * x ; v.get("zz", 7) * x ; len(v) * x
        {**v, "z": 1} ; sorted(v) ; v == {"a": 1, "b": 2} ; dict(v, q=1) ; (lambda **k: list(k.items()))(**v) ; next(iter(v)) ; v | {"z": 2}
        [*v] ; {k: u + 1 for k, u in v.items()} ; v.keys() & {"a"} ; tuple(v.items())[0] ; min(v) ; bool(v) ; str(v) ; (lambda a, b, **k: a * x)(**v)
        v["a"] * x ; v["b"] ; (lambda a=0, zz=9, **k: (a, zz, len(k)))(**v) ; copy.copy(v) ; v.copy() ; list(v.items())[-1] ; list(reversed(v))
        max(v.values()) * x ; set(v) == {"a", "b"} ; isinstance(v, dict) ; type(v) is dict ; [k for k in v if v[k] == 1] ; dict(zip(v, v.values()))
        collections.OrderedDict(v) ; Config(**{"v": v}).v["a"] * x ; list(map(str, v)) ; [(k, u) for k, u in sorted(v.items())] ; dict(**v)
        (lambda *a: a)(*v) ; (lambda *a: a)(*v.values()) ; v.__contains__("c") ; not v ; {u: k for k, u in v.items()} ; [*zip(v, range(9))]
        def use(x, v):
            match v:
                case {"a": a, "c": c}:
                    return x * a + c
                case {"a": a, **rest}:
                    return x * a, rest
                case _:
                    return -x
        def use(x, v):
            v["new"] = x.shape[0]
            return x * len(v)
        def use(x, v):
            v["a"] += 1
            return x * v.pop("b", 3)
        def use(x, v):
            try:
                return x * v["zz"]
            except KeyError as error:
                return str(error)
        """),
    "list": ([lambda: [1, 2, 3], lambda: [3, 1], lambda: (2, 0, 1)], """
        [x * n for n in v] ; sum(v) * x ; len(v) * x ; sorted(v) ; v[0] * x ; v[-1] ; v[1:] ; 2 in v ; v.count(2) ; [*v, 1] ; tuple(v) ; max(v) * x
        all(v) ; any(n > 2 for n in v) ; list(reversed(v)) ; v == [1, 2, 3] ; list(zip(v, v)) ; dict(enumerate(v)) ; torch.tensor(v) ; x[list(v)] ; x[:, v]
        list(map(str, v)) ; list(filter(None, v)) ; functools.reduce(operator.add, v) * x ; sorted(set(v)) ; str(v) ; " ".join(map(str, v)) ; v * 2
        v + v ; list(v) ; dict.fromkeys(v, 1) ; list(itertools.chain(v, v)) ; list(itertools.accumulate(v)) ; x.index_select(0, torch.tensor(v))
        (lambda a, *b: (a * x, b))(*v) ; (lambda *a: len(a) * x)(*v) ; (lambda a, b=9, c=8, *d: (a, b, c, d))(*v) ; min(v, key=lambda n: -n)
        sorted(v, reverse=True) ; [n for n in v if n > 1] ; {n: x for n in v} ; next(iter(v)) ; next((n for n in v if n > 1), None) ; not v
        isinstance(v, list) ; type(v) ; [a - b for a, b in itertools.pairwise(v)] ; copy.copy(v) ; v[::-1] ; v.index(2) ; bool(v) ; [v, v][0] is v
        x.split(v) ; x.new_tensor(v) ; torch.as_tensor(v) ; torch.LongTensor(v) ; numpy.array(v).sum() ; list(itertools.product(v, v)) ; v < [2]
        collections.Counter(v) ; collections.deque(v)[0] ; max(v, default=3) ; torch._dynamo.graph_break() or v[0] ; [[n] * n for n in v] ; x * v[0] + v[1]
        def use(x, v):
            a, *b = v
            return x * a, b
        def use(x, v):
            a, b, c = v
            return x * a + b * c
        def use(x, v):
            match v:
                case [a, b]:
                    return x * a + b
                case [a, *rest]:
                    return x - a, rest
                case _:
                    return x
        def use(x, v):
            v.append(x.shape[1])
            return sum(v) * x
        def use(x, v):
            total = 0
            for i, n in enumerate(v):
                if n == 3:
                    break
                total += i * n
            else:
                total = -1
            return x + total
        def use(x, v):
            it = iter(v)
            return next(it) * x, list(it)
        """),
    "nested": ([lambda: {"a": [1, (2, 3)], "b": {"c": (4,)}}, lambda: [(1, 2), {"a": [3]}, [[4]]]], """
        str(v) ; len(v) ; copy.deepcopy(v) ; v == {"a": [1, (2, 3)], "b": {"c": (4,)}} ; [type(u).__name__ for u in v] ; bool(v) ; [v, x] ; list(v)
        torch.utils._pytree.tree_flatten(v)[0] ; torch.utils._pytree.tree_map(lambda u: u * 2, v) ; v["a"][1][0] * x ; v[0][1] * x ; [*v]
        """),
    "set": ([lambda: {1, 2}, lambda: frozenset((3, 1))], """
        len(v) * x ; 2 in v ; 7 in v ; sorted(v) ; sum(v) * x ; v | {9} ; v & {1} ; v == {1, 2} ; v <= {1, 2, 3} ; max(v) ; [x * n for n in sorted(v)]
        frozenset(v) in {frozenset((1, 2))} ; bool(v) ; {n + 1 for n in v} ; v - {1} ; set(v) ; any(n > 2 for n in v) ; v.issubset({1, 2}) ; list(v)
        isinstance(v, frozenset) ; min(v) * x ; x * (3 in v) ; (lambda *a: len(a))(*v) ; tuple(v) ; v ^ {1} ; not v ; v.isdisjoint({7}) ; str(v)
        """),
    "range": ([lambda: range(3), lambda: range(0, 4, 2)], """
        [x * n for n in v] ; len(v) * x ; list(v) ; sum(v) ; v[1] * x ; 2 in v ; v.start ; v.step ; v.stop * x ; x[list(v)] ; v == range(3)
        list(reversed(v)) ; torch.tensor(v) ; max(v) ; v[-1] ; v[:1] ; (lambda *a: a)(*v) ; tuple(v) ; bool(v) ; str(v) ; list(zip(v, "ab")) ; x[v]
        """),
    "enum": ([lambda: Mode.FIRST], """
        v is Mode.FIRST ; v == Mode.FIRST ; v.value ; v.name ; {Mode.FIRST: 1}.get(v, 2) * x ; f"{v}" ; v in (Mode.FIRST, Mode.THIRD) ; x if v is Mode.SECOND else -x
        isinstance(v, Mode) ; str(v) ; repr(v) ; v != Mode.SECOND ; [m is v for m in Mode] ; Mode(v) ; len(v.value) * x ; v in {Mode.FIRST} ; hash(v) == 0
        def use(x, v):
            match v:
                case Mode.FIRST:
                    return x
                case Mode.SECOND:
                    return -x
                case _:
                    return x * 3
        """),
    "int enum": ([lambda: Level.LOW], "x * v ; x.sum(dim=v) ; v == 0 ; v is Level.LOW ; [x, -x][v] ; v + 1 ; f'{v}' ; x[v] ; v < Level.HIGH ; bool(v) ; int(v)"),
    "function": ([lambda: twice, lambda: thrice, lambda: torch.relu, lambda: torch.tanh, lambda: DOUBLER, lambda: RELU], """
        v(x) ; v.__name__ ; v is twice ; {twice: 1, torch.relu: 2}.get(v, 3) * x ; callable(v) ; functools.partial(v)(x) ; list(map(v, [x])) ; v == torch.relu
        getattr(v, "flag", 0) * x ; isinstance(v, nn.Module) ; [g(x) for g in (v, torch.neg)] ; (lambda f, *a: f(*a))(v, x) ; type(v).__name__ ; v(v(x))
        v.__call__(x) ; hasattr(v, "flag") ; v in (twice, torch.tanh) ; getattr(v, "__defaults__", None) ; sorted([x.sum(0)], key=lambda t: 0)[0] + v(x[0])
        functools.reduce(lambda a, g: g(a), [v, v], x) ; v(x=x) if v is twice else x ; callable(getattr(v, "forward", None)) ; v is not None and v(x)
        """),
    "closure": ([lambda: adder(2), lambda: functools.partial(thrice, by=4), lambda: functools.partial(F.pad, pad=(1, 1))],
                "v(x) ; v(v(x)) ; [*map(v, (x, -x))] ; functools.partial(v)(x) ; getattr(v, 'keywords', None) ; type(v).__name__ ; getattr(v, 'func', x) is thrice"),
    "type": ([lambda: int, lambda: torch.Tensor, lambda: Plain, lambda: Config, lambda: list], """
        isinstance(x, v) ; v is int ; issubclass(v, Plain) ; v.__name__ ; v() ; type(v()) is int ; {int: 1, torch.Tensor: 2}.get(v, 3) * x ; type(x) is v
        isinstance(3, v) ; v in (int, float) ; isinstance([], (v, str)) ; str(v) ; hasattr(v, "scale") ; issubclass(v, (int, Plain)) ; callable(v) ; v == list
        getattr(v, "__mro__")[0] is int ; v.__module__ ; getattr(v, "n", 5) * x ; x.to(v) ; torch.zeros(2, dtype=v)
        """),
    "numpy scalar": ([lambda: numpy.float64(1.5), lambda: numpy.int64(2), lambda: numpy.float32(0.5)], """
        x * v ; float(v) * x ; v > 1 ; torch.tensor(v) ; str(v.dtype) ; int(v) * x ; isinstance(v, numpy.floating) ; v * x ; v == 2 ; x + v ; str(v)
        x[int(v)] ; torch.full((2,), v) ; x.sum(int(v) % 2) ; abs(v) ; round(float(v), 1) ; v.item() * x ; x.clamp(max=v) ; bool(v) ; type(v).__name__
        """),
    "array": ([lambda: numpy.arange(6.0), lambda: numpy.ones((4, 6), dtype="float32")], """
        torch.from_numpy(v) + 1 ; torch.tensor(v) ; v.shape ; v.sum() ; x + torch.as_tensor(v) ; str(v.dtype) ; len(v) * x ; v[0] ; v.ndim ; x * float(v.max())
        v.mean() > 0 ; list(v.shape) ; numpy.concatenate([v, v]).shape ; v.T ; isinstance(v, numpy.ndarray) ; x.new_tensor(v) ; v.tolist() ; torch.asarray(v)
        """),
    "object": ([lambda: Config(2, 3), lambda: Plain(2, 3), lambda: types.SimpleNamespace(v=2, n=3), lambda: Slots(2, 3), lambda: Pair(2, 3)], """
        v.v * x ; getattr(v, "v") * x + v.n ; getattr(v, "zz", 7) * x ; hasattr(v, "v") ; vars(v) ; v.v == v.n ; type(v).__name__ ; isinstance(v, Plain)
        v.scale() * x ; dataclasses.replace(v, n=5) ; dataclasses.asdict(v) ; v == Config(2, 3) ; v == Pair(2, 3) ; v._replace(n=4) ; v._asdict() ; len(v)
        [*v] ; v[0] * x ; isinstance(v, tuple) ; copy.copy(v) ; [getattr(v, k) for k in ("v", "n")] ; dataclasses.is_dataclass(v) ; v.__class__ is Config
        dataclasses.astuple(v) ; [f.name for f in dataclasses.fields(v)] ; v.__dict__["v"] * x ; (lambda a, b: a * x + b)(*v) ; operator.attrgetter("v", "n")(v)
        def use(x, v):
            v.v = v.v + 1
            return x * v.v
        def use(x, v):
            v.kept = x.shape[0]
            return x * v.n
        def use(x, v):
            match v:
                case Pair(2, n):
                    return x * n
                case Config(v=2):
                    return -x
                case object(n=3):
                    return x + 1
                case _:
                    return x
        """),
    "identity": ([lambda: DOUBLER, lambda: RELU], """
        v == DOUBLER ; v in (RELU, DOUBLER) ; [RELU, DOUBLER].index(v) ; {DOUBLER: 2}.get(v, 3) * x ; {RELU: x}[v] if v is RELU else -x ; [v, v].count(RELU)
        (v, 1) == (RELU, 1) ; [v] != [DOUBLER] ; len({v, RELU}) ; len(set((v, DOUBLER))) ; {v: x}.get(RELU, -x) ; v is RELU ; operator.eq(v, RELU)
        list(dict.fromkeys([v, RELU])) == [RELU] ; v in {RELU, DOUBLER} ; (v,) in {(RELU,): 1} ; {"k": v} == {"k": RELU} ; id(v) == id(RELU)
        """),
    "pattern": ([lambda: re.compile("a+")], "v.pattern ; v.match('abc') is None ; v.sub('x', 'abab') ; v == re.compile('a+')"),
    "finfo": ([lambda: torch.finfo(torch.float32)], "v.eps ; x * v.eps ; v.max ; x.clamp(min=v.min) ; v.dtype ; v.bits"),
}


def rows(count):
    return torch.linspace(-1, 1, count * 6).view(count, 6).clone()


def uses_of(text):
    """The uses of a kind as functions: of expressions between semicolons, and of those that have a body."""
    expressions, *bodies = re.split(r"^ *(?=def use\()", text, flags=re.MULTILINE)
    parts = [part.strip() for line in expressions.splitlines() for part in line.split(" ; ")]
    return [f"def use(x, v): return {part}" for part in parts if part] + [textwrap.dedent(" " * 8 + b).strip() for b in bodies]


USES = [(kind, use) for kind, (_, text) in KINDS.items() for use in uses_of(text)]

SEQUENCE = ["{c}[0]", "{c}[-2]", "[*{c}][0]", "tuple({c})[0]", "next(iter({c}))", "(lambda a, b: a)(*{c})", "(lambda a, *b: a)(*{c})",
            "list(zip({c}, {c}))[0][0]", "[u for u in {c}][0]", "{c}[:1][0]", "operator.itemgetter(0)({c})", "dict(enumerate({c}))[0]"]
OBJECT = ["{c}.v", "getattr({c}, 'v')", "operator.attrgetter('v')({c})", "(lambda o: o.v)({c})"]

# A container around a value, and the ways to take the value out of it.
WRAPS = [
    (lambda v: v, ["{c}"]),
    (lambda v: (v, 1), SEQUENCE),
    (lambda v: [v, 1], SEQUENCE),
    (lambda v: {"v": v, "n": 1}, ["{c}['v']", "{c}.get('v')", "(lambda v, n: v)(**{c})", "(lambda n, **k: k['v'])(**{c})", "list({c}.values())[0]",
                                  "dict(**{c})['v']", "{{**{c}}}['v']", "[u for k, u in {c}.items() if k == 'v'][0]", "{c}.copy().pop('v')"]),
    (lambda v: Pair(v, 1), SEQUENCE + OBJECT + ["{c}._asdict()['v']", "{c}._replace(n=2).v"]),
    (lambda v: Config(v, 1), OBJECT + ["vars({c})['v']", "dataclasses.replace({c}, n=2).v"]),
    (lambda v: Plain(v, 1), OBJECT + ["vars({c})['v']"]),
    (lambda v: types.SimpleNamespace(v=v, n=1), OBJECT),
    (lambda v: Slots(v, 1), OBJECT),
    (lambda v: functools.partial(lambda a, b=0: a, v), ["{c}()", "{c}.args[0]", "{c}(b=1)"]),
    (lambda v: functools.partial(lambda a, v=0: v, 1, v=v), ["{c}()", "{c}.keywords['v']"]),
]

# How a value gets to the function that uses it; {u} is that function.
WAYS = [
    "out.append({u}(x, {v}))",
    "out.append({u}(*[x, {v}]))",
    "out.append({u}(**dict(x=x, v={v})))",
    "out.append({u}(x, **{{'v': {v}}}))",
    "out.append((lambda *a, **k: {u}(*a, **k))(x, v={v}))",
    "out.append((lambda v={v}: {u}(x, v))())",
    "out.append((lambda v: lambda x: {u}(x, v))({v})(x))",
    "out.append(functools.partial({u}, v={v})(x))",
    "out.append(functools.partial({u}, x)({v}))",
    "out += [{u}(x, v) for v in [{v}]]",
    "out += map({u}, [x], ({v},))",
    "out += [{u}(x, v) for v, _ in zip([{v}], 'a')]",
    "out.append({u}(x, next(v for v in [{v}])))",
    "out.append({u}(x, {{'v': {v}}}['v']))",
    "out.append({u}(x, Config({v}).v))",
    "out.append({u}(x, Pair(v={v}).v))",
    "out.append({u}(x, Plain({v}).v))",
    "out.append({u}(x, Slots({v}).v))",
    "box.v = {v}\nout.append({u}(x, box.v))\nbox.v = None",
    "first, *_ = {v}, 1, 2\nout.append({u}(x, first))",
    "def inner():\n    return {u}(x, held)\nheld = {v}\nout.append(inner())",
    "def produce():\n    yield {v}\nfor given in produce():\n    out.append({u}(x, given))",
    "class Holder:\n    def go(self):\n        return {u}(x, self.v)\nholder = Holder()\nholder.v = {v}\nout.append(holder.go())",
    "try:\n    out.append({u}(x, {v}))\nfinally:\n    out.append(1)",
    "out.append({u}(x, ({v} if x.dim() else None)))",
    "match {v}:\n    case given:\n        out.append({u}(x, given))",
]

# How the arguments come in: the head of the function, the expressions for them, and whether they are passed by keyword.
HEADS = [
    ("def f(x, a, b):", "ab", False),
    ("def f(x, a, b):", "ab", True),
    ("def f(x, a=None, *, b=None):", "ab", True),
    ("def f(x, *rest):", ("rest[0]", "rest[1]"), False),
    ("def f(x, *rest):", ("rest[-2]", "[*rest][1]"), False),
    ("def f(x, **more):", ("more['a']", "more.get('b')"), True),
    ("def f(x, a, **more):", ("a", "more['b']"), True),
    ("def f(*everything):\n    x, a, b = everything", "ab", False),
    ("def f(*args, **kwargs):\n    return g(*args, **kwargs)\ndef g(x, a, b):", "ab", True),
    ("def f(*args):\n    return (lambda x, *rest: g(x, *rest))(*args)\ndef g(x, *rest):", ("rest[0]", "rest[1]"), False),
]


class Program:
    """Program `number` of a seed. `world()` makes it anew: the function, the tree of its arguments, and the globals that it
    uses in the same way; `shares` says that these are the very objects that are passed."""

    def __init__(self, number, seed):
        rng = random.Random(f"{number} {seed}")
        self.name = f"program {number} of seed {seed}"
        for _ in range(50):  # not every value of a kind suits every use: draw again until eager answers
            self.draw(number + 7 * seed, rng)
            function, (args, kwargs), _ = self.world()
            try:
                function(*args, **kwargs)
                break
            except Exception:
                pass

    def draw(self, turn, rng):
        head, names, self.by_keyword = rng.choice(HEADS)
        self.shares, self.makers, lines = rng.random() < 0.5, [], ["out = []"]
        for place, name in enumerate(names):
            # The first argument takes the uses in turn, the second any.
            kind, use = USES[turn % len(USES)] if place == 0 else rng.choice(USES)
            wraps = [rng.choice(WRAPS) for _ in range(rng.choice((0, 1, 1, 2)))]
            taken = name
            for _, outs in reversed(wraps):
                taken = rng.choice(outs).format(c=taken)
            self.makers.append([rng.choice(KINDS[kind][0]), *(wrap for wrap, _ in wraps)])
            lines += use.replace("def use(", f"def use{place}(").splitlines()
            if rng.random() < 0.4:
                lines.append(f"out.append(use{place}(x, same{place}))")
            lines += rng.choice(WAYS).format(u=f"use{place}", v=taken).splitlines()
        self.source = "\n    ".join([head, *lines, "return out"]) + "\n"

    def world(self):
        linecache.cache[self.name] = (len(self.source), None, self.source.splitlines(True), self.name)
        space = {**globals(), "__name__": "program", "box": types.SimpleNamespace(v=None)}
        exec(compile(self.source, self.name, "exec"), space)
        values, same = [], {}
        for place, (make, *wraps) in enumerate(self.makers):
            space[f"same{place}"] = value = same[place] = make()
            values.append(functools.reduce(lambda value, wrap: wrap(value), wraps, value if self.shares else make()))
        tree = [[rows(4)], dict(zip("ab", values))] if self.by_keyword else [[rows(4), *values], {}]
        return space["f"], tree, same

    def leaf(self, place):
        """The path of the value of an argument in the tree, below its containers."""
        path = (1, "ab"[place]) if self.by_keyword else (0, place + 1)
        for wrap in self.makers[place][1:]:
            path = path[:2] + self.inside(wrap) + path[2:]
        return path

    @staticmethod
    def inside(wrap):
        kind = type(wrap(None))
        if kind is functools.partial:
            return ("args", 0) if wrap(None).args == (None,) else ("keywords", "v")
        return () if wrap(0) == 0 else (0,) if kind in (tuple, list, Pair) else ("v",)
