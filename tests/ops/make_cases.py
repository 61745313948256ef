"""Writes cases.txt: calls of ATen operators and what torch really returned, for cases_test.cpp to hold the shape rules to.

    python tests/ops/make_cases.py [--all FILE]        needs torch (2.11 wrote the committed file)

The calls come from torch's own operator samples (OpInfo), forward and backward, caught below autograd, and from the
hand-written calls at the end of this file. Each is run again with its tensors in other layouts and element types. One
line a call, in the syntax of the graph language, with a tensor's type in the place of the tensor:

    aten::add.Tensor(f32[2, 3]{1, 2}, 2.0, 1) -> fresh f32[2, 3]{1, 2}

Results: `fresh T`, `view ARG T`, `same ARG`, `same ARG/ITEM` (a tensor of a list), `undef`. A call that torch refused
ends in `raises`: a rule must have no answer for it.
"""
import collections
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import types
import warnings

sys.modules.setdefault("expecttest", types.ModuleType("expecttest"))
sys.modules["expecttest"].TestCase = object
import torch  # noqa: E402
from torch.testing._internal import common_methods_invocations as samples  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import magneto  # noqa: E402, F401: its own operators

HERE = pathlib.Path(__file__).parent
PER_OP = 34           # lines kept of each operator
COLLECT = 1200        # lines collected of each operator, of which the kept ones are drawn
SECONDS = 2           # of processor time for one OpInfo

DTYPES = {torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
          torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
          torch.complex64: "c64", torch.complex128: "c128"}
FORMATS = {torch.contiguous_format: "contiguous_format", torch.preserve_format: "preserve_format",
           torch.channels_last: "channels_last", torch.channels_last_3d: "channels_last_3d"}
rng = random.Random(20)
lines = collections.defaultdict(dict)  # operator -> {line: None}


class Unfit(Exception):
    """A call that the text cannot show."""


# ---- text -----------------------------------------------------------------------------------------------------------

def fresh_strides(size):
    strides, step = [], 1
    for n in reversed(size):
        strides.insert(0, step)
        step *= max(n, 1)
    return strides


def tensor_text(t):
    if (type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout != torch.strided or t.dtype not in DTYPES
            or t.device.type != "cpu" or t.is_conj() or t.is_neg() or t.is_quantized or t.is_nested):
        raise Unfit
    text = DTYPES[t.dtype] + str(list(t.shape))
    if t.storage_offset() or list(t.stride()) != fresh_strides(t.shape):
        text += str(list(t.stride())).replace("[", "{").replace("]", "}")
    return text + (f"+{t.storage_offset()}" if t.storage_offset() else "")


def number_text(x):
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, complex):
        return f"complex({float(x.real)!r}, {float(x.imag)!r})"
    return repr(x)


def arg_text(value, kind):
    if value is None:
        return "none"
    if isinstance(value, torch.Tensor):
        return tensor_text(value)
    if isinstance(value, (list, tuple)):
        if not value:
            return ("tensors" if "Tensor" in kind else "floats" if "float" in kind else
                    "bools" if "bool" in kind else "") + "[]"
        if "Scalar" in kind:
            raise Unfit
        return "[" + ", ".join(arg_text(v, re.sub(r"(List|Optional)\[(.*)\]", r"\2", kind)) for v in value) + "]"
    if isinstance(value, torch.dtype):
        if value not in DTYPES:
            raise Unfit
        return DTYPES[value]
    if isinstance(value, torch.memory_format):
        return FORMATS[value]
    if isinstance(value, torch.layout):
        return "strided" if value == torch.strided else "other_layout"
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, str):
        return '"' + value + '"'
    if isinstance(value, (bool, int, float, complex)):
        if "float" in kind and not isinstance(value, complex):
            value = float(value)
        return number_text(value)
    raise Unfit


def full_args(func, args, kwargs):
    values = []
    for i, arg in enumerate(func._schema.arguments):
        if i < len(args):
            values.append(args[i])
        elif arg.name in kwargs:
            values.append(kwargs[arg.name])
        else:
            value = arg.default_value
            if "ScalarType" in str(arg.real_type) and value is not None:
                value = {4: torch.int64}[value]
            values.append(list(value) if isinstance(value, (list, tuple)) else value)
    return values


def op_name(func):
    name = func._schema.name
    return name + ("." + func._schema.overload_name if func._schema.overload_name else "")


