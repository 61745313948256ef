"""Training loops: optimizers, schedulers, clipping, accumulation, AMP. After each step everything must be eager's."""

import copy

import pytest
import torch
from torch import nn, randn

import magneto
import rounding
from harness import fresh, same_as_eager


def mlp():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


def trained(step, make=mlp, optimizer=lambda ps: torch.optim.SGD(ps, lr=0.1)):
    """Program: `step(forward, model, optimizer, x)` three times, with forward = the model, compiled or not."""

    @fresh
    def program():
        model = make()
        opt = optimizer(model.parameters())
        model.__dict__["optimizer"] = opt
        return model, model

    def call(g, x):
        return [step(g, g.optimizer, x + i) for i in range(3)]

    def run(*args, **options):
        same_as_eager(program, *args, call=call, **options)

    return run


def plain(g, opt, x):
    opt.zero_grad()
    loss = g(x.detach()).pow(2).mean()
    if loss.requires_grad:
        loss.backward()
        opt.step()
    return loss.detach()


@pytest.mark.parametrize("optimizer", [
    pytest.param(lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.01), id="sgd"),
    pytest.param(lambda ps: torch.optim.Adam(ps, lr=0.01), id="adam"),
    pytest.param(lambda ps: torch.optim.AdamW(ps, lr=0.01, amsgrad=True), id="adamw"),
    pytest.param(lambda ps: torch.optim.RMSprop(ps, lr=0.01), id="rmsprop"),
    pytest.param(lambda ps: torch.optim.Adagrad(ps, lr=0.01), id="adagrad"),
    pytest.param(lambda ps: torch.optim.AdamW(ps, lr=0.01, foreach=False), id="adamw one by one"),
])
def test_three_steps_with(optimizer):
    trained(plain, optimizer=optimizer)(randn(5, 4))


def test_gradients_accumulated_over_micro_batches():
    def step(g, opt, x):
        opt.zero_grad(set_to_none=False)
        for part in x.detach().chunk(2):
            loss = g(part).pow(2).mean() / 2
            if loss.requires_grad:
                loss.backward()
        opt.step()
        return [p.grad for p in g.parameters()]

    trained(step)(randn(6, 4))


def test_clipped_gradients():
    def step(g, opt, x):
        opt.zero_grad()
        loss = g(x.detach()).pow(2).sum() * 10
        if loss.requires_grad:
            loss.backward()
        norm = nn.utils.clip_grad_norm_(g.parameters(), 0.5)
        nn.utils.clip_grad_value_(g.parameters(), 0.1)
        opt.step()
        return norm

    trained(step)(randn(5, 4))


def test_a_learning_rate_schedule():
    def step(g, opt, x):
        out = plain(g, opt, x)
        scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda epoch: 0.5)
        scheduler.step()
        return out, opt.param_groups[0]["lr"]

    trained(step)(randn(5, 4))


def test_mixed_precision_with_a_grad_scaler():
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(g, opt, x):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = g(x.detach()).float().pow(2).mean()
        if not loss.requires_grad:
            return loss
        scaled = scaler.scale(loss)
        scaled.backward()
        before = [p.detach().clone() for p in g.parameters()]
        scaler.step(opt)
        scaler.update(1024.0)
        return loss.detach(), [torch.equal(p, q) for p, q in zip(before, g.parameters())]

    # The gradients are numbers of eight bits, and how eager rounds them differs by version: where torch 2.15 normalises in
    # bfloat16, eager itself is 9 % off the true gradients after three steps. Bfloat16's tolerance is the honest one.
    trained(step)(randn(5, 4), units=rounding.UNITS[torch.bfloat16] / rounding.UNITS[torch.float32])


def test_dropout_and_batch_norm_while_training():
    def make():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))

    trained(plain, make)(randn(5, 4))


def test_train_and_eval_in_turns():
    def make():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))

    def step(g, opt, x):
        g.train()
        loss = plain(g, opt, x)
        g.eval()
        with torch.no_grad():
            return loss, g(x)

    trained(step, make)(randn(5, 4))


def test_a_compiled_loss_function():
    @fresh
    def program():
        model = mlp()

        def loss(x, labels):
            return nn.functional.cross_entropy(model(x), labels, label_smoothing=0.1)

        return loss, model

    same_as_eager(program, randn(5, 4), torch.tensor([0, 1, 2, 1, 0]))


def test_a_whole_training_step_compiled():
    @fresh
    def program():
        model = mlp()
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            opt.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            opt.step()
            return loss.detach()

        return step, model

    def with_gradients(g, x):
        with torch.enable_grad():
            return g(x), g(x)

    same_as_eager(program, randn(5, 4), call=with_gradients)


