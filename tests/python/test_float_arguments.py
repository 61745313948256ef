"""Floats that change as arguments of operators: slopes, limits, factors, scales, probabilities.

Twenty values of each are served by at most three graphs, forward and gradient, with eager's answers; numbers that
choose another formula, or that eager refuses, get eager's answer too.
"""

import math

import pytest
import torch
import torch.nn.functional as F

import magneto
from test_floats import answer, bits, gradient_of, graphs

ORDINARY = [0.05 + 0.0437 * k for k in range(20)]
SPECIAL = [0.5, 0.0, -0.0, 1.0, -1.0, 2.0, math.inf, -math.inf, math.nan, 1e300, 5e-324, -0.125, 0.25]
X = torch.linspace(-2, 3, 12).reshape(3, 4)
W = torch.linspace(-1, 2, 16).reshape(4, 4)


def beside(x):
    return torch.linspace(1, -1, x.numel()).reshape(x.shape).to(x.dtype)


def batch_norm(x, eps):
    mean, variance = torch.zeros(4), torch.ones(4)
    return F.batch_norm(x, mean, variance, W[2], W[3], True, 0.1, eps), mean, variance


def batch(x):
    return x.reshape(1, 3, 4)


# Arguments that are numbers.
NUMBERS = {
    "leaky_relu": lambda x, s: F.leaky_relu(x, s),
    "leaky_relu in place": lambda x, s: F.leaky_relu(x * 2, s, inplace=True),
    "elu": lambda x, s: F.elu(x, s),
    "elu in place": lambda x, s: F.elu(x * 2, s, inplace=True),
    "elu of three": lambda x, s: torch.ops.aten.elu(x, s, s, s),
    "threshold": lambda x, s: F.threshold(x, s, 0.5),
    "threshold's value": lambda x, s: F.threshold(x, 0.1, s),
    "threshold in place": lambda x, s: F.threshold_(x * 2, s, 0.5),
    "softplus": lambda x, s: F.softplus(x, s),
    "softplus's threshold": lambda x, s: F.softplus(x, 1.0, s),
    "hardtanh": lambda x, s: F.hardtanh(x, -1.0, s),
    "hardtanh of two": lambda x, s: torch.ops.aten.hardtanh(x, -s, s),
    "hardtanh in place": lambda x, s: torch.ops.aten.hardtanh_(x * 2, -s, s),
    "addmm": lambda x, s: torch.addmm(x, x, W, beta=s, alpha=2.0),
    "addmm alpha": lambda x, s: torch.addmm(x, x, W, beta=0.5, alpha=s),
    "addmm of two": lambda x, s: torch.addmm(x, x, W, beta=s, alpha=s),
    "addmm in place": lambda x, s: (x * 2).addmm_(x, W, beta=s, alpha=s),
    "addmv": lambda x, s: torch.addmv(x[:, 0], x, x[0], beta=s, alpha=s),
    "baddbmm": lambda x, s: torch.baddbmm(batch(x), batch(x), W[None], beta=s, alpha=s),
    "baddbmm in place": lambda x, s: (batch(x) * 2).baddbmm_(batch(x), W[None], beta=s, alpha=s),
    "constant_pad_nd": lambda x, s: torch.constant_pad_nd(x, (1, 2), s),
    "constant_pad_nd of all sides": lambda x, s: torch.constant_pad_nd(x, (1, 2, 2, 0), s),
    "lerp": lambda x, s: torch.lerp(x, beside(x), s),
    "addcmul": lambda x, s: torch.addcmul(x, beside(x), x, value=s),
    "addcdiv": lambda x, s: torch.addcdiv(x, x, beside(x) + 2, value=s),
    "clamp": lambda x, s: x.clamp(-s, s),
    "linspace": lambda x, s: torch.linspace(0.0, s, 4) * x,
    "linspace's start": lambda x, s: torch.linspace(s, 3.0, 4) * x,
    "index_add": lambda x, s: x.index_add(0, torch.tensor([0, 0]), x[:2], alpha=s),
    "scatter": lambda x, s: x.scatter(1, torch.zeros(x.shape[0], 1, dtype=torch.long), s),
}


def assigned(x, place, s):
    x = x * 1
    x[place] = s
    return x


def stepped(x, s):
    """Several assignments, one of them through a view, and a read of what was written."""
    y = x * 2
    y[0] = s
    y[1:][:, 0] = s * 2
    y[..., 3] += s
    return y * x