def flat_results(result):
    if isinstance(result, (list, tuple)):
        return [r for part in result for r in flat_results(part)]
    return [result] if result is None or isinstance(result, torch.Tensor) else []


def storage(t):
    return t.untyped_storage()._cdata


def result_text(result, values, before):
    if result is None:
        return "undef"
    for i, value in enumerate(values):
        if value is result:
            if tensor_text(result) != before[i]:
                return f"same {i} {tensor_text(result)}"
            return f"same {i}"
        if isinstance(value, (list, tuple)):
            for k, item in enumerate(value):
                if item is result:
                    return f"same {i}/{k}"
    for i, value in enumerate(values):
        if isinstance(value, torch.Tensor) and storage(value) == storage(result):
            return f"view {i} {tensor_text(result)}"
    return "fresh " + tensor_text(result)


def record(func, args, kwargs):
    """Runs the call, notes it, and returns its result."""
    try:
        values = full_args(func, args, kwargs)
        texts = [arg_text(v, str(a.real_type)) for v, a in zip(values, func._schema.arguments)]
    except Unfit:
        return func(*args, **kwargs)
    name = op_name(func)
    try:
        result = func(*args, **kwargs)
    except (RuntimeError, IndexError, ValueError, NotImplementedError, TypeError) as error:
        # a number in a tensor's place is refused by the Python door alone, detach_ of a view by autograd alone
        if "Expected a value of type" not in str(error) and name != "aten::detach_":
            note(name, f"{name}({', '.join(texts)}) -> raises")
        raise
    try:
        results = [result_text(r, values, texts) for r in flat_results(result)]
    except Unfit:
        return result
    note(name, f"{name}({', '.join(texts)}) -> {', '.join(results)}")
    return result


def note(name, line):
    if len(lines[name]) < COLLECT and line not in lines[name]:
        lines[name][line] = None
        if child is not None:
            child.write(line + "\n")


child = None  # in a child process: where its lines go


def isolated(seed, collect):
    """Runs `collect` in a process of its own: an odd call may bring torch down, and takes nothing else along."""
    global child
    with tempfile.NamedTemporaryFile("r") as file:
        pid = os.fork()
        if pid == 0:
            rng.seed(seed)
            torch.manual_seed(0)
            lines.clear()
            child = open(file.name, "w", buffering=1)
            try:
                collect()
            except BaseException as error:
                print(seed, repr(error)[:100], file=sys.stderr)
            child.close()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status:
            print("crashed:", seed, file=sys.stderr)
        for line in file.read().splitlines():
            if "->" in line:
                note(line.split("(")[0], line)


# ---- other layouts and element types of the same call ---------------------------------------------------------------

def like(t, strides, offset=0):
    need = offset + 1 + sum((n - 1) * s for n, s in zip(t.shape, strides)) if t.numel() else offset
    base = torch.zeros(max(need, 1), dtype=t.dtype)
    made = base.as_strided(t.shape, strides, offset)
    if t.numel():
        made.copy_(t)
    return made


def permuted(t, order):  # order: dimensions from the slowest to the fastest
    strides, step = [0] * t.dim(), 1
    for d in reversed(order):
        strides[d] = step
        step *= max(t.shape[d], 1)
    return like(t, strides)


def relayout(t, how):
    n = t.dim()
    if how == "plain":
        return like(t, fresh_strides(t.shape))
    if how == "offset":
        return like(t, fresh_strides(t.shape), 3)
    if how == "transposed":
        return permuted(t, list(range(n - 2)) + [n - 1, n - 2] if n > 1 else list(range(n)))
    if how == "reversed":
        return permuted(t, list(reversed(range(n))))
    if how == "shuffled":
        order = list(range(n))
        rng.shuffle(order)
        return permuted(t, order)
    if how == "channels_last":
        return permuted(t, [0] + list(range(2, n)) + [1] if n > 2 else list(range(n)))
    if how == "gaps":
        return like(t, [2 * s for s in fresh_strides(t.shape)])
    if how == "row gaps":
        return like(t, [s * (1 if i == n - 1 else 2) for i, s in enumerate(fresh_strides(t.shape))])
    if how == "expanded" and n:
        d = rng.randrange(n)
        strides = fresh_strides([1 if i == d else s for i, s in enumerate(t.shape)])
        strides[d] = 0
        base = torch.zeros(max(t.numel(), 1), dtype=t.dtype).as_strided(t.shape, strides)
        if t.numel():
            base.select(d, 0).copy_(t.select(d, 0))
        return base
    if how == "odd ones":  # strides of dimensions of size 1 are free
        return like(t, [rng.choice([1, 7, s]) if size == 1 else s for size, s in zip(t.shape, fresh_strides(t.shape))])
    return like(t, fresh_strides(t.shape))


