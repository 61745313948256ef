"""Other machinery of PyTorch in the same process: torch.compile, torch.cond, forward-mode AD, FSDP, legacy tensor types."""

import os
import subprocess
import sys

import pytest
import torch
import torch.autograd.forward_ad as forward
from torch import nn, ones, randn

import magneto
from forked import told_by
from harness import same_as_eager


def in_a_process(work, seconds=300):
    """A hang or the end of the process is a failure, not the end of the tests."""
    told, ended = told_by(lambda tell: tell(work()), seconds)
    assert ended is None, ended
    return told[0]


# ---- torch.compile -----------------------------------------------------------------------------------------------------

def double(x):
    return x * 2 + 1


def refused(x):
    torch._dynamo.graph_break()
    return x + 1


def after_unsupported():
    c, t = magneto.compile(double), torch.compile(refused, fullgraph=True, backend="eager")
    other = torch.compile(double, backend="eager")
    seen = [c(ones(3)).tolist()]
    for n in (3, 4):
        try:
            t(ones(n))
        except torch._dynamo.exc.Unsupported:
            seen.append("unsupported")
        seen += [c(ones(3)).tolist(), c(ones(n)).tolist(), other(ones(n)).tolist(), c(ones(n)).tolist()]
    return seen


def test_after_torch_compile_refused_a_function():
    three, four = [3.0] * 3, [3.0] * 4
    assert in_a_process(after_unsupported) == [three, "unsupported", three, three, three, three,
                                               "unsupported", three, four, four, four]


def nested():
    c, t = magneto.compile(double), torch.compile(double, backend="eager")
    inner = magneto.compile(lambda x: t(x) + 1)
    outer = torch.compile(lambda x: c(x) + 1, backend="eager")
    seen = []
    for n in (2, 2, 2, 3, 3):
        seen += [inner(ones(n)).tolist(), outer(ones(n)).tolist(), c(ones(n)).tolist(), t(ones(n)).tolist()]
    return seen


def test_torch_compile_inside_and_outside():
    expected = []
    for n in (2, 2, 2, 3, 3):
        expected += [[4.0] * n, [4.0] * n, [3.0] * n, [3.0] * n]
    assert in_a_process(nested) == expected


def turns():
    """Who came first and who leaves first changes from turn to turn."""
    seen = []
    for turn in range(4):
        def f(x, turn=turn):
            return x * 2 + turn

        c, t = magneto.compile(f), torch.compile(f, backend="eager")
        order = (c, t, c, t) if turn % 2 else (t, c, t, c)
        seen += [g(ones(2 + turn)).tolist() for g in order]
        if turn == 2:
            torch._dynamo.reset()
    return seen


def test_in_turns():
    assert in_a_process(turns) == [[2.0 + turn] * (2 + turn) for turn in range(4) for _ in range(4)]


# ---- higher-order operators --------------------------------------------------------------------------------------------

class MakesAModule(nn.Module):
    def forward(self, x):
        return nn.Softmax(dim=0)(x) * 2


def test_modules_that_are_made_inside_after_torch_compile():
    def work():
        model, x = MakesAModule(), ones(3)
        compiled, others = magneto.compile(model), [torch.compile(MakesAModule(), backend="eager") for _ in range(12)]
        for other in others:  # each compile changes a class of TorchDynamo's
            other(x)
            assert torch.equal(compiled(x), model(x))
        text = str(magneto.report())
        return "0 breaks" in text and "eager from now on" not in text and text.count("recompile of") <= 2, text

    right, text = in_a_process(work)
    assert right, text


def test_cond():
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    c = magneto.compile(f)
    for _ in range(4):
        for sign in (1.0, -1.0):
            x = ones(3) * sign
            assert torch.equal(c(x), f(x))


def test_cond_between_operators():
    def f(x, flag):
        y = x * 2
        y = torch.cond(flag, lambda y: y + 1, lambda y: y - 1, (y,))
        return y * 3

    c = magneto.compile(f)
    for _ in range(3):
        for flag in (torch.tensor(True), torch.tensor(False), True):
            assert torch.equal(c(ones(3), flag), f(ones(3), flag))


# ---- types and factories of old ----------------------------------------------------------------------------------------

def test_new():
    same_as_eager(lambda x: (x + 1).new(2, 3).zero_(), randn(2))
    same_as_eager(lambda x: ((x + 1).new([1, 2, 3]), (x + 1).new(), (x * 2).new_ones(2), (x > 0).new([True])), randn(2))
    same_as_eager(lambda x: (x.long() + 1).new(torch.Size([2])).fill_(3) + x.new(3, 2).fill_(1).sum().long(), randn(2))


