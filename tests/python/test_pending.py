"""Pending tensors against eager, forward."""
import copy
import gc
import io
import weakref

import numpy
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from test_pending_harness import T, same_as_eager, same_error, tracing

torch.manual_seed(0)
X, W, B = torch.randn(4, 6), torch.randn(6, 5), torch.randn(5)
IMAGE, KERNEL = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)


def views(x):
    y = x * 2
    v = y.view(-1)
    return y, v, y[1:3, ::2], y.t(), v.view(2, 12)[1]


def writes_to_an_intermediate(x):
    y = x * 2
    v = y[0]
    y.add_(1)
    v.mul_(3)
    y[2] = 7
    return y, v


def writes_to_an_input(x):
    v = x[1]
    x.add_(1)
    z = x * 2
    v.zero_()
    return x, v, z, x.sum()


def restrides(x):
    y = x * 2
    return y.t_(), y.unsqueeze_(0), y


def fills_an_out(x):
    out = torch.empty(4, 6)
    return torch.add(x, 1, out=out), out


PROGRAMS = {
    "a chain": lambda x: torch.relu(x @ W + B) * 2 - x.sum(1, keepdim=True),
    "linear and softmax": lambda x: F.softmax(F.linear(x, W.t(), B), -1),
    "views": views,
    "writes to an intermediate": writes_to_an_intermediate,
    "writes to an input": writes_to_an_input,
    "t_ and unsqueeze_ of an intermediate": restrides,
    "t_ of an input": lambda x: (x.t_(), x * 2),
    "resize_": lambda x: (x * 2).resize_(2, 3),
    "out=": fills_an_out,
    "factories": lambda x: (torch.zeros(3, 4) + x[:3, :4], torch.arange(5), torch.ones_like(x), torch.full((2,), 3.),
                            torch.empty(2, 3).fill_(1), torch.eye(3), torch.linspace(0, 1, 5)),
    "tensors from numbers": lambda x: (torch.tensor([1., 2.]) + 1, torch.tensor(3.) * x, torch.as_tensor([1, 2]),
                                       x.new_tensor([3.]), x.new_zeros(2)),
    "random numbers": lambda x: (torch.randn(3), F.dropout(x, 0.5), torch.rand_like(x), torch.randperm(5),
                                 torch.bernoulli(torch.full((5,), .5)), torch.multinomial(torch.ones(6), 3), torch.randn(2)),
    "cat, split, stack": lambda x: (torch.cat([x, x * 2]), *torch.split(x * 1, 2), *torch.unbind(x * 3), torch.stack([x, x]),
                                    *x.chunk(2)),
    "integer indices": lambda x: (x[torch.tensor([0, 2])], x.gather(1, torch.zeros(4, 1, dtype=torch.long)),
                                  torch.where(x > 0, x, 0.), x.index_select(1, torch.tensor([1]))),
    "masked assignment": lambda x: x.clone().masked_fill_(x > 0, 3.),
    "sort and topk": lambda x: (*torch.sort(x), *torch.topk(x, 2), x.max(1).values, x.cumsum(0)),
    "dtypes": lambda x: (x.half().float(), x.to(torch.float64), x.long(), (x > 0).any(), x.bool()),
    "numbers take part in promotion": lambda x: (x.long() * 2, x.long() * 2., x.half() * 2., x > 1, 1 - x, x ** 2, 2 ** x),
    "integer division": lambda x: (x.long() // 2, x.long() // torch.tensor([3]), x.long() % 3, x / 2),
    "einsum and layer norm": lambda x: F.layer_norm(torch.einsum("ij,kj->ik", x, x), (4,)),
    "norms and activations": lambda x: (F.gelu(x), F.silu(x), x.sigmoid(), x.tanh(), F.softplus(x), x.norm(), x.std(0), x.var()),
    "reductions": lambda x: (x.sum(), x.mean(0), x.amax(1), x.argmax(), x.prod(1), x.logsumexp(0)),
    "expand and broadcast": lambda x: (x[0].expand(3, 6), x.sum(0) + x, x[:, :1].expand_as(x) * 2),
    "no arguments that are pending": lambda x: torch.mm(x, W),
    "detach": lambda x: (lambda y: (y, y.detach(), y.detach().add_(1)))(x * 2),
    "data": lambda x: (lambda y: (y, y.data, y.data.mul_(2)))(x * 2),
    "foreach": lambda x: torch._foreach_add([x, x * 2], 1.0),
    "foreach in place": lambda x: (lambda a, b: (torch._foreach_mul_([a, b], 2.0), a, b)[1:])(x * 1, x * 2),
    "unsafe split": lambda x: torch.unsafe_split(x * 2, 2),
    "pad and roll": lambda x: (F.pad(x, (1, 1)), x.roll(1, 0), x.flip(0), x.tril(), x.diagonal()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name):
    same_as_eager(PROGRAMS[name], X)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("tensors from numbers",)])
