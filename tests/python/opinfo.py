"""torch's own operator samples (OpInfo) through the compiler: every operator, element type and layout against eager.

    python tests/python/opinfo.py [--full] [--only NAME,...] [--jobs N]

A *case* is one call of one sample: its tensors as they are, transposed, expanded, at an offset, with a size of 0 or 1, or
full of edge values, the operator itself or its in-place form. Cases of one operator and element type are compiled
together, as one program, forward and backward; where that program differs from eager, each case runs alone, and what
differs is told. Samples that torch refuses must be refused as well, with the same kind of error.

The values must be eager's up to rounding; where they are not, both are held to the same call in double precision: the
error may not be more than twice eager's (research's fp64 rule, for the largest error instead of the mean: one wrong element
never passes). Shapes, dtypes, strides, and which results share memory with which arguments must be eager's in any case.
"""

import argparse
import collections
import faulthandler
import itertools
import mmap
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
import threading
import types
import warnings
import zlib

import torch

import magneto
from device import DEVICE
from rounding import UNITS, close

sys.modules.setdefault("expecttest", types.ModuleType("expecttest"))
sys.modules["expecttest"].TestCase = object
from torch.testing._internal import common_methods_invocations as methods  # noqa: E402

# torch's own tests forbid to set flags of backends from then on; ours set some
torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint8, torch.bool, torch.complex64, torch.complex128]
LAYOUTS = ["contiguous", "transposed", "expanded", "offset", "size 0", "size 1"]
BATCH = 24  # cases in one program
MOST = 150  # cases of one operator and element type: pooling has thousands that differ in little

# What has no answer to compare: uninitialised memory.
WITHOUT_VALUES = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_",
                  "resize_as_"}


# Where torch itself reads or writes memory that is not its own, or divides by zero: not ours to follow.
BROKEN = {("median", "expanded"), ("nanmedian", "expanded"), ("lcm", "edges"), ("gcd", "edges"),
          ("native_batch_norm", "size 0"), ("_native_batch_norm_legit", "size 0"), ("_batch_norm_with_update", "size 0"),
          ("nn.functional.conv3d", "size 1"), ("nn.functional.max_pool1d", "size 1"),
          ("nn.functional.max_pool2d", "size 1"), ("nn.functional.max_pool3d", "size 1"),
          ("nn.functional.embedding_bag", "size 1"), ("nn.functional.embedding_bag", "size 0"),
          ("nn.functional.embedding_bag", "expanded"), ("linalg.ldl_solve", "offset"),
          ("nn.functional.ctc_loss", "size 1"), ("_segment_reduce", "size 0"), ("_segment_reduce", "size 1"),
          ("nn.functional.pdist", "size 0"), ("masked.median", "expanded"), ("nn.functional.multilabel_margin_loss", "size 0")}


def is_broken(op, layout):
    """A polynomial whose degree is huge takes torch minutes."""
    return (op.name, layout) in BROKEN or "_polynomial_" in op.name and layout == "edges"


def operators():
    """The operators of torch's own tests that make plain tensors."""
    return [op for op in methods.op_db if not re.match(r"sparse\.|to_sparse", op.name)]


# ---- cases ----------------------------------------------------------------------------------------------------------

def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_of(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors_of(item)]
    return []


