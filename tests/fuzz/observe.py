"""One call of a graph program, and everything a user could see of it; and what differs between two such calls.

Values may differ by rounding: by a few units of the last place of the tensor's largest number. Where they differ by more, the
program itself is asked how sure its numbers are: eager runs again a few times with noise of one unit in the last place after
each operator that rounds, and on the inputs. An element that eager itself does not hold still is allowed to differ as much
as it moved; where a comparison, a rounding or an order flips, nobody's answer is the right one.
"""

import contextlib
import math
import re
import sys
import pathlib

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent / "python")]

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import rounding
from inputs import World

MODES = {"grad": contextlib.nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}


def leaves_of(tree, path="result"):
    """(path, leaf) of a nest of tuples, lists and dicts; the kinds of the containers are leaves, too."""
    if isinstance(tree, (tuple, list)):
        yield path, type(tree).__name__
        for k, item in enumerate(tree):
            yield from leaves_of(item, f"{path}[{k}]")
    elif isinstance(tree, dict):
        yield path, f"dict of {list(tree)}"
        for key, item in tree.items():
            yield from leaves_of(item, f"{path}[{key!r}]")
    else:
        yield path, tree


def scrub(text):
    return re.sub(r"0x[0-9a-f]{6,}", "0x...", text)


def error_text(error):
    # torch appends hints about its own debugging flags and C++ frames, which no program depends on
    text = scrub(str(error)).split("Exception raised from")[0].strip()
    # which of an operator's own tensors was saved, torch alone decides
    text = re.sub(r"(modified by an inplace operation): .*", r"\1", text, flags=re.DOTALL)
    return f"{type(error).__name__}: {text}"


def snapshot(t):
    with torch.no_grad():
        t = t.detach().resolve_conj().resolve_neg()
        if t.dtype is torch.complex32:  # torch compares none of these
            t = torch.view_as_real(t)
        return t.clone(memory_format=torch.contiguous_format)


def version(t):
    return None if t.is_inference() else t._version


def unusable(t):
    """What torch says of a view whose base was written to where it must not be."""
    try:
        t.is_leaf
    except RuntimeError as error:
        return error_text(error)


class Seen:
    """What one call showed. `facts`: (kind, path) -> text, to be equal. `values`: (kind, path) -> tensor."""

    def __init__(self):
        self.facts, self.values, self.keep, self.tensors = {}, {}, [], {}

    def fact(self, kind, path, value):
        self.facts[kind, path] = value

    def tensor(self, kind, path, t, stride_kind="strides"):
        self.fact("dtype" if kind == "value" else f"{kind}: dtype", path, str(t.dtype))
        self.fact("shape" if kind == "value" else f"{kind}: shape", path, list(t.shape))
        self.fact(stride_kind, path, list(t.stride()))
        if t.is_conj() or t.is_neg():
            self.fact("conj", path, (t.is_conj(), t.is_neg()))
        self.values[kind, path] = snapshot(t)


def weights(t, kind):
    """The gradient that comes in from the end of a loss."""
    if kind == "ones":
        return torch.ones((), dtype=t.dtype, device=t.device).expand(t.shape)
    made = torch.linspace(0.5, 1.5, t.numel(), dtype=torch.float64, device=t.device).to(t.dtype).reshape(t.shape)
    return torch.empty_like(t).copy_(made) if kind == "strides" else made