HOW = ["plain", "offset", "transposed", "reversed", "shuffled", "channels_last", "gaps", "row gaps", "expanded", "odd ones"]
OTHER = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def variants(func, args, kwargs):
    def change(value, how, dtype):
        if isinstance(value, torch.Tensor):
            tensor_text(value)
            t = value.detach()
            if dtype is not None:
                t = t.to(dtype)
            return relayout(t, how())
        if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            return [change(v, how, dtype) for v in value]
        return value

    plans = []
    one = rng.choice(HOW)
    plans.append((lambda: one, False))                   # all alike
    plans.append((lambda: rng.choice(HOW), False))       # each another
    plans.append((lambda: rng.choice(["plain", rng.choice(HOW)]), False))
    if "backward" not in func._schema.name:  # some of these kernels trust their element types blindly
        plans.append((lambda: rng.choice(["plain", "transposed"]), True))
    for how, mix in plans:
        try:
            a = [change(v, how, rng.choice([None, rng.choice(OTHER)]) if mix else None) for v in args]
            k = {n: change(v, how, None) for n, v in kwargs.items()}
            record(func, a, k)
        except Exception:
            pass


class Catch(TorchDispatchMode):
    def __torch_dispatch__(self, func, _types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace != "aten" or func._schema.name in SKIP:
            return func(*args, **kwargs)
        name = op_name(func)
        few = len(lines[name])
        if few < COLLECT and (few < 300 or rng.random() < 0.1):
            with torch.no_grad():
                variants(func, args, kwargs)
        return record(func, args, kwargs)


SKIP = {"aten::set_", "aten::_local_scalar_dense", "aten::resize_"}


# ---- sources --------------------------------------------------------------------------------------------------------

class TooLong(Exception):
    pass


def on_time(*_):
    raise TooLong


def run_sample(call, sample, backward):
    result = call(sample.input, *sample.args, **sample.kwargs)
    if not backward:
        return
    outs = [t for t in flat_results(result) if t is not None and t.requires_grad and t.numel()]
    if outs:
        torch.autograd.backward(outs, [torch.randn_like(t) for t in outs])


def from_op_info(op):
    wanted = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
              torch.bool, torch.complex64]
    for k, dtype in enumerate(d for d in wanted if d in op.supported_dtypes("cpu")):
        signal.setitimer(signal.ITIMER_PROF, SECONDS if k == 0 else SECONDS / 6)
        try:
            grad = op.supports_autograd and k == 0 and dtype.is_floating_point
            found = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
            rng.shuffle(found)
            for sample in found[: 60 if k == 0 else 8]:
                for call in (op.op, op.inplace_variant):
                    if call is None:
                        continue
                    with Catch():
                        try:
                            if call is op.op:
                                run_sample(call, sample, grad)
                            else:
                                run_sample(call, sample.transform(
                                    lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t), False)
                        except TooLong:
                            raise
                        except Exception:
                            pass
        except TooLong:
            pass
        except Exception as error:
            print("skipped", op.name, dtype, str(error)[:60].replace("\n", " "), file=sys.stderr)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def from_op_db():
    for op in samples.op_db:
        if re.match(r"(special|signal|masked|sparse|_refs|linalg\.(?!vector_norm))", op.name):
            continue
        if op.name.startswith("fft.") and op.name not in ("fft.fft", "fft.ifft", "fft.fftn"):
            continue
        isolated(op.full_name, lambda: from_op_info(op))


