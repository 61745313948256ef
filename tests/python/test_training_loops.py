"""Whole training loops, as people write them: a few steps beside eager, from the same seed, with everything they leave behind.

Each program gets the function that compiles (or does nothing), and gives back what it is judged by.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import distributions, nn
from torch.utils.checkpoint import checkpoint

import magneto

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def mlp(*widths):
    layers = [layer for a, b in zip(widths, widths[1:]) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def state(module):
    return [t.detach().clone() for t in [*module.parameters(), *module.buffers()]]


def gradients(module):
    return [p.grad for p in module.parameters()]


@program
def accumulated_and_clipped(compiled):
    model = mlp(4, 8, 8, 2)
    run, optimizer = compiled(model), torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        for _ in range(3):
            (run(torch.randn(5, 4)).square().mean() / 3).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return state(model)


@program
def tied_weights_and_two_positions(compiled):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
            self.head.weight = self.table.weight
            self.position, self.segment = nn.Parameter(torch.randn(1, 7, 6)), nn.Parameter(torch.randn(1, 7, 6))

        def forward(self, tokens):
            return self.head(torch.tanh(self.table(tokens) + self.position + self.segment))

    model = Model()
    run, optimizer = compiled(model), torch.optim.AdamW(model.parameters(), 0.01)
    for _ in range(4):
        tokens = torch.randint(0, 11, (3, 7))
        for _ in range(2):
            F.cross_entropy(run(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return state(model)


@program
def recomputed(compiled):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = mlp(4, 8, 4), mlp(4, 8, 4)

        def forward(self, x):
            return checkpoint(self.second, checkpoint(self.first, x, use_reentrant=False), use_reentrant=False)

    model = Model()
    run, optimizer = compiled(model), torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(4):
        run(torch.randn(3, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return state(model)


@program
def gradient_penalty(compiled):
    critic = mlp(4, 8, 1)
    run, optimizer = compiled(critic), torch.optim.Adam(critic.parameters(), 0.01)
    for _ in range(4):
        x = torch.randn(6, 4, requires_grad=True)
        slope, = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        loss = ((slope.norm(dim=1) - 1) ** 2).mean() + run(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return state(critic)


@program
def second_derivatives_inside(compiled):
    model = mlp(2, 8, 1)

    def residual(points):
        points = points.requires_grad_()
        u = model(points)
        first, = torch.autograd.grad(u.sum(), points, create_graph=True)
        second, = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)
        return first[:, 1] + u[:, 0] * first[:, 0] - 0.01 * second[:, 0]

    run, optimizer = compiled(residual), torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(4):
        optimizer.zero_grad()
        run(torch.rand(7, 2)).square().mean().backward()
        optimizer.step()
    return state(model)


@program
def learned_to_learn(compiled):
    weight = torch.randn(4, 3, requires_grad=True)
    run, seen = compiled(lambda x, w: torch.tanh(x @ w)), []
    for _ in range(4):
        x = torch.randn(5, 4)
        slope, = torch.autograd.grad(run(x, weight).square().sum(), weight, create_graph=True)
        seen += torch.autograd.grad(run(x, weight - 0.1 * slope).sum(), weight)
    return seen


@program
def averaged_weights(compiled):
    model = mlp(4, 8, 2)
    average = copy.deepcopy(model)

    @torch.no_grad()
    def update(decay):
        for old, new in zip(average.parameters(), model.parameters()):
            old.mul_(decay).add_(new, alpha=1 - decay)

    run, follow, optimizer = compiled(model), compiled(update), torch.optim.SGD(model.parameters(), 0.1)
    for step in range(5):
        run(torch.randn(3, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        follow(0.9 + step / 100)
    return state(average)


@program
def norms_in_training_and_evaluation(compiled):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(4 * 36, 2))
    run, optimizer = compiled(model), torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for _ in range(3):
        run(torch.randn(2, 3, 6, 6)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    seen = []
    for training in (False, True):
        model.train(training)
        seen.append(run(torch.randn(2, 3, 6, 6)).detach())
    return seen + state(model)


@program
def residuals_in_place(compiled):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.act = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True)

        def forward(self, x):
            y = self.norm(self.conv(x))
            y += x
            return self.act(y)

    model = nn.Sequential(Block(), Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    run, optimizer = compiled(model), torch.optim.SGD(model.parameters(), 0.1, nesterov=True, momentum=0.9)
    for _ in range(4):
        F.cross_entropy(run(torch.randn(4, 4, 6, 6)), torch.randint(0, 2, (4,))).backward()
        optimizer.step()
        optimizer.zero_grad()
    return state(model)


@program
def steps_to_the_worst_and_back(compiled):
    model = mlp(3, 5, 1)
    run, optimizer = compiled(model), torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(4):
        x = torch.randn(4, 3)
        run(x).square().mean().backward()
        before = [p.detach().clone() for p in model.parameters()]
        with torch.no_grad():
            for p in model.parameters():
                p.add_(p.grad, alpha=0.05)
                p.grad = None
        run(x).square().mean().backward()
        with torch.no_grad():
            for p, old in zip(model.parameters(), before):
                p.copy_(old)
        optimizer.step()
        optimizer.zero_grad()
    return state(model)


@program
def hooks_on_modules_and_parameters(compiled):
    model, log = mlp(3, 4, 2), []
    model[0].register_forward_hook(lambda module, given, made: log.append(made.detach().sum().item()))
    model[2].register_full_backward_hook(lambda module, below, above: log.append(above[0].sum().item()))
    model[0].weight.register_hook(lambda grad: grad * 2)
    run = compiled(model)
    for _ in range(4):
        run(torch.randn(2, 3)).square().sum().backward()
    return [torch.tensor(log), *gradients(model)]


@program
def a_mixture_of_experts(compiled):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            weights, chosen = self.gate(x).softmax(-1).topk(2)
            result = torch.zeros_like(x)
            for k, expert in enumerate(self.experts):
                row, column = torch.where(chosen == k)
                if row.numel():
                    result.index_add_(0, row, expert(x[row]) * weights[row, column, None])
            return result

    model = Model()
    run = compiled(model)
    for _ in range(4):
        run(torch.randn(6, 4)).square().sum().backward()
    return gradients(model)


@program
def parameters_frozen_in_turn(compiled):
    model, seen = mlp(3, 4, 4, 2), []
    run = compiled(model)
    for step in range(4):
        for k, p in enumerate(model.parameters()):
            p.requires_grad_((k + step) % 2 == 0)
            p.grad = None
        run(torch.randn(2, 3)).sum().backward()
        seen += [torch.tensor(-1.0) if p.grad is None else p.grad for p in model.parameters()]
    return seen


@program
def an_autoencoder_that_samples(compiled):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Linear(6, 4), nn.Linear(2, 6)

        def forward(self, x):
            mean, log_variance = self.encode(x).chunk(2, -1)
            posterior = distributions.Normal(mean, log_variance.mul(0.5).exp())
            prior = distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
            return self.decode(posterior.rsample()), distributions.kl_divergence(posterior, prior).sum(-1)

    model = Model()
    run, optimizer = compiled(model), torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(4):
        x = torch.rand(5, 6)
        made, distance = run(x)
        optimizer.zero_grad()
        (F.binary_cross_entropy_with_logits(made, x) + distance.mean()).backward()
        optimizer.step()
    return state(model)


@program
def weights_as_one_vector(compiled):
    model = mlp(3, 4, 2)

    def loss(vector, x):
        parts, begin = {}, 0
        for name, p in model.named_parameters():
            parts[name] = vector[begin:begin + p.numel()].view_as(p)
            begin += p.numel()
        return torch.func.functional_call(model, parts, (x,)).square().sum()

    run = compiled(loss)
    vector = nn.utils.parameters_to_vector(model.parameters()).detach().requires_grad_()
    for _ in range(4):
        run(vector, torch.randn(2, 3)).backward()
    return [vector.grad]


@program
def a_closure_that_is_called_often(compiled):
    model, x = mlp(2, 4, 1), torch.randn(8, 2)
    run, optimizer = compiled(model), torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = run(x).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    return state(model)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_training_loop_ends_as_in_eager(name):
    answers = []
    for compiled in (lambda function: function, magneto.compile):
        torch.manual_seed(0)
        answers.append([t.detach().double() for t in PROGRAMS[name](compiled)])
    for want, have in zip(*answers, strict=True):
        assert want.shape == have.shape
        assert (want - have).abs().max() <= 2e-5 * want.abs().max().clamp(min=1e-6)