def observe(program, call, function, device="cpu", perturb=None, mode=None):
    """Calls `function` on arguments of its own, runs the program's backward, and looks at everything."""
    world, seen = World(program, call, device, perturb), Seen()
    torch.default_generator.manual_seed(call["seed"])  # torch.manual_seed asks every kind of device, which takes longer than a call
    if device == "cuda":
        torch.cuda.manual_seed(call["seed"])
    before = {letter: flat.clone() for letter, flat in world.flats.items()}
    versions = {name: version(t) for name, t in world.tensors.items()}
    hooks = []
    plan = program.backward or {}
    for name in plan.get("input hooks", ()):
        t = world.tensors.get(name)
        if t is not None and t.requires_grad:
            t.register_hook(lambda grad, name=name: hooks.append((f"hook of {name}", grad, grad if grad is None else grad.clone())))
    result = None
    with mode or contextlib.nullcontext():
        try:
            with MODES[program.mode]():
                result = function(*world.args)
            seen.fact("exception", "call", None)
        except Exception as error:
            seen.fact("exception", "call", error_text(error))
        look_at_result(seen, result, world)
        outputs = [(path, t) for path, t in leaves_of(result) if isinstance(t, torch.Tensor) and unusable(t) is None]
        for path, t in outputs:
            seen.tensor("value", path, t)
        if program.backward and program.mode == "grad":
            backward(plan, seen, world, outputs, hooks)
    for name, t in world.tensors.items():
        seen.fact("version", name, None if versions[name] is None else version(t) - versions[name])
        seen.fact("input", name, unusable(t) or (list(t.shape), list(t.stride()), t.storage_offset(), t.requires_grad, t.is_leaf))
    for letter, flat in world.flats.items():
        inside = world.inside[letter].to(flat.device)
        seen.values["mutation", letter] = flat[inside].resolve_conj()
        # what the program did not name must have the same bits, unless eager changed it (through as_strided)
        seen.values["guard", letter] = flat[~inside].clone()
        seen.keep.append(before[letter][~inside])
    failed = seen.facts.get(("exception", "backward")) is not None  # what came through before depends on the engine's order
    memory = {}
    for name, leaf in () if failed else world.leaves.items():
        if leaf.grad is not None and leaf.grad.numel():  # a leaf may take over what an operator gave, and add to it
            place = name if leaf.grad._is_zerotensor() else leaf.grad.untyped_storage().data_ptr()
            seen.fact("grad alias", name, memory.setdefault(place, name))
        if leaf.grad is None:
            seen.fact("grad None", name, "None")
        else:
            seen.fact("grad None", name, "a tensor")
            seen.tensor("grad", name, leaf.grad)
            # what AccumulateGrad promises; of a dimension of one element nothing
            seen.facts["strides of .grad", name] = [s for s, n in zip(seen.facts.pop(("strides", name)), leaf.grad.shape) if n > 1]
    # by the numbers that come next: a state that was set once more has other bytes, and gives the same
    seen.fact("random state", "", torch.rand(2).tolist())
    if device == "cuda":
        torch.cuda.synchronize()
        seen.fact("random state", "cuda", torch.rand(2, device="cuda").tolist())
    seen.tensors = dict(outputs)
    return seen


def look_at_result(seen, result, world):
    """Structure, identity, aliasing and autograd facts of what came back."""
    known, storages = {}, {}
    for name, t in world.tensors.items():
        known.setdefault(id(t), name)
        storages.setdefault(t.untyped_storage().data_ptr() or t.untyped_storage()._cdata, f"storage of {name}")
    for path, leaf in leaves_of(result):
        if not isinstance(leaf, torch.Tensor):
            seen.fact("structure", path, repr(leaf) if not isinstance(leaf, float) else "float")
            if isinstance(leaf, float):
                seen.values["value", path] = torch.tensor(leaf, dtype=torch.float64)
            continue
        seen.fact("structure", path, type(leaf).__name__)
        if unusable(leaf) is not None:
            seen.fact("exception", path, unusable(leaf))
            continue
        seen.fact("identity", path, known.setdefault(id(leaf), path))
        seen.fact("alias", path, storages.setdefault(
            leaf.untyped_storage().data_ptr() or leaf.untyped_storage()._cdata, path) if leaf.numel() else "no elements")
        seen.fact("offset", path, leaf.storage_offset())
        seen.fact("autograd", path, ("requires grad" if leaf.requires_grad else "no grad", "leaf" if leaf.is_leaf else
                                     "no leaf", "inference" if leaf.is_inference() else ""))
        seen.fact("output version", path, version(leaf))
        seen.fact("view", path, leaf._is_view())


