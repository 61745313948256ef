"""Tensor operators: a wide sweep, each family a program."""

import pytest
import torch
import torch.nn.functional as F
from torch import arange, ones, randn, tensor, zeros

import magneto
from harness import same_as_eager


def test_pointwise_arithmetic_and_promotion():
    def f(x, i, b):
        return x + i, x * b, i / 2, i // 2, i % 3, x**2, 2**x, 1 / x, -x, +x, abs(x), i + True, b + b, x + 1j, x.pow(0.5), \
            torch.true_divide(i, 3), x.remainder(0.3), torch.floor_divide(i, 2), i & 3, i | 4, i ^ 1, ~i, i << 1, ~b

    same_as_eager(f, randn(3), tensor([1, 2, 3]), tensor([True, False, True]))


def test_operators_by_their_names():
    def f(x, y):
        a = torch.ops.aten.add(x, y, alpha=2)
        values, places = torch.ops.aten.max.dim(a, 0)
        return torch.ops.aten.mul.Tensor(a, values), places, torch.ops.aten.sum.dim_IntList(a, [1], keepdim=True), \
            torch.ops.aten.relu_(a * 2), torch.ops.aten.size(x), torch.ops.aten.split(x, 2)

    same_as_eager(f, randn(3, 4), randn(3, 4))
    found = magneto.explain(f)(randn(3, 4), randn(3, 4))
    assert (found.graph_count, found.break_count) == (1, 0), found


def test_which_operator_is_called_is_guarded():
    compiled = magneto.compile(lambda op, x: op(x))
    x = randn(3)
    for op in (torch.ops.aten.sin, torch.ops.aten.cos, torch.ops.aten.sin.default, torch.ops.aten.tanh.default):
        for _ in range(2):
            assert torch.equal(compiled(op, x), op(x)) or (compiled(op, x) - op(x)).abs().max() < 1e-6


def test_what_a_device_can_do():
    def f(x):
        try:
            able = torch.cuda.get_device_capability(0) >= (8, 0)
        except (RuntimeError, AssertionError):
            able = None
        return x * 2 if able else x + 1, able

    same_as_eager(f, randn(3))


def test_comparisons():
    def f(x, y):
        return x < y, x <= 0, 0 > x, x == y, x != 1, torch.isclose(x, y), torch.equal(x, x), torch.allclose(x, x), x.eq(y), \
            torch.maximum(x, y), torch.minimum(x, y)

    same_as_eager(f, randn(3), randn(3))


def test_unary_math():
    def f(x):
        return [g(x) for g in (torch.exp, torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.erf, torch.rsqrt, torch.log1p,
                               torch.floor, torch.ceil, torch.round, torch.trunc, torch.sign, torch.square, torch.expm1,
                               torch.reciprocal, torch.isnan, torch.isinf, torch.sqrt, torch.log2, torch.digamma, torch.neg)]

    same_as_eager(f, randn(4).abs() + 0.1)


def test_activations():
    def f(x):
        return [g(x) for g in (F.relu, F.gelu, F.silu, F.elu, F.selu, F.softplus, F.leaky_relu, F.hardswish, F.mish, F.relu6,
                               F.hardtanh, F.logsigmoid, F.tanhshrink, F.softsign, F.celu, F.hardsigmoid)] + [
            F.gelu(x, approximate="tanh"), F.softmax(x, 0), F.log_softmax(x, -1), F.glu(x), F.prelu(x, ones(1) * 0.1)]

    same_as_eager(f, randn(4, 6))


def test_reductions():
    def f(x):
        return x.sum(), x.sum(0), x.mean((0, 1)), x.sum(1, keepdim=True), x.prod(0), x.amax(1), x.max(0), x.min(1).values, \
            x.argmax(), x.argmin(0), x.std(), x.var(0, unbiased=False), x.norm(), x.logsumexp(1), (x > 0).all(0), (x > 0).any(), \
            x.sum(dtype=torch.float64), x.median(), x.aminmax(), x.nansum(), x.count_nonzero(), torch.var_mean(x, 1)

    same_as_eager(f, randn(3, 4))


