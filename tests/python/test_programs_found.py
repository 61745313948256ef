"""Programs that the fuzzers found wrong, one of each class: values, writes, versions, random numbers, gradients, errors."""

import pytest
import torch
import torch.nn.functional as F

import magneto

INF, NAN = float("inf"), float("nan")


def same(a, b):
    assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
    torch.testing.assert_close(a, b, equal_nan=True)


def inputs(*shapes, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def agree(f, make, calls=3, **options):
    """Results and what became of the arguments, each call with new numbers."""
    compiled = magneto.compile(lambda *args: f(*args), **options)
    for seed in range(calls):
        have, want = [], []
        for function, seen in ((f, want), (compiled, have)):
            args = make(seed)
            torch.manual_seed(seed)
            try:
                out = function(*args)
                seen += [out] if isinstance(out, torch.Tensor) else list(out or ())
                error = None
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
            seen += [*args, torch.rand(2)]
            seen.append((error, [t._version for t in args]))
        assert have.pop() == want.pop()
        for a, b in zip(have, want, strict=True):
            same(a, b)
    return compiled


# ---- sizes ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("shape", [(2, 2, 2, 2), (2, 3, 4, 4), (3, 2, 2, 2)])
@pytest.mark.parametrize("f", [lambda x: x[1:] @ x, lambda x: x[1:] + x, lambda x: x[: x.shape[0] // 2] * x, lambda x: x[x.shape[1] - 1:] - x],
                         ids=["product", "sum", "half", "difference"])
def test_a_size_that_is_one_by_a_condition(f, shape):
    agree(f, lambda seed: inputs(shape, seed=seed), dynamic=True)


def test_a_size_that_is_one_for_some_sizes():
    f = lambda x: x[1:] * x
    compiled = magneto.compile(f, dynamic=True)
    for n in (2, 1, 2, 3, 2):
        (x,) = inputs((n, 4))
        try:
            want = f(x)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                compiled(x)
            continue
        same(compiled(x), want)


# ---- memory that loops cannot read ----------------------------------------------------------------------------------

def complexes(*shapes):
    return lambda seed: inputs(*shapes, seed=seed, dtype=torch.complex64)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("f", [
    lambda x: x.mT @ x, lambda x: x[:, 1:].mT @ x[:, 1:], lambda x: x[1:, ..., None].as_strided((2,), (2,), 1) * 2,
    lambda x: torch.view_as_real(x.mT)[..., 0] + 1, lambda x: x.mT.reshape(2, -1) * 2, lambda x: x.permute(2, 0, 1).mul_(2)[0],
    lambda x: torch.view_as_real(x[:, 1]).mT.contiguous(), lambda x: x.eq_(x), lambda x: x[1].mul_(x[0]), lambda x: x.transpose(0, 1).add_(1j),
], ids=["product", "slices", "as_strided", "real", "reshape", "in place", "real slice", "eq_", "row", "transposed"])
def test_views_of_complex_tensors(f, dynamic):
    agree(f, complexes((2, 3, 4)), dynamic=dynamic)
    agree(f, lambda seed: [complexes((3, 3, 5))(seed)[0][1:, :, 1:]], dynamic=dynamic)


# ---- random numbers -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("f", [
    lambda x: torch.bernoulli(torch.sigmoid(x)).zero_(), lambda x: F.dropout(x, 0.3).new_full((2, 6), 0.1),
    lambda x: torch.rand_like(x).fill_(2), lambda x: (F.dropout(x, 0.5).new_zeros(3), torch.rand_like(x)),
    lambda x: torch.ones_like(F.dropout(x * 2, 0.5, inplace=True)), lambda x: torch.full_like(x * torch.randn_like(x), -1.5),
    lambda x: x.mT.mul_(2) * torch.randn_like(x.mT), lambda x: torch.rand_like(x.mT.mul_(2)), lambda x: torch.bernoulli(x.mT.sigmoid_()),
])
def test_every_number_is_drawn(f):
    agree(f, lambda seed: inputs((3, 4), seed=seed))


def test_an_error_after_a_draw():
    def f(x, i):
        y = F.dropout(x, 0.5)
        return y, x[i]

    agree(f, lambda seed: [*inputs((3, 4), seed=seed), torch.tensor([seed % 2 * 3])], calls=5)
    agree(lambda p: (torch.rand_like(p), torch.bernoulli(p)), lambda seed: [torch.full((3,), 0.5 + seed % 2)], calls=5)


def test_an_operator_that_raises_has_written_a_part():
    agree(lambda x, y: x.masked_scatter_(x > 0, y), lambda seed: inputs((6,), (2,), seed=seed), calls=6)
    agree(lambda x, i: x.index_put_((i,), torch.ones(()), accumulate=True),
          lambda seed: [torch.zeros(2), torch.tensor([0, 0, seed % 2 * 2])], calls=5)


def test_a_refused_write_counts_no_version():
    def f(x, y):
        x.unsqueeze(0).masked_fill_(y[:4] > 0, 1)

    compiled = magneto.compile(f)
    for n in (4, 6, 7, 6, 4):
        (x, y) = inputs((3, n), (n,))
        for function in (f, compiled):
            before = x._version
            try:
                function(x, y)
            except RuntimeError:
                assert n != 4 and x._version == before
            else:
                assert n == 4 and x._version == before + 1


# ---- versions, inference mode ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("change", [lambda v: v.squeeze_(0), lambda v: v.transpose_(0, 1), lambda v: v.t_(), lambda v: v.unsqueeze_(0)])
def test_versions_of_a_view_that_changes_its_shape_while_another_is_trained(change):
    def f(x, y):
        change(x[1:])
        return y * 2

    compiled = magneto.compile(f)
    (x, y) = inputs((2, 3), (2,))
    y.requires_grad_()
    for _ in range(3):
        before = x._version
        compiled(x, y).sum().backward()
        assert x._version == before + 1


def test_bits_of_a_normal_tensor_in_inference_mode():
    def f(x):
        v = x.view(torch.int32)
        v.bitwise_or_(0)
        return v

    compiled = magneto.compile(f)
    (x,) = inputs((4,))
    with torch.inference_mode():
        for function in (f, compiled, compiled, compiled):
            before = x._version
            assert function(x).is_inference() and x._version == before


# ---- gradients ------------------------------------------------------------------------------------------------------

def gradients(f, shapes, ends):
    compiled = magneto.compile(lambda *args: f(*args))
    for seed in range(3):
        grads = []
        for function in (f, compiled):
            leaves = [x.requires_grad_() for x in inputs(*shapes, seed=seed)]
            outs = function(*leaves)
            torch.autograd.backward([outs[k] for k in ends], [torch.linspace(0.5, 1.5, outs[k].numel()).reshape(outs[k].shape) for k in ends])
            grads.append([leaf.grad for leaf in leaves])
        for have, want in zip(grads[1], grads[0], strict=True):
            assert (have is None) == (want is None)
            if want is not None:
                torch.testing.assert_close(have, want, equal_nan=True)


@pytest.mark.parametrize("ends", [[0], [1], [2], [0, 1], [1, 2], [0, 1, 2]])
def test_a_backward_through_some_outputs(ends):
    """What the whole backward keeps is not what another one means by the same place in its graph."""
    def attend(x, w):
        v = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return v * 2, torch.lerp(v, v.sin(), w), (v * w).relu()

    def powers(x, w):
        return x ** w, x * 2, torch.clamp((x * w).relu(), w, w + 1).tanh() + torch.where(x > 0, x.exp(), w.sin())

    gradients(attend, [(4, 4), (4, 4)], ends)
    gradients(powers, [(2, 2), (2,)], ends)


def test_as_strided_of_a_view():
    gradients(lambda x: ((x * 2)[..., 2].as_strided((1, 2, 2), (3, 1, 0), 4),), [(2, 5)], [0])
    gradients(lambda x: ((x * 2)[1:].as_strided((2, 2), (2, 1), 1), x * 3), [(4, 5)], [0, 1])


# ---- numbers --------------------------------------------------------------------------------------------------------

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 3e38, 0.5, 2.0, -2.0, 88.0, -104.0, 1e4, -1e4, 20.0, -20.0, 1e15, 3e20])
ONE = {name: getattr(torch, name) for name in (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2",
    "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "reciprocal", "sign", "round")} | {
    "gelu": lambda x: F.gelu(x.clamp(-1e4, 1e4))} | {  # of an infinity torch's vectors of an x86 give NaN
    name: getattr(F, name) for name in ("silu", "elu", "hardswish", "hardsigmoid", "softplus", "softsign", "logsigmoid", "mish", "hardtanh")}
TWO = {name: getattr(torch, name) for name in (
    "hypot", "atan2", "pow", "maximum", "minimum", "fmax", "fmin", "logaddexp", "xlogy")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_special_numbers(dtype):
    x = SPECIAL.to(dtype)
    a, b = (t.reshape(-1) for t in torch.meshgrid(x[:12], x[:12], indexing="ij"))
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 1e-2)
    f = lambda x, a, b: [g(x) for g in ONE.values()] + [g(a, b) for g in TWO.values()]
    compiled = magneto.compile(f)
    compiled(x, a, b)
    exact = f(x.double(), a.double(), b.double())  # eager's own numbers depend on the machine's vectors
    for name, have, eager, truth in zip([*ONE, *TWO], compiled(x, a, b), f(x, a, b), exact, strict=True):
        close = [torch.isclose(have, want.to(dtype), rtol=tolerance, atol=tolerance * 1e-3, equal_nan=True) for want in (eager, truth)]
        bad = ~(close[0] | close[1])
        assert not bad.any(), (name, have[bad], eager[bad], truth[bad])


@pytest.mark.parametrize("f", [lambda x: x % 0.1, lambda x: torch.fmod(x, 0.1), lambda x: 0.7 % x, lambda x: x.remainder_(0.3)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_what_is_left_of_a_division_by_a_number(f, dtype):
    agree(f, lambda seed: [torch.arange(1, 9).to(dtype) - 0.5])


# ---- a kernel that no operator tells of -----------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 2, 0)])
def test_max_pool1d(dtype, order):
    f = lambda x: F.max_pool1d(x * 1, 2) + F.max_pool1d(x, 3, stride=1, padding=1)[..., :2]
    with torch.no_grad():
        agree(f, lambda seed: [inputs((4, 4, 4), seed=seed, dtype=dtype)[0].permute(order)])
        assert not magneto.explain(f)(inputs((4, 4, 4), dtype=dtype)[0]).breaks


def test_strides_of_a_convolution_over_one_dimension():
    f = lambda x: F.conv1d(x.swapaxes(1, 0), torch.ones(2, 5, 2), padding=1).flatten()
    with torch.no_grad():
        for _ in range(2):  # the second time its result is predicted
            agree(f, lambda seed: inputs((1, 5), seed=seed), dynamic=True)


# ---- what a failure takes back, what a mask leaves out --------------------------------------------------------------

def test_a_write_to_an_expanded_tensor_is_taken_back():
    def f(x):
        x[::2].mul_(3)
        return torch.fmod(x, x)

    compiled = magneto.compile(f)
    for number in (1, 2, 0, 3, 0):
        for function in (f, compiled):
            x = torch.full((1,), number).expand(2)
            if number:
                assert function(x).tolist() == [0, 0]
            else:
                with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                    function(x)
            assert x.tolist() == [3 * number] * 2


@pytest.mark.parametrize("shape", [(2, 2), (2, 3, 4), (2, 3, 4, 4)])
def test_batch_norm_without_weights(shape):
    gradients(lambda x: (F.batch_norm(x, None, None, training=True) * torch.linspace(0, 1, x[0, 0].numel(), device=x.device).view(shape[2:]),), [shape], [0])


def test_a_changed_result_of_what_has_no_history():
    def f(x):
        with torch.no_grad():
            v = x[1::2]
        return v * 2

    compiled = magneto.compile(f)
    for function in (f, compiled, compiled):
        x = torch.ones(4, requires_grad=True)
        y = function(x * 1)
        if y.requires_grad:
            y.detach().zero_()
            y.sum().backward()


def test_a_write_of_another_dtype_while_another_is_trained():
    def f(x, y):
        y[torch.arange(4) % 1] = 2
        v = y * 2
        v.logical_not_()
        return x * 2, v

    compiled = magneto.compile(f)
    for seed in range(3):
        x, y = inputs((2,), (2,), seed=seed)
        other = y.clone()
        have, want = compiled(x.requires_grad_(), y), f(x, other)
        same(have[1], want[1])
        same(y, other)


def test_what_may_raise_stays_in_a_forward():
    def f(x, i):
        i // i
        return x * 2

    compiled = magneto.compile(f)
    x = torch.ones(2, requires_grad=True)
    for number in (1, 2, 3, 0, 1, 0):
        i = torch.tensor([number])
        if number:
            compiled(x, i).sum().backward()
        else:
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                compiled(x, i)


def test_hardtanh_of_nan():
    gradients(lambda x: (F.hardtanh(x / torch.zeros(()).where(x > 0, torch.ones(()))),), [(9,)], [0])


@pytest.mark.parametrize("self", [(), (1,), (2,)], ids=str)
@pytest.mark.parametrize("matrix", [(2, 3), (2, 0), (0, 3), (0, 0)], ids=str)
def test_addmv_of_an_empty_matrix_has_the_sizes_of_self(self, matrix):
    if self == (2,) and matrix[0] != 2:
        pytest.skip("torch refuses it")
    compiled = magneto.compile(torch.addmv)
    args = torch.ones(self), torch.ones(matrix), torch.ones(matrix[1])
    for _ in range(3):
        same(compiled(*args), torch.addmv(*args))
    assert not any("a bug in Magneto" in graph.fallback for graph in magneto.report().graphs)
