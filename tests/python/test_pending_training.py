"""Pending tensors and autograd: torch's own graph, built while nothing is computed, is valid after the flush."""
import gc

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from small_models import IDS, MODELS, Block, train
from test_pending_harness import T, same_as_eager, tracing

torch.manual_seed(0)


def grad(*shape):
    return torch.randn(*shape, requires_grad=True)


def view_and_base(x):
    y = x * 2 + 1
    return y, y.view(-1), y[0]


def write_in_the_middle(x):
    y = x * 2
    y.add_(1)
    y.mul_(x)
    return y


def write_through_a_view(x):
    y = x * 2
    y[0].mul_(3)
    return y


def no_grad_inside(x):
    w = torch.ones(5, 3)
    with torch.no_grad():
        a = x @ w
    b = (x @ w).detach()
    return a, b, (x @ w) * a + b


def leaves_made_inside(x):
    p = torch.zeros(5).requires_grad_()
    return p, (x * p).sum()


def fills_a_buffer(x):
    buffer = torch.zeros(4, 5)
    buffer.add_(x)
    buffer[1] = x[0] * 2
    return buffer


PROGRAMS = {
    "mlp": (lambda x, w, b: torch.relu(x @ w + b) @ w.t(), (4, 5), (5, 3), (3,)),
    "view and base": (view_and_base, (4, 5)),
    "a view alone": (lambda x: (x * 2).view(-1)[2:9], (4, 5)),
    "views of an input": (lambda x: (x.view(-1), x.t()), (4, 5)),
    "a write in the middle": (write_in_the_middle, (4, 5)),
    "a write through a view": (write_through_a_view, (4, 5)),
    "no_grad inside": (no_grad_inside, (4, 5)),
    "dropout": (lambda x: F.dropout(x * 2, 0.5) + F.dropout(x, 0.1), (40, 5)),
    "expand, stack, cat": (lambda x: (torch.stack([x, x * 2]), torch.cat([x, x]), x.sum().expand(3)), (4, 5)),
    "a buffer filled in place": (fills_a_buffer, (4, 5)),
    "prod": (lambda x: (x * 2).prod(), (3,)),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1).relu(), (2, 3, 8, 8), (4, 3, 3, 3)),
    "norms": (lambda x: (F.layer_norm(x, (5,)), F.batch_norm(x, None, None, training=True)), (4, 5)),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (2, 2, 8, 16)),
    "softmax and losses": (lambda x: (F.log_softmax(x, -1), F.mse_loss(x, x.detach() * 2), F.gelu(x)), (4, 5)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name):
    program, *shapes = PROGRAMS[name]
    same_as_eager(program, *[grad(*s) for s in shapes])


def traced(f, *args):
    with tracing():
        return f(*args)


def both(run):
    """Results of `run` with eager and with a trace as the way to call a function."""
    results = []
    for call in (lambda f, *a: f(*a), traced):
        torch.manual_seed(3)
        try:
            results.append(run(call))
        except Exception as error:
            results.append((type(error), str(error)[:60]))
    eager, mine = results
    if isinstance(eager, tuple):
        assert mine == eager
    else:
        torch.testing.assert_close(mine, eager, rtol=0, atol=0)


X, W = torch.randn(4, 5), torch.randn(5, 3)


def test_two_outputs_one_unused():
    def run(call):
        x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
        a, b = call(lambda: (x @ w, (x * 3).sin()))
        b.sum().backward()
        assert w.grad is None
        return x.grad
    both(run)


def test_backward_three_times():
    def run(call):
        x = X.clone().requires_grad_()
        out = call(lambda: (x @ W).tanh())
        for keep in (True, True, False):
            out.sum().backward(retain_graph=keep)
        return x.grad
    both(run)


def test_backward_twice_is_an_error():
    def run(call):
        x = X.clone().requires_grad_()
        out = call(lambda: (x @ W).tanh())
        out.sum().backward()
        out.sum().backward()
    both(run)


def test_hooks_and_retained_gradients():
    def run(call):
        x, seen = X.clone().requires_grad_(), []
        x.register_hook(lambda g: seen.append(g.clone()))

        def program():
            h = x * 2
            h.retain_grad()
            h.register_hook(lambda g: g * 3)
            return h, h.sin()
        h, out = call(program)
        out.register_hook(lambda g: g * 2)
        out.sum().backward()
        assert len(seen) == 1 and not T.is_pending(seen[0])
        return [x.grad, h.grad, seen[0]]
    both(run)


def test_leaves_made_inside_get_gradients():
    def run(call):
        x = torch.ones(5, requires_grad=True)
        p, loss = call(leaves_made_inside, x)
        loss.backward()
        return [p.grad, x.grad]
    both(run)