# Python makes a tensor of the number, and no operator sees it.
TENSORS = {
    "tensor": lambda x, s: x * torch.tensor(s),
    "tensor of a dtype": lambda x, s: x * torch.tensor(s, dtype=torch.float64),
    "tensor of halves": lambda x, s: x.bfloat16() + torch.tensor(s, dtype=torch.bfloat16),
    "tensor on a device": lambda x, s: x * torch.tensor(s, device="cpu"),
    "tensor by keyword": lambda x, s: x * torch.tensor(data=s),
    "tensor of a list": lambda x, s: x * torch.tensor([s, 1.0, 2, s * 2]),
    "tensor of a tuple": lambda x, s: x * torch.tensor((s, -s, 2.0, 1.0), dtype=torch.float64),
    "tensor that is written to": lambda x, s: torch.tensor(s).add_(1) * x,
    "as_tensor": lambda x, s: x * torch.as_tensor(s),
    "as_tensor of a dtype": lambda x, s: x * torch.as_tensor(s, dtype=torch.float64),
    "as_tensor of a list": lambda x, s: x * torch.as_tensor([s, 1.0, 2.0, 3.0]),
    "scalar_tensor": lambda x, s: x * torch.scalar_tensor(s),
    "full": lambda x, s: x * torch.full((4,), s),
    "new_full": lambda x, s: x * x.new_full((4,), s),
    "full_like": lambda x, s: x * torch.full_like(x, s),
    "fill_": lambda x, s: x * torch.empty(4).fill_(s),
    "fill_ of what has a gradient": lambda x, s: (x * 2).fill_(s) + x,
    "masked_fill_": lambda x, s: (x * 2).masked_fill_(x > 0, s),
    "index_fill": lambda x, s: x.index_fill(0, torch.tensor([0, 2]), s),
    "index_fill_": lambda x, s: (x * 2).index_fill_(1, torch.tensor([1]), s),
    "an index": lambda x, s: assigned(x, 0, s),
    "a place": lambda x, s: assigned(x, (1, 2), s),
    "a slice": lambda x, s: assigned(x, slice(1, 3), s),
    "a column": lambda x, s: assigned(x, (slice(None), 1), s),
    "all of it": lambda x, s: assigned(x, ..., s),
    "a mask": lambda x, s: assigned(x, x > 0, s),
    "a mask that is an input": lambda x, s: assigned(x, MASK, s),
    "rows by their numbers": lambda x, s: assigned(x, torch.tensor([0, 2]), s),
    "a list of rows": lambda x, s: assigned(x, [0, 2], s),
    "halves": lambda x, s: assigned(x.half(), 0, s),
    "several": stepped,
}
MASK = torch.tensor([[True, False, False, True], [False] * 4, [True] * 4])
# Arguments that are doubles to torch: its doors take no symbol there.
DOUBLES = {
    "layer_norm": lambda x, s: F.layer_norm(x, (4,), W[0], W[1], s),
    "layer_norm without weights": lambda x, s: F.layer_norm(x, (4,), eps=s),
    "group_norm": lambda x, s: F.group_norm(x, 2, W[0], W[1], s),
    "batch_norm": lambda x, s: F.batch_norm(x, None, None, W[0], W[1], True, 0.1, s),
    "batch_norm by running statistics": lambda x, s: F.batch_norm(x, W[0], W[1].abs(), W[2], W[3], False, 0.1, s),
    "batch_norm with running statistics": lambda x, s: batch_norm(x, s),
    "instance_norm": lambda x, s: F.instance_norm(x.reshape(1, 3, 4), eps=s),
    "pad": lambda x, s: F.pad(x, (1, 2), value=s),
    "pad of all sides": lambda x, s: F.pad(x, (1, 2, 2, 0), value=s) * x[0, 0],
    "nan_to_num": lambda x, s: torch.nan_to_num(x / (x > 0), nan=s, posinf=s, neginf=s),
    "nan_to_num in place": lambda x, s: (x / (x > 0)).nan_to_num_(s),
    "huber_loss": lambda x, s: F.huber_loss(x, beside(x), delta=s),
    "huber_loss of each": lambda x, s: F.huber_loss(x, beside(x), reduction="none", delta=s),
    "smooth_l1_loss": lambda x, s: F.smooth_l1_loss(x, beside(x), beta=s),
    "smooth_l1_loss of each": lambda x, s: F.smooth_l1_loss(x, beside(x), reduction="none", beta=s),
    "normal_": lambda x, s: torch.empty(3, 4).normal_(0.5, s) * x,
    "normal_ around it": lambda x, s: torch.empty(3, 4).normal_(s, 1.0) * x,
}


def momentum(x, s):
    mean, variance = torch.zeros(4), torch.ones(4)
    return F.batch_norm(x, mean, variance, W[2], W[3], True, s), mean, variance


def head(x):
    return x[None, None]