def mapped(value, change):
    """The same arguments with other tensors."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and type(value) is not tuple:  # torch's own named ones
        return tuple(mapped(item, change) for item in value)
    if type(value) in (list, tuple):
        return type(value)(mapped(item, change) for item in value)
    if type(value) is dict:
        return {key: mapped(item, change) for key, item in value.items()}
    return value


def strided(tensor, strides, offset=0):
    """The values of a tensor in memory of its own, with these strides."""
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, strides)) if tensor.numel() else 0
    memory = torch.zeros(offset + max(span, 1), dtype=tensor.dtype, device=tensor.device)
    made = memory.as_strided(tensor.shape, strides, offset)
    if tensor.numel():
        made.copy_(tensor.detach())
    return made


def dense_strides(sizes, order):
    """Strides without gaps; `order` names the dimensions from the slowest to the fastest."""
    strides, step = [0] * len(sizes), 1
    for d in reversed(order):
        strides[d] = step
        step *= max(sizes[d], 1)
    return strides


EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, float("inf"), float("-inf"), float("nan"), 1e-40, -1e-40, 3.0, -7.25,
         1e30, -1e30, 88.0, -104.0, 65504.0]


def edges(tensor, rng):
    if tensor.dtype.is_floating_point:
        values = [rng.choice(EDGES) for _ in range(tensor.numel())]
    elif tensor.dtype in (torch.bool, torch.complex64, torch.complex128):
        return tensor.detach().clone()
    else:
        info = torch.iinfo(tensor.dtype)
        values = [rng.choice([0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1, max(info.min, -1),
                              max(info.min, -3)]) for _ in range(tensor.numel())]
    return torch.tensor(values, dtype=tensor.dtype, device=tensor.device).reshape(tensor.shape)


def relaid(tensor, layout, rng, size=None):
    dims = tensor.dim()
    plain = list(range(dims))
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        return tensor.detach().clone()
    if layout == "transposed":
        order = plain[:-2] + [dims - 1, dims - 2] if dims > 1 else plain
        return strided(tensor, dense_strides(tensor.shape, order))
    if layout == "offset":
        return strided(tensor, dense_strides(tensor.shape, plain), 3)
    if layout == "expanded" and dims:
        d = rng.randrange(dims)
        one = tensor.detach().narrow(d, 0, min(1, tensor.shape[d])).clone()
        return one.expand(tensor.shape) if tensor.shape[d] else one
    if layout in ("size 0", "size 1"):
        for d in plain:
            if tensor.shape[d] == size:
                tensor = tensor.narrow(d, 0, int(layout[-1]))
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    if layout == "edges":
        return edges(tensor, rng)
    return tensor.detach().clone()


class Case:
    """One call: the operator or its in-place form, with arguments that are made anew for each run."""

    def __init__(self, op, sample, layout, in_place, seed):
        self.op, self.layout, self.in_place, self.seed = op, layout, in_place, seed
        self.call = op.inplace_variant if in_place else op.op
        self.sample = (sample.input, tuple(sample.args), dict(sample.kwargs))
        sizes = sorted({n for t in tensors_of(self.sample) for n in t.shape if n > 1})
        self.size = random.Random(seed).choice(sizes) if sizes else None

    def arguments(self, dtype=None):
        """The tensors as they are before a call; `dtype`: floating point ones in that type."""
        rng, made = random.Random(self.seed), {}

        def change(tensor):
            if id(tensor) not in made:
                there = relaid(tensor, self.layout, rng, self.size)
                if dtype is not None and (tensor.is_floating_point() or tensor.is_complex()):
                    there = there.to(torch.complex128 if tensor.is_complex() else dtype)
                made[id(tensor)] = there.requires_grad_(tensor.requires_grad)
            return made[id(tensor)]

        return mapped(self.sample, change)

    def __str__(self):
        def text(value):
            if isinstance(value, torch.Tensor):
                return f"{str(value.dtype)[6:]}{list(value.shape)}"
            return repr(value)
        first, args, kwargs = self.arguments()
        shown = [re.sub(r"tensor\(.*?\)", "tensor", str(mapped(a, text))) for a in (first, *args)]
        shown += [f"{k}={mapped(v, text)}" for k, v in kwargs.items()]
        return f"{self.op.full_name}{'_' if self.in_place else ''}({', '.join(shown)}) {self.layout}"


def run_all(calls):
    """The program that is compiled. In-place forms write to a copy: what they return is what they wrote."""
    results = []
    for call, in_place, first, args, kwargs in calls:
        if in_place:
            first = first.clone()
        results.append(call(first, *args, **kwargs))
    return results


def fresh_program():
    """Each batch is a program of its own: recompiles are not what is tested here."""
    code = run_all.__code__.replace(co_name=f"batch_{next(_numbers)}")
    return types.FunctionType(code, globals())


_numbers = itertools.count()


class Answer:
    """What a call gave: the tensors in its result, the rest of it, its gradients, or the error."""

    def __init__(self, result, arguments, with_gradients):
        self.tensors = tensors_of(result)
        leaves = tensors_of(arguments)
        self.shares = [[t.untyped_storage()._cdata == leaf.untyped_storage()._cdata for leaf in leaves]
                       if t.layout is torch.strided else [] for t in self.tensors]
        self.rest = str(mapped(result, lambda t: None)) if not isinstance(result, torch.Tensor) else ""
        self.gradients = []
        if with_gradients:
            wanted = [leaf for leaf in leaves if leaf.requires_grad]
            ends = [t for t in self.tensors if t.requires_grad and t.layout is torch.strided]
            if wanted and ends:
                torch.manual_seed(1)
                wide = {t.dtype: torch.complex128 if t.is_complex() else torch.float64 for t in ends}
                # with the strides of the results: kernels bring others into these first, and gradients follow them
                seeds = [torch.empty_like(t).copy_(torch.randn(t.shape, dtype=wide[t.dtype])) for t in ends]
                self.gradients = torch.autograd.grad(ends, wanted, seeds, allow_unused=True)
        self.tensors = [t.detach() for t in self.tensors]


def eager(case, dtype=None):
    doing(f"eager: {case}")
    arguments = case.arguments(dtype)
    torch.manual_seed(0)
    (result,) = run_all([(case.call, case.in_place, *arguments)])
    return Answer(result, arguments, True)


# ---- comparing ------------------------------------------------------------------------------------------------------

def error_of(tensor, truth):
    """The largest error, in units of the largest number; what is not finite must be the same."""
    wide = torch.complex128 if truth.is_complex() else torch.float64
    tensor, truth = tensor.to(wide), truth.to(wide)
    special = ~torch.isfinite(truth)
    if not torch.equal(torch.isfinite(tensor), ~special) or not torch.allclose(
            tensor[special], truth[special], equal_nan=True):
        return float("inf")
    return (tensor - truth).abs()[~special].max().item() if (~special).any() else 0.0


def difference(case, want, have, truth):
    """What differs, in words; None: nothing."""
    if want is None:
        return f"None became {have}" if have is not None else None
    if have is None:
        return "a tensor became None"
    for fact in ("dtype", "shape", "layout", "device"):
        if getattr(want, fact) != getattr(have, fact):
            return f"{fact} {getattr(have, fact)} instead of {getattr(want, fact)}"
    if want.layout is torch.strided and want.numel() and any(
            a != b for a, b, n in zip(want.stride(), have.stride(), want.shape) if n > 1):
        return f"strides {have.stride()} instead of {want.stride()}"
    if want.dtype is torch.complex32:  # torch cannot compare these
        want, have = want.to(torch.complex64), have.to(torch.complex64)
    if case.op.name in WITHOUT_VALUES or close(want, have, 4):
        return None
    if want.dtype not in UNITS:
        return f"values: {have.flatten()[:8].tolist()} instead of {want.flatten()[:8].tolist()}"
    exact = truth()
    if exact is not None and exact.shape == want.shape and exact.is_complex() == want.is_complex():
        ours, theirs = error_of(have, exact), error_of(want, exact)
        scale = exact[torch.isfinite(exact)].abs().max().item() if torch.isfinite(exact).any() else 1.0
        if ours <= 2 * theirs + UNITS[want.dtype] * scale and ours != float("inf"):
            return None
    at = (want.flatten() - have.flatten()).abs().nan_to_num(float("inf"), posinf=float("inf")) if want.numel() else want
    at = torch.where(want.flatten() == have.flatten(), 0, at) if want.numel() else at
    k = int(at.argmax())
    return f"value {k} of {want.numel()}: {have.flatten()[k].item()} instead of {want.flatten()[k].item()}"


def compare(case, want, have):
    """What differs between two answers, in words; None: nothing."""
    if len(want.tensors) != len(have.tensors) or want.rest != have.rest:
        return f"{len(have.tensors)} tensors and {have.rest} instead of {len(want.tensors)} and {want.rest}"
    if want.shares != have.shares:
        return f"shares memory {have.shares} instead of {want.shares}"
    truths = []

    def truth(kind, k):
        if not truths:
            try:
                truths.append(eager(case, torch.float64))
            except Exception:
                truths.append(None)
        found = getattr(truths[0], kind, ())
        return found[k] if k < len(found) else None

    for kind in ("tensors", "gradients"):
        for k, (a, b) in enumerate(zip(getattr(want, kind), getattr(have, kind), strict=True)):
            found = difference(case, a, b, lambda: truth(kind, k))
            if found:
                return f"{kind[:-1]} {k}: {found}"
    return None


# ---- running --------------------------------------------------------------------------------------------------------

def compiled(cases):
    """The answers of one compiled program with all these cases; and its compiled form, for what it tells."""
    doing("compiled: " + "; ".join(map(str, cases)))
    program = magneto.compile(fresh_program())
    arguments = [case.arguments() for case in cases]
    torch.manual_seed(0)
    results = program([(case.call, case.in_place, *given) for case, given in zip(cases, arguments)])
    return [Answer(result, given, True) for result, given in zip(results, arguments)]


class Outcome:
    """What was seen: wrong answers, and how the right ones came about."""

    def __init__(self):
        self.cases, self.failures = 0, []
        self.ended = False                        # the GPU's context: this process is of no use any more
        self.unsure = 0                           # cases for which eager gives one answer now and another then
        self.unmade = []                          # samples that torch itself cannot make or run here
        self.in_kernels = set()                   # operators
        self.by_torch = collections.Counter()     # operators that torch computes, with the reason
        self.fallbacks = collections.Counter()    # why graphs ran operator by operator

    def note_report(self):
        report = magneto.report()
        for graph in report.graphs:
            if graph.fallback:
                self.fallbacks[re.sub(r"%?\d+", "N", graph.fallback)] += 1
            for code in graph.code:
                for kernel in code.kernels:
                    self.in_kernels.update(kernel.operators)
                for call in code.calls:
                    self.by_torch[f"{call.op}: {call.reason}"] += 1
        magneto.reset()
        return any(graph.fallback for graph in report.graphs)

    def add(self, other):
        self.cases += other.cases
        self.unsure += other.unsure
        self.failures += other.failures
        self.unmade += other.unmade
        self.in_kernels |= other.in_kernels
        self.by_torch += other.by_torch
        self.fallbacks += other.fallbacks


def check(cases, outcome):
    """Runs cases and notes those whose answer is not eager's."""
    alone, together = [], []
    for case in cases:
        outcome.cases += 1
        try:
            want = eager(case)
        except Exception as error:
            check_error(case, error, outcome)
            continue
        if compare(case, want, eager(case)):
            outcome.unsure += 1  # some of torch's own kernels read beside an expanded tensor
        else:
            (alone if draws(case) else together).append((case, want))
    batches = [together[k:k + BATCH] for k in range(0, len(together), BATCH)] + [[pair] for pair in alone]
    for batch in batches:
        check_batch(batch, outcome)