def test_a_program_without_grad(name):
    with torch.no_grad():
        same_as_eager(PROGRAMS[name], X, flush_seeds=(None, 3))


@pytest.mark.parametrize("name", ["a chain", "linear and softmax", "views", "writes to an intermediate", "cat, split, stack",
                                  "factories", "norms and activations", "einsum and layer norm"])
def test_a_program_in_inference_mode(name):
    def program(x):
        with torch.inference_mode():
            return PROGRAMS[name](x)
    same_as_eager(program, X, replay=False)


def test_a_view_of_a_normal_tensor_in_inference_mode_is_normal():
    def program(x):
        with torch.inference_mode():
            return x.view(-1), x.t()
    same_as_eager(program, X, replay=False)


def test_convolution_and_batch_norm():
    same_as_eager(lambda x, w: F.batch_norm(F.conv2d(x, w, padding=1), torch.zeros(4), torch.ones(4)), IMAGE, KERNEL)


def test_transposed_and_grouped_convolutions():
    same_as_eager(lambda x, w: (F.conv_transpose2d(x, w.transpose(0, 1).contiguous(), stride=2, output_padding=1),
                                F.conv2d(x, torch.ones(3, 1, 3, 3), groups=3), F.conv1d(x[:, :, 0], w[:, :, 0]),
                                F.conv3d(x[:, :, None], w[:, :, None])), IMAGE, KERNEL)


def test_channels_last():
    def program(x, w):
        x = x.to(memory_format=torch.channels_last)
        return F.max_pool2d(F.conv2d(x, w), 2), F.conv2d(x, w).relu(), F.interpolate(x, scale_factor=2), x * 2
    same_as_eager(program, IMAGE, KERNEL)


def test_running_statistics_are_written():
    def program(x, mean, var):
        return F.batch_norm(x, mean, var, training=True), mean + 0
    same_as_eager(program, IMAGE, torch.zeros(3), torch.ones(3))


def test_attention():
    same_as_eager(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), torch.randn(2, 4, 8, 16))
    same_as_eager(lambda q: F.scaled_dot_product_attention(q, q, q * 2, attn_mask=torch.ones(8, 8).tril().bool()),
                  torch.randn(2, 4, 8, 16))


def test_embedding():
    same_as_eager(lambda i, w: F.embedding(i, w) * 2, torch.tensor([1, 3]), W)


def test_cross_entropy():
    same_as_eager(lambda x, y: F.cross_entropy(x @ W, y), X, torch.tensor([0, 1, 4, 2]))


