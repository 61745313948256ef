"""The statements of generated graph programs: one table of templates, from a random choice to a line of Python.

A template looks at the tensors that the program has so far (they are real: each line is run in eager as it is written) and
answers with the text of an expression, or with `Line(text)` for a statement of its own. A line that raises is left out, so
a template need not know all rules of its operator.
"""

import math

import torch

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Skip(Exception):
    """Nothing here that the template could use."""


class Line(str):
    """A statement that binds no new name."""


class Names(str):
    """An expression that gives several tensors; `count` of them."""

    count = 2


class Var:
    """A name of the program and its tensor; prints as the name."""

    def __init__(self, name, tensor):
        self.name, self.t = name, tensor

    def __str__(self):
        return self.name

    def __getattr__(self, key):
        return getattr(self.t, key)


def is_float(v):
    return v.dtype in FLOATS


def is_complex(v):
    return v.t.is_complex()


def is_int(v):
    return v.dtype in INTS


def not_complex(v):
    return not v.t.is_complex()


def differentiable(v):
    return is_float(v) or is_complex(v)


def any_dtype(v):
    return True


class Draw:
    """Random choices over the tensors of a program under construction."""

    def __init__(self, rng, device="cpu", symbolic=False):
        self.rng, self.device, self.symbolic = rng, device, symbolic
        self.env, self.order, self.numbers = {}, [], []

    def vars(self, *conditions):
        found = [Var(name, self.env[name]) for name in self.order]
        return [v for v in found if all(condition(v) for condition in conditions)]

    def pick(self, *conditions):
        """Rather a new one than an old one."""
        found = self.vars(*conditions)
        if not found:
            raise Skip
        if self.rng.random() < 0.45:
            return found[-1 - min(int(self.rng.expovariate(1.0)), len(found) - 1)]
        return self.rng.choice(found)

    def ranked(self, low, high, *conditions):
        return self.pick(lambda v: low <= v.dim() <= high, *conditions)

    def one_of(self, *texts):
        return self.rng.choice(texts)

    def chance(self, p):
        return self.rng.random() < p

    def dim(self, v, low=1):
        """A dimension, counted from the front or from the back."""
        if v.dim() < low or v.dim() == 0:
            raise Skip
        d = self.rng.randrange(v.dim())
        return d - v.dim() if self.chance(0.3) else d

    def dims(self, v, count):
        if v.dim() < count:
            raise Skip
        return [d - v.dim() if self.chance(0.2) else d for d in self.rng.sample(range(v.dim()), count)]

    def size(self, v, d):
        """A size of a tensor, as a number or as the program would ask for it."""
        if self.chance(0.7 if self.symbolic else 0.1):
            return self.one_of(f"{v}.shape[{d}]", f"{v}.size({d})")
        return str(v.shape[d])

    def factory(self):
        return ', device="cuda"' if self.device == "cuda" else ""

    def dtype(self, among=FLOATS + INTS + (torch.bool, torch.complex64)):
        weights = [6 if d is torch.float32 else 2 if d in (torch.float64, torch.int64) else 1 for d in among]
        return str(self.rng.choices(among, weights)[0])

    def number(self, v=None):
        """A Python number, or an argument that is one."""
        if self.numbers and self.chance(0.4):
            return self.rng.choice(self.numbers)
        if v is not None and is_int(v) and self.chance(0.8):
            return str(self.rng.choice([1, 2, 3, -1, 0, 5]))
        return str(self.rng.choice([2, 0.5, -1.5, 1, 0.25, 3.0, -1, True, 0.1, 0.3, -0.7, 0.001, 2049]))

    def real(self):
        """A factor, a limit, a slope: a number that is not zero; half of those here no half type holds."""
        if "s0" in self.numbers and self.chance(0.6):
            return "s0"
        return self.rng.choice(["2", "0.5", "-1", "0.25", "0.1", "0.3", "-0.7", "1e-3", "1"])

    def axes(self, v):
        """One dimension or several, as reductions take them."""
        if v.dim() == 0:
            raise Skip
        if self.chance(0.6):
            return str(self.dim(v))
        return str(tuple(sorted(self.rng.sample(range(v.dim()), self.rng.randint(1, v.dim())))))

    def alike(self, v, *conditions):
        """A tensor of the same sizes, or one that broadcasts to them."""
        def fits(other):
            if other.dim() > v.dim():
                return False
            return all(n == m or m == 1 for n, m in zip(reversed(v.shape), reversed(other.shape)))

        return self.pick(fits, *conditions)

    def operand(self, v, *conditions):
        """The other operand of a binary operator: a tensor, a part of one, or a number."""
        if self.chance(0.3):
            return self.number(v)
        try:
            return str(self.alike(v, *conditions))
        except Skip:
            other = self.pick(*conditions)
            return self.one_of(f"{other}.sum()", f"{other}.flatten()[:1]", self.number(v))

    def indices(self, n, count=None):
        """Text of a tensor of indices below n."""
        if n < 1:
            raise Skip
        count = count or self.rng.randint(1, 4)
        found = [] if self.device == "cuda" else self.vars(
            lambda v: v.dtype is torch.int64 and v.dim() == 1 and v.numel() and int(v.t.min()) >= 0 and int(v.t.max()) < n)
        if found and self.chance(0.7):
            return str(self.rng.choice(found))
        if self.chance(0.3):
            values = [self.rng.randrange(n) for _ in range(count)]
            return f"torch.tensor({values}{self.factory()})"
        return f"(torch.arange({count}{self.factory()}) % {n})"


TABLE = []


def template(weight, family):
    def add(function):
        TABLE.append((weight, family, function))
        return function

    return add


# ---- views ----------------------------------------------------------------------------------------------------------

@template(3, "view")
def select(g):
    v = g.ranked(1, 5)
    d = g.dim(v)
    if not v.shape[d]:
        raise Skip
    i = g.rng.randrange(-v.shape[d], v.shape[d])
    return g.one_of(f"{v}.select({d}, {i})", f"{v}[{', '.join([':'] * (d % v.dim()) + [str(i)])}]", f"{v}[..., {v.shape[-1] - 1}]")