TARGETS, SIGNS = torch.tensor([0, 1, 2]), torch.tensor([1, -1, 1])
# torch counts with the number before an operator gets it (1 - p, s / 4, a root, a rounded number), or another value
# means something else: what is named ORDINARY does not.
COUNTED = {
    "dropout": lambda x, s: F.dropout(x, s, True),
    "dropout in place": lambda x, s: F.dropout(x * 2, s, True, True),
    "dropout with its mask": lambda x, s: torch.native_dropout(x, s, True),
    "dropout while nothing is trained": lambda x, s: F.dropout(x, s, False) * 2,
    "dropout of channels": lambda x, s: F.dropout1d(batch(x), s, True),
    "attention": lambda x, s: F.scaled_dot_product_attention(head(x), head(x), head(x), scale=s),
    "attention with a mask that has a gradient": lambda x, s: F.scaled_dot_product_attention(head(x), head(x), head(x), head(x)[..., :3], scale=s),
    "attention that drops": lambda x, s: F.scaled_dot_product_attention(head(x), head(x), head(x), dropout_p=s),
    "label_smoothing": lambda x, s: F.cross_entropy(x, TARGETS, label_smoothing=s),
    "label_smoothing of each": lambda x, s: F.cross_entropy(x, TARGETS, W[0].abs(), label_smoothing=s, reduction="none"),
    "label_smoothing of probabilities": lambda x, s: F.cross_entropy(x, W[:3].abs(), label_smoothing=s),
    "momentum": momentum,
    "rms_norm": lambda x, s: F.rms_norm(x, (4,), W[0], s),
    "cosine_similarity": lambda x, s: F.cosine_similarity(x, beside(x), dim=1, eps=s),
    "pairwise_distance": lambda x, s: F.pairwise_distance(x, beside(x), eps=s),
    "triplet_margin_loss": lambda x, s: F.triplet_margin_loss(x, beside(x), x * x, margin=s),
    "margin_ranking_loss": lambda x, s: F.margin_ranking_loss(x, beside(x), W[:3].sign(), margin=s),
    "hinge_embedding_loss": lambda x, s: F.hinge_embedding_loss(x, W[:3].sign(), margin=s),
    "cosine_embedding_loss": lambda x, s: F.cosine_embedding_loss(x, beside(x), SIGNS, margin=s),
    "poisson_nll_loss": lambda x, s: F.poisson_nll_loss(x.abs(), W[:3].abs(), log_input=False, eps=s),
    "hardshrink": lambda x, s: F.hardshrink(x, s),
    "softshrink": lambda x, s: F.softshrink(x, s),
    "uniform_": lambda x, s: torch.empty(3, 4).uniform_(0, s) * x,
    "uniform_ of two": lambda x, s: torch.empty(3, 4).uniform_(-s, s) * x,
    "bernoulli_": lambda x, s: torch.empty(3, 4).bernoulli_(s) * x,
    "bernoulli": lambda x, s: torch.bernoulli(x.detach(), p=s) * x,
    "exponential_": lambda x, s: torch.empty(3, 4).exponential_(s) * x,
}
CASES = NUMBERS | TENSORS | DOUBLES | COUNTED


def holds(name, exact, train, values, grow=0):
    f = (CASES | CONSTANTS)[name]
    magneto.reset()
    c = magneto.compile(f, backend="eager") if exact else magneto.compile(f)
    for k, value in enumerate(values):
        rows = 3
        x = torch.linspace(-2, 3, 4 * rows).reshape(rows, 4)
        run = gradient_of if train else lambda function, x, value: function(x, value)
        torch.manual_seed(k)
        expected = answer(run, (f, x, value))
        torch.manual_seed(k)
        got = answer(run, (c, x, value))
        if isinstance(expected, tuple) and isinstance(expected[0], str):
            assert expected == got, value
        elif exact:
            assert bits(expected) == bits(got), (value, expected, got)
        else:
            torch.testing.assert_close(got, expected, equal_nan=True, msg=lambda text: f"{value}: {text}")


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_three_graphs_serve_all_values(name, exact, train):
    holds(name, exact, train, ORDINARY)
    report = magneto.report()
    assert graphs() <= 3, report
    assert not report.fallbacks, report.fallbacks


# Each value has a graph.
CONSTANTS = {
    "celu": lambda x, s: F.celu(x, s),
    "alpha_dropout": lambda x, s: F.alpha_dropout(x, s, True),
    "isclose": lambda x, s: torch.isclose(x, x + 1, atol=s),
}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", CASES | CONSTANTS)
def test_special_numbers(name, exact, train):
    holds(name, exact, train, [0.3, 0.7, *SPECIAL])


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_a_schedule_of_dropout(exact, train):
    """The same numbers are dropped as in eager; nothing and all of it are graphs of their own."""
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(4, 4), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Dropout(0.2))]
    model = torch.nn.Sequential(*layers)
    magneto.reset()
    c = magneto.compile(model, backend="eager") if exact else magneto.compile(model)
    for k in range(20):
        for n, layer in enumerate(m for m in layers if isinstance(m, torch.nn.Dropout)):
            layer.p = 0.02 * k + 0.001 * n + 0.01
        results = []
        for run in (model, c):
            torch.manual_seed(k)
            model.zero_grad()
            with torch.set_grad_enabled(train):
                y = run(X)
            if train:
                y.square().sum().backward()
            results.append([y.detach(), *(p.grad.clone() for p in model.parameters() if train)])
        torch.testing.assert_close(results[1], results[0])
        assert torch.equal(results[1][0] == 0, results[0][0] == 0)
        assert not exact or bits(results[1]) == bits(results[0])
    assert graphs() <= 2, magneto.report()
    for p in (0.0, 1.0, 0.5, 0.0, 1.0):
        model[1].p = p
        torch.manual_seed(1)
        expected = model(X)
        torch.manual_seed(1)
        torch.testing.assert_close(c(X), expected)
    model.eval()
    torch.testing.assert_close(c(X), model(X))