def backward(plan, seen, world, outputs, hooks):
    ends = [(path, t) for path, t in outputs if t.requires_grad]
    have = {id(t) for _, t in ends}
    # an argument that was written to is a result, too
    ends += [(name, t) for name, t in world.tensors.items() if unusable(t) is None and t.requires_grad and not t.is_leaf and id(t) not in have]
    ends = list({id(t): (path, t) for path, t in ends}.values())
    keep = plan.get("ends")
    if keep is not None:
        ends = [end for k, end in enumerate(ends) if k in keep] or ends[:1]
    for path, t in ends if plan.get("output hooks") else ():
        t.register_hook(lambda grad, path=path: hooks.append((f"hook of {path}", grad, grad if grad is None else grad.clone())))
    if plan.get("after") and outputs:  # what the caller does with a result before it goes back
        path, t = outputs[plan["after"][0] % len(outputs)]
        try:
            exec(plan["after"][1], {"y": t, "torch": torch})
            seen.fact("exception", "after", None)
        except Exception as error:
            seen.fact("exception", "after", error_text(error))
    if not ends:
        return
    ends_only = [t for _, t in ends]
    try:
        for round in range(plan.get("rounds", 1)):
            # new ones each time: eager makes their memory the gradient of a leaf where it can, and adds to it
            seeds = [weights(t, plan["weights"]) for t in ends_only]
            retain = round + 1 < plan.get("rounds", 1)
            if plan["kind"] == "backward":
                torch.autograd.backward(ends_only, seeds, retain_graph=retain)
            elif plan["kind"] == "each":
                for k, (t, seed) in enumerate(zip(ends_only, seeds)):
                    t.backward(seed, retain_graph=retain or k + 1 < len(seeds))
            else:
                wanted = {name: leaf for name, leaf in world.leaves.items() if name in plan["wanted"]} or dict(world.leaves)
                wanted |= {name: world.tensors[name] for name in plan.get("wanted inputs", ()) if world.tensors[name].requires_grad}
                grads = torch.autograd.grad(ends_only, list(wanted.values()), seeds, allow_unused=True,
                                            retain_graph=retain or plan["kind"] == "double",
                                            create_graph=plan["kind"] == "double")
                for name, grad in zip(wanted, grads):
                    seen.fact("grad None", f"{name}, {round}", "None" if grad is None else "a tensor")
                    if grad is not None:
                        seen.tensor("grad", f"{name}, {round}", grad, "grad strides")
                        seen.fact("autograd", f"grad of {name}, {round}", grad.requires_grad)
                again = [grad for grad in grads if grad is not None and grad.requires_grad]
                if plan["kind"] == "double" and again:
                    torch.autograd.backward(again, [weights(grad, "plain") for grad in again])
        seen.fact("exception", "backward", None)
    except Exception as error:
        seen.fact("exception", "backward", error_text(error).splitlines()[0])
    if seen.facts[("exception", "backward")] is not None:
        return
    seen.fact("hook order", "", [name for name, _, _ in hooks])
    for k, (name, grad, then) in enumerate(sorted(hooks, key=lambda item: item[0])):
        seen.fact("hooks", f"{k}: {name}", "called" if grad is not None else "called with None")
        if grad is not None:
            seen.tensor("hook", f"{k}: {name}", grad, "hook strides")
            seen.values["hook", f"{k}: {name}"] = snapshot(then)  # a leaf of eager's may add to the memory of what a hook was given


# ---- numbers --------------------------------------------------------------------------------------------------------

def exceeds(want, have, spread=None):
    """The elements of `have` that are too far from eager's, as a mask; None: shapes or dtypes differ."""
    if want.dtype != have.dtype or want.shape != have.shape:
        return None
    if torch.equal(want, have):
        return torch.zeros(want.shape, dtype=torch.bool, device=want.device)
    if want.dtype not in rounding.UNITS:
        return (want != have) if spread is None else (want != have) & ~spread.bool()
    if want.is_complex():  # a NaN in one part says nothing of the other
        parts = exceeds(torch.view_as_real(want), torch.view_as_real(have), None if spread is None else spread[..., None])
        # torch adds x + alpha * y with a complex alpha of 1: one part of y that is not finite makes NaN of the other
        a, b = ((~torch.view_as_real(t).isfinite()).sum(-1) for t in (want, have))
        return parts.any(-1) & ~((a > 0) & (b > 0) & (a != b))
    unit = rounding.UNITS[want.dtype]
    want, have = want.double(), have.double()
    finite = want[torch.isfinite(want)].abs()
    allowed = unit * (finite.max().item() if finite.numel() else 0.0)
    if spread is not None:
        allowed = allowed + 8 * spread
    # infinite or NaN in one and the same in the other: equal
    same = (want == have) | (torch.isnan(want) & torch.isnan(have))
    near = (want - have).abs() <= allowed
    if spread is not None:
        near |= torch.isinf(spread)  # NaN in one of eager's own answers, a number in another
    return ~(same | near)


def differs(want, have):
    """The elements of `have` that are not eager's bit for bit (one NaN is as good as another); None: shapes or dtypes differ."""
    if want.dtype != have.dtype or want.shape != have.shape:
        return None
    return (bits(want) != bits(have)) & ~((want != want) & (have != have))


EXACT = {"clone", "copy_", "fill_", "fill", "zero_", "cat", "stack", "index", "gather", "scatter", "scatter_", "where",
         "masked_fill", "masked_fill_", "clamp", "clamp_", "clamp_min", "clamp_max", "relu", "relu_", "maximum", "minimum", "amax",
         "amin", "max", "min", "sort", "topk", "neg", "neg_", "abs", "abs_", "sign", "sign_", "floor", "floor_", "ceil", "ceil_",
         "round", "round_", "trunc", "trunc_", "flip", "roll", "constant_pad_nd", "embedding", "index_select", "masked_select",
         "index_put_", "index_put", "index_fill_", "index_copy_", "tril", "triu", "tril_", "triu_", "zeros", "ones", "full",
         "zeros_like", "ones_like", "full_like", "arange", "new_zeros", "new_ones", "new_full", "eye", "_to_copy", "repeat",
         "select_backward", "slice_backward", "as_strided_scatter", "slice_scatter", "threshold", "threshold_backward",
         "max_pool2d_with_indices", "cummax", "masked_scatter_", "resolve_conj", "_conj_physical", "scalar_tensor", "lift_fresh"}