@template(7, "view")
def slices(g):
    v = g.ranked(1, 5)
    parts = []
    for n in v.shape[:g.rng.randint(1, v.dim())]:
        start = g.rng.choice(["", "", "1", "0", "-1", "-2"]) if n else ""
        stop = g.rng.choice(["", "", "-1", str(max(n - 1, 1)), str(n + 1)]) if not start.startswith("-") else ""
        step = g.rng.choice(["", "", "", ":2", ":3"])
        parts.append(g.rng.choice([f"{start}:{stop}{step}"] * 3 + [":"] + (["0"] if n else [])))
    text = ", ".join(parts)
    if g.chance(0.15):
        text += ", None"
    if g.chance(0.2) and len(parts) < v.dim():
        text = f"..., {text}"
    return f"{v}[{text}]"


@template(2, "view")
def narrow(g):
    v = g.ranked(1, 5)
    d = g.dim(v)
    start = g.rng.randint(0, v.shape[d])
    length = g.rng.randint(0 if g.chance(0.1) else min(1, v.shape[d] - start), v.shape[d] - start)
    return f"{v}.narrow({d}, {start}, {length})"


@template(5, "view")
def transposes(g):
    v = g.ranked(1, 5)
    a, b = (g.dim(v), g.dim(v)) if v.dim() < 2 or g.chance(0.1) else g.dims(v, 2)
    order = list(range(v.dim()))
    g.rng.shuffle(order)
    return g.one_of(f"{v}.transpose({a}, {b})", f"{v}.permute({', '.join(map(str, order))})", f"{v}.movedim({a}, {b})",
                    f"{v}.swapaxes({a}, {b})", f"torch.swapdims({v}, {a}, {b})", f"torch.permute({v}, {tuple(order)})",
                    *([f"{v}.mT", f"{v}.adjoint()"] if v.dim() >= 2 else []), *([f"{v}.t()", f"{v}.T"] if v.dim() <= 2 else []))


@template(3, "view")
def expands(g):
    v = g.ranked(0, 4)
    new = g.rng.choice([1, 2, 3])
    sizes = [g.rng.choice([2, 3, 1]) if n == 1 else -1 for n in v.shape]
    sizes = [new] * g.rng.randint(0, 1) + sizes
    other = g.pick()
    return g.one_of(f"{v}.expand({', '.join(map(str, sizes))})" if sizes else f"{v}.expand(3)", f"{v}.unsqueeze(0).expand(2, {', '.join(['-1'] * v.dim())})",
                    f"{v}.expand_as({other})", f"{v}.broadcast_to({other}.shape)")


def factored(g, n, parts):
    """Sizes whose product is n."""
    sizes = []
    for _ in range(parts - 1):
        divisors = [k for k in range(1, n + 1) if n % k == 0]
        sizes.append(g.rng.choice(divisors))
        n //= sizes[-1]
    sizes.append(n)
    g.rng.shuffle(sizes)
    return sizes


@template(6, "view")
def views(g):
    v = g.ranked(0, 5)
    n = v.numel()
    sizes = [str(k) for k in (factored(g, n, g.rng.randint(1, 4)) if n else list(v.shape))]
    if n and sizes and g.chance(0.4):
        sizes[g.rng.randrange(len(sizes))] = "-1"
    if g.symbolic and v.dim() >= 1 and g.chance(0.5):
        sizes = [g.size(v, 0), "-1"]
    text = ", ".join(sizes)
    call = g.one_of("view", "view", "reshape")
    return g.one_of(f"{v}.{call}({text})", f"{v}.{call}(({text},))", f"{v}.{call}(-1)", f"torch.reshape({v}, ({text},))")


@template(4, "view")
def folds(g):
    v = g.ranked(1, 5)
    d = g.dim(v)
    n = v.shape[d]
    k = g.rng.choice([k for k in range(1, n + 1) if n % k == 0] or [1])
    a = g.rng.randrange(v.dim())
    b = g.rng.randint(a, v.dim() - 1)
    return g.one_of(f"{v}.unflatten({d}, ({k}, -1))", f"{v}.flatten({a}, {b})", f"{v}.flatten()", f"{v}.ravel()",
                    f"torch.flatten({v}, {a})", f"{v}.squeeze()", f"{v}.squeeze({d})", f"{v}.unsqueeze({d})", f"{v}.unsqueeze(-1)",
                    f"{v}[None]", f"{v}[..., None]", f"{v}.squeeze(({a},))", f"torch.atleast_2d({v})", f"torch.atleast_3d({v})")


@template(2, "view")
def diagonal(g):
    v = g.ranked(2, 4)
    a, b = g.dims(v, 2)
    return f"{v}.diagonal({g.rng.choice([0, 0, 1, -1])}, {a}, {b})"


@template(2, "view")
def unfold(g):
    v = g.ranked(1, 3)
    d = g.dim(v)
    size = g.rng.randint(1, max(1, v.shape[d]))
    return f"{v}.unfold({d}, {size}, {g.rng.randint(1, 2)})"


@template(4, "view")
def splits(g):
    v = g.ranked(1, 4)
    d = g.dim(v)
    n = v.shape[d]
    k = g.rng.randint(1, max(1, n))
    sizes = [k, n - k]
    text = g.one_of(f"{v}.split({k}, {d})", f"{v}.chunk({k}, {d})", f"{v}.tensor_split({k}, {d})", f"{v}.unbind({d})",
                    f"torch.split({v}, {sizes}, {d})", f"{v}.tensor_split([{k}], dim={d})", f"{v}.split({sizes}, dim={d})")
    count = len(eval(text, {"torch": torch}, g.env))
    if not count:
        raise Skip
    if g.chance(0.5) or count > 3:
        return f"{text}[{g.rng.randrange(-count, count)}]"
    made = Names(text)
    made.count = count
    return made