def test_a_compiled_optimizer_step():
    @fresh
    def program():
        model = mlp()
        opt = torch.optim.Adam(model.parameters(), lr=0.05)
        for p in model.parameters():
            p.grad = torch.ones_like(p)

        def step():
            opt.step()

        return step, model

    same_as_eager(program, more=[((), {}), ((), {})])


def test_parameters_frozen_half_way():
    same_as_eager(fresh(lambda: (lambda m: (m, m))(mlp())), randn(5, 4), change=lambda m: m[0].requires_grad_(False))


def test_an_exponential_moving_average_of_weights():
    @fresh
    def program():
        model = mlp()
        mean = copy.deepcopy(model).requires_grad_(False)

        def update(x):
            with torch.no_grad():
                for slow, fast in zip(mean.parameters(), model.parameters()):
                    slow.lerp_(fast, 0.1)
            return mean(x) - model(x)

        return update, (model, mean)

    same_as_eager(program, randn(5, 4), change=lambda both: both[0][0].weight.data.add_(1), units=10)


def test_a_gan_step_with_two_models():
    @fresh
    def program():
        torch.manual_seed(1)
        generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
        opt_g = torch.optim.SGD(generator.parameters(), lr=0.1)
        opt_c = torch.optim.SGD(critic.parameters(), lr=0.1)

        def step(x):
            with torch.enable_grad():
                fake = generator(x.detach())
                opt_c.zero_grad()
                loss_c = critic(fake.detach()).mean() - critic(x.detach()).mean()
                loss_c.backward()
                opt_c.step()
                opt_g.zero_grad()
                loss_g = -critic(fake).mean()
                loss_g.backward()
                opt_g.step()
            return loss_c.detach(), loss_g.detach()

        return step, (generator, critic)

    same_as_eager(program, randn(5, 4))


def test_a_reinforcement_step_with_sampling():
    @fresh
    def program():
        policy = mlp()

        def step(x):
            dist = torch.distributions.Categorical(logits=policy(x))
            action = dist.sample()
            reward = (action == 1).float()
            return -(dist.log_prob(action) * reward).mean(), dist.entropy(), action

        return step, policy

    same_as_eager(program, randn(5, 4))


def test_a_recurrent_net_over_a_python_loop():
    @fresh
    def program():
        torch.manual_seed(1)
        cell = nn.GRUCell(4, 6)

        def run(x):
            h = torch.zeros(x.shape[0], 6, dtype=x.dtype)
            outs = []
            for t in range(x.shape[1]):
                h = cell(x[:, t], h)
                outs.append(h)
            return torch.stack(outs, 1)

        return run, cell

    same_as_eager(program, randn(2, 5, 4))


def test_training_equals_eager_over_many_steps():
    def losses(compile):
        model = mlp()
        g = compile(model)
        opt = torch.optim.AdamW(model.parameters(), lr=0.01)
        torch.manual_seed(3)
        out = []
        for _ in range(30):
            opt.zero_grad()
            loss = nn.functional.mse_loss(g(randn(6, 4)), torch.ones(6, 3))
            loss.backward()
            opt.step()
            out.append(loss.item())
        return out

    eager = losses(lambda m: m)
    assert rounding.close(torch.tensor(losses(magneto.compile)), torch.tensor(eager), units=10) and eager[-1] < eager[0]


def test_a_result_whose_gradient_is_always_none_has_a_history():
    def f(x):
        return torch.linalg.vector_norm(x, 0, dim=0)

    x = randn(3, 2, requires_grad=True)
    compiled = magneto.compile(f)
    for _ in range(3):
        y = compiled(x)
        assert y.requires_grad and torch.autograd.grad(y.sum(), x, allow_unused=True) == (None,)


def test_an_operator_that_resizes_what_it_writes():
    def f(x, a, b):
        return x.clone().addbmm_(a, b)

    x, a, b = randn(1), randn(2, 3, 4, requires_grad=True), randn(2, 4, 5)
    want = torch.autograd.grad(f(x, a, b).pow(2).sum(), a)[0]
    compiled = magneto.compile(f)
    for _ in range(2):
        assert rounding.close(want, torch.autograd.grad(compiled(x, a, b).pow(2).sum(), a)[0])


def test_gathers_and_scatters_of_tensors_without_dimensions():
    same_as_eager(lambda x, i: (x.gather(0, i), x.unfold(0, 1, 1)), torch.tensor(3.0), torch.tensor(0))
    same_as_eager(lambda x, i: x.gather(0, i), torch.tensor(3.0), torch.tensor([0, 0]))
    same_as_eager(lambda x, i, s: x.scatter(0, i, s), torch.zeros(3), torch.tensor(1), torch.tensor(2.0))
