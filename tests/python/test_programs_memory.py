"""One model of memory: offsets, strides, views of views, writes through them, and what becomes of the bytes between."""

import pytest
import torch
import torch.nn.functional as F
from torch import arange, randn

import magneto
from harness import same_as_eager


def within(tensor_of, *size, offset=3, **options):
    """A tensor that lies in the middle of a larger buffer: what is written beside it is seen by the picture."""
    count = 1
    for n in size:
        count *= n
    buffer = randn(count * 4 + offset + 8, **options)
    return tensor_of(buffer[offset:offset + count * 4])


LAYOUTS = {
    "offset": lambda b: b[: b.numel() // 4].view(4, 6),
    "columns": lambda b: b.view(4, 24)[:, 5:11],
    "steps": lambda b: b.view(8, 12)[::2, ::2],
    "transposed": lambda b: b[: b.numel() // 4].view(6, 4).t(),
    "rows": lambda b: b.view(16, 6)[3:7],
}


def layouts():
    return pytest.mark.parametrize("layout", LAYOUTS, ids=str)


def make(layout):
    return within(LAYOUTS[layout], 4, 6)


@layouts()
def test_an_input_with_an_offset_is_written_where_it_lies(layout):
    same_as_eager(lambda x: x.clamp_(-1, 1), make(layout))
    same_as_eager(lambda x: (x.mul_(2), x.t().add_(1), x.sum()), make(layout))


@layouts()
def test_a_part_of_an_input_is_written(layout):
    def f(cache, x):
        cache[:, 2].copy_(x)

    same_as_eager(f, make(layout), randn(4))

    def g(cache, x):
        cache[1:3, ::2] += x
        cache[0].zero_()
        return cache.sum(0), cache[1:]

    same_as_eager(g, make(layout), randn(3))


def test_a_key_value_cache_of_a_larger_buffer():
    def step(keys, values, k, v, at):
        keys[:, :, at:at + 1].copy_(k)
        values[:, :, at:at + 1] = v
        return (keys[:, :, : at + 1] * k).sum(-1).softmax(-1) @ values[:, :, : at + 1].sum(1).squeeze(0).mT.new_ones(1)

    buffer = randn(2, 7, 2, 5, 4)
    same_as_eager(lambda keys, k: keys[:, :, 2:3].copy_(k), buffer[0, 3:7], randn(4, 2, 1, 4))
    same_as_eager(lambda keys, values, k: (keys[:, :, 1].copy_(k), values[:, :, 1].copy_(k * 2), keys.sum(), values.sum()),
                  buffer[0, 1:3], buffer[1, 1:3], randn(2, 2, 4))


def test_writes_only_where_the_program_wrote():
    def f(x):
        x[:, ::2].mul_(2)
        x.diagonal().fill_(7)
        return x.sum()

    for layout in LAYOUTS:
        same_as_eager(f, make(layout))


def test_the_same_place_written_twice_and_overlapping_places():
    def f(x):
        x[0].add_(1)
        x[:2].mul_(3)
        x[0].sub_(2)
        x[:, 0].zero_()
        x[1:].t()[1].copy_(x[1:, 2])
        return x[0], x.sum()

    same_as_eager(f, randn(4, 6))
    same_as_eager(f, make("columns"))


@pytest.mark.parametrize("write", [lambda y: y.mul_(2), lambda y: y.clamp_(-1, 1), lambda y: y[0].add_(1),
                                   lambda y: y.transpose(0, -1).neg_()], ids=["mul", "clamp", "row", "transposed"])
def test_a_permuted_product_is_written(write):
    def f(x, w):
        y = (x @ w).permute(0, 2, 1)
        write(y)
        return y

    same_as_eager(f, randn(2, 3, 4), randn(4, 5))

    def g(x, w):
        y = F.linear(x, w).view(2, 3, 5, 1).permute(0, 2, 1, 3)
        write(y)
        return y, y.sum(1)

    same_as_eager(g, randn(2, 3, 4), randn(5, 4))


def test_a_view_that_was_written_goes_to_a_library():
    def f(x, w):
        v = x[..., 1:]
        v[:1].clamp_(-1, 1)
        return F.linear(v, w)

    same_as_eager(f, randn(3, 5), randn(2, 4))
    same_as_eager(f, randn(2, 3, 5), randn(2, 4))
    same_as_eager(f, make("columns"), randn(2, 5))


def test_strides_of_views_of_written_memory():
    def f(x):
        x = x * 1
        v = x.transpose(0, 1)
        v.transpose(0, -1).clamp_(-1, 1)
        return v

    same_as_eager(f, randn(3, 5))

    def g(x):
        x = x * 1
        v = x.permute(2, 0, 1)
        v[0].add_(1)
        w = v.permute(1, 2, 0)
        w.mul_(2)
        return v, w, x.t() if x.dim() == 2 else x.mT

    same_as_eager(g, randn(2, 3, 4))


def test_memory_that_an_operator_reads_and_writes():
    def shifted(x):
        y = x * 2
        y[1:] += y[:-1]
        return y

    same_as_eager(shifted, randn(6), raises=RuntimeError)

    def rows(x):
        y = x * 2
        y[1] += y[0]
        y[:, 1] = y[:, 0]
        y[:, 2:] += y[:, :-2]
        return y

    same_as_eager(rows, randn(4, 4))

    def transposed(x):
        y = x * 2
        y += y.t()
        return y

    same_as_eager(transposed, randn(4, 4), raises=RuntimeError)


def test_elements_that_share_a_place():
    def expanded(x):
        y = x.expand(3, 4)
        y.add_(1)
        return y

    same_as_eager(expanded, randn(4), raises=RuntimeError)
    same_as_eager(lambda x: x.mul_(2), randn(4).expand(3, 4), raises=RuntimeError)
    same_as_eager(lambda x: x.as_strided((3, 2), (1, 1)).fill_(2), randn(6))
    same_as_eager(lambda x: (x * 1).as_strided((3, 2), (1, 1)).zero_(), randn(6))
    same_as_eager(lambda x: (x.sum(), x + 1, x.t() * 2), randn(4).expand(3, 4))


def test_strides_that_lead_beyond_a_tensor():
    """There is memory behind the first tensor, and none behind the second."""
    def f(x):
        return x.as_strided((3, 4), (1, 2), 1) @ x.as_strided((4, 3), (1, 2), 5)

    g = magneto.compile(f)
    for _ in range(3):
        x = randn(20)[5:9]
        assert torch.equal(f(x), g(x))
    for h in (f, g):
        with pytest.raises(RuntimeError, match="setStorage"):
            h(randn(9)[5:9])


def test_inputs_that_share_memory():
    buffer = arange(24.0)

    def f(x, y):
        x.add_(y)
        y.mul_(2)
        return x + y

    same_as_eager(f, buffer[:12], buffer[12:])
    same_as_eager(f, buffer[:12], buffer[:12])
    same_as_eager(f, buffer[::2], buffer[1::2])
    same_as_eager(lambda x, y: (x[:3].zero_(), y.sum(), y + 1), buffer[:12], buffer[2:14])


def test_views_with_other_sizes_of_zero_and_one():
    def f(x):
        y = x.unsqueeze(1)
        y.mul_(2)
        z = y.squeeze()
        z.add_(1)
        return x, y, z, z.view(-1), y.expand(-1, 2, *y.shape[2:])

    for size in [(3,), (1,), (0,), (1, 3), (3, 1), (1, 1), (0, 3), (2, 0)]:
        same_as_eager(f, randn(*size))
        same_as_eager(f, randn(*size, 2)[..., 0])


@pytest.mark.parametrize("write", [lambda v: v.clamp_(-1, 1), lambda v: v.mul_(v.detach().abs() + 1), lambda v: v[0].tanh_(),
                                   lambda v: v.t().exp_()], ids=["clamp", "mul", "row", "exp"])
def test_gradients_of_a_product_that_is_written(write):
    def f(x):
        v = x @ x.mT
        write(v)
        return v

    same_as_eager(f, randn(4, 4, requires_grad=True))

    def g(x, w):
        v = F.linear(x, w)
        write(v)
        return v * 2

    same_as_eager(g, randn(4, 3, requires_grad=True), randn(4, 3, requires_grad=True))


def test_gradients_of_a_linear_on_a_strided_input():
    linear = torch.nn.Linear(4, 5)
    same_as_eager(linear, randn(2, 4, 3).mT)
    same_as_eager(linear, randn(2, 4, 3, requires_grad=True).mT)
    same_as_eager(lambda x, w, b: F.linear(x, w, b), randn(2, 4, 3).mT, randn(5, 4, requires_grad=True),
                  randn(5, requires_grad=True))


def test_divides_a_product_in_place():
    def f(x):
        v = x @ x.mT
        v /= 1 + x.abs().sum()
        return v

    same_as_eager(f, randn(4, 4, requires_grad=True))


def test_only_the_written_part_of_a_large_cache_moves():
    """A write of one row stores one row."""
    code = magneto.explain(lambda cache, x: cache[5].copy_(x))(torch.zeros(64, 8), torch.ones(8)).code
    assert "store %3 -> %" in code and "_new: f32[8]" in code, code


def test_versions_count_through_every_view():
    """A view that has no gradient counts the versions of its base, too."""
    def f(x):
        x.view(torch.int32).mul_(2)
        return x._version

    compiled = magneto.compile(f)
    for g in (f, compiled, compiled, compiled):
        x = arange(6.0)
        assert g(x) == 1 and x._version == 1


def test_a_view_made_without_gradients():
    def f(x):
        with torch.no_grad():
            return x[1:]

    compiled = magneto.compile(f)
    for g in (f, compiled, compiled, compiled):
        y = g(randn(3, requires_grad=True) * 1)
        assert y.requires_grad and y.grad_fn is None


def test_a_history_is_cut_in_place():
    def f(x):
        y = x * 2
        y.detach_()
        return y, x * 3

    same_as_eager(f, randn(3, requires_grad=True))


@pytest.mark.parametrize("draw", [torch.randn_like, lambda x: F.dropout(x, 0.3), lambda x: torch.poisson(x.abs()),
                                  lambda x: x.clone().t().uniform_(), lambda x: x.clone()[:, ::2].normal_(),
                                  lambda x: torch.normal(x, 1.0)], ids=str)
@pytest.mark.parametrize("trains", [False, True])
def test_numbers_that_nobody_reads_are_drawn(draw, trains):
    def f(x):
        draw(x.detach()) * 2
        return F.dropout(x, 0.3), torch.rand(3)

    same_as_eager(f, randn(4, 6, requires_grad=trains))


def test_numbers_drawn_into_views():
    def f(x):
        y = x * 1
        y.t().normal_()
        z = x * 1
        z[:, ::2].uniform_()
        w = x * 1
        v = w.t()
        v.mul_(2)
        v.exponential_()
        return y, z, w, v

    same_as_eager(f, randn(5, 20))


def test_strides_of_dimensions_of_one_element():
    def f(x):
        y = x * 2
        y.unsqueeze_(0)
        y.swapaxes(1, 0)[:, 1:].mul_(2)
        return torch.sort(y, dim=1, descending=True, stable=True)

    same_as_eager(f, randn(2, 2))


def test_a_view_of_elements_that_share_a_place_is_written():
    def f(x):
        x.diagonal().mul_(2)
        return x * 2

    same_as_eager(f, randn(2).expand(2, 2))
    same_as_eager(f, randn(3).as_strided((2, 2), (1, 1)))


def test_scatters_that_read_what_they_write():
    """torch sees the overlap of dense tensors and raises; of others it does what its kernel does."""
    index = torch.tensor([1, 2, 2, 0])
    same_as_eager(lambda x: x.index_add_(0, index, x[:]), randn(4, 3)[:, :2])
    same_as_eager(lambda x: x.index_add_(0, index, x[:]), randn(4, 2), raises=RuntimeError)

    def f(x):
        x.scatter_add_(0, index[:, None].expand(4, 2), x.view(4, 2))
        return x * 2

    same_as_eager(f, randn(4, 3)[:, :2])
    same_as_eager(f, randn(4, 2), raises=RuntimeError)
    same_as_eager(lambda x: x.mul_(x).add_(x[:]), randn(3, 3))
    same_as_eager(lambda x: x.mul_(x).add_(x[:]), randn(3, 4)[:, 1:])


def test_windows_of_memory_and_random_numbers():
    def f(a, x):
        noise = torch.rand_like(a)
        return noise, x @ x.mT, x.reshape(-1) * 2

    same_as_eager(f, randn(2, 2), randn(9).as_strided((2, 2, 3), (0, 3, 1)))
    same_as_eager(f, randn(2, 2), randn(9).as_strided((2, 2, 3), (0, 3, 1)), options={"dynamic": True})


def test_any_byte_but_zero_is_true():
    """Memory that is viewed as bools has bytes that no operator would write there."""
    raw = arange(-8, 24, dtype=torch.int8)
    for f in (lambda b: b.to(torch.int64) * 2, lambda b: b[::3] + arange(11), lambda b: torch.where(b, 1.5, -1.0), lambda b: b.view(4, 8).sum(0),
              lambda b: b.view(4, 8).t().contiguous().float(), lambda b: b[arange(31, -1, -1)].int(), lambda b: b.view(4, 8).any(1) ^ b[:4],
              lambda b: F.pad(b.int() - 1, (1, 1)) + F.pad(b, (1, 1)), lambda b: arange(64).view(2, 32)[b.long(), 3]):
        same_as_eager(lambda x, f=f: f(x.view(torch.bool)), raw)


def test_a_view_that_is_made_before_a_graph_break():
    """Its offset is told by sizes of the graph before the break, of which the graph after it knows nothing."""
    def f(x):
        last = x[-1:]
        y = last + x.sum(0, keepdim=True)
        torch._dynamo.graph_break()
        return y * last, last.transpose(0, 1) + 1

    compiled = magneto.compile(f)
    for rows in (4, 4, 5, 5, 7, 9):
        x = randn(2 * rows, 6)[::2, ::2]
        for have, want in zip(compiled(x), f(x)):
            torch.testing.assert_close(have, want)
    assert not any(graph.fallback for graph in magneto.report().graphs if graph.function == "f")


def test_a_draw_has_the_layout_of_the_view_that_it_is_given():
    """Loops read a copy of a view that counts in strides; a call gets the view itself."""
    def f(x):
        v = x.as_strided((3, 3), (1, 2), 4)
        return torch.rand_like(v), torch.zeros_like(v), v * 2

    compiled = magneto.compile(f)
    for seed in range(3):
        x = (randn(600, requires_grad=True) * 1)[4:524].view(130, 4, 1).permute(1, 2, 0)
        answers = []
        for function in (f, compiled):
            torch.manual_seed(seed)
            answers.append(function(x))
        for want, have in zip(*answers):
            assert want.stride() == have.stride()
            assert torch.equal(want, have)
