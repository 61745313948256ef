"""Programs that read tensor data: shapes that depend on values, numpy, lists, conversions to numbers."""

import numpy
import torch
from torch import arange, ones, randn, tensor

from harness import made, same_as_eager


def test_boolean_masks_select():
    def f(x):
        kept = x[x > 0]
        return kept * 2, kept.shape[0], x[(x > 0) & (x < 1)], x.masked_select(x < 0)

    same_as_eager(f, randn(6), more=[((-ones(6),), {}), ((ones(6),), {})])


def test_nonzero_and_where_of_one_argument():
    def f(x):
        rows, cols = torch.where(x > 0)
        return x.nonzero(), torch.nonzero(x > 0, as_tuple=True), rows + cols, len(rows)

    same_as_eager(f, randn(3, 4))


def test_unique():
    def f(x):
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        return values, inverse, counts, x.unique_consecutive(), values.numel()

    same_as_eager(f, tensor([3, 1, 3, 2, 1]))


def test_repeat_interleave_and_bincount_by_data():
    same_as_eager(lambda n: (torch.repeat_interleave(arange(3), n), torch.bincount(n), torch.split(arange(6), n.tolist())),
                  tensor([1, 2, 3]))


def test_a_loop_over_unique_values():
    def f(x, labels):
        return {int(v): x[labels == v].mean(0) for v in labels.unique()}

    same_as_eager(f, randn(4, 2), tensor([0, 1, 0, 2]))


def test_a_slice_up_to_a_value():
    def f(x, n):
        return x[: n.item()] + 1, x[n:], torch.zeros(int(n), 2)

    same_as_eager(f, randn(5), tensor(3), more=[((randn(5), tensor(0)), {}), ((randn(5), tensor(5)), {})])


def test_a_tensor_as_an_index_of_a_list():
    def f(xs, i):
        return xs[i] * 2, range(5)[i], [10, 20, 30][i]

    same_as_eager(f, [randn(2), randn(3), randn(2)], tensor(2), more=[(([randn(2)] * 3, tensor(0)), {})])


def test_numpy_of_an_intermediate():
    def f(x):
        y = (x * 2).detach()
        a = y.numpy()
        a[0] = 7
        return y, a.sum(), a

    same_as_eager(f, randn(3))


def test_numpy_shares_memory_with_an_argument():
    def f(x):
        a = x.detach().numpy()
        x.detach().add_(1)
        a *= 2
        return a, x + 0

    same_as_eager(f, randn(3))


def test_from_numpy():
    def f(x, a):
        t = torch.from_numpy(a)
        t.add_(1)
        return t * x, torch.tensor(a), torch.as_tensor(a), x + a

    same_as_eager(f, randn(3), made(lambda: numpy.arange(3, dtype=numpy.float32)))


def test_numpy_functions_inside():
    def f(x):
        a = numpy.stack([x.detach().numpy(), numpy.ones(3, dtype=numpy.float32)])
        return torch.from_numpy(numpy.where(a > 0, a, 0)), a.shape, numpy.float32(2) * x, x * numpy.float64(0.5)

    same_as_eager(f, randn(3))


def test_a_numpy_number_as_an_argument():
    same_as_eager(lambda x, n: x * n, randn(3), numpy.float32(2), more=[((randn(3), numpy.float32(3)), {}),
                                                                        ((randn(3), numpy.int64(2)), {})])


def test_a_numpy_array_as_an_argument():
    same_as_eager(lambda a: torch.from_numpy(a).sum() + a[0], made(lambda: numpy.ones(3, dtype=numpy.float32)),
                  more=[((made(lambda: numpy.arange(4, dtype=numpy.float32)),), {})])


def test_numpy_random_numbers():
    same_as_eager(lambda x: x + torch.from_numpy(numpy.random.rand(3)), randn(3))