EPSILON = {torch.float16: 2.0 ** -10, torch.bfloat16: 2.0 ** -7, torch.float32: 2.0 ** -22, torch.float64: 2.0 ** -51,
           torch.complex64: 2.0 ** -22, torch.complex128: 2.0 ** -51}


NORMS = re.compile(r"(native_|_native_|cudnn_|_fused_)?(batch|layer|group|instance|rms)_?norm|var|std|linalg_vector_norm|norm|mean|sum|_?log_?soft|_?softmax|logsumexp")


SUMS = re.compile(r"(add|sub|rsub|scatter_add|index_add|scatter_reduce|index_reduce|cumsum|lerp|addcmul|addcdiv)_?$")
PRODUCTS = re.compile(r"mm|bmm|addmm|baddbmm|addmv|mv|dot|convolution|mkldnn_convolution|_convolution|linear|matmul")


def overlaps(t):
    """Whether two elements lie in one place."""
    places = torch.zeros((), dtype=torch.int64)
    for n, step in zip(t.shape, t.stride()):
        places = places[..., None] + torch.arange(n) * step
    return places.unique().numel() < t.numel()


def no_answer(function, args):
    """Whether torch leaves open what an operator gives for these arguments: the sign and the bits of a NaN, integers
    divided by zero on a GPU, means of infinite numbers in an order of the kernel's own, a scatter into its own source,
    infinite numbers whose weight is zero or next to it, by rounding."""
    name, first = function._schema.name.split("::")[1].removesuffix("_"), args[0] if args else None
    if any(isinstance(a, torch.Tensor) and a.dtype is torch.bool and a.numel() and not a.is_meta and int(a.view(torch.uint8).max()) > 1 for a in args):
        return True  # x.view(torch.bool): such bytes are no booleans
    if name in ("var_mean", "std_mean", "gelu") and isinstance(first, torch.Tensor) and bool(first.isinf().any()):
        return True  # gelu: torch's vectors of an x86 give NaN for an infinity
    if name in ("min", "max", "amin", "amax", "aminmax", "minimum", "maximum", "sort", "topk", "clamp", "clamp_min", "clamp_max", "fmin", "fmax", "relu", "relu6", "threshold", "hardtanh", "max_pool2d_with_indices", "max_pool2d"):
        floats = [a.detach().reshape(-1) for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
        if floats:  # which of two zeros is the less
            signs = torch.cat([a.double() for a in floats])
            signs = signs[signs == 0].signbit()
            return bool(signs.any() and (name in ("relu", "relu6", "threshold", "hardtanh") or name.startswith("clamp") or not signs.all()))
    if re.search(r"(batch|layer|group|instance|rms)_?norm", name) and isinstance(first, torch.Tensor) and first.is_floating_point():
        squares = first.detach().double().abs().nan_to_num(0, 0, 0).square().sum()
        if bool(squares > torch.finfo(torch.float32 if first.element_size() < 8 else torch.float64).max / 4):
            return True  # its sums overflow, in an order of the kernel's own
    if name == "as_strided" and first.element_size() == 2 and first.is_floating_point() and overlaps(first):
        return True  # its gradient is divided by how many elements share a place, and summed up again
    if name in ("sinh", "cosh") and first.dtype != torch.float64 and bool((first.abs() > 88).any()):
        return True  # torch's vectors of an Arm overflow before the result does
    if name.startswith("upsample_") and "nearest" not in name:
        return bool(first.isinf().any())
    if name in ("median", "nanmedian", "kthvalue") and 0 in first.stride():
        return True  # torch's kernels read beside such a tensor on a CPU
    if name in ("median", "nanmedian", "kthvalue", "mode") and len(args) > 1 and first.is_cuda:
        return True  # which of several equal elements is named changes from run to run
    if "scaled_dot_product" in name and any(isinstance(a, torch.Tensor) and overlaps(a) for a in args[:3]):
        return True  # torch packs them on an x86, and reads beside what it packed
    if name == "prod" and first.is_floating_point() and first.numel() and not (first.is_cuda and first.element_size() == 2):
        # in an order of its own: which of the partial products vanish, or lose digits below all normal numbers, or overflow is a matter of that order
        digits = first.double().abs().log2()
        least = -14 if first.element_size() == 2 else math.log2(torch.finfo(first.dtype).tiny)
        return not (digits.clamp(max=0).sum() > least and digits.clamp(min=0).sum() < math.log2(torch.finfo(first.dtype).max))
    if name in ("add", "sub") and first.is_complex() and not all(bool(a.isfinite().all()) for a in args[:2] if isinstance(a, torch.Tensor)):
        return True  # x + alpha * y with a complex alpha of 1: infinite numbers of y become NaN, those of x do not
    if name in ("native_dropout", "dropout") and first.is_cuda and first.data_ptr() % 16:
        return True  # which numbers are drawn depends on how many elements a thread reads at once
    if name == "masked_scatter":
        return len(args) > 2 and args[2].untyped_storage()._cdata == first.untyped_storage()._cdata
    if name in ("signbit", "copysign") or name == "view" and function._overloadname == "dtype":
        of = args[1] if name == "copysign" else first
        return isinstance(of, torch.Tensor) and (of.is_floating_point() or of.is_complex()) and bool(of.isnan().any())
    if name in ("fmod", "remainder", "floor_divide", "div") and len(args) > 1 and isinstance(first, torch.Tensor) and first.is_cuda:
        by = args[1]
        return isinstance(by, torch.Tensor) and not by.is_floating_point() and not by.is_complex() and bool((by == 0).any())
    return False


POOLS = re.compile(r"_?(adaptive_)?avg_pool[123]d$")
ELEMENTWISE = re.compile(r"(hardtanh|hardswish|hardsigmoid|hardshrink|softshrink|softplus|elu|leaky_relu|threshold|gelu|silu|mish|sigmoid|tanh|logit)_backward$")


def misread(function, args, kwargs):
    """Whether the answer depends on the strides of a gradient. torch 2.11: a gradient of [1, 5, 1, 3] with strides
    [1, 1, 1, 5] passes for one in channels_last, but the kernel for images that are contiguous reads it, in the order of memory."""
    if args[0].is_contiguous():
        return False
    try:
        a = function(*args, **kwargs)[0]
        b = function(args[0].contiguous(), *args[1:], **kwargs)[0]
    except RuntimeError:  # a kernel that wants one layout of all its arguments
        return False
    return a is not None and not torch.allclose(a.double(), b.double(), 1e-2, 1e-3, equal_nan=True)


def unwritten(function, args, kwargs):
    """Whether torch leaves elements of a convolution's result as it found them. torch 2.11, x86_64, bf16: an image of one column in
    channels_last."""
    if args[0].dtype not in (torch.bfloat16, torch.float16):
        return False
    wide = [a.float() if isinstance(a, torch.Tensor) else a for a in args]
    a, b = function(*args, **kwargs), function(*wide, **kwargs)
    return not torch.allclose(a.float(), b, 5e-2, 5e-2 * float(b.abs().nan_to_num(0, 0, 0).max() if b.numel() else 0), equal_nan=True)


def two_answers(function, args, kwargs):
    """Whether torch's vectors and its loops over single elements (the rest of a row, tensors with gaps) answer otherwise where
    an argument is infinite, next to it or no number: then each element's answer depends on its place. And where an infinite gradient comes
    to a norm: which of its gradients are NaN, and which infinite, depends on the formula (torch's for CPUs and GPUs are two)."""
    name = function._schema.name.split("::")[1].removesuffix("_")
    if name == "convolution":
        return unwritten(function, args, kwargs)
    if re.match(r"native_(group|layer|batch)_norm_backward$", name):
        return isinstance(args[0], torch.Tensor) and (not bool(args[0].isfinite().all()) or misread(function, args, kwargs))
    if function._schema.name.endswith("_") or function._schema.is_mutable:
        function = getattr(getattr(torch.ops.aten, name, None), function._overloadname, None)
    if function is None or not (torch.Tag.pointwise in function.tags or ELEMENTWISE.match(name)) or torch.Tag.nondeterministic_seeded in function.tags:
        return False
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if not tensors or any(t.is_cuda for t in tensors):
        return False
    divides = name in ("fmod", "remainder")  # torch's vectors: NaN where no float holds the quotient
    if not divides and all(not t.dtype.is_floating_point or bool((t.abs() < 1e15).all()) for t in tensors):
        return False
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))

    def filled(vectors):
        def fill(t):
            row = t.detach().expand(shape).reshape(-1)
            row = row.repeat(64) if vectors else row
            made = row if vectors else torch.stack([row, row], -1)[..., 0]
            return made if t.dim() or not shape else t.detach()
        out = function(*(fill(a) if isinstance(a, torch.Tensor) else a for a in args), **kwargs)
        return out[:math.prod(shape)] if isinstance(out, torch.Tensor) and out.dim() else out

    try:
        a, b = filled(True), filled(False)
    except RuntimeError:
        return False
    if not isinstance(a, torch.Tensor) or not a.dtype.is_floating_point:
        return False
    finite = a.isfinite() & b.isfinite()
    return not bool((finite | (a == b) | (a.isnan() & b.isnan())).all()) or bool((finite & ((a - b).abs() > 0.1 * a.abs())).any())