def draws(case):
    """Whether a call moves torch's generator: such a case must be alone in its program."""
    def states():
        return torch.cat([torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if DEVICE == "cuda" else [])])

    arguments = case.arguments()
    before = states()
    run_all([(case.call, case.in_place, *arguments)])
    return not torch.equal(before, states())


def check_batch(batch, outcome):
    try:
        answers = compiled([case for case, _ in batch])
        wrong = [(case, found) for (case, want), have in zip(batch, answers) if (found := compare(case, want, have))]
    except Exception as error:
        wrong = [(case, f"{type(error).__name__}: {str(error)[:300]}") for case, _ in batch]
    fell_back = outcome.note_report()
    if len(batch) > 1 and (fell_back or wrong):  # one case may hide what the others would show
        count = len(outcome.failures)
        for pair in batch:
            check_batch([pair], outcome)
        if not wrong or len(outcome.failures) > count:
            return
        wrong = [(case, f"{found} (in company only)") for case, found in wrong]
    outcome.failures += [f"{case}: {found}" for case, found in wrong]


def check_error(case, error, outcome):
    try:
        compiled([case])
    except Exception as other:
        if type(other) is type(error):
            return
        outcome.failures.append(f"{case}: {type(other).__name__} {str(other)[:100]!r} instead of "
                                f"{type(error).__name__} {str(error)[:100]!r}")
        return
    outcome.failures.append(f"{case}: no error instead of {type(error).__name__} {str(error)[:100]!r}")


