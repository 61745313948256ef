"""Operators that refuse the data of a call, where nothing needs what they would have read.

Eager checks every index, whoever reads the result: of a dead operator, in a dimension of one element, of an expanded tensor
or a constant, under a product with zero. The exception is eager's, and the next call is as if it had not been.
"""

import pytest
import torch
import torch.nn.functional as F

import magneto

FINE, BAD = torch.tensor([0, 0]), torch.tensor([0, 9])


def column(i):
    """[2, 1], and not dense: of such an index torch's own gather ends the process on some machines."""
    return torch.stack((i, i), 1)[:, :1]


# of y [rows, columns] and i [2]
OPERATORS = {
    "index": lambda y, i: y[i], "index of the second": lambda y, i: y[:, i], "two indices": lambda y, i: y[i, i], "index_select": lambda y, i: y.index_select(0, i), "embedding": lambda y, i: F.embedding(i, y),
    "gather": lambda y, i: y.gather(0, column(i)), "gather of columns": lambda y, i: y[:1].gather(1, i[None]), "take": lambda y, i: y.take(i * 100), "take_along_dim": lambda y, i: y.take_along_dim(column(i), 0),
    "index_fill": lambda y, i: y.index_fill(0, i, 0.5), "index_fill_": lambda y, i: y.clone().index_fill_(0, i, 0.5), "index_put": lambda y, i: y.index_put((i,), torch.tensor(1.0)),
    "index_put, accumulate": lambda y, i: y.index_put((i,), torch.tensor(1.0), accumulate=True), "index_add": lambda y, i: y.index_add(0, i, torch.ones(2, y.shape[1])),
    "index_copy": lambda y, i: y.index_copy(0, i, torch.ones(2, y.shape[1])), "scatter": lambda y, i: y.scatter(0, i[:, None], 1.0), "scatter_add": lambda y, i: y.scatter_add(0, i[:, None], torch.ones(2, 1)),
    "nll_loss": lambda y, i: F.nll_loss(y[:1].expand(2, -1).log_softmax(1), i), "cross_entropy": lambda y, i: F.cross_entropy(y[:1].expand(2, -1), i),
    "an expanded tensor": lambda y, i: y[:1].expand(4, y.shape[1])[i], "a view of one row": lambda y, i: y[0].unsqueeze(0)[i], "a flat view": lambda y, i: y[:1].reshape(1, 1, -1)[i] + y[:1].flatten()[None][i],
    "constants": lambda y, i: torch.zeros(4, 3)[i], "sizes alone": lambda y, i: torch.zeros_like(y)[i], "a product with zero": lambda y, i: torch.arange(4)[i] * 0, "a remainder": lambda y, i: torch.arange(4)[i] % 1,
    "a quotient times zero": lambda y, i: torch.floor_divide(18, 9 - i) * 0, "the largest of one": lambda y, i: y[:, 0][i][:, None].argmax(1), "nothing of it": lambda y, i: y[i][:0],
    "a number that does not fit": lambda y, i: torch.zeros(3, dtype=torch.int8).masked_fill(torch.tensor([True, False, True]), i.max() * 100),
    "a number that does not fit, in place": lambda y, i: torch.zeros(3, dtype=torch.int8).masked_fill_(torch.tensor([True, False, True]), i.max() * 100),
}


def answer(function, x, i):
    try:
        result = function(x, i)
    except Exception as error:
        return type(error), str(error)
    return result.detach().clone()


@pytest.mark.parametrize("trained", [False, True], ids=["plain", "trained"])
@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (4, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("dynamic", [None, True], ids=["", "dynamic"])
def test_an_index_is_checked_whoever_reads_it(trained, shape, dynamic):
    wrong = []
    for name, operator in OPERATORS.items():
        for dead in (False, True):
            magneto.reset()

            def program(x, i):
                y = operator(x * 2, i)
                return x.sum() if dead else y
            compiled = magneto.compile(program, dynamic=dynamic)
            for i in (FINE, FINE, FINE, BAD, FINE, BAD):
                x = torch.arange(float(shape[0] * shape[1])).reshape(shape).requires_grad_(trained)
                expected, got = answer(program, x, i), answer(compiled, x, i)
                same = torch.equal(expected, got) if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor) else expected == got
                if not same:
                    wrong.append((name, "dead" if dead else "live", expected, got))
    assert not wrong, wrong


@pytest.mark.parametrize("trained", [False, True], ids=["plain", "trained"])
@pytest.mark.parametrize("operator", [lambda x, i: x.index_select(0, i), lambda x, i: F.embedding(i, x), lambda x, i: x[i], lambda x, i: x.index_fill(0, i, 1.0)])
def test_an_index_is_checked_though_no_element_is_read(operator, trained):
    compiled = magneto.compile(operator)
    for i in (FINE, FINE, BAD, FINE, BAD):
        x = torch.ones(2, 0).requires_grad_(trained)
        expected, got = answer(operator, x, i), answer(compiled, x, i)
        assert (expected == got if isinstance(expected, tuple) else torch.equal(expected, got))