def least_place(args):
    """A unit in the last place of the largest number."""
    floats = [a for a in args if isinstance(a, torch.Tensor) and a.dtype in EPSILON and a.numel()]
    return max((EPSILON[a.dtype] * a.abs().nan_to_num(0, 0, 0).max().item() for a in floats), default=0.0)


class Noise(TorchDispatchMode):
    """Eager with noise in the last place of each result. `undefined`: a conversion whose result C++ does not define."""

    def __init__(self, seed):
        super().__init__()
        self.round = seed
        self.generator, self.undefined = torch.Generator().manual_seed(seed), False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if torch.is_inference_mode_enabled():  # no key of autograd's takes it apart before
            with self:
                parts = function.decompose(*args, **(kwargs or {}))
            if parts is not NotImplemented:
                return parts
        name = function._schema.name.split("::")[1]
        self.undefined |= no_answer(function, args) or name == "softshrink" or two_answers(function, args, kwargs or {})  # softshrink: the sign of its zeros
        sums, most = NORMS.match(name), 0.0
        if sums:  # what is left of equal numbers is noise, and it is divided by noise
            most = least_place(args)
            args = [self.noisy(a) if isinstance(a, torch.Tensor) and a.dtype in EPSILON and not declared.is_write else a
                    for a, declared in zip(args, function._schema.arguments)]
        elif SUMS.match(name):
            most = least_place(args)
        rest = self.left(function, name, args, kwargs or {}) if PRODUCTS.match(name) and self.round % 2 else None
        out = function(*args, **(kwargs or {}))
        if name in ("empty_strided", "new_empty_strided") and out.dtype in EPSILON:  # between the elements lies what lay there before
            whole = out.untyped_storage().nbytes() // out.itemsize
            out.as_strided((whole,), (1,), 0).fill_(math.nan if self.round % 2 else self.round)
        if POOLS.match(name) and args[0].dtype in EPSILON:  # torch adds the elements of a window one after the other
            out.copy_(function(args[0].double(), *args[1:], **(kwargs or {})))
        if name in ("_to_copy", "copy_"):
            source, made = args[1 if name == "copy_" else 0], out
            if source.dtype.is_floating_point and not (made.dtype.is_floating_point or made.dtype.is_complex) and source.numel():
                wide = source.double()
                limit = 2 if made.dtype is torch.bool else torch.iinfo(made.dtype)
                if limit != 2 and not bool(((wide > float(limit.min) - 1) & (wide < float(limit.max) + 1) | (wide == float(limit.min))).all()):
                    self.undefined = True
        adds = name in ("index_put", "index_put_") and (kwargs or {}).get("accumulate", len(args) > 3 and args[3])
        # two gradients that are summed up before they become halves, or after
        narrows = name == "_to_copy" and out.dtype in (torch.float16, torch.bfloat16) and args[0].dtype in (torch.float32, torch.float64)
        if name not in EXACT or adds or narrows:
            returned = out if isinstance(out, (tuple, list)) else (out,)
            for item, declared in zip(returned, function._schema.returns):
                views = declared.alias_info is not None and not declared.alias_info.is_write
                if isinstance(item, torch.Tensor) and item.dtype in EPSILON and not views and not item._is_zerotensor():
                    try:
                        if sums and self.round % 2:  # or there is nothing left
                            left = 8 * most * (400 if "norm" in name else 1)  # over the root of eps
                            item.copy_(torch.where(item.abs() <= left, torch.zeros_like(item), item))
                        elif SUMS.match(name) and self.round % 2:
                            item.copy_(torch.where(item.abs() <= 4 * most, torch.zeros_like(item), item))
                        elif rest is not None:
                            item.copy_(torch.where(item.abs() <= rest, torch.zeros_like(item), item))
                        elif sums:
                            item.add_(torch.randn(item.shape, generator=self.generator).to(item.device) * most)
                        if name.removesuffix("_") in ("erf", "gelu"):  # torch's vectors of an Arm: right to so many digits behind the point
                            item.add_(torch.randn(item.shape, generator=self.generator).clamp(-2, 2).to(item.device) * EPSILON[item.dtype])
                        if name == "tanh_backward":  # 1 - y * y: what is left of equal numbers
                            item.add_(torch.randn(item.shape, generator=self.generator).clamp(-2, 2).to(item.device) * args[0].abs() * EPSILON[item.dtype])
                        item.copy_(self.noisy(item))
                        if "norm" in name and item.is_floating_point():  # x * a + b, or (x - mean) * a: zeros have either sign
                            signs = torch.randn(item.shape, generator=self.generator).to(item.device, item.dtype)
                            item.copy_(torch.where(item == 0, torch.copysign(item, signs), item))
                    except RuntimeError:
                        pass  # expanded: several elements are one
        return out

    def left(self, function, name, args, kwargs):
        """How large what is left of a sum of products may be, where nothing is."""
        try:
            most = function(*(a.abs() if isinstance(a, torch.Tensor) and a.dtype in EPSILON else a for a in args), **kwargs)
        except RuntimeError:
            return None
        return 4 * EPSILON[most.dtype] * most if isinstance(most, torch.Tensor) and most.dtype in EPSILON and not most.is_complex() else None

    def noisy(self, t):
        # the parts of a complex number are rounded where the larger one is
        wide = t.to(torch.complex128 if t.is_complex() else torch.float64)
        noise = torch.randn((*t.shape, 2), generator=self.generator, dtype=torch.float64).clamp(-2, 2)
        noise = (torch.view_as_complex(noise) if t.is_complex() else noise[..., 0]).to(t.device)
        least = torch.finfo(t.dtype).smallest_normal * torch.finfo(t.dtype).eps  # below that size, units are no fraction of a number
        made = (wide * (1 + EPSILON[t.dtype] * noise) + (wide != 0) * least * noise).to(t.dtype)
        return made if t.is_complex() else torch.where(t.isnan(), self.nan(t), made)

    def nan(self, t):
        """One of the many, by its bits, which nothing promises and a view of integers shows."""
        whole = WHOLE[t.element_size()]
        one = torch.full((), math.nan, dtype=t.dtype).view(whole) + int(torch.randint(3, (), generator=self.generator))
        return one.view(t.dtype).to(t.device)