def test_autocast_inside():
    def program(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.linear(x, W.t()).relu(), x @ W
    same_as_eager(program, X)


def test_a_flush_inside_autocast_does_not_cast_again():
    def program(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ W
            with torch.autocast("cpu", enabled=False):
                z = x @ W
            return y, z, x.float() * 2
    same_as_eager(program, X, flush_seeds=(1, 2, 3, 4, 5))


# Reads of data: served, right, and counted.

DATA_PROGRAMS = {
    "item of a pending tensor": lambda x: (x * 2) * float((x * 2).sum()),
    "item of an input": lambda x: x * x[0, 0].item(),
    "branch": lambda x: (x + 1) if (x * 0 + 1).sum() > 3 else x - 1,
    "mask": lambda x: (x * 2)[(x * 2) > 0] * 3,
    "nonzero": lambda x: (x > 0).nonzero() + 1,
    "unique": lambda x: torch.unique((x > 0).long()) + 1,
    "int and range": lambda x: [x[i] for i in range(int((x * 0 + 2).sum() / 24))] + [x[(x * 0).long()[0, 0]]],
    "complex with a conjugate bit": lambda x: (torch.view_as_complex((x * 1).view(4, 3, 2)).conj() * 2).abs(),
    "generator": lambda x: torch.randn(3, generator=torch.Generator().manual_seed(3)) + x[0, :3],
    "sparse": lambda x: torch.sparse.mm((x > 0).float().to_sparse(), W).relu(),
    "nested": lambda x: torch.nested.nested_tensor([x[0] * 1, x[1, :3] * 1]).to_padded_tensor(0.),
    "quantised": lambda x: torch.quantize_per_tensor(x * 1, 0.1, 0, torch.qint8).dequantize(),
    "set_": lambda x: (lambda y: (y.set_((x * 3).clone()), y + 1))(x * 2),
}


@pytest.mark.parametrize("name", DATA_PROGRAMS)
def test_a_read_of_data(name):
    same_as_eager(DATA_PROGRAMS[name], X, reads=None, replay=False)
    trace = T.Trace()
    with tracing(trace):
        DATA_PROGRAMS[name](X)
    assert trace.data_reads() > 0 and trace.last_data_read()


READS = {
    "item": (lambda y: y[0, 0].item(), lambda r, x: r == x[0, 0].item()),
    "bool": (lambda y: bool((y == y).all()), lambda r, x: r is True),
    "tolist": (lambda y: y.tolist(), lambda r, x: r == x.tolist()),
    "numpy": (lambda y: y.numpy().copy(), lambda r, x: (r == x.numpy()).all()),
    "asarray": (lambda y: numpy.asarray(y).copy(), lambda r, x: (r == x.numpy()).all()),
    "print": (lambda y: str(y), lambda r, x: r == str(x)),
    "data_ptr": (lambda y: (y.data_ptr(), y.data_ptr()), lambda r, x: r[0] != 0 and r[0] == r[1]),
    "dlpack": (lambda y: torch.from_dlpack(torch.utils.dlpack.to_dlpack(y)).clone(), lambda r, x: torch.equal(r, x)),
    "dlpack of numpy": (lambda y: numpy.from_dlpack(y).copy(), lambda r, x: (r == x.numpy()).all()),
    "extension": (lambda y: T.sum_through_pointer(y), lambda r, x: abs(r - x.double().sum().item()) < 1e-4),
    "untyped_storage": (lambda y: bytes(y.untyped_storage()), lambda r, x: r == x.numpy().tobytes()),
    "deepcopy": (lambda y: copy.deepcopy(y).tolist(), lambda r, x: r == x.tolist()),
    "equal": (lambda y: torch.equal(y, y.clone()), lambda r, x: r is True),
    "format": (lambda y: f"{y[0, 0]:.3f}", lambda r, x: r == f"{x[0, 0]:.3f}"),
    "in": (lambda y: y[0, 0].clone() in y, lambda r, x: r is True),
    "save": (lambda y: saved(y), lambda r, x: torch.equal(r, x)),
}


def saved(y):
    file = io.BytesIO()
    torch.save(y, file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize("kind", ["pending", "an input with a recorded write", "written after a flush"])
@pytest.mark.parametrize("name", READS)
def test_a_reader_gets_data(name, kind):
    read, is_right = READS[name]
    x = X.clone()
    trace = T.Trace()
    with tracing(trace):
        if kind == "pending":
            y = x * 2
        elif kind == "an input with a recorded write":
            y = x.mul_(2)
        else:
            y = x * 1
            view = y.view(-1)
            trace.flush()
            view.mul_(2)
        result = read(y)
        assert trace.data_reads() > 0
        z = y + 1
    assert is_right(result, X * 2) and torch.equal(y, X * 2) and torch.equal(z, X * 2 + 1)


def test_a_read_of_an_untouched_view_needs_no_flush():
    x = X.clone()
    with tracing():
        y = x * 2
        assert x[0].tolist() == X[0].tolist() and T.is_pending(y)


# Objects.

def test_inputs_stay_the_callers_objects():
    x = X.clone()
    holder = {"x": x}
    with tracing():
        y = x
        y += 1
        assert y is x and holder["x"] is y
    assert torch.equal(x, X + 1)


def test_containers_and_weak_references():
    class Box:
        pass
    box = Box()
    with tracing():
        y = X * 2
        box.a, box.list, box.dict, box.weak, box.hashed = y, [y, y + 1], {"k": (y - 1,)}, weakref.ref(y), {y: 2}
        get = lambda: y
    assert torch.equal(box.a, X * 2) and box.list[0] is box.a and get() is box.a and box.weak() is box.a
    assert box.hashed[box.a] == 2 and torch.equal(box.list[1], X * 2 + 1) and torch.equal(box.dict["k"][0], X * 2 - 1)


def test_parameters_made_inside():
    def program(x):
        p, q, linear = nn.Parameter(x.detach() * 2), nn.Parameter(torch.zeros(3)), nn.Linear(2, 2)
        return p, q, list(linear.parameters())
    same_as_eager(program, X, reads=None, replay=False)


def test_data_of_a_parameter_is_replaced():
    p = nn.Parameter(torch.zeros(4, 6))
    with tracing():
        p.data = X * 2
        z = p + 1
    assert torch.equal(p.detach(), X * 2) and torch.equal(z, X * 2 + 1) and torch.equal(p * 1, X * 2)
    assert T.keys(p) == T.keys(nn.Parameter(torch.zeros(1)))


def test_data_of_a_parameter_is_replaced_and_not_used():
    p = nn.Parameter(torch.zeros(4, 6))
    with tracing():
        p.data = X * 2
    assert torch.equal(p * 1, X * 2) and (p.detach().numpy() == (X * 2).numpy()).all()


def test_data_of_a_pending_tensor_is_replaced():
    x = X.clone()
    with tracing() as trace:
        y = x * 2
        y.data = x
        z = x * 3
        z.data = x * 4
        u = z + 1
    assert torch.equal(y, X) and y.data_ptr() == x.data_ptr() and torch.equal(z, X * 4) and torch.equal(u, X * 4 + 1)


def test_subclass_without_dispatch():
    class Sub(torch.Tensor):
        pass
    s = X.clone().as_subclass(Sub)
    with tracing():
        y = s * 2
    assert type(y) is Sub and torch.equal(y.as_subclass(torch.Tensor), X * 2)


def test_metadata_of_a_pending_tensor():
    with tracing() as trace:
        y = X * 2
        assert y.type() == "torch.FloatTensor" and y.layout == torch.strided and y.is_floating_point() and y.nbytes == 96
        assert y.ndim == 2 and not y.is_cuda and not y.is_sparse and y.is_contiguous() and y.device.type == "cpu"
        assert len(y) == 4 and y.numel() == 24 and y.is_same_size(X) and not y.is_inference() and not y._is_view()
        assert T.is_pending(y) and trace.data_reads() == 0


def test_an_ordinary_tensor_after_the_flush():
    with tracing():
        y = X * 2
        v = y.view(-1)
    a, b = saved([y, v])
    assert torch.equal(a, y) and a.data_ptr() == b.data_ptr() and torch.equal(copy.deepcopy(y), y)
    y.numpy()[0, 0] = 5
    assert y[0, 0] == 5 and v[0] == 5
    assert torch.equal(torch.vmap(lambda a: a * 2)(y), y * 2)
    y.share_memory_()
    assert y.is_shared() and v.is_shared()
    y.clone().resize_(2, 3)
    x = X.clone()
    y.set_(x)
    assert y.data_ptr() == x.data_ptr()


def test_function_transforms_inside():
    same_as_eager(lambda x: torch.vmap(lambda a: (a * 2).sum() + a)(x * 1), X, reads=None, replay=False)
    same_as_eager(lambda x: torch.func.grad(lambda a: a.sin().sum())(x * 1), X, reads=None, replay=False)
    same_as_eager(lambda x: torch.func.jvp(lambda a: a.sin(), (x * 1,), (x * 2,)), X, reads=None, replay=False)
    same_as_eager(lambda x: torch.func.jacrev(lambda a: a.sin())(x[0] * 1), X, reads=None, replay=False)


def test_forward_derivatives_inside():
    import torch.autograd.forward_ad as forward

    def program(x):
        with forward.dual_level():
            dual = forward.make_dual(x * 1, x * 2)
            return forward.unpack_dual(dual.sin()).tangent
    same_as_eager(program, X, reads=None, replay=False)


def test_subclass_with_dispatch_inside():
    from torch.testing._internal.two_tensor import TwoTensor
    same_as_eager(lambda x: (TwoTensor(x * 1, x * 2) * 3).a, X, reads=None, replay=False)


def test_dispatch_mode_inside():
    from torch.utils.flop_counter import FlopCounterMode

    def program(x):
        with FlopCounterMode(display=False) as flops:
            y = (x * 1) @ W
        assert flops.get_total_flops() == 2 * 4 * 6 * 5
        return y
    same_as_eager(program, X, reads=None, replay=False)


def test_fake_tensors_inside():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with tracing():
        with FakeTensorMode():
            y = torch.empty(3, 4) @ torch.empty(4, 5)
            assert y.shape == (3, 5)
        z = X * 2
    assert torch.equal(z, X * 2)


# Errors.

def steps(*functions):
    def program(reached, x):
        for i, f in enumerate(functions):
            f(x)
            reached.append(i)
    return program


@pytest.mark.parametrize("bad", [
    lambda x: torch.mm(x * 2, x),
    lambda x: (x * 2).view(5, 5),
    lambda x: F.embedding(torch.tensor([100]), W),
    lambda x: (x * 2)[7],
    lambda x: (x * 2).gather(1, torch.full((1, 1), 99)),
    lambda x: F.cross_entropy(x @ W, torch.tensor([0, 1, 99, 2])),
    lambda x: torch.cat([x * 2, x[:, :3]], 0),
    lambda x: torch.mm(x * 2, W.double()),
    lambda x: torch.linalg.cholesky(-torch.eye(3) * (x[0, 0] * 0 + 1)),
    lambda x: torch.ones(3, dtype=torch.long) // torch.zeros(3, dtype=torch.long),
    lambda x: F.conv2d(x, KERNEL),
    lambda x: (x * 2).expand(3, 3),
    lambda x: x.requires_grad_().add_(1),
    lambda x: torch.zeros(3).add_(torch.zeros(4)),
])
def test_an_error_comes_at_its_operator(bad):
    same_error(steps(lambda x: x * 3, bad, lambda x: x * 4), X)


def test_a_kernel_that_fails_in_a_flush_leaves_the_rest_intact():
    library = torch.library.Library("magneto_pending_test", "FRAGMENT")
    library.define("fails(Tensor x) -> Tensor")

    def fails(x):
        raise ValueError("on purpose")
    library.impl("fails", fails, "CPU")
    library.impl("fails", torch.empty_like, "Meta")
    x = X.clone()
    with tracing():
        y = x * 2
        x.add_(1)
        with pytest.raises(ValueError, match="on purpose"):
            torch.ops.magneto_pending_test.fails(y)
        z = y + 1
    assert torch.equal(y, X * 2) and torch.equal(x, X + 1) and torch.equal(z, X * 2 + 1)


# The trace itself.

def test_values_stay_known_behind_a_flush():
    trace = T.Trace()
    x = X.clone()
    trace.add_input(x, "x")
    with tracing(trace):
        y = x * 2
        before = trace.find(y)
        trace.flush()
        assert not T.is_pending(y) and trace.find(y) == before and trace.made_here(y) and not trace.made_here(x)
        z = torch.relu(y)
        assert trace.take_unclaimed() == []
        assert trace.ops() == ["aten::mul.Tensor", "aten::relu"]
    assert trace.find(z) is not None and trace.find(X) is None


def test_tensors_from_nowhere_are_unclaimed_inputs():
    trace = T.Trace()
    x = X.clone()
    with tracing(trace):
        y = x * 2 + W[:4, :1].sum()
        ids = trace.take_unclaimed()
        assert [trace.input_tensor(i) is t for i, t in zip(ids, (x, W))] == [True, True] and len(ids) == 2
        assert trace.take_unclaimed() == []
        y = y * x
        assert trace.take_unclaimed() == []


def test_rewind_forgets_what_was_run():
    trace = T.Trace()
    x = X.clone()
    trace.add_input(x, "x")
    with tracing(trace):
        y = x * 2
        mark = trace.mark()
        z = y + 1
        trace.flush()
        trace.rewind(mark)
        assert trace.ops() == ["aten::mul.Tensor"]
        assert trace.find(y) is not None and trace.find(z) is None and not trace.made_here(z)
        u = z * y
        assert [trace.input_tensor(i) is z for i in trace.take_unclaimed()] == [True]
    program = trace.finish([u])
    new = torch.randn(4, 6)
    assert torch.equal(program.run([new if i == trace.find(x) else z for i in program.inputs])[0], z * (new * 2))


def test_an_operator_without_a_rule_runs_at_once_and_is_recorded():
    trace = T.Trace()
    x = X.clone()
    trace.add_input(x, "x")
    with tracing(trace):
        y = torch.linalg.inv((x @ x.t()) + torch.eye(4))
        assert not T.is_pending(y) and trace.data_reads() == 0
        assert any("linalg" in op for op in trace.ops())
    assert trace.find(y) is not None


def test_places_are_kept():
    trace = T.Trace()
    with tracing(trace):
        trace.set_place("model.py", 12, "forward")
        y = X * 2
    assert "model.py:12" in trace.text()


def test_nothing_is_recorded_after_leave():
    trace = T.Trace()
    trace.enter()
    y = X * 2
    trace.leave()
    z = y + 1
    assert trace.ops() == ["aten::mul.Tensor"] and not T.is_pending(y) and torch.equal(z, X * 2 + 1)
    assert trace.data_reads() == 1


def test_a_dead_trace_leaves_real_tensors():
    gc.collect()
    before = T.counters()["living"]
    trace = T.Trace()
    trace.enter()
    y = X * 2
    v = y.view(-1)
    trace.leave()
    del trace
    assert not T.is_pending(y) and torch.equal(v, (X * 2).view(-1))
    assert T.counters()["living"] == before + 2
    del y, v
    assert T.counters()["living"] == before


def test_intermediates_die_in_a_flush_as_in_eager():
    library = torch.library.Library("magneto_memory_test", "FRAGMENT")
    library.define("look(Tensor x) -> Tensor")
    seen, alive = [], []

    def look(x):
        alive[:] = [ref() is not None for ref in seen]
        seen.append(weakref.ref(x.untyped_storage()))
        return x.clone()
    library.impl("look", look, "CPU")
    library.impl("look", torch.empty_like, "Meta")
    with tracing():
        y = X
        for _ in range(4):
            y = torch.ops.magneto_memory_test.look(y * 2 + 1)
    assert alive == [False, False, False]