def test_scans_sorts_and_picks():
    def f(x):
        return x.cumsum(0), x.cumprod(1), x.cummax(0), x.sort(1, descending=True), x.argsort(0), x.topk(2, 1), x.kthvalue(1, 0), \
            torch.sort(x, stable=True, dim=0).indices, x.logcumsumexp(0), x.diff(), torch.searchsorted(x.sort(1)[0], x), x.flip(0), \
            x.roll(1, 1), torch.bucketize(x, tensor([0.0, 1.0]))

    same_as_eager(f, randn(3, 4))


def test_factories():
    def f(x):
        n = x.shape[0]
        return zeros(n), ones(n, 2), torch.full((n,), 2.5), arange(n), arange(1, 10, 3), arange(0.0, 1, 0.25), torch.eye(n), \
            torch.linspace(0, 1, n), torch.zeros_like(x), torch.ones_like(x, dtype=torch.int), x.new_zeros(2), x.new_tensor([1.0]), \
            torch.tril(ones(n, n)), torch.triu_indices(n, n), torch.full_like(x, 3), torch.tensor(n), torch.scalar_tensor(2.0), \
            torch.empty(0), torch.meshgrid(arange(2), arange(n), indexing="ij"), torch.logspace(0, 1, 3), x.new_full((2,), n)

    same_as_eager(f, randn(3))


def test_tensor_from_lists():
    def f(x):
        n = x.shape[0]
        return torch.tensor([1, 2, n]), torch.tensor([[1.0, float(n)]]), torch.as_tensor([True, False]), torch.tensor([]), \
            torch.tensor(3.5, dtype=torch.float64), torch.tensor([x.shape[0], 7]) + 1, torch.LongTensor([1, 2]), \
            torch.tensor([(1, 2), (3, 4)]), torch.asarray([1, 2])

    same_as_eager(f, randn(3))


def test_a_tensor_of_tensors():
    same_as_eager(lambda x: torch.tensor([x[0], x[1] * 2]), randn(3))
    same_as_eager(lambda x: torch.stack([x.sum(), x.mean()]), randn(3))


def test_conversions_of_dtype_and_device():
    def f(x):
        return x.double(), x.half().float(), x.to(torch.int32), x.bool(), x.long(), x.to("cpu"), x.to(x), x.type(torch.float64), \
            x.to(torch.bfloat16), x.cpu(), x.to(device="cpu", dtype=torch.int64, copy=True), x.type_as(ones(1, dtype=torch.int)), \
            x.float(), x.int(), x.to(torch.complex64), x.type()

    same_as_eager(f, randn(3) * 10)


def test_metadata_reads():
    def f(x):
        return x.shape, x.size(0), x.size(), x.dim(), x.ndim, x.numel(), x.dtype, x.device, x.stride(), x.is_contiguous(), \
            x.requires_grad, x.layout, x.element_size(), x.nbytes, x.is_floating_point(), x.is_cuda, x.itemsize, x.is_leaf, \
            torch.is_tensor(x), x.is_complex(), x.storage_offset(), x.get_device(), torch.numel(x), x.nelement(), x.T.shape

    same_as_eager(f, randn(3, 4))


def test_joining_and_repeating():
    def f(x, y):
        return torch.cat([x, y]), torch.stack([x, x], 1), torch.hstack((x, y)), torch.vstack((x, y)), x.repeat(2, 1), x.tile(2), \
            x.repeat_interleave(2, 0), torch.cat((x, y), dim=-1), torch.concat([x]), torch.block_diag(x, y), x.expand_as(x), \
            torch.broadcast_tensors(x, y[0]), torch.column_stack((x, y))

    same_as_eager(f, randn(2, 3), randn(2, 3))


def test_where_clamp_and_masks():
    def f(x):
        return torch.where(x > 0, x, -x), torch.where(x > 0, 1.0, 0.0), x.clamp(-1, 1), x.clamp(min=0), x.masked_fill(x < 0, 9), \
            torch.lerp(x, ones(3), 0.3), x.nan_to_num(), torch.addcmul(x, x, x, value=2), torch.addcdiv(x, x, x + 10), x.clip(max=0)

    same_as_eager(f, randn(3))