def perturbed(round):
    """Inputs a unit in the last place away. Equal numbers stay equal."""

    def perturb(flat, inside):
        if flat.dtype not in EPSILON:
            return flat
        wide = flat.to(torch.complex128 if flat.is_complex() else torch.float64)
        noise = torch.sin(wide.abs().nan_to_num(1, 1, 1) * 12345.678 + 1.7 * round)
        return torch.where(inside, (wide * (1 + EPSILON[flat.dtype] * noise)).to(flat.dtype), flat)

    return perturb


class Spread:
    """How far eager's own numbers move, and which of its facts do; computed once, where it is needed."""

    ROUNDS, MOST = 8, 64  # `MOST`: before an answer is called wrong, since a comparison for equality rarely flips

    def __init__(self, program, call, function, device, want):
        self.program, self.want = (program, call, function, device), want
        self.moved, self.facts, self.undefined, self.rounds = {}, set(), False, 0
        self.widen()

    def widen(self):
        """A few rounds more; False: there were enough."""
        if self.undefined or self.rounds >= self.MOST:
            return False
        for round in range(self.rounds, self.rounds + self.ROUNDS):
            self.add(round)
        self.rounds += self.ROUNDS
        return True

    def add(self, round):
        noise, want = Noise(round), self.want
        try:
            seen = observe(*self.program, perturbed(round), noise)
        except Exception:  # an operator that does not go through a dispatch mode
            self.undefined = True
            return
        self.undefined |= noise.undefined
        for key, value in want.facts.items():
            if key[0] != "version" and seen.facts.get(key, value) != value:
                self.facts.add(key)
        for key, value in want.values.items():
            other = seen.values.get(key)
            if other is None or other.shape != value.shape or other.dtype != value.dtype:
                self.facts.add(key)
                continue
            if value.dtype not in rounding.UNITS:
                moved = (value != other).to(torch.float64)
            else:
                wide = torch.complex128 if value.is_complex() else torch.float64
                moved = (value.to(wide) - other.to(wide)).abs()
                moved = torch.where((value == other) | (value.isnan() & other.isnan()), 0.0, moved).nan_to_num(
                    float("inf"), float("inf"), float("inf"))
            self.moved[key] = torch.maximum(self.moved[key], moved) if key in self.moved else moved


