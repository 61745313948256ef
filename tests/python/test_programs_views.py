"""Views, slices, in-place writes and who shares memory with whom."""

import pytest
import torch
from torch import arange, ones, randn, zeros

import magneto
from harness import same_as_eager


def test_views_of_every_kind():
    def f(x):
        return x.view(4, 3), x.t(), x.transpose(0, 1), x.permute(1, 0), x.unsqueeze(0), x[None, ..., None], x.flatten(), \
            x.reshape(-1), x.expand(2, 3, 4), x.narrow(0, 0, 2), x.select(1, 2), x.diagonal(), x.unfold(0, 2, 1), x.mT, \
            x.view_as(x), x.squeeze(), x.movedim(0, 1), x.swapaxes(0, 1), x.as_strided((2, 2), (1, 4)), x.detach()

    same_as_eager(f, randn(3, 4))


def test_reshape_that_must_copy():
    same_as_eager(lambda x: (x.t().reshape(-1), x.reshape(2, 6), x.contiguous(), x.t().contiguous()), randn(3, 4))


def test_a_view_that_cannot_be_raises():
    same_as_eager(lambda x: x.t().view(-1), randn(3, 4), raises=RuntimeError)


def test_slicing_of_every_kind():
    def f(x):
        return x[0], x[-1], x[1:], x[:, 1:3], x[::2, ::3], x[..., 0], x[None], x[:, None, 1], x[0, 1], x[1:1], x[-2:, -3:-1], \
            x[:, :100], x[True], x[..., None, :]

    same_as_eager(f, randn(3, 4))


def test_a_negative_step_raises():
    same_as_eager(lambda x: x[::-1], randn(3), raises=ValueError)


def test_slices_by_sizes_and_by_numbers():
    def f(x, n):
        half = x.shape[0] // 2
        return x[:half], x[half:], x[n], x[-n:], x[slice(0, n)], x[(slice(None), n)]

    same_as_eager(f, randn(4, 4), 1, more=[((randn(4, 4), 2), {}), ((randn(5, 4), 3), {})])


def test_advanced_indices():
    def f(x, i):
        return x[i], x[:, i], x[i, i], x[[0, 2]], x[[0, 1], [1, 2]], x[i[:, None], i], x[torch.tensor(1)], x[i, None]

    same_as_eager(f, randn(3, 3), torch.tensor([2, 0]))


def test_setitem_of_every_kind():
    def f(x, i, v):
        x[0] = 1
        x[:, 1] = v
        x[..., 2:] = x[..., :2]
        x[i] = 7.0
        x[i, 0] += 2
        x[1, 1] = v[0]
        x[[0, 1], [1, 0]] = zeros(2)
        return x

    same_as_eager(f, randn(3, 4), torch.tensor([2]), randn(3))


def test_setitem_with_a_mask():
    def f(x):
        x[x < 0] = 0
        x[x > 1] *= 2
        x[(x == 0).any(1)] = 5
        return x

    same_as_eager(f, randn(3, 4))


def test_in_place_on_an_argument():
    def f(x):
        x.mul_(2)
        x += 1
        x.clamp_(min=0)
        return x

    same_as_eager(f, randn(3))


def test_in_place_on_an_argument_that_is_not_returned():
    def f(x, out):
        out.copy_(x * 2)

    same_as_eager(f, randn(3), zeros(3))


def test_in_place_on_a_view_changes_the_base():
    def f(x):
        row = x[1]
        row.add_(10)
        x.t()[0].zero_()
        x.view(-1)[2:5] = 3
        return x.sum(), row

    same_as_eager(f, randn(3, 4))


def test_in_place_on_a_view_of_an_intermediate():
    def f(x):
        y = x * 2
        y[0] = 0
        y[:, 1].add_(x[:, 0])
        z = y.clone()
        z.diagonal().fill_(1)
        return y, z

    same_as_eager(f, randn(3, 3, requires_grad=True))


def test_in_place_through_two_views():
    def f(x):
        a, b = x[:2], x[1:]
        a += 1
        b *= 2
        return a, b, x

    same_as_eager(f, randn(3, 2))


def test_reading_before_and_after_a_write():
    def f(x):
        before = x + 0
        view = x.view(-1)
        x.add_(1)
        after = view * 2
        x.mul_(0)
        return before, after, view

    same_as_eager(f, randn(2, 2))


def test_one_tensor_passed_twice():
    def f(a, b):
        a.add_(1)
        return a * b, a is b

    x = randn(3)
    same_as_eager(f, x, x, more=[((randn(3), randn(3)), {}), ((x, x), {})])


def test_overlapping_arguments():
    def f(a, b):
        a.add_(1)
        return a + b

    base = arange(6.0)
    same_as_eager(f, base[:4], base[2:], more=[((randn(4), randn(4)), {}), ((base[0:4], base[1:5]), {}),
                                               ((base[2:], base[:4]), {})])


def test_a_view_of_an_argument_beside_the_argument():
    def f(a, views):
        views[0].fill_(9)
        return a * 2

    base = randn(2, 3)
    same_as_eager(f, base, [base[0]], more=[((randn(2, 3), [randn(3)]), {}), ((base, [base[1]]), {})])


def test_an_expanded_argument():
    same_as_eager(lambda x: (x + 1, x.stride(), x.is_contiguous(), x.sum(0)), randn(1, 4).expand(3, 4))