def test_gather_scatter_and_index():
    def f(x, i):
        return x.gather(1, i), zeros(3, 4).scatter(1, i, x), zeros(3, 4).scatter_add(1, i, x), x.index_select(1, i[0]), x.take(i), \
            zeros(3, 4).scatter_reduce(1, i, x, "amax"), torch.take_along_dim(x, i, 1), x.index_add(0, i[:, 0], x), F.one_hot(i, 4)

    same_as_eager(f, randn(3, 4), torch.tensor([[0, 1, 2, 1]] * 3))


def test_matrix_products():
    def f(a, b, v):
        return a @ b, torch.matmul(a, v), v @ b, v @ v, torch.mm(a, b), torch.bmm(a[None], b[None]), torch.addmm(a, a, b), a.mv(v), \
            torch.outer(v, v), torch.dot(v, v), torch.einsum("ij,jk->ik", a, b), torch.einsum("bi,bi->b", a, b), torch.baddbmm(
                a[None], a[None], b[None]), torch.tensordot(a, b, 1), torch.kron(a, b), torch.linalg.vecdot(v, v), F.linear(a, b, v)

    same_as_eager(f, randn(4, 4), randn(4, 4), randn(4))


def test_broadcast_matrix_products():
    def f(x, w):
        return x @ w, torch.einsum("bhqd,dk->bhqk", x, w), torch.matmul(w, x.mT), torch.einsum("...d,dk", x, w)

    same_as_eager(f, randn(2, 3, 4, 5), randn(5, 5))


def test_convolutions_and_pools():
    def f(x, w, b):
        y = F.conv2d(x, w, b, stride=2, padding=1)
        return y, F.max_pool2d(x, 2), F.avg_pool2d(x, 3, 1, 1), F.adaptive_avg_pool2d(x, 1), F.conv2d(x, w, padding="same"), \
            F.conv_transpose2d(y, w), F.conv1d(x[:, :, 0], w[:, :, 0]), F.max_pool2d(x, 2, return_indices=True), F.unfold(x, 2), \
            F.conv2d(x, w[:, :1], groups=3) if w.shape[0] % 3 == 0 else None, F.adaptive_max_pool1d(x[:, :, 0], 2)

    same_as_eager(f, randn(2, 3, 6, 6), randn(6, 3, 3, 3), randn(6))


def test_normalisations():
    def f(x, w, b):
        return F.layer_norm(x, (6,), w, b), F.group_norm(x, 2), F.batch_norm(x, zeros(4), ones(4), training=False), \
            F.instance_norm(x), F.normalize(x, dim=1), F.rms_norm(x, (6,), w), F.local_response_norm(x, 2)

    same_as_eager(f, randn(3, 4, 6), randn(6), randn(6))


def test_attention():
    def f(q, k, v, mask):
        plain = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v
        return plain, F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True), \
            F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    same_as_eager(f, *(randn(2, 3, 5, 4) for _ in range(3)), ones(5, 5, dtype=torch.bool).tril())


def test_losses():
    def f(x, y, labels):
        return F.mse_loss(x, y), F.l1_loss(x, y, reduction="none"), F.cross_entropy(x, labels), F.nll_loss(x.log_softmax(1), labels), \
            F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), \
            F.smooth_l1_loss(x, y), F.cross_entropy(x, labels, label_smoothing=0.1, ignore_index=1), F.huber_loss(x, y)

    same_as_eager(f, randn(3, 4, requires_grad=True), randn(3, 4), tensor([0, 3, 1]))


def test_padding_and_resampling():
    def f(x):
        return F.pad(x, (1, 1)), F.pad(x, (1, 0, 0, 1), mode="reflect"), F.pad(x, (1, 1), value=3), F.interpolate(x, scale_factor=2), \
            F.interpolate(x, size=(5, 5), mode="bilinear", align_corners=False), F.pixel_shuffle(x, 2), F.pad(x, (-1, 0)), \
            F.grid_sample(x, zeros(2, 3, 3, 2), align_corners=False)

    same_as_eager(f, randn(2, 4, 4, 4))