def test_a_saved_input_changed_later_is_an_error():
    def run(call):
        x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
        out = call(lambda: (x * 1) @ w)
        with torch.no_grad():
            w.add_(1)
        out.sum().backward()
    both(run)


def test_double_backward():
    def run(call):
        x = torch.tensor([1., 2., 3.], requires_grad=True)
        out = call(lambda: x ** 3)
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)[0]
    both(run)


def test_checkpoint():
    def run(call):
        x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
        out = call(lambda: torch.utils.checkpoint.checkpoint(lambda a: torch.tanh(a @ w), x, use_reentrant=False))
        out.sum().backward()
        return [x.grad, w.grad]
    both(run)


def test_custom_function():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * 2 + a.sum()

        @staticmethod
        def backward(ctx, g):
            (a,) = ctx.saved_tensors
            return g * 2 + g.sum() * a

    def run(call):
        x = X.clone().requires_grad_()
        out = call(lambda: Double.apply(x * 1).sin())
        out.sum().backward()
        return x.grad
    both(run)


def test_a_gradient_of_a_tensor_that_crosses_a_flush():
    def run(call):
        x = X.clone().requires_grad_()
        h, k = call(lambda: (lambda h: (h, h * h))(torch.tanh(x @ W)))
        (g,) = torch.autograd.grad(k.sum(), h, retain_graph=True)
        k.sum().backward()
        return [g, x.grad]
    both(run)


def test_a_deep_chain():
    def run(call):
        x = torch.ones(3, requires_grad=True)

        def program():
            y = x
            for _ in range(5000):
                y = y + x
            return y
        call(program).sum().backward()
        return x.grad
    both(run)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


INPUT = torch.randn(4, 6)


@pytest.mark.parametrize("foreach", [False, True])
def test_a_whole_step_of_adam_inside(foreach):
    def run(call):
        model = Small()
        optimizer = torch.optim.Adam(model.parameters(), 0.01, foreach=foreach)

        def step():
            optimizer.zero_grad()
            loss = (model(INPUT) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        losses = [call(step).clone() for _ in range(4)]
        return losses + [p.detach() for p in model.parameters()]
    both(run)


def test_accumulated_and_clipped_gradients_inside():
    def run(call):
        model = Small()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

        def step():
            optimizer.zero_grad(set_to_none=False)
            (model(INPUT) ** 2).mean().backward()
            model(INPUT).mean().backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
            return norm
        norms = [call(step).clone() for _ in range(3)]
        return norms + [p.detach() for p in model.parameters()]
    both(run)


def test_autocast_around_segments():
    def run(call):
        model = Small()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                h = call(model, INPUT)
                loss = (call(model, h.float()).float() ** 2).mean() + model(INPUT).float().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses
    both(run)


@pytest.mark.parametrize("flush_seed", [None, 1])
@pytest.mark.parametrize("name", MODELS)
def test_three_steps_of_training(name, flush_seed):
    lies = T.counters()["lies"]

    def call(f):
        trace = T.Trace()
        with tracing(trace, flush_seed):
            result = f()
        assert trace.data_reads() == 0, trace.last_data_read()
        return result
    eager = train(*MODELS[name], lambda f, model: f)
    mine = train(*MODELS[name], lambda f, model: lambda: call(f))
    torch.testing.assert_close(mine, eager, rtol=0, atol=0)
    assert T.counters()["lies"] == lies, T.counters()["last_lie"]


@pytest.mark.parametrize("name", MODELS)
def test_training_by_replay(name):
    make, loss_of = MODELS[name]
    programs = []

    def call(f):
        if programs:
            program, inputs = programs
            (loss,) = program.run(inputs)
            return loss
        trace = T.Trace()
        with tracing(trace):
            loss = f()
        program = trace.finish([loss])
        assert program.verify() == []
        programs.extend([program, [trace.input_tensor(i) for i in program.inputs]])
        return loss
    eager = train(make, loss_of, lambda f, model: f)
    mine = train(make, loss_of, lambda f, model: lambda: call(f))
    torch.testing.assert_close(mine, eager, rtol=0, atol=0)


def test_nothing_leaks_over_training_steps():
    torch.manual_seed(0)
    model = Block()
    counts = []
    for _ in range(6):
        with tracing():
            loss = F.cross_entropy(model(IDS).view(-1, 100), IDS.view(-1))
        loss.backward()
        model.zero_grad()
        del loss
        gc.collect()
        counts.append(T.counters()["living"])
    assert len(set(counts)) == 1, counts