def cases_of(op, dtype, full, seed=0):
    """The cases of one operator and element type: all of them, or a few that differ with the seed."""
    rng = random.Random(zlib.crc32(f"{op.full_name} {dtype} {seed}".encode()))
    with_grad = op.supports_autograd and dtype in op.supported_backward_dtypes(DEVICE)
    torch.manual_seed(0)
    samples = list(op.sample_inputs(DEVICE, dtype, requires_grad=with_grad))
    ufunc = isinstance(op, (methods.UnaryUfuncInfo, methods.BinaryUfuncInfo))
    layouts = LAYOUTS + (["edges"] if ufunc else [])
    if DEVICE != "cpu" and not isinstance(op, (methods.UnaryUfuncInfo, methods.BinaryUfuncInfo, methods.ReductionOpInfo)):
        layouts = layouts[:4]  # an index that is out of range then ends a GPU's context
    cases = []
    for sample, layout in itertools.product(samples, layouts):
        if sum(t.numel() for t in tensors_of((sample.input, sample.args, sample.kwargs))) > 100_000:
            continue
        if is_broken(op, layout):
            continue
        seed = rng.randrange(1 << 30)
        cases.append(Case(op, sample, layout, False, seed))
        if op.inplace_variant is not None and layout in ("contiguous", "transposed"):
            cases.append(Case(op, sample, layout, True, seed))
    return rng.sample(cases, min(len(cases), MOST if full else 3))