LAYOUTS = [
    lambda d: torch.ones(2, 3, dtype=d), lambda d: torch.ones(3, 2, dtype=d).t(), lambda d: torch.ones(3, dtype=d),
    lambda d: torch.ones(1, 3, dtype=d), lambda d: torch.ones(2, 1, dtype=d), lambda d: torch.ones((), dtype=d),
    lambda d: torch.ones(2, 1, dtype=d).expand(2, 3), lambda d: torch.ones(4, 6, dtype=d)[1:3, ::2],
    lambda d: torch.ones(0, 3, dtype=d), lambda d: torch.ones(2, 4, 5, 3, dtype=d).permute(0, 3, 1, 2),
    lambda d: torch.ones(2, 3, 4, 5, dtype=d), lambda d: torch.ones(1, 3, 1, 1, dtype=d),
    lambda d: torch.ones(3, 1, 1, dtype=d), lambda d: torch.ones(2, 3, 4, 5, dtype=d).transpose(1, 2).contiguous().transpose(1, 2),
    lambda d: torch.ones(2, 3, 1, 1, dtype=d).to(memory_format=torch.channels_last),
    lambda d: torch.ones(2, 3, 4, dtype=d).permute(2, 0, 1), lambda d: torch.ones(4, 2, 3, dtype=d),
    lambda d: torch.ones(2, 0, 3, dtype=d).transpose(0, 2), lambda d: torch.ones(2, 1, 3, dtype=d).transpose(0, 2),
    lambda d: torch.ones(1, dtype=d), lambda d: torch.ones(2, 3, 2, 4, 5, dtype=d).to(memory_format=torch.channels_last_3d),
]
MIXED = [torch.float32] * 6 + [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
                               torch.bfloat16, torch.float64, torch.complex64]


def any_tensor():
    return rng.choice(LAYOUTS)(rng.choice(MIXED))


def pointwise_by_hand():
    """Two and three operands in all layouts, element types and Python numbers."""
    aten = torch.ops.aten
    two = ("add sub mul div eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor "
           "maximum minimum fmin fmax atan2 floor_divide remainder fmod pow rsub xlogy copysign hypot "
           "bitwise_left_shift bitwise_right_shift logaddexp nextafter").split()
    two += [name + "_" for name in two if hasattr(aten, name + "_")]
    for name in two:
        for overload in getattr(aten, name).overloads():
            if overload.endswith("out") or "Mode" in overload:
                continue
            func = getattr(getattr(aten, name), overload)
            kinds = [str(a.type) for a in func._schema.arguments]
            for _ in range(400):
                args = []
                for kind in kinds[: 2]:
                    if kind == "Tensor" and not (args and rng.random() < 0.25):
                        args.append(any_tensor())
                    else:
                        args.append(rng.choice([2, 2.5, True, 1 + 1j, 3]))
                try:
                    kwargs = {"rounding_mode": rng.choice([None, "floor", "trunc"])} if overload.endswith("_mode") else {}
                    record(func, args, kwargs)
                except Exception:
                    pass
    for func in (aten.where.self, aten.addcmul.default, aten.addcdiv.default, aten.lerp.Tensor, aten.clamp.Tensor,
                 aten.where.ScalarOther, aten.where.ScalarSelf, aten.lerp.Scalar):
        for _ in range(300):
            try:
                args = [any_tensor() if str(a.type) == "Tensor" or "Optional" in str(a.type) else rng.choice([2, 2.5])
                        for a in func._schema.arguments[:3]]
                if func is not aten.lerp.Tensor and "where" in func._schema.name:
                    args[0] = args[0].to(torch.bool)
                record(func, args, {})
            except Exception:
                pass
    for func in (aten.clone.default, aten._to_copy.default, aten.empty_like.default, aten.zeros_like.default,
                 aten.ones_like.default, aten.rand_like.default, aten.relu.default, aten.exp.default, aten.neg.default,
                 aten.sum.default, aten.gelu.default, aten.cumsum.default, aten._softmax.default, aten.view.default,
                 aten.sum.dim_IntList, aten.mean.dim, aten.cat.default, aten.flip.default, aten.copy_.default,
                 aten.abs.default, aten.squeeze.default, aten.bitwise_not.default, aten.sigmoid.default):
        for _ in range(200):
            t = any_tensor()
            name = func._schema.name
            args, kwargs = [t], {}
            if name in ("aten::clone", "aten::_to_copy") or name.endswith("_like"):
                kwargs["memory_format"] = rng.choice([None, None, torch.preserve_format, torch.contiguous_format,
                                                      torch.channels_last, torch.channels_last_3d])
                if name != "aten::clone":
                    kwargs["dtype"] = rng.choice([None, torch.float32, torch.int64])
            elif name == "aten::cumsum":
                args.append(-1)
            elif name == "aten::_softmax":
                args += [-1, False]
            elif name == "aten::view":
                args.append(rng.choice([[-1], [t.numel()], list(t.shape) + [1], [1] + list(t.shape), [2, -1]]))
            elif "dim" in func._schema.overload_name:
                args += [rng.choice([[0], [-1], [0, 1], [], None]), rng.random() < 0.5]
            elif name == "aten::cat":
                args = [[t, rng.choice([t, rng.choice(LAYOUTS)(t.dtype), t.to(torch.float64)])], rng.choice([0, -1, 1])]
            elif name == "aten::flip":
                args.append([0])
            elif name == "aten::copy_":
                args.append(any_tensor())
            try:
                record(func, args, kwargs)
            except Exception:
                pass