def test_in_place_on_an_expanded_argument_raises():
    same_as_eager(lambda x: x.add_(1), randn(1, 4).expand(3, 4), raises=RuntimeError)


def test_an_argument_at_an_offset():
    same_as_eager(lambda x: (x * 2, x.storage_offset(), x[1:]), randn(10)[3:7], more=[((randn(10)[2:6],), {})])


def test_the_result_is_the_argument():
    same_as_eager(lambda x: x, randn(2))
    same_as_eager(lambda x: (x, x, x.view(-1)), randn(2))
    same_as_eager(lambda x: x.contiguous(), randn(2, 3))
    same_as_eager(lambda x: x.to(torch.float32), randn(2))


def test_results_that_share_memory():
    def f(x):
        y = x + 1
        return y, y[0], y.t(), [y], y.view(-1)

    same_as_eager(f, randn(2, 3))


def test_out_arguments():
    def f(x, out):
        result = torch.add(x, 1, out=out)
        torch.mul(x, 2, out=out[:1])
        return result is out, result

    same_as_eager(f, randn(3), zeros(3), more=[((randn(3), torch.empty(0)), {})])


def test_out_tuple_of_a_reduction():
    def f(x):
        values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
        torch.max(x, 1, out=(values, indices))
        return values, indices

    same_as_eager(f, randn(3, 4))


def test_set_and_resize_and_data():
    def f(x):
        y = zeros(4)
        y.resize_(2, 3)
        y.zero_()
        z = zeros(3)
        z.data = x * 2
        z.data.add_(1)
        return y, z, x.data_ptr() == x.data.data_ptr()

    same_as_eager(f, randn(3))


def test_swapping_the_data_of_an_argument():
    def f(x, y):
        x.data = y.data
        return x * 2

    same_as_eager(f, randn(3), randn(4))


def test_split_chunk_and_unbind_are_views():
    def f(x):
        a, b = x.chunk(2, 1)
        a.add_(1)
        parts = x.split([1, 2])
        parts[1].mul_(2)
        rows = x.unbind(0)
        return a, b, parts, rows, torch.tensor_split(x, 2)

    same_as_eager(f, randn(3, 4))


def test_in_place_activations_and_random_fills():
    def f(x):
        y = torch.relu_(x.clone())
        z = torch.empty(3).normal_()
        z.uniform_(0, 1).exponential_()
        return torch.nn.functional.leaky_relu_(y, 0.1), z, torch.empty(4).bernoulli_(0.5), torch.empty(3, dtype=torch.long).random_(5)

    same_as_eager(f, randn(3))


def test_scatter_and_index_in_place():
    def f(x, i, v):
        x.scatter_(0, i, v)
        x.index_add_(0, i, v)
        x.index_fill_(0, i[:1], -1)
        x.masked_fill_(x > 1, 0.5)
        x.index_copy_(0, i, v * 2)
        x.index_put_((i,), v, accumulate=True)
        return x

    same_as_eager(f, randn(5), torch.tensor([1, 3]), randn(2))


def test_complex_views():
    def f(x):
        c = torch.view_as_complex(x)
        return c, c.real, c.imag, c.conj(), torch.view_as_real(c * c), c.abs(), c.conj() @ c

    same_as_eager(f, randn(3, 2))


def test_dtype_views():
    same_as_eager(lambda x: (x.view(torch.int32), x.view(torch.uint8).shape, ones(2).view(torch.int16)), randn(3, 4))


def test_memory_formats():
    def f(x):
        y = x.to(memory_format=torch.channels_last)
        return y, y + 1, y.contiguous(), torch.empty_like(y).stride(), y.is_contiguous(memory_format=torch.channels_last)

    same_as_eager(f, randn(2, 3, 4, 4))


def test_in_place_on_a_transposed_argument():
    same_as_eager(lambda x: x.add_(1).mul_(2), randn(3, 3).t())


def test_version_counters_grow():
    def f(x):
        a = x._version
        x.add_(1)
        b = x._version
        return b - a

    same_as_eager(f, randn(3))


def turned(x):
    v = x * 2
    v.t_()
    return v


def unsqueezed(x):
    v = x * 2
    v.unsqueeze_(-1)
    v.detach_()
    return v


def detached(x):
    v = x.detach()
    v.detach_()  # torch refuses it for views
    return v


@pytest.mark.parametrize("f", [lambda x: x.detach(), lambda x: (x * 2, (x * 2).detach()), lambda x: x[0], lambda x: x.detach()[0], lambda x: (x * 2).view(-1),
                               lambda x: x.data, lambda x: (x * 2).squeeze_(), turned, unsqueezed, detached,
                               lambda x: (x * 2).t(), lambda x: (x * 2).view(2, 3), lambda x: (x * 2).expand(2, 3), lambda x: (x @ x.t()).reshape(2, 2)])
@pytest.mark.parametrize("needs_grad", [False, True])
def test_an_output_is_a_view_where_it_is_one_in_eager(f, needs_grad):
    compiled = magneto.compile(f)
    for _ in range(3):
        x = torch.ones(2, 3).requires_grad_(needs_grad)
        wanted, given = f(x), compiled(x)
        for one, other in zip(*((t if isinstance(t, tuple) else (t,)) for t in (wanted, given))):
            assert other._is_view() == one._is_view() and (other._base is None) == (one._base is None)
            assert other._version == one._version
            with torch.no_grad():
                one.add_(1), other.add_(1)
            assert other._version == one._version