# ---- differences ----------------------------------------------------------------------------------------------------

# From the worst to the least; the first that is found names the failure.
KINDS = ["guard", "exception", "structure", "dtype", "shape", "value", "mutation", "later", "alias", "identity", "grad None", "grad", "grad alias",
         "grad: dtype", "grad: shape", "hook", "hook: dtype", "hook: shape", "hooks", "strides", "offset", "conj", "autograd", "input", "version",
         "random state", "strides of .grad", "grad strides", "hook strides", "hook order", "output version", "view"]


# Where eager trips over itself: its stand-in for a gradient that is zero (of sgn), when it adds to it; the shape that a leaf had
# when it was first used, after unsqueeze_ and its like under no_grad.
# Also where two of its leaves take views of one gradient, and add to the same memory; and where it refuses a saved tensor that was
# detached in place: ours does while somebody holds that tensor (test_saved_tensors.py), and gives the gradient when it is gone.
TRIPS = ["ZeroTensors are immutable", "returned an invalid gradient at index", "a saved tensor that has been detached in-place"]
LEAF = "a leaf Variable that requires grad is being used in an in-place operation"


def asked(function):
    """The function, where every tensor that has a name is asked for its history after each line."""
    def ask(frame, event, _):
        if frame.f_code is function.__code__:
            for t in frame.f_locals.values():
                if isinstance(t, torch.Tensor):
                    unusable(t)
            return ask

    def run(*args):
        sys.settrace(ask)
        try:
            return function(*args)
        finally:
            sys.settrace(None)

    return run