def by_hand():
    """Operators that the samples do not reach, or reach in one form only."""
    aten, ones = torch.ops.aten, torch.ones
    x, y = torch.rand(2, 3, 4, 5), torch.rand(2, 3)
    calls = [
        (aten.lift_fresh.default, ones(3)), (aten.as_strided_.default, ones(4), [2, 2], [1, 2]),
        (aten.new_empty_strided.default, y, [3, 2], [1, 3]), (aten.scalar_tensor.default, 1.5),
        (aten._weight_norm_interface.default, ones(4, 3), ones(4, 1)),
        (aten._weight_norm_interface.default, ones(4, 3, 2), ones(4, 1, 1), 0),
        (aten._weight_norm_interface_backward.default, ones(4, 3), ones(4, 3), ones(4, 1), ones(4, 1), 0),
        (aten._safe_softmax.default, y, -1), (aten._safe_softmax.default, x, 1),
        (aten._grouped_mm.default, ones(8, 16).bfloat16(), ones(2, 16, 8).bfloat16(), torch.tensor([4, 8], dtype=torch.int32)),
        (aten._grouped_mm.default, ones(2, 8, 16).bfloat16(), ones(2, 16, 8).bfloat16()),
        (aten.slice_backward.default, ones(2, 2), [2, 5], 1, 0, 2, 1), (aten.select_backward.default, ones(3), [2, 3], 0, 1),
        (aten.embedding_dense_backward.default, ones(4, 3), torch.zeros(4, dtype=torch.int64), 7, -1, False),
        (aten.fill_.Tensor, ones(3), torch.tensor(2.0)), (aten.fill_.Scalar, ones(3), 2),
        (aten.zero_.default, ones(3)), (aten.detach.default, y.t()), (aten.alias.default, y.t()),
        (aten._unsafe_view.default, ones(2, 3), [6]), (aten._reshape_alias.default, ones(2, 3), [6], [1]),
        (aten.detach_.default, ones(3)), (aten.t_.default, ones(2, 3)), (aten.transpose_.default, ones(2, 3), 0, 1),
        (aten.unsqueeze_.default, ones(2, 3), 1), (aten.squeeze_.default, ones(2, 1)), (aten.squeeze_.dim, ones(2, 1), 1),
        (aten.bernoulli_.float, ones(3), 0.5), (aten.uniform_.default, ones(3)), (aten.normal_.default, ones(3)),
        (aten.bernoulli.default, torch.rand(3, 2).t()), (aten.bernoulli.p, torch.rand(3, 2).t(), 0.5),
        (aten.native_dropout.default, torch.rand(3, 2).t(), 0.5, True), (aten.native_dropout.default, y, 0.5, False),
        (aten.native_dropout_backward.default, y, y > 0, 2.0), (aten.multinomial.default, torch.rand(4, 5), 2),
        (aten.multinomial.default, torch.rand(5), 3, True), (aten.histc.default, torch.rand(9), 5),
        (aten.nonzero.default, ones(3)), (aten._unique2.default, ones(3)),
        (aten.rand.default, [2, 3]), (aten.randn.default, [2, 3]), (aten.randint.default, 5, [2, 3]),
        (aten.randint.low, 1, 5, [2, 3]), (aten.randperm.default, 5), (aten.randn_like.default, y.t()),
        (aten.randint_like.default, y.t(), 5), (aten.randint_like.low_dtype, y.t(), 1, 5),
        (aten.hardtanh_.default, ones(3)), (aten.silu_.default, ones(3)), (aten.hardswish_.default, ones(3)),
        (aten.arange.default, 5), (aten.arange.default, 5.5), (aten.arange.start, 1, 5), (aten.arange.start_step, 1, 9, 2),
        (aten.arange.start_step, 1, 9.5, 2), (aten.arange.start, 2.0, 5), (aten.arange.start_step, 9, 1, -3),
        (aten.linspace.default, 0, 1, 5), (aten.eye.default, 3), (aten.eye.m, 3, 4),
        (aten.full.default, [2, 3], 1.5), (aten.full.default, [2, 3], 1), (aten.full.default, [2, 3], True),
        (aten.full_like.default, y.t(), 3), (aten.new_full.default, y, [3], 1), (aten.new_ones.default, y, [3]),
        (aten.new_zeros.default, y, [3, 2]), (aten.new_empty.default, y, [3, 2]), (aten.empty.memory_format, [2, 3]),
        (aten.empty_strided.default, [2, 3], [1, 2]), (aten.zeros.default, [2, 3]), (aten.ones.default, [2, 3]),
        (aten.tril_indices.default, 3, 3), (aten.triu_indices.default, 3, 3),
        (aten.upsample_nearest2d.default, x, [8, 10]), (aten.upsample_bilinear2d.default, x, [8, 10], False),
        (aten.view_as_real.default, ones(3, 2, dtype=torch.complex64)), (aten.view_as_complex.default, ones(3, 2)),
        (aten._fft_c2c.default, ones(3, 4, dtype=torch.complex64), [1], 0, True),
        (aten.native_batch_norm.default, x, ones(3), ones(3), ones(3), ones(3), True, 0.1, 1e-5),
        (aten.native_batch_norm.default, x, ones(3), ones(3), ones(3), ones(3), False, 0.1, 1e-5),
        (aten.native_batch_norm.default, x, None, None, None, None, True, 0.1, 1e-5),
        (aten.native_batch_norm_backward.default, x, x, ones(3), ones(3), ones(3), ones(3), ones(3), True, 1e-5, [True] * 3),
        (aten.native_batch_norm_backward.default, x, x, None, None, None, ones(3), ones(3), True, 1e-5, [True, False, False]),
        (aten._native_batch_norm_legit.default, x, ones(3), ones(3), ones(3), ones(3), True, 0.1, 1e-5),
        (aten._native_batch_norm_legit.no_stats, x, ones(3), ones(3), True, 0.1, 1e-5),
        (aten.max_pool2d_with_indices.default, x, [2, 2], [2, 2]), (aten.avg_pool2d.default, x, [2, 2]),
        (aten._adaptive_avg_pool2d.default, x, [1, 1]), (aten._adaptive_avg_pool2d_backward.default, ones(2, 3, 1, 1), x),
        (aten._adaptive_avg_pool2d.default, x, [2, 2]), (aten.scatter_.value, ones(3, 4), 1, torch.zeros(3, 1, dtype=torch.int64), 2.0),
        (aten.index_add_.default, ones(4, 3), 0, torch.tensor([0, 1]), ones(2, 3)),
        (aten.index_put.default, ones(4, 3), [torch.tensor([0, 1])], ones(2, 3)),
        (aten.index_put_.default, ones(4, 3), [None, torch.tensor([0, 1])], ones(4, 2)),
        (aten.index_put_.default, ones(4, 3), [ones(4) > 0], torch.tensor(2.0)),
        (aten.index_put.default, ones(4, 3), [None, ones(3) > 0], torch.tensor(2.0)),
        (aten.index_fill.int_Scalar, ones(4, 3), 1, torch.tensor([0, 2]), 2.0),
        (aten.index_fill_.int_Scalar, ones(4, 3), 0, torch.tensor(1), 2.0),
        (aten.hardshrink_backward.default, ones(4, 3), ones(4, 3), 0.5), (aten.softshrink_backward.default, ones(4, 3), ones(4, 3), 0.5),
        (aten.masked_fill_.Scalar, ones(3, 4), ones(3, 4) > 0, 2.0),
        (aten.masked_fill_.Tensor, ones(3, 4), ones(3, 4) > 0, torch.tensor(2.0)),
        (aten.relu_.default, ones(3)), (aten.sigmoid_.default, ones(3)), (aten.tanh_.default, ones(3)),
        (aten._log_softmax_backward_data.default, y, y, 1, torch.float32),
        (aten._softmax_backward_data.default, y, y, 1, torch.float32),
        (aten.stack.default, [y, y.clone()], 1), (aten.repeat.default, y, [2, 3, 1]), (aten.roll.default, y.t(), [1], [0]),
        (aten.constant_pad_nd.default, x, [1, 1, 2, 0], 0.0), (aten.constant_pad_nd.default, y, [1, 1]),
        (aten.split.Tensor, ones(7, 2), 3), (aten.split_with_sizes.default, ones(7, 2), [3, 4]), (aten.unbind.int, y, 1),
        (aten.unsafe_split.Tensor, ones(7, 2), 3), (aten.unsafe_split_with_sizes.default, ones(7, 2), [3, 4]), (torch.ops.magneto.data.default, y.t()),
        (aten.native_layer_norm_backward.default, ones(2, 3, 4), ones(2, 3, 4), [4], ones(2, 3, 1), ones(2, 3, 1), ones(4), ones(4), [True] * 3),
        (aten.native_group_norm_backward.default, x, x, ones(2, 3), ones(2, 3), ones(3), 2, 3, 20, 3, [True] * 3),
        (aten._native_batch_norm_legit_no_training.default, x, ones(3), ones(3), ones(3), ones(3), 0.1, 1e-5),
        (aten._unsafe_index.Tensor, ones(4, 3), [None, torch.tensor([0, 1])]),
        (aten._unsafe_index_put.default, ones(4, 3), [torch.tensor([0, 1])], ones(2, 3)),
        (aten.bernoulli_.Tensor, ones(3, 2), torch.rand(3, 2)), (aten.clamp_max.default, y, 0.5),
        (aten.clamp_max_.default, ones(3), 0.5), (aten.gelu_.default, ones(3)), (aten.random_.default, ones(3)),
        (aten.masked_fill.Tensor, ones(3, 4), ones(3, 4) > 0, torch.tensor(2.0)),
        (aten.index.Tensor, x, [torch.tensor([0, 1]), None, torch.tensor([[0], [1]])]),
        (aten.index.Tensor, x, [None, torch.tensor([0, 1]), torch.tensor([[0], [1]])]),
        (aten.index.Tensor, x, [None, None, None, torch.tensor([0, 1, 3])]),
        (aten.expand.default, ones(()), [2, 1], ), (aten.expand.default, ones(3, 1), [2, -1, 4]),
    ]
    for func, *args in calls:
        for _ in range(3):
            try:
                variants(func, args, {})
                record(func, [a.clone(memory_format=torch.preserve_format) if isinstance(a, torch.Tensor) else a for a in args], {})
            except Exception as error:
                print("by hand:", op_name(func), str(error)[:100].replace("\n", " "), file=sys.stderr)
                break
    for causal in (False, True):
        q, k, v = (torch.rand(2, 3, 6, 8, requires_grad=True) for _ in range(3))
        for lay in (lambda t: t, lambda t: t.transpose(1, 2).contiguous().transpose(1, 2)):
            with Catch():
                torch.nn.functional.scaled_dot_product_attention(lay(q), lay(k), lay(v), is_causal=causal).sum().backward()
                mask = torch.rand(2, 1, 6, 6)
                torch.nn.functional.scaled_dot_product_attention(lay(q), lay(k), lay(v), attn_mask=mask).sum().backward()


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    signal.signal(signal.SIGPROF, on_time)
    isolated("by hand", by_hand)
    isolated("pointwise", pointwise_by_hand)
    from_op_db()
    if "--all" in sys.argv:  # every call, for a thorough look
        with open(sys.argv[sys.argv.index("--all") + 1], "w") as out:
            out.writelines(line + "\n" for name in sorted(lines) for line in lines[name])
    write(lines)


def write(found):
    sources = "".join(p.read_text() for p in sorted((HERE / "../../src/ops").glob("*.cpp")))
    literals = set(re.findall(r'"([\w.:]+)"', sources))

    def is_declared(name):  # in full, or put together by a macro
        base, _, overload = name[len("aten::"):].partition(".")
        return name in literals or (base.rstrip("_") in literals and
                                    ("." + overload in literals or overload in ("", "Tensor", "Scalar")))

    draw = random.Random(7)
    with open(HERE / "cases.txt", "w") as out:
        for name in sorted(filter(is_declared, found)):
            every = [line for line in found[name] if len(line) < 400]
            kept = []
            for refused in (False, True):
                part = [line for line in every if line.endswith("raises") == refused]
                most = PER_OP // 3 if refused else PER_OP
                kept += part if len(part) <= most else draw.sample(part, most)
            out.writelines(line + "\n" for line in sorted(kept))
    print(sum(map(len, found.values())), "calls of", len(found), "operators", file=sys.stderr)


if __name__ == "__main__":
    main()