def test_instances_of_legacy_types():
    def f(x):
        y = x + 1
        return (isinstance(y, torch.FloatTensor), isinstance(y.double(), torch.DoubleTensor), isinstance(y.long(), torch.LongTensor),
                isinstance(y, torch.LongTensor), isinstance(y.double(), torch.FloatTensor), isinstance(x, torch.FloatTensor),
                isinstance(y > 0, torch.BoolTensor), isinstance(y, (int, torch.HalfTensor)), isinstance(y, (int, torch.FloatTensor)),
                y.type(), y.type() == x.type())

    same_as_eager(f, randn(2))


def test_a_branch_on_a_legacy_type():
    def f(x):
        y = x * 2
        return y.sum() if isinstance(y, torch.FloatTensor) else y.sum() + 1

    same_as_eager(f, randn(2))
    same_as_eager(f, randn(2, dtype=torch.float64))


# ---- forward-mode AD ---------------------------------------------------------------------------------------------------

def sine(x, w):
    return (x * w).sin() + x


@pytest.mark.parametrize("grad", [False, True])
def test_duals(grad):
    c = magneto.compile(sine)
    for step in range(5):
        x, w, t = randn(3, requires_grad=grad), randn(3), randn(3)
        if step in (1, 3):
            assert torch.allclose(c(x, w), sine(x, w))
            continue
        with forward.dual_level():
            for args in ((forward.make_dual(x, t), w), (x, forward.make_dual(w, t))):
                expected, got = (forward.unpack_dual(f(*args)) for f in (sine, c))
                assert torch.allclose(got.primal, expected.primal) and torch.allclose(got.tangent, expected.tangent)


def test_a_dual_made_inside():
    def f(x, t):
        dual = forward.make_dual(x * 1, t)
        return forward.unpack_dual(sine(dual, t)).tangent

    c = magneto.compile(f)
    for _ in range(4):
        x, t = randn(3), randn(3)
        with forward.dual_level():
            assert torch.allclose(c(x, t), f(x, t))


def test_a_dual_of_a_parameter():
    model = nn.Linear(3, 3)
    c = magneto.compile(lambda x, w: torch.func.functional_call(model, {"weight": w}, (x,)))
    for _ in range(4):
        x, t = randn(2, 3), randn(3, 3)
        with forward.dual_level():
            w = forward.make_dual(model.weight.detach(), t)
            assert torch.allclose(forward.unpack_dual(c(x, w)).tangent, x @ t.T, atol=1e-5)


def test_jvp_of_a_compiled_function():
    c = magneto.compile(sine)
    for _ in range(3):
        x, w, t = randn(3), randn(3), randn(3)
        for e, g in zip(torch.func.jvp(sine, (x, w), (t, t)), torch.func.jvp(c, (x, w), (t, t))):
            assert torch.allclose(e, g)


# ---- FSDP --------------------------------------------------------------------------------------------------------------

def sharded(way, order):
    import socket

    import torch.distributed as distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    distributed.init_process_group("gloo", rank=0, world_size=1)

    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))

    plain, model = make(), make()
    if order == "layers":
        for i in range(3):
            model[i] = magneto.compile(model[i])
    if order == "first":
        model = magneto.compile(model)
    if way == "fully_shard":
        mesh = init_device_mesh("cpu", (1,))
        for i in range(3):
            fully_shard(model[i], mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        for i in range(3):
            model[i] = FullyShardedDataParallel(model[i], device_id=torch.device("cpu"))
        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    if order == "last":
        model = magneto.compile(model)
    steps = [(m, torch.optim.SGD(m.parameters(), lr=0.1)) for m in (plain, model)]
    answers = []
    for _ in range(4):
        x = randn(3, 4)
        pair = []
        for m, optimizer in steps:
            optimizer.zero_grad()
            y = m(x)
            y.square().sum().backward()
            optimizer.step()
            pair.append(y.detach())
        answers.append(torch.allclose(*pair, rtol=1e-4, atol=1e-5))
    return answers


@pytest.mark.parametrize("order", ["first", "layers", "last"])
@pytest.mark.parametrize("way", ["fully_shard", "FullyShardedDataParallel"])
def test_sharded_layers_and_root(way, order):
    """A new process: autograd's threads do not survive a fork."""
    done = subprocess.run([sys.executable, __file__, way, order], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "[True, True, True, True]", done.stderr[-2000:]


if __name__ == "__main__":
    print(sharded(*sys.argv[1:]), flush=True)
    os._exit(0)