NUMBERS = {
    "remainder_": lambda x: x.long().remainder_(0), "remainder": lambda x: x.long() % 0, "remainder by false": lambda x: x.long().remainder_(False), "fmod_": lambda x: x.long().fmod_(0), "floor_divide_": lambda x: x.long().floor_divide_(0),
    "uniform_": lambda x: x.uniform_(2, 1), "normal_": lambda x: x.normal_(0, -1), "log_normal_": lambda x: x.log_normal_(0, -1), "exponential_": lambda x: x.exponential_(-1), "bernoulli_": lambda x: x.bernoulli_(2.0),
    "bernoulli": lambda x: torch.bernoulli(x, 2.0), "randint": lambda x: torch.randint(2, 1, (3,)), "randint below": lambda x: torch.randint(0, (3,)), "randint of bytes": lambda x: torch.randint(0, 1000, (3,), dtype=torch.int8),
    "fill_": lambda x: x.to(torch.int8).fill_(1000), "fill_ of the argument": lambda x: x.view(torch.int8).fill_(1000), "masked_fill_": lambda x: x.view(torch.int8).masked_fill_(x.view(torch.int8) > 0, 1000),
    "full": lambda x: torch.full((2,), 1000, dtype=torch.int8), "a slice": lambda x: x.view(torch.int8).__setitem__(slice(0, 1), 1000), "index_fill_": lambda x: x.view(torch.int8).index_fill_(0, torch.tensor([0]), 1000),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_refused_where_it_is_given(name):
    def program(x):
        y = x * 2
        try:
            NUMBERS[name](x)
        except Exception as error:
            return "refused", type(error), str(error), x._version, y.sum()
        return "taken", x._version, y.sum()
    compiled = magneto.compile(program)
    for _ in range(3):
        x, other = torch.ones(4), torch.ones(4)
        torch.manual_seed(1)
        expected = program(x)
        torch.manual_seed(1)
        assert compiled(other) == expected
        assert other._version == x._version and torch.equal(other.view(torch.int32), x.view(torch.int32))


NUMBERS = {
    "fill_": lambda x, n: x.fill_(n), "masked_fill_": lambda x, n: x.masked_fill_(x > 1, n), "clamp_": lambda x, n: x.clamp_(n), "add_": lambda x, n: x.add_(n), "alpha": lambda x, n: x.add_(x, alpha=n),
    "full_like": torch.full_like, "new_full": lambda x, n: x.new_full((2,), n), "index_fill_": lambda x, n: x.index_fill_(0, torch.tensor([0]), n), "scatter_": lambda x, n: x.scatter_(0, torch.tensor([0]), n),
    "an assignment": lambda x, n: x.__setitem__(0, n), "pad": lambda x, n: F.pad(x, (1, 1), value=n), "where": lambda x, n: torch.where(x > 1, x, n), "threshold": lambda x, n: F.threshold(x, n, n), "logit": torch.logit,
}


@pytest.mark.parametrize("operator", NUMBERS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.float16], ids=str)
def test_numbers_that_do_not_fit(operator, dtype):
    f = NUMBERS[operator]
    compiled = magneto.compile(f)
    for number in (1, 1, 0.5, -1.5, 127.5, 300, -129.0, 1e5, 2.0**31, float("inf")):
        seen = []
        for call in (f, compiled):
            x = torch.tensor([3, 1]).to(dtype)
            try:
                result = call(x, number)
                result = None if result is None else (result.dtype, result.tolist())
            except RuntimeError as error:
                result = str(error)
            seen.append(repr((result, x.tolist(), x._version)))
        assert seen[0] == seen[1], number


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("shape", [(0,), (0, 0), (2, 0), (0, 2)])
@pytest.mark.parametrize("name", ["argmin", "argmax", "amax", "amin", "max", "min"])
def test_an_extreme_of_nothing_is_refused_where_it_stands(name, shape, dynamic):
    """Also where there is no result, and nobody reads it."""
    def f(x, dim):
        getattr(torch, name)(x * 1, dim=dim)
        raise KeyError("later")

    compiled = magneto.compile(f, dynamic=dynamic)
    for dim in range(len(shape)):
        with pytest.raises((KeyError, IndexError)) as want:
            f(torch.ones(shape), dim)
        for _ in range(2):
            with pytest.raises(want.type) as have:
                compiled(torch.ones(shape), dim)
            assert str(have.value) == str(want.value)