def test_embeddings():
    def f(i, w):
        return F.embedding(i, w), F.embedding(i, w, padding_idx=0), F.embedding_bag(i, w, mode="mean"), w[i]

    same_as_eager(f, torch.tensor([[0, 2, 1], [3, 3, 0]]), randn(5, 4, requires_grad=True))


def test_random_numbers_follow_the_seed():
    def f(x):
        return torch.rand(3), torch.randn(2, 2), torch.randint(0, 9, (4,)), torch.randperm(5), torch.bernoulli(x.sigmoid()), \
            torch.rand_like(x), torch.multinomial(x.softmax(0), 2), torch.normal(0.0, 1.0, (2,)), torch.randn_like(x)

    same_as_eager(f, randn(3))


def test_dropout_follows_the_seed():
    def f(x, training):
        return F.dropout(x, 0.5, training), F.dropout2d(x[None, :, :, None], 0.3, training), F.alpha_dropout(x, 0.2, training)

    same_as_eager(f, randn(4, 6), True, more=[((randn(4, 6), False), {})])


def test_a_seed_set_inside():
    def f(x):
        torch.manual_seed(11)
        return x + torch.rand(3), torch.rand(1)

    same_as_eager(f, randn(3))


def test_a_generator_of_random_numbers_passed_in():
    from harness import made

    def f(x, g):
        return x + torch.rand(3, generator=g), torch.randperm(4, generator=g)

    same_as_eager(f, randn(3), made(lambda: torch.Generator().manual_seed(5)))


def test_linear_algebra():
    def f(x):
        a = x @ x.mT + 5 * torch.eye(x.shape[0])
        return torch.linalg.inv(a), torch.linalg.det(a), torch.linalg.cholesky(a), torch.linalg.solve(a, x), torch.linalg.norm(x), \
            torch.trace(a), torch.linalg.matrix_norm(a), torch.cdist(x, x), a.matrix_power(2), torch.linalg.svdvals(a).sum(), a.tril()

    same_as_eager(f, randn(3, 4))


def test_fourier_and_complex():
    same_as_eager(lambda x: (torch.fft.rfft(x), torch.fft.fft(x).abs(), torch.fft.irfft(torch.fft.rfft(x)),
                             torch.polar(x.abs(), x), torch.complex(x, x), torch.stft(
                                 x.flatten(), 4, return_complex=True, window=torch.hann_window(4))), randn(2, 8))


def test_empty_and_zero_dimensional_tensors():
    def f(x):
        e = x[:0]
        return e, e.sum(), torch.cat([e, x]), e.reshape(0), x.sum() + 1, zeros(0, 3) @ zeros(3, 2), \
            torch.tensor(2.0) * x, e.mean(), x[0].item() > -100

    same_as_eager(f, randn(3))


@pytest.mark.parametrize("bound", [float("nan"), -float("nan"), float("inf"), 0.0])
def test_a_bound_may_be_nan(bound):
    same_as_eager(lambda x: (x.clamp(min=bound), x.clamp(max=bound), torch.maximum(x, torch.full((), bound))), randn(40))


def test_foreach_operators():
    def f(xs, ys):
        torch._foreach_add_(xs, ys, alpha=2)
        return torch._foreach_mul(xs, 2), torch._foreach_norm(ys), xs

    same_as_eager(f, [randn(2), randn(3)], [randn(2), randn(3)])


def test_vmap_grad_and_jacrev():
    same_as_eager(lambda x: torch.vmap(lambda r: r.sum() * r)(x), randn(3, 4))
    same_as_eager(lambda x: torch.func.grad(lambda v: (v**2).sum())(x), randn(3))
    same_as_eager(lambda x: torch.func.jacrev(torch.sin)(x), randn(3))


def test_sparse_and_quantised():
    same_as_eager(lambda x: (x.to_sparse() @ x.mT, x.to_sparse().coalesce().values(), torch.sparse.mm(x.to_sparse(), x.mT)), randn(3, 4))
    same_as_eager(lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(), randn(3))


def test_scripted_and_overloaded_operators():
    @torch.jit.script
    def scripted(x):
        return x * 2 + 1

    same_as_eager(lambda x: (scripted(x), torch.ops.aten.add.Tensor(x, x), torch.ops.aten.relu(x)), randn(3))