# Two derivatives are missing, and which of them is told depends on which the engine comes to first.
MISSING = re.compile(r"derivative for '?[\w:]+'? is not implemented")
# A view among several of which eager says, when it is looked at, that its memory was changed: ours says so when a gradient comes to it.
# (Found where two inputs count their versions together and the other one was changed.)
ONE_OF_MANY = "is a view and its base or another view of its base has been modified inplace"


def same_refusal(want, have):
    """Whether both refuse the same, but in other words or at another place."""
    errors = [{key: fact for key, fact in seen.facts.items() if key[0] == "exception" and fact} for seen in (want, have)]
    if errors[0] == errors[1]:
        return False
    for text in (MISSING, re.compile(ONE_OF_MANY)):
        if all(any(text.search(str(error)) for error in of.values()) for of in errors):
            return True
    return False


def forgets(program, call, function, device, want):
    """Eager takes a view for a leaf whose memory got a history, as long as nobody has asked the view for it: it refuses to write
    to it, and registering a hook crashes. No program depends on that."""
    return (LEAF in str(want.facts.get(("exception", "call"))) and
            LEAF not in str(observe(program, call, asked(function), device).facts[("exception", "call")]))


def differences(program, call, function, device, want, have, ignore=(), exact=False):
    """[(kind, text)], the worst first; ["unsure"] alone where eager's own answer does not stand still. `exact`: to the last bit."""
    found, spread = [], []

    def sure():
        if not spread:
            spread.append(Spread(program, call, function, device, want))
        return spread[0]

    if any(key[0] == "exception" and any(text in str(fact) for text in TRIPS) or key[0] == "grad alias" and fact != key[1]
           for key, fact in want.facts.items()):
        return [("unsure", "")]
    if want.facts.get(("exception", "call")) != have.facts.get(("exception", "call")) and forgets(program, call, function, device, want):
        return [("unsure", "")]
    if same_refusal(want, have):
        return [("unsure", "")]
    unsure = False
    for key in [*want.facts, *(key for key in have.facts if key not in want.facts)]:
        a, b = want.facts.get(key, "absent"), have.facts.get(key, "absent")
        if a != b and key[0] not in ignore:
            found.append((key[0], f"{key[0]} of {key[1] or 'all'}: {short(b)} instead of {short(a)}", key))
    for key, a in want.values.items():
        b = have.values.get(key)
        if b is None:
            continue  # some fact differs, too
        if key[0] == "guard":
            guards = want.keep[[k for k in want.values if k[0] == "guard"].index(key)]
            touched = bits(a) != bits(guards)
            wrong = (bits(a) != bits(b)) & ~touched
            text = "the storage beside the input"
            rest = exceeds(a, b)
            if not wrong.any() and rest is not None and (rest & touched).any():
                found.append(("mutation", f"mutation of {key[1]} through as_strided", ("mutation", key[1])))
        else:
            wrong, text = (differs if exact else exceeds)(a, b), key[0]
            if wrong is not None and wrong.any():
                if sure().undefined:
                    unsure = True
                    continue
                if key in sure().facts:
                    unsure = True
                    continue
                while not exact:
                    wrong = exceeds(a, b, sure().moved.get(key))
                    if not wrong.any() or not sure().widen():
                        break
                unsure |= not wrong.any()
        if wrong is not None and wrong.any():
            k = int(wrong.reshape(-1).nonzero()[0])
            found.append((key[0], f"{text} of {key[1]}: element {k} of {a.numel()} ({int(wrong.sum())} differ): "
                          f"{b.reshape(-1)[k].item()} instead of {a.reshape(-1)[k].item()}", key))
    if any(kind in ("exception", "shape") for kind, _, _ in found):  # sizes may depend on data
        if sure().undefined or any(key in sure().facts for _, _, key in found):
            return [("unsure", "")]
    if any("max_pool1d" in line for _, line in program.lines):  # on a CPU it has a kernel of its own where no gradients are needed
        found = [item for item in found if item[0] != "view"]
    found = [(kind, text) for kind, text, key in found]
    found.sort(key=lambda item: KINDS.index(item[0]) if item[0] in KINDS else len(KINDS))
    return found or ([("unsure", "")] if unsure else [])


WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_values(one, other):
    """Whether two calls, on two devices, came to the same numbers."""
    for key in one.values.keys() | other.values.keys():
        a, b = one.values.get(key), other.values.get(key)
        wrong = None if a is None or b is None else exceeds(a.cpu(), b.cpu())
        if wrong is None or wrong.any():
            return False
    return True


def bits(t):
    if t.dtype is torch.bool:
        return t
    if t.is_complex():
        t = torch.view_as_real(t)
        return t.view(WHOLE[t.element_size()]).sum(-1)
    return t.view(WHOLE[t.element_size()])


def short(value):
    text = str(value)
    return text if len(text) < 300 else text[:300] + " ..."