def check_operator(op, full=False, seed=0):
    outcome = Outcome()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dtypes = [d for d in DTYPES if d in op.supported_dtypes(DEVICE)]
        if not full:  # one element type that has gradients, and another
            rng = random.Random(zlib.crc32(f"{op.full_name} {seed}".encode()))
            dtypes = dtypes[:1] + rng.sample(dtypes[1:], min(1, len(dtypes[1:])))
        for dtype in dtypes:
            try:
                cases = cases_of(op, dtype, full, seed)
            except Exception as error:  # samples that this torch cannot make
                outcome.unmade.append(f"{op.full_name} of {dtype}: {str(error)[:100]}")
                continue
            check(cases, outcome)
    return outcome


# ---- processes ------------------------------------------------------------------------------------------------------

_doing = mmap.mmap(-1, 4096)  # what a child does just now, for its parent


def tell_by(path):
    """From now on, to whoever started this process."""
    global _doing
    with open(path, "w+b") as file:
        file.truncate(4096)
        _doing = mmap.mmap(file.fileno(), 4096)


def told_by(path):
    with open(path, "rb") as file:
        return file.read().split(b"\0")[0].decode(errors="replace")


def doing(what):
    text = what.encode()[:4095] + b"\0"
    _doing[: len(text)] = text