def test_operators_that_return_numbers_beside_tensors():
    """Who knows what they count: a graph must not keep what they said once."""
    library = torch.library.Library("magneto_numbers", "DEF")
    library.define("positive(Tensor x) -> (Tensor, int)")
    library.impl("positive", lambda x: (x * 2, int((x > 0).sum())), "CompositeExplicitAutograd")
    library.define("pop(Tensor(a!) x) -> int")
    library.impl("pop", lambda x: int(x.add_(1).max()), "CompositeExplicitAutograd")
    library.define("shift(Tensor x, int n) -> Tensor")
    library.impl("shift", lambda x, n: x + n, "CompositeExplicitAutograd")

    def f(x):
        y, n = torch.ops.magneto_numbers.positive(x * 3)
        return torch.ops.magneto_numbers.shift(y, n), n

    def g(x):
        x = x * 1
        before = x + 1
        n = torch.ops.magneto_numbers.pop(x)
        return before, x * n, n

    def call(h, *inputs):
        return [h(x.clone()) for x in inputs]

    try:
        inputs = ones(3), -ones(3), tensor([1., -1., 5.])
        same_as_eager(f, *inputs, call=call)
        same_as_eager(g, *inputs, call=call)
    finally:
        library._destroy()


def test_operators_of_a_users_library():
    """With a fake they are part of the graph. Without one, nobody knows what they return: a size may depend on data."""
    def fill(x):
        x.fill_(3)

    library = torch.library.Library("magneto_users", "DEF")
    library.define("told(Tensor x, int n) -> Tensor")
    library.impl("told", lambda x, n: torch.sort(x)[0] * n, "CompositeExplicitAutograd")
    library.define("untold(Tensor x) -> Tensor")
    library.impl("untold", lambda x: x[x > 0].clone(), "CompositeExplicitAutograd")
    library.define("dynamic(Tensor x) -> Tensor")
    library.impl("dynamic", lambda x: x[x > 0].clone(), "CompositeExplicitAutograd")
    library.define("fills_(Tensor(a!) x) -> ()")
    library.impl("fills_", fill, "CompositeExplicitAutograd")
    torch.library.register_fake("magneto_users::told", lambda x, n: torch.empty_like(x), lib=library)
    torch.library.register_fake("magneto_users::dynamic", lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size()),
                                lib=library)
    ours = torch.ops.magneto_users

    def told(x):
        return ours.told(x * 2, 3) + 1

    def untold(x):
        y = ours.untold(x * 2)
        return y * y.shape[0]

    def dynamic(x):
        y = ours.dynamic(x * 2)
        return y * y.shape[0]

    def fills(x):
        y = x + 1
        ours.fills_(y)
        return y * x

    def call(h, *inputs):
        return [h(x.clone()) for x in inputs]

    try:
        inputs = ones(4), tensor([1., -1., -1., -1.]), tensor([1., 2., -1., -1.]), -ones(4)
        for program in (told, untold, dynamic, fills):
            same_as_eager(program, *inputs, call=call)
        assert not magneto.explain(told)(ones(4)).breaks
        assert "register a fake" in str(magneto.explain(untold)(ones(4)))
        assert magneto.explain(dynamic)(ones(4)).breaks
    finally:
        library._destroy()


def test_operators_on_lists_in_place():
    def f(x):
        made = [x + 1, x + 2]
        torch._foreach_add_(made, 2)
        torch._foreach_mul_(made, [x, x])
        return made[0] * x, made[1]

    def g(x):
        torch._foreach_add_([x], 2)
        return x * 3

    same_as_eager(f, randn(3))
    same_as_eager(g, randn(3))


