"""What the tests of pending tensors share: one program, run by eager, by a trace with flushes at random places, and by
replay. Each must give the same tensors: values, layout, autograd facts, aliasing, and the caller's arguments."""
import contextlib
import copy
import importlib.util
import os
import random

import torch
from torch.overrides import TorchFunctionMode


def load():
    path = os.environ.get("MAGNETO_TRACE_MODULE")
    if path:
        spec = importlib.util.spec_from_file_location("magneto_trace_testing", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    from magneto import _C
    return _C._testing_trace


T = load()


class FlushAtRandom(TorchFunctionMode):
    """Flushes before some of the calls into torch: a flush is a watermark, not an end."""

    def __init__(self, trace, seed):
        super().__init__()
        self.trace, self.random = trace, random.Random(seed)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if self.random.random() < 0.4:
            self.trace.flush()
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def tracing(trace=None, flush_seed=None):
    trace = trace or T.Trace()
    trace.enter()
    try:
        with FlushAtRandom(trace, flush_seed) if flush_seed is not None else contextlib.nullcontext():
            yield trace
    finally:
        trace.leave()
    trace.flush()


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_in(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors_in(item)]
    return []


def facts(t):
    return dict(shape=tuple(t.shape), stride=tuple(t.stride()), offset=t.storage_offset(), dtype=t.dtype,
                requires_grad=t.requires_grad, is_leaf=t.is_leaf, has_grad_fn=t.grad_fn is not None,
                version=None if t.is_inference() else t._version, is_view=t._is_view(), inference=t.is_inference(),
                keys=T.keys(t))


def clones(args):
    def clone(a):
        if not isinstance(a, torch.Tensor):
            return copy.deepcopy(a)
        c = torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device=a.device).copy_(a.detach())
        return c.requires_grad_(a.requires_grad)
    return [clone(a) for a in args]


def assert_same(mine, eager, what):
    assert len(mine) == len(eager), what
    for i, (m, e) in enumerate(zip(mine, eager)):
        assert facts(m) == facts(e), f"{what} {i}"
        torch.testing.assert_close(m.detach(), e.detach(), rtol=0, atol=0, equal_nan=True, msg=lambda s: f"{what} {i}: {s}")
        for j in range(i):
            share = lambda ts: ts[i].untyped_storage()._cdata == ts[j].untyped_storage()._cdata
            assert share(mine) == share(eager), f"{what} {j} and {i} share memory"


def backward(outputs):
    loss = None
    for t in outputs:
        if t.requires_grad and (t.is_floating_point() or t.is_complex()):
            weights = torch.arange(1, t.numel() + 1, dtype=torch.float32, device=t.device).view(t.shape)
            part = (t.abs().float() * weights).sum()
            loss = part if loss is None else loss + part
    if loss is not None:
        loss.backward()


def compare(mine, eager, my_args, eager_args, what):
    assert_same(mine, eager, f"{what}: output")
    assert_same([a for a in my_args if isinstance(a, torch.Tensor)], [a for a in eager_args if isinstance(a, torch.Tensor)],
                f"{what}: argument")
    backward(mine)
    backward(eager)
    for i, (m, e) in enumerate(zip(my_args, eager_args)):
        if not isinstance(m, torch.Tensor) or not m.is_leaf:
            continue
        assert (m.grad is None) == (e.grad is None), f"{what}: gradient of argument {i}"
        if m.grad is not None:
            assert_same([m.grad], [e.grad], f"{what}: gradient of argument {i}")


def same_as_eager(f, *args, flush_seeds=(None, 1, 2), replay=True, reads=0, lies=0, seed=7):
    """Runs f under a trace, with and without flushes inside, and again from its graph on fresh inputs."""
    lies_before = T.counters()["lies"]
    for flush_seed in flush_seeds:
        eager_args, my_args = clones(args), clones(args)
        torch.manual_seed(seed)
        eager = tensors_in(f(*eager_args))
        torch.manual_seed(seed)
        trace = T.Trace()
        for i, a in enumerate(my_args):
            if isinstance(a, torch.Tensor):
                trace.add_input(a, f"arg{i}")
        inputs = {trace.find(a): i for i, a in enumerate(my_args) if isinstance(a, torch.Tensor)}
        with tracing(trace, flush_seed):
            mine = tensors_in(f(*my_args))
        what = f"flush seed {flush_seed}"
        if reads is not None:
            assert trace.data_reads() == reads, trace.last_data_read()
        assert trace.verify() == []
        program = None
        if replay and not trace.data_reads():
            program = trace.finish(mine)
            assert program.verify() == []
            outside = {i: trace.input_tensor(i) for i in program.inputs if i not in inputs}
        compare(mine, eager, my_args, eager_args, what)
        if program:
            del trace, mine
            eager_args, my_args = clones(args), clones(args)
            torch.manual_seed(seed + 1)
            eager = tensors_in(f(*eager_args))
            torch.manual_seed(seed + 1)
            mine = program.run([my_args[inputs[i]] if i in inputs else outside[i] for i in program.inputs])
            compare(mine, eager, my_args, eager_args, f"replay after {what}")
    assert T.counters()["lies"] - lies_before == lies, T.counters()["last_lie"]


def same_error(f, *args):
    """The error, its text and its place are eager's, and what was recorded before it is intact."""
    def place(run):
        reached = []
        try:
            run(reached)
        except Exception as error:
            return reached, type(error), str(error)
        return reached, None, None
    eager = place(lambda reached: f(reached, *clones(args)))

    def traced(reached):
        with tracing():
            f(reached, *clones(args))
    assert place(traced) == eager