def in_a_process(op, full=False, seed=0):
    """The outcome of one operator from a process of its own: an odd call may bring torch down, and only that with it. Where
    torch did so without us, the rest of this operator is left out, and said to be. Whoever calls this has not computed
    anything on several threads: those do not survive a fork."""
    if DEVICE != "cpu":  # a GPU does not survive a fork: `all_parts` starts a process anew where one ended
        return on_a_gpu(op, full, seed)
    doing("nothing yet")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(check_operator(op, full, seed), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if text:
        return pickle.loads(text)
    outcome, what = Outcome(), _doing[: _doing.find(b"\0")].decode(errors="replace")
    (outcome.unmade if what.startswith("eager: ") else outcome.failures).append(f"the process crashed: {what}")
    return outcome


class Server:
    """A process that computes nothing itself, so that each operator can have a fork of it."""

    def __init__(self):
        command = [sys.executable, "-c", "import opinfo; opinfo.serve()"]  # classes have the same names there
        self.process = subprocess.Popen(command, cwd=os.path.dirname(__file__), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, number, seed):
        self.process.stdin.write(f"{number} {seed}\n".encode())
        self.process.stdin.flush()
        return pickle.load(self.process.stdout)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def serve():
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an operator prints is no answer
    known = operators()
    for line in sys.stdin:
        number, seed = map(int, line.split())
        pickle.dump(in_a_process(known[number], seed=seed), answers)
        answers.flush()


HANGS = 100  # seconds for one operator on a GPU


def on_a_gpu(op, full, seed):
    """The outcome of one operator in this process; its last, where that ended the GPU's context."""
    doing("nothing yet")
    faulthandler.dump_traceback_later(HANGS, exit=True)  # where it stands, on stderr
    outcome = check_operator(op, full, seed)
    faulthandler.cancel_dump_traceback_later()
    try:
        torch.cuda.synchronize()
    except Exception as error:
        what = _doing[: _doing.find(b"\0")].decode(errors="replace")
        outcome = Outcome()
        outcome.ended = True
        (outcome.unmade if what.startswith("eager: ") else outcome.failures).append(
            f"the GPU's context ended: {what}: {str(error).splitlines()[0]}")
    return outcome


# ---- by hand --------------------------------------------------------------------------------------------------------

def one_part(chosen, full, into=None):
    """The operators one by one; what was found so far is in the file `into` even where this process crashes."""
    total = Outcome()
    for op in chosen:
        print(op.full_name, file=sys.stderr, flush=True)
        try:
            outcome = in_a_process(op, full)
        except Exception as error:
            outcome = Outcome()
            outcome.failures.append(f"{op.full_name}: the test itself: {type(error).__name__}: {str(error)[:200]}")
        total.add(outcome)
        for failure in outcome.failures:
            print(failure, flush=True)
        if into:
            with open(into, "ab") as file:
                pickle.dump(outcome, file)
        if outcome.ended:
            os._exit(1)
    return total


def outcomes_in(file):
    if os.path.exists(file):
        with open(file, "rb") as stream:
            while True:
                try:
                    yield pickle.load(stream)
                except EOFError:
                    return


def all_parts(options):
    """The same in several processes, each with every n-th operator, and started anew behind what ended it."""
    total = Outcome()
    command = [sys.executable, __file__] + (["--full"] if options.full else [])
    if options.only:
        command += ["--only", options.only]
    first, step = map(int, options.part.split("/"))
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, str(k)) for k in range(options.jobs)]

        def start(k, after):
            part = f"{first + k * step}/{options.jobs * step}"
            return subprocess.Popen(command + ["--part", part, "--into", files[k], "--after", str(after)])

        def finish(k):
            part = start(k, 0)
            while part.wait() != 0:
                done = list(outcomes_in(files[k]))
                if not done or not done[-1].ended:
                    crash = Outcome()
                    what = told_by(files[k] + ".doing")
                    text = f"the process ended with {part.returncode}: {what}"
                    (crash.unmade if what.startswith("eager: ") else crash.failures).append(text)
                    print(text, flush=True)
                    with open(files[k], "ab") as file:
                        pickle.dump(crash, file)
                    done.append(crash)
                part = start(k, len(done))

        waiting = [threading.Thread(target=finish, args=(k,)) for k in range(options.jobs)]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
        for file in files:
            for outcome in outcomes_in(file):
                total.add(outcome)
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="every element type and layout: an hour of processor time")
    parser.add_argument("--only", help="names, with commas")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--part", default="0/1", help="k/n: every n-th operator from the k-th on")
    parser.add_argument("--into", help=argparse.SUPPRESS)
    parser.add_argument("--after", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.jobs > 1:
        total = all_parts(options)
    else:
        k, n = map(int, options.part.split("/"))
        chosen = [op for op in operators() if not options.only or op.full_name in options.only.split(",")]
        if options.into:
            tell_by(options.into + ".doing")
        total = one_part(chosen[k::n][options.after:], options.full, options.into)
    if options.into:
        return 0
    print(f"{total.cases} cases, {total.unsure} of them without a sure answer, {len(total.failures)} wrong")
    for line in total.unmade:
        print("not tested:", line)
    for reason, count in total.fallbacks.most_common():
        print(f"operator by operator {count} times: {reason}")
    unmet = sorted(set(magneto._C._testing_trace.lowered()) - total.in_kernels)
    print(f"lowerings that no kernel had: {', '.join(unmet)}")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