def test_numbers_of_every_kind_out_of_a_tensor():
    def f(x, i):
        return int(i), float(x[0]), complex(x[1]), bool(i), i.__index__(), [1, 2, 3][i], round(float(x[2]), 2), f"{x[0]:.2f}", \
            "%.3f" % x[1], x.tolist(), i.item() + 1, int(x[0] * 100)

    same_as_eager(f, randn(3), tensor(1))


def test_item_of_many_elements_raises():
    same_as_eager(lambda x: x.item(), randn(3), raises=RuntimeError)


def test_a_float_result_steers_python():
    def f(x):
        scale = float(x.abs().max())
        levels = [x / scale] if scale > 1 else []
        return levels, round(scale, 4)

    same_as_eager(f, randn(4) * 3, more=[((randn(4) * 0.01,), {})])


def test_equal_and_allclose_as_conditions():
    def f(x, y):
        if torch.equal(x, y):
            return x * 10
        if torch.allclose(x, y, atol=0.1):
            return x * 5
        return x

    same_as_eager(f, ones(3), ones(3), more=[((ones(3), ones(3) + 0.05), {}), ((ones(3), ones(3) * 3), {})])


def test_isnan_any_as_a_check():
    def f(x):
        if torch.isnan(x).any():
            raise FloatingPointError("nan in the input")
        return x / x.sum()

    same_as_eager(f, randn(3), more=[((tensor([1.0, float("nan")]),), {})])


def test_greedy_decoding():
    def f(w, start, steps):
        tokens = [start]
        for _ in range(steps):
            logits = w[tokens[-1]]
            tokens.append(int(logits.argmax()))
            if tokens[-1] == 0:
                break
        return tokens

    same_as_eager(f, randn(5, 5), 3, 6)


def test_top_k_filtering():
    def f(logits, k):
        limit = torch.topk(logits, min(k, logits.size(-1))).values[..., -1, None]
        logits[logits < limit] = float("-inf")
        return torch.multinomial(logits.softmax(-1), 1)

    same_as_eager(f, randn(2, 6), 3)


def test_routing_of_tokens_to_experts():
    def f(x, router, experts):
        choice = (x @ router).argmax(-1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(experts):
            rows = (choice == index).nonzero().squeeze(-1)
            if rows.numel():
                out[rows] = x[rows] @ expert
        return out

    same_as_eager(f, randn(5, 4), randn(4, 2), [randn(4, 4), randn(4, 4)])


def test_running_statistics_in_numbers():
    def f(xs):
        total, peak = 0.0, float("-inf")
        for x in xs:
            total += x.mean().item()
            peak = max(peak, x.max().item())
        return torch.tensor([total, peak]), total / len(xs)

    same_as_eager(f, [randn(3), randn(4)])


def test_dlpack_and_the_buffer_protocol():
    def f(x):
        y = torch.from_dlpack(x.detach())
        y += 1
        return y, numpy.asarray(x.detach()) * 2, memoryview(x.detach().numpy()).nbytes

    same_as_eager(f, randn(3))


def test_pickling_and_saving_inside():
    import io
    import pickle

    def f(x):
        y = (x * 2).detach()
        buffer = io.BytesIO()
        torch.save(y, buffer)
        buffer.seek(0)
        return torch.load(buffer), pickle.loads(pickle.dumps(y)), len(pickle.dumps(y)) > 10

    same_as_eager(f, randn(3))


def test_a_data_pointer_read():
    def f(x):
        y = x.add_(1)
        return y.data_ptr() == x.data_ptr(), x.untyped_storage().nbytes(), (x + 1).data_ptr() != x.data_ptr()

    same_as_eager(f, randn(3))


def test_storage_written_below_torch():
    def f(x):
        y = (x * 2).detach()
        storage = y.untyped_storage()
        storage[0] = 0
        z = torch.frombuffer(bytearray(b"\x00\x00\x80?" * 3), dtype=torch.float32)
        return y + z

    same_as_eager(f, randn(3))