def test_kernels_for_lists_that_count_versions():
    """As those on a GPU do, whoever calls them."""
    def add(tensors, number):
        versions = tuple(t._version for t in tensors)
        with torch._C._AutoDispatchBelowADInplaceOrView():
            for t in tensors:
                t.add_(number)
        torch._C._autograd._unsafe_set_version_counter(tuple(tensors), versions)
        torch.autograd.graph.increment_version(tensors)

    def f(x, v):
        y = x * 2
        torch._foreach_add_([y, x, v], 1.0)
        return y, v * 2

    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("_foreach_add_.Scalar", add, "CPU")
        for backend in ("eager", "magneto"):
            compiled = magneto.compile(f, backend=backend)
            for _ in range(4):
                ours, eager = [[t, t[1:]] for t in [randn(4)] for t in (t, t.clone())]
                y, z = compiled(*ours)
                want, other = f(*eager)
                assert (y._version, z._version, ours[0]._version) == (want._version, other._version, eager[0]._version)
                assert torch.equal(y, want) and torch.equal(z, other) and torch.equal(*[t[0] for t in (ours, eager)])
    finally:
        library._destroy()


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("sizes", [(5, 3), (13, 16)])
@pytest.mark.parametrize("strides", ["rows", "channels", "expanded"])
def test_bytes_that_are_resized(strides, sizes, corners):
    """Their weights have 8 bits in torch, and are no bytes."""
    x = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    x = {"rows": x, "channels": x.contiguous(memory_format=torch.channels_last), "expanded": x[:1, :1, :1].expand(2, 3, 8, 8)}[strides]

    def f(x):
        return F.interpolate(x, size=sizes, mode="bilinear", align_corners=corners)

    c = magneto.compile(f)
    for _ in range(3):
        assert torch.equal(c(x), f(x))


@pytest.mark.parametrize("count", [False, True])
def test_averages_of_integers(count):
    x = torch.arange(-50, 50).view(1, 1, 10, 10)

    def f(x):
        return F.avg_pool2d(x, 3, 2, 1, count_include_pad=count)

    c = magneto.compile(f)
    for _ in range(3):
        assert torch.equal(c(x), f(x))


@pytest.mark.parametrize("weight", [torch.tensor(0.3), torch.tensor(0.7, dtype=torch.float64), torch.tensor(0.3, dtype=torch.bfloat16)])
def test_integers_between_which_a_float_lies(weight):
    x, y = torch.arange(8), torch.arange(8) ** 2 - 9
    c = magneto.compile(torch.lerp)
    for _ in range(3):
        have, want = c(x, y, weight), torch.lerp(x, y, weight)
        assert have.dtype == want.dtype and torch.allclose(have, want, rtol=1e-2 if weight.dtype is torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("shape, masked", [((3, 4), (0, 2)), ((3, 4), (0, 1)), ((3, 4), (1, 2)), ((2, 3, 4), (1, 2)), ((2, 3, 4), (1, 3)), ((0, 4), (0, 1)), ((5,), (0, 1))])
def test_numbers_that_are_assigned_to_a_mask(shape, masked, dynamic):
    """One kernel, whatever the mask selects; a mask that does not fit is refused as in eager."""
    def f(x, mask, number):
        y = (x * 2).transpose(0, -1).contiguous().transpose(0, -1)
        y[(slice(None),) * masked[0] + (mask,)] = number
        z = torch.cat([x, x], -1)[..., ::2]
        z[(slice(None),) * masked[0] + (mask,)] = 0.5
        return y, z

    magneto.reset()
    c = magneto.compile(f, dynamic=dynamic)
    for k in range(3):
        x, mask = torch.randn(shape), torch.rand(shape[masked[0]:masked[1]]) > 0.3 * k
        for number in (torch.tensor(0.25), 1):
            have, want = c(x, mask, number), f(x, mask, number)
            assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(have, want))
    assert "call aten::index_put" not in str(magneto.report())
    with pytest.raises(IndexError):
        c(torch.randn(shape), torch.ones(9, dtype=torch.bool), 1)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_integers_to_the_power_of_less_than_nothing(dtype):
    """Of -1 the sign counts, also where base and exponent are known to be one number."""
    x, y = (torch.tensor(numbers, dtype=dtype) for numbers in ([-1, 0, 1, -2, 2, -1, 3], [-1, -3, -5, -2, 2, -2, 3]))
    same_as_eager(lambda x, y: (x**x, (~x) ** (~x), (-x) ** (-x), x**y, (~x) ** y, (~x) % 2, torch.fmod(~x, 2), (~x) // 2), x, y)