@template(2, "view")
def as_strided(g):
    v = g.ranked(0, 4)
    n = 1 + sum((s - 1) * t for s, t in zip(v.shape, v.stride())) if v.numel() else 0
    if not n:
        raise Skip
    offset = g.rng.randint(0, n - 1) if g.chance(0.5) else 0
    left = n - 1 - offset
    sizes, strides = [], []
    for _ in range(g.rng.randint(1, 3)):
        stride = g.rng.choice([0, 1, 1, 2, 3, n // 2 or 1])
        most = left // stride + 1 if stride else 3
        size = g.rng.randint(1, min(most, 4))
        left -= (size - 1) * stride
        sizes.append(size)
        strides.append(stride)
    start = v.storage_offset() + offset
    return f"{v}.as_strided({tuple(sizes)}, {tuple(strides)}, {start})" if start else f"{v}.as_strided({tuple(sizes)}, {tuple(strides)})"


@template(3, "view")
def like_another(g):
    v = g.pick()
    other = g.pick(lambda o: o.numel() == v.numel())
    return g.one_of(f"{v}.view_as({other})", f"{v}.reshape({other}.shape)", f"{v}.view({other}.shape)", f"{v}.reshape_as({other})")


@template(2, "view")
def other_bits(g):
    if g.chance(0.5):
        v = g.pick(is_complex)
        return g.one_of(f"{v}.real", f"{v}.imag", f"torch.view_as_real({v})", f"{v}.conj()", f"{v}.conj().imag", f"{v}.resolve_conj()",
                        f"{v}.abs()", f"{v}.angle()")
    v = g.pick()
    return f"{v}.view({g.dtype()})"


@template(3, "view")
def aliases(g):
    """Operators that give the tensor itself, a view of all of it, or a copy."""
    v = g.pick()
    return g.one_of(f"{v}.detach()", f"{v}.contiguous()", f"{v}.to({v.dtype})", f"{v}.view({v}.shape)", f"{v}.expand({v}.shape)",
                    f"{v}[...]", f"{v}[:]" if v.dim() else f"{v}[()]", f"{v}.clone()", f"{v}.reshape({v}.shape)", f"{v}.positive()" if v.dtype != torch.bool else f"{v}.clone()",
                    f"{v}.squeeze()", f"torch.atleast_1d({v})", f"{v}.clone(memory_format=torch.contiguous_format)", f"{v}.view(-1)")


@template(2, "view")
def moved_copies(g):
    v = g.ranked(1, 4)
    d = g.dim(v)
    return g.one_of(f"{v}.flip({d})", f"{v}.roll({g.rng.choice([1, -1, 2])}, {d})", f"{v}.roll(1)", f"torch.flip({v}, (0, {d}))" if d else f"{v}.flip(0)",
                    f"{v}.rot90(1, (0, {d}))", f"{v}.repeat({', '.join(['2'] + ['1'] * (v.dim() - 1))})", f"{v}.repeat_interleave(2, {d})",
                    f"{v}.tile((2,))", f"{v}.tril()", f"{v}.triu(1)")


# ---- in-place -------------------------------------------------------------------------------------------------------

def target(g, *conditions):
    """What is written to: a tensor, or a view of one that is made on the spot."""
    v = g.pick(*conditions)
    if v.dim() and g.chance(0.45):
        n = v.shape[0]
        d = g.dim(v)
        texts = [f"{v}[1:]", f"{v}[..., :1]", f"{v}[::2]", f"{v}.transpose(0, -1)", f"{v}.narrow({d}, 0, {max(1, v.shape[d] - 1)})", f"{v}.unsqueeze(0)",
                 f"{v}.view(-1)", f"{v}.select({d}, -1)", f"{v}[:, 1:]" if v.dim() > 1 else f"{v}[-1:]", f"{v}.flatten()", f"{v}.diagonal()" if v.dim() > 1 else f"{v}[:]"]
        text = g.rng.choice(texts)
        try:
            return Var(text, eval(text, {"torch": torch}, g.env))
        except Exception:
            raise Skip from None
    return v


def whole(v):
    """In augmented assignment a view needs an assignable form: a subscript or a name."""
    if "(" in str(v):
        raise Skip
    return v


@template(9, "inplace")
def arithmetic_(g):
    v = target(g)
    other = g.operand(v)
    if g.chance(0.35):
        return Line(f"{whole(v)} {g.one_of('+=', '-=', '*=', '/=', '*=')} {other}")
    op = g.one_of("add_", "sub_", "mul_", "div_", "mul_", "copy_", "fmod_", "remainder_", "add_", "eq_", "lt_", "logical_and_", "maximum")
    if op == "copy_" and not other.isidentifier():
        other = str(g.alike(v))
    if op == "maximum":
        return Line(f"torch.maximum({v}, {g.alike(v)}, out={v})")
    if op in ("add_", "sub_") and g.chance(0.2):
        return Line(f"{v}.{op}({other}, alpha={g.real() if is_float(v) else g.one_of('2', '-1')})")
    return Line(f"{v}.{op}({other})")


@template(7, "inplace")
def unary_(g):
    v = target(g)
    ops = ["zero_()", f"fill_({g.number(v)})", "neg_()", "abs_()", "clamp_(-1, 1)", f"clamp_(min={g.number(v)})", "square_()", "sign_()", f"clamp_(max={g.real()})", "relu_()"]
    if differentiable(v):
        ops += ["sigmoid_()", "exp_()", "tanh_()", "sin_()", "reciprocal_()", "sqrt_()", "floor_()", "round_()", "erf_()", "expm1_()", "trunc_()", "pow_(2)",
                "nan_to_num_()", "rsqrt_()", "log1p_()"]
    if v.dtype in (torch.bool, *INTS):
        ops += ["bitwise_not_()", "logical_not_()", "bitwise_or_(1)" if v.dtype != torch.bool else "bitwise_or_(True)"]
    return Line(f"{v}.{g.rng.choice(ops)}")


@template(2, "inplace")
def activations_(g):
    v = target(g, is_float)
    return Line(g.one_of(f"F.relu({v}, inplace=True)", f"F.leaky_relu({v}, {g.real()}, inplace=True)", f"F.silu({v}, inplace=True)", f"F.hardtanh({v}, inplace=True)",
                         f"F.elu({v}, inplace=True)", f"F.threshold({v}, {g.real()}, {g.real()}, inplace=True)", f"F.hardswish({v}, inplace=True)", f"F.relu6({v}, inplace=True)",
                         f"F.dropout({v}, 0.5, inplace=True)", f"F.mish({v}, inplace=True)"))


@template(6, "inplace")
def assignment(g):
    v = g.ranked(1, 4)
    n = v.shape[0]
    value = g.operand(v)
    parts = ["0", "-1", "1:", "::2", "...", ":", "..., 0", "..., 1:", "None", "..., ::2", ":1", ":-1", ":, 0", ":, 1:", ":, -1"]
    where = g.rng.choice(parts)
    text = f"{v}[{where}]"
    try:
        part = Var(text, eval(text, {"torch": torch}, g.env))
    except Exception:
        raise Skip from None
    if g.chance(0.7):
        value = g.operand(part)
    if g.chance(0.3):
        return Line(f"{text} {g.one_of('+=', '*=', '-=', '/=')} {value}")
    return Line(f"{text} = {value}")


@template(4, "inplace")
def masked(g):
    v = target(g)
    if g.chance(0.5):
        masks = g.vars(lambda m: m.dtype is torch.bool and m.shape == v.shape)
    else:
        masks = []
    mask = str(g.rng.choice(masks)) if masks else f"{g.alike(v, not_complex)} > 0"
    value = g.number(v)
    try:
        source = g.alike(v, lambda s: s.dtype == v.dtype)
    except Skip:
        source = value
    many = f"{v}.clone()" if g.device == "cuda" else source  # on a GPU a source with too few elements ends the process
    return Line(g.one_of(f"{v}.masked_fill_({mask}, {value})", f"{v}[{mask}] = {value}" if not str(v).endswith(")") else f"{v}.masked_fill_({mask}, {value})",
                         f"{v}.masked_scatter_({mask}, {many})", f"{v}.copy_(torch.where({mask}, {v}, {source}))", f"{v}.masked_fill_({mask}, {source}.sum())" if source != value else f"{v}.masked_fill_({mask}, 0)"))


@template(4, "inplace")
def indexed_(g):
    v = target(g, lambda t: t.dim() >= 1)
    d = g.dim(v)
    n = v.shape[d]
    count = g.rng.randint(1, max(1, n))
    index = g.indices(n, count)
    length = len(eval(index, {"torch": torch}, g.env))
    try:
        source = g.pick(lambda s: s.dtype == v.dtype and s.dim() == v.dim() and s.shape[d] >= length and all(
            a == b or k == d % v.dim() for k, (a, b) in enumerate(zip(s.shape, v.shape))))
        source = f"{source}.narrow({d}, 0, {length})"
    except Skip:
        source = f"{v}.index_select({d}, {index}) * 2" if v.dtype != torch.bool else f"~{v}.index_select({d}, {index})"
    return Line(g.one_of(f"{v}.index_add_({d}, {index}, {source})", f"{v}.index_copy_({d}, torch.arange({length}{g.factory()}), {source})" if length <= n else f"{v}.index_fill_({d}, {index}, 1)",
                         f"{v}.index_fill_({d}, {index}, {g.number(v)})", f"{v}.index_add_({d}, {index}, {source}, alpha=2)"))


@template(3, "inplace")
def put_(g):
    v = g.ranked(1, 3)
    index = g.indices(v.shape[0])
    value = g.number(v)
    if g.chance(0.3):
        return Line(f"{v}[{index}] += {value}")
    if v.dim() > 1 and g.chance(0.4):
        return Line(f"{v}[:, {g.indices(v.shape[1])}] = {value}")
    # one value for all, so that the order of writes to one place does not matter
    return Line(g.one_of(f"{v}[{index}] = {value}", f"{v}.index_put_(({index},), torch.tensor({value}, dtype={v.dtype}{g.factory()}), accumulate=True)"))


@template(3, "inplace")
def scatter_(g):
    v = target(g, lambda t: t.dim() >= 1 and t.numel())
    d = g.dim(v)
    sizes = [g.rng.randint(1, max(1, n)) for n in v.shape]
    index = f"(torch.arange({math.prod(sizes)}{g.factory()}).view({', '.join(map(str, sizes))}) % {v.shape[d]})"
    value = g.number(v)
    source = f"{v}.clone()"
    other = g.vars(lambda s: s.dtype == v.dtype and s.dim() == v.dim() and all(a >= b for a, b in zip(s.shape, sizes)))
    if other and g.chance(0.7):
        source = str(g.rng.choice(other))
    return Line(g.one_of(f"{v}.scatter_({d}, {index}, {value})", f"{v}.scatter_add_({d}, {index}, {source})",
                         f"{v}.scatter_reduce_({d}, {index}, {source}, {g.one_of(repr('sum'), repr('amax'), repr('amin'), repr('prod'))}, include_self={g.chance(0.5)})",
                         f"{v}.scatter_({d}, {index}, {value}, reduce='add')" if g.chance(0.3) else f"{v}.scatter_add_({d}, {index}, {source})"))


@template(4, "inplace")
def fused_(g):
    v = target(g, differentiable)
    a, b = g.alike(v), g.alike(v)
    return Line(g.one_of(f"{v}.addcmul_({a}, {b}, value={g.real()})", f"{v}.lerp_({a}, {g.one_of(g.real(), str(b))})", f"{v}.addcdiv_({a}, {b}.abs() + 1, value={g.real()})",
                         f"{v}.copy_({a} * {b})", f"{v}.atan2_({a})", f"{v}.clamp_({a}, {b})"))


@template(2, "inplace")
def products_(g):
    v = g.ranked(2, 3, differentiable)
    if v.dim() == 2:
        a = g.pick(lambda t: t.dtype == v.dtype and t.dim() == 2 and t.shape[0] == v.shape[0])
        b = g.pick(lambda t: t.dtype == v.dtype and t.dim() == 2 and t.shape == (a.shape[1], v.shape[1]))
        return Line(g.one_of(f"{v}.addmm_({a}, {b})", f"torch.mm({a}, {b}, out={v})", f"{v}.addmm_({a}, {b}, beta={g.real()}, alpha={g.real()})", f"{v}.copy_({a} @ {b})"))
    return Line(g.one_of(f"{v}.baddbmm_({v}, {v}.mT)", f"{v}.cumsum_({g.dim(v)})", f"{v}.tril_()", f"{v}.triu_()"))


@template(2, "inplace")
def scans_(g):
    v = target(g, lambda t: t.dim() >= 1)
    d = g.dim(v)
    return Line(g.one_of(f"{v}.cumsum_({d})", f"{v}.cumprod_({d})", f"{v}.tril_()", f"{v}.triu_()", f"{v}.fill_diagonal_({g.number(v)})", f"{v}.renorm_(2, {d}, 1.0)"))


@template(2, "inplace")
def metadata_(g):
    """In-place operators that change sizes and strides, not numbers."""
    v = g.ranked(1, 4)
    a, b = g.dim(v), g.dim(v)
    return Line(g.one_of(f"{v}.transpose_({a}, {b})", f"{v}.unsqueeze_({a})", f"{v}.squeeze_({a})", f"{v}.squeeze_()", f"{v}.swapaxes_({a}, {b})",
                         f"{v}.t_()" if v.dim() <= 2 else f"{v}.transpose_({a}, {b})", f"{v}.detach_()" if g.chance(0.3) else f"{v}.unsqueeze_(-1)"))


@template(3, "inplace")
def out_(g):
    v = target(g, not_complex)
    a, b = g.alike(v), g.operand(v)
    return Line(g.one_of(f"torch.add({a}, {b}, out={v})", f"torch.mul({a}, {b}, out={v})", f"torch.sigmoid({a}, out={v})", f"torch.exp({a}, out={v})",
                         f"torch.sub({a}, {b}, out={v})", f"torch.clamp({a}, -1, 1, out={v})", f"torch.cumsum({v}, {g.dim(v)}, out={v})" if v.dim() else f"torch.neg({a}, out={v})",
                         f"torch.where({a} > 0, {a}, {v}, out={v})", f"torch.sum({g.pick()}, out={v})" if not v.dim() else f"torch.abs({a}, out={v})"))


@template(1, "inplace")
def swapped_(g):
    """Several tensors at once. Of what autograd has saved `data` changes the numbers, and nobody is told: gradients have no answer then."""
    v = g.pick(is_float)
    w = g.alike(v, is_float)
    hidden = g.chance(0.3) and not any(other.requires_grad for other in g.vars())
    return Line(g.one_of(f"torch._foreach_add_([{v}], 1.0)", f"torch._foreach_mul_([{v}, {v}.clone()], 2.0)", f"{v}.data.add_(1)" if hidden else f"{v}.detach().mul_(2)",
                         f"torch._foreach_add_([{v}], [{w}], alpha={g.real()})", f"{v}.detach().zero_()"))


# ---- computing ------------------------------------------------------------------------------------------------------

@template(6, "compute")
def unary(g):
    v = g.pick()
    ops = ["abs", "neg", "square", "sign", "relu"]
    if v.dtype is torch.bool or is_int(v):
        ops += ["bitwise_not", "logical_not"]
    if differentiable(v) or g.chance(0.2):
        ops += ["exp", "sigmoid", "tanh", "sin", "cos", "floor", "ceil", "round", "reciprocal", "erf", "expm1", "trunc", "frac", "isnan", "isfinite", "sgn", "atan",
                "rsqrt", "sqrt", "log1p", "log", "sinh", "asinh", "exp2", "logical_not", "signbit", "erfc", "nan_to_num", "deg2rad"]
    return f"torch.{g.rng.choice(ops)}({v})"


@template(3, "compute")
def activations(g):
    v = g.pick(is_float)
    ops = ["gelu", "silu", "softplus", "leaky_relu", "elu", "hardtanh", "relu", "logsigmoid", "mish", "selu", "hardswish", "hardsigmoid", "softsign", "tanhshrink",
           "relu6", "celu", "softshrink", "hardshrink"]
    if g.chance(0.3):
        return g.one_of(f"F.leaky_relu({v}, {g.real()})", f"F.elu({v}, {g.real()})", f"F.softplus({v}, {g.real()}, 1.5)", f"F.hardtanh({v}, -1, {g.real()})",
                        f"F.threshold({v}, {g.real()}, {g.real()})", f"F.celu({v}, {g.real()})", f"F.softshrink({v}, 0.3)", f"F.hardshrink({v}, {g.real()})")
    return f"F.{g.rng.choice(ops)}({v})"


@template(9, "compute")
def binary(g):
    v = g.pick()
    other = g.operand(v)
    if g.chance(0.6):
        a, b = (v, other) if g.chance(0.75) else (other, v)
        return f"{a} {g.one_of('+', '-', '*', '/', '*', '+', '-', '//', '%', '**', '>', '<=', '==')} {b}"
    if not other.isidentifier() or other not in g.env:
        return g.one_of(f"torch.add({v}, {other}, alpha=2)", f"torch.clamp({v}, max={other})", f"torch.rsub({v}, {other})", f"torch.div({v}, {other}, rounding_mode='floor')",
                        f"torch.fmod({v}, {other})", f"{v}.pow({other})", f"{v}.eq({other})", f"torch.remainder({v}, {other})", f"{v} & 3", f"torch.where({v} > 0, {v}, {other})",
                        f"torch.div({v}, {other}, rounding_mode='trunc')", f"torch.logical_or({v}, {v} > {other})")
    op = g.one_of("maximum", "minimum", "atan2", "fmod", "remainder", "logical_and", "logical_xor", "floor_divide", "true_divide", "hypot", "copysign", "xlogy", "pow", "fmax",
                  "bitwise_and", "bitwise_or", "bitwise_xor", "sub", "eq", "ne", "ge", "logaddexp", "heaviside", "nextafter", "gcd", "dist")
    return f"torch.{op}({v}, {other})"


@template(3, "compute")
def ternary(g):
    v = g.pick()
    a, b = g.alike(v), g.alike(v)
    return g.one_of(f"torch.where({a} > 0, {v}, {b})", f"torch.where({a} > {b}, {v}, {g.number(v)})", f"torch.addcmul({v}, {a}, {b}, value={g.real()})", f"torch.lerp({v}, {a}, {g.real()})",
                    f"{v}.clamp(-1, {g.real()})", f"torch.clamp({v}, {a}, {b})", f"{v}.masked_fill({a} > 0, {g.number(v)})", f"torch.addcdiv({v}, {a}, {b}.abs() + 1)",
                    f"{v} * {a} + {b}", f"torch.lerp({v}, {a}, {b})", f"({v} - {a}) * {b}", f"torch.where({a}.bool(), {v}, {b})")


@template(3, "compute")
def casts(g):
    v = g.pick()
    return g.one_of(f"{v}.to({g.dtype()})", f"{v}.float()", f"{v}.double()", f"{v}.half()", f"{v}.bfloat16()", f"{v}.long()", f"{v}.bool()", f"{v}.int()", f"{v}.type_as({g.pick()})",
                    f"{v}.to({g.pick()})", f"{v}.to({g.dtype()}, copy=True)")


@template(6, "compute")
def reductions(g):
    v = g.pick()
    keep = g.one_of("", "", ", keepdim=True")
    op = g.rng.choice(["sum", "sum", "mean", "amax", "amin", "prod", "any", "all", "var", "std", "logsumexp", "norm", "nansum", "count_nonzero", "argmax", "argmin", "max", "min",
                       "var_mean", "median", "aminmax", "mean", "cumsum", "cumprod", "logcumsumexp", "cummax", "diff", "std_mean"])
    if op in ("argmax", "argmin", "max", "min", "median", "prod", "any", "all", "aminmax", "cumsum", "cumprod", "logcumsumexp", "cummax", "diff", "count_nonzero"):
        if op in ("cumsum", "cumprod", "logcumsumexp", "cummax", "diff", "count_nonzero"):
            keep = ""
        d = g.dim(v)
        text = f"torch.{op}({v}, dim={d}{keep})" if op != "diff" else f"torch.diff({v}, dim={d})"
        if op in ("max", "min", "median", "aminmax", "cummax"):
            return text + g.one_of("[0]", "[1]", ".values") if op != "aminmax" else text + g.one_of("[0]", ".max")
        return text if g.chance(0.8) or op not in ("max", "min", "prod", "any", "all", "argmax") else f"{v}.{op}()"
    if op in ("sum", "mean", "var", "std", "norm", "nansum") and g.chance(0.3):
        return f"{v}.{op}()" if g.chance(0.8) else f"torch.{op}({v}, dtype=torch.float64)"
    if op in ("var", "std") and g.chance(0.4):
        return f"{v}.{op}({g.axes(v)}, unbiased=False{keep})"
    if op in ("var_mean", "std_mean"):
        made = Names(f"torch.{op}({v}, {g.axes(v)}{keep})")
        return made
    if op == "norm":
        return f"{v}.norm({g.one_of('2', '1')}, {g.axes(v)}{keep})" if g.chance(0.6) else f"torch.linalg.vector_norm({v}, dim={g.axes(v)}{keep})"
    return f"torch.{op}({v}, {g.axes(v)}{keep})"


def partner(g, v, *conditions):
    return g.pick(lambda t: t.dtype == v.dtype, *conditions)


@template(7, "library")
def products(g):
    v = g.ranked(1, 4, differentiable)
    if v.dim() == 1:
        other = partner(g, v, lambda t: t.dim() >= 1 and t.shape[-min(2, t.dim())] == v.shape[0])
        return g.one_of(f"{v} @ {other}", f"torch.matmul({v}, {other})", f"torch.outer({v}, {v})", f"torch.dot({v}, {v})")
    choices = [f"{v} @ {v}.mT", f"torch.matmul({v}.mT, {v})", f"torch.einsum('...ij,...kj->...ik', {v}, {v})", f"torch.einsum('...ij,...ij->...i', {v}, {v})"]
    others = g.vars(lambda t: t.dtype == v.dtype and t.dim() >= 1 and t.shape[-min(2, t.dim())] == v.shape[-1])
    if others and g.chance(0.7):
        other = g.rng.choice(others)
        choices = [f"{v} @ {other}", f"torch.matmul({v}, {other})", f"{v}.matmul({other})"]
        if v.dim() == 2 and other.dim() == 2:
            choices += [f"torch.mm({v}, {other})", f"torch.einsum('ij,jk->ki', {v}, {other})", f"torch.addmm({g.alike(Var('', v.t @ other.t))}, {v}, {other})"]
        if v.dim() == 3 and other.dim() == 3:
            choices += [f"torch.bmm({v}, {other})", f"torch.einsum('bij,bjk->bik', {v}, {other})"]
        if v.dim() == 2 and other.dim() == 1:
            choices += [f"torch.mv({v}, {other})"]
        if v.dim() == 3 and other.dim() == 2:
            choices += [f"torch.einsum('bij,jk->bki', {v}, {other})", f"torch.tensordot({v}, {other}, 1)"]
    return g.rng.choice(choices)


@template(4, "library")
def linear(g):
    v = g.ranked(1, 4, is_float)
    w = partner(g, v, lambda t: t.dim() == 2 and t.shape[1] == v.shape[-1])
    biases = g.vars(lambda t: t.dtype == v.dtype and t.dim() == 1 and t.shape[0] == w.shape[0])
    if biases and g.chance(0.8):
        return f"F.linear({v}, {w}, {g.rng.choice(biases)})"
    return f"F.linear({v}, {w})"


@template(4, "library")
def normalisation(g):
    v = g.ranked(1, 4, is_float)
    n = v.shape[-1]
    rows = g.vars(lambda t: t.dtype == v.dtype and tuple(t.shape) == (n,))
    affine = f", {g.rng.choice(rows)}, {g.rng.choice(rows)}" if rows and g.chance(0.6) else ""
    choices = [f"F.layer_norm({v}, ({n},){affine})", f"F.softmax({v}, {g.dim(v)})", f"torch.softmax({v}, dim=-1)", f"F.log_softmax({v}, dim={g.dim(v)})", f"F.normalize({v}, dim={g.dim(v)})",
               f"F.rms_norm({v}, ({n},))", f"F.gumbel_softmax({v}, dim=-1)" if g.chance(0.1) else f"F.softmin({v}, dim=-1)"]
    if v.dim() >= 2:
        channels = v.shape[1]
        stats = g.vars(lambda t: t.dtype == v.dtype and tuple(t.shape) == (channels,))
        choices += [f"F.batch_norm({v}, None, None, training=True)", f"F.group_norm({v}, 1)"]
        if len(stats) > 1:
            a, b = g.rng.sample(stats, 2)
            choices += [f"F.batch_norm({v}, {a}, {b}.abs() + 0.5)", f"F.batch_norm({v}, {a}, {b}, training=True)"]
    if v.dim() >= 3:
        choices.append(f"F.instance_norm({v})")
    return g.rng.choice(choices)


@template(4, "library")
def convolutions(g):
    v = g.ranked(2, 4, is_float)
    if g.chance(0.4):
        kernels = g.vars(lambda t: t.dtype == v.dtype and t.dim() == 3 and t.shape[1] == v.shape[-2])
        if v.dim() in (2, 3) and kernels:
            return f"F.conv1d({v}, {g.rng.choice(kernels)}, padding={g.one_of('0', '1')})"
    if v.dim() in (3, 4):
        kernels = g.vars(lambda t: t.dtype == v.dtype and t.dim() == 4 and t.shape[1] == v.shape[-3])
        channels = v.shape[-3]
        k = g.rng.choice(kernels) if kernels and g.chance(0.5) else f"torch.ones(2, {channels}, 2, 2, dtype={v.dtype}{g.factory()})"
        return g.one_of(f"F.conv2d({v}, {k}, padding=1)", f"F.conv2d({v}, {k}, stride=2, padding=1)", f"F.conv_transpose2d({v}, torch.ones({channels}, 2, 2, 2, dtype={v.dtype}{g.factory()}))")
    channels = v.shape[-2]
    return f"F.conv1d({v}, torch.ones(2, {channels}, 2, dtype={v.dtype}{g.factory()}), padding=1)"


@template(3, "library")
def pools(g):
    v = g.ranked(3, 4, is_float)
    if v.dim() == 3:
        return g.one_of(f"F.max_pool1d({v}, 2)", f"F.avg_pool1d({v}, 2)", f"F.adaptive_avg_pool1d({v}, 2)", f"F.interpolate({v}, scale_factor=2)", f"F.pad({v}, (1, 1), mode='reflect')",
                        f"F.pad({v}, (1, 0), mode='replicate')", f"F.interpolate({v}, size=3, mode='linear')", f"F.adaptive_max_pool1d({v}, 2)")
    return g.one_of(f"F.max_pool2d({v}, 2)", f"F.avg_pool2d({v}, 2, padding=1)", f"F.adaptive_avg_pool2d({v}, (2, 1))", f"F.interpolate({v}, scale_factor=2, mode='nearest')",
                    f"F.interpolate({v}, size=(3, 2), mode='bilinear', align_corners=False)", f"F.pad({v}, (1, 1, 0, 1), mode='circular')", f"F.pixel_shuffle({v}, 2)", f"F.max_pool2d({v}, 2, padding=1)",
                    f"F.unfold({v}, 2)")


@template(4, "library")
def gathers(g):
    v = g.ranked(1, 4)
    d = g.dim(v)
    n = v.shape[d]
    index = g.indices(n)
    sizes = [g.rng.randint(1, max(1, k)) for k in v.shape]
    full = f"(torch.arange({math.prod(sizes)}{g.factory()}).view({', '.join(map(str, sizes))}) % {n})"
    return g.one_of(f"{v}.index_select({d}, {index})", f"torch.gather({v}, {d}, {full})", f"{v}[{g.indices(v.shape[0])}]", f"{v}.take_along_dim({full}, {d})" if d else f"{v}[..., {g.indices(v.shape[-1])}]",
                    f"{v}.index_fill({d}, {index}, {g.number(v)})", f"{v}.index_add({d}, {index}, {v}.index_select({d}, {index}))", f"{v}.scatter({d}, {full}, {g.number(v)})",
                    f"{v}.scatter_add({d}, {full}, {v})", f"{v}.take({g.indices(max(1, v.numel()))})", f"{v}[{g.indices(v.shape[0])}, None]" if g.chance(0.2) else f"{v}[..., {g.indices(v.shape[-1])}]")


@template(2, "library")
def masked_out(g):
    """The size of the result depends on the data."""
    v = g.pick(not_complex)
    return g.one_of(f"{v}[{v} > 0]", f"torch.masked_select({v}, {v} > 0)", f"torch.nonzero({v})", f"torch.where({v} > 0)[0]", f"torch.unique({v})")


@template(3, "library")
def orders(g):
    v = g.ranked(1, 4, not_complex)
    d = g.dim(v)
    n = v.shape[d]
    k = g.rng.randint(1, max(1, n))
    if g.chance(0.4):
        return Names(g.one_of(f"torch.sort({v}, dim={d}, stable=True)", f"torch.topk({v}, {k}, dim={d})", f"torch.sort({v}, dim={d}, descending=True, stable=True)"))
    return g.one_of(f"torch.sort({v}, dim={d})[0]", f"torch.argsort({v}, dim={d}, stable=True)", f"{v}.topk({k}, {d}).values", f"{v}.kthvalue({k}, {d})[0]", f"torch.msort({v})")


@template(5, "library")
def joins(g):
    v = g.ranked(0, 4)
    same = [t for t in g.vars(lambda t: t.shape == v.shape)]
    parts = ", ".join(str(g.rng.choice(same)) for _ in range(g.rng.randint(1, 3)))
    d = g.rng.randint(-v.dim() - 1, v.dim())
    c = g.dim(v) if v.dim() else 0
    return g.one_of(f"torch.stack([{parts}], {d})", f"torch.cat([{parts}], {c})", f"torch.cat([{parts}, {v}], dim={c})", f"torch.cat([{v}, {g.pick(lambda t: t.dim() == v.dim())}], {c})",
                    f"torch.hstack([{parts}])", f"torch.vstack([{v}, {v}])", f"torch.column_stack([{v}])", f"torch.block_diag({v}, {v})" if v.dim() <= 2 and g.chance(0.3) else f"torch.stack([{parts}])")


@template(2, "library")
def pads(g):
    v = g.ranked(1, 4)
    amounts = tuple(g.rng.choice([0, 1, 1, 2, -1]) for _ in range(2 * g.rng.randint(1, min(2, v.dim()))))
    return g.one_of(f"F.pad({v}, {amounts})", f"F.pad({v}, {amounts}, value={g.number(v)})")


@template(2, "library")
def embeddings(g):
    v = g.ranked(2, 2, is_float)
    index = g.indices(v.shape[0])
    return g.one_of(f"F.embedding({index}, {v})", f"F.embedding_bag({index}[None], {v})", f"F.one_hot({index}, {v.shape[0]})")


@template(3, "library")
def attention(g):
    v = g.ranked(2, 4, is_float)
    others = [t for t in g.vars(lambda t: t.dtype == v.dtype and t.shape == v.shape)]
    q, k, w = (g.rng.choice(others) for _ in range(3))
    return g.one_of(f"F.scaled_dot_product_attention({q}, {k}, {w})", f"F.scaled_dot_product_attention({q}, {k}, {w}, is_causal=True)", f"torch.softmax({q} @ {k}.mT, -1) @ {w}")


@template(2, "library")
def losses(g):
    v = g.ranked(1, 3, is_float)
    other = g.pick(lambda t: t.dtype == v.dtype and t.shape == v.shape)
    n = v.shape[0]
    reduction = g.one_of("mean", "sum", "none")
    texts = [f"F.mse_loss({v}, {other}, reduction='{reduction}')", f"F.l1_loss({v}, {other}, reduction='{reduction}')", f"F.smooth_l1_loss({v}, {other}, reduction='{reduction}')",
             f"F.cosine_similarity({v}, {other}, dim=-1)", f"F.binary_cross_entropy_with_logits({v}, torch.sigmoid({other}), reduction='{reduction}')", f"F.kl_div({v}, {other}, reduction='{reduction}')"]
    if v.dim() == 2 and v.shape[1]:
        texts += [f"F.cross_entropy({v}, torch.arange({n}{g.factory()}) % {v.shape[1]}, reduction='{reduction}')"] * 2
    return g.rng.choice(texts)


@template(2, "library")
def random_numbers(g):
    v = g.pick(is_float)
    return g.one_of(f"F.dropout({v}, 0.5)", f"torch.rand_like({v})", f"F.dropout({v}, 0.3, training=True)", f"{v} * torch.randn_like({v})", f"torch.bernoulli(torch.sigmoid({v}))")


@template(2, "library")
def factories(g):
    v = g.pick()
    n = g.size(v, 0) if v.dim() else "3"
    return g.one_of(f"torch.zeros_like({v})", f"torch.ones_like({v})", f"torch.full_like({v}, {g.number(v)})", f"{v}.new_zeros({n}, 2)", f"torch.arange({n}{g.factory()})", f"torch.eye({n}{g.factory()})",
                    f"torch.zeros({n}, 3{g.factory()})", f"torch.linspace(0, 1, {n}{g.factory()})", f"torch.tensor([1.0, 2.0, -3.0]{g.factory()})", f"{v}.new_full((2, {n}), {g.number(v)})",
                    f"torch.ones({n}, dtype={g.dtype()}{g.factory()})")


@template(2, "library")
def linear_algebra(g):
    v = g.ranked(2, 3, is_float)
    return g.one_of(f"torch.linalg.norm({v})", f"torch.trace({v})" if v.dim() == 2 else f"torch.baddbmm({v}, {v}, {v})", f"torch.cdist({v}, {v})", f"torch.cross({v}, {v}, dim=-1)", f"torch.tril({v})",
                    f"torch.kron({v}, {v})" if v.numel() <= 9 else f"torch.cov({v})", f"torch.diag({v})" if v.dim() == 2 else f"torch.diag_embed({v})", f"torch.diagonal({v}).sum()", f"torch.linalg.matrix_norm({v})",
                    f"torch.diag_embed({v})", f"torch.inner({v}, {v})")


@template(2, "library")
def foreign(g):
    """Operators of other libraries."""
    v = g.pick(is_float)
    texts = [f"fuzz.scaled({v}, 2.0)", f"fuzz.unknown({v})", Line(f"fuzz.shifted_({v}, 0.5)"), f"fuzz.scaled({v}, 0.5)"]
    others = g.vars(lambda t: t.dtype == v.dtype and t.shape == v.shape)
    texts.append(Names(f"fuzz.two({v}, {g.rng.choice(others)})"))
    if v.dim() == 4 and v.dtype in (torch.float32, torch.float64) and v.numel():  # of no pixels it reads beside the image
        # a box of an image that is not there would be read and written beside the images
        texts += [f"torchvision.ops.roi_align({v}, torch.tensor([[0.0, 0.0, 0.0, 2.0, 2.0]], dtype={v.dtype}{g.factory()})[:len({v})], 2)"] * 4
    if v.dim() == 2 and v.shape[1] == 4 and v.dtype is torch.float32:
        texts += [f"torchvision.ops.nms(torch.cat([{v}[:, :2], {v}[:, :2] + 1], 1), {v}[:, 0], 0.5)"] * 3
    return g.rng.choice(texts)


@template(1, "library")
def complexes(g):
    v = g.pick(is_float)
    return g.one_of(f"torch.complex({v}, {v})", f"{v}.to(torch.complex64)", f"torch.view_as_complex({v})", f"torch.fft.rfft({v})", f"torch.polar({v}.abs(), {v})")


@template(1, "library")
def data(g):
    """Reads of the data: the graph ends here, and another one begins."""
    v = g.pick(not_complex)
    return Line(g.one_of(f"s{g.rng.randrange(100)} = {v}.sum().item()", "torch._dynamo.graph_break()"))
