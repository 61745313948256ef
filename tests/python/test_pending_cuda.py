"""Pending tensors on a GPU. The autograd engine runs its operators in threads of its own there."""
import pytest
import torch
import torch.nn.functional as F

import small_models
import test_pending
import test_pending_training
from test_pending_harness import T, same_as_eager, tracing

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

PROGRAMS = {
    "a chain": lambda x: torch.relu(x @ x.t() + 1) * 2 - x.sum(1, keepdim=True),
    "views": test_pending.views,
    "writes to an intermediate": test_pending.writes_to_an_intermediate,
    "writes to an input": test_pending.writes_to_an_input,
    "factories": lambda x: (torch.zeros(3, 4, device="cuda") + x[:3, :4], torch.ones_like(x), x.new_zeros(2),
                            torch.arange(5, device=x.device), torch.tensor([1., 2.], device="cuda") * 2),
    "random numbers": lambda x: (torch.randn(3, device="cuda"), F.dropout(x, 0.5), torch.rand_like(x)),
    "between devices": lambda x: (x.cpu() * 2, (x.cpu() + 1).cuda() * x, x * torch.tensor(2.)),
    "indices": lambda x: (x[torch.tensor([0, 2])], x[torch.tensor([0, 2], device="cuda")]),
    "norms": lambda x: (F.layer_norm(x, (6,)), x.softmax(-1), F.gelu(x), x.std(0), x.cumsum(0), torch.cat([x, x])),
    "attention": lambda x: F.scaled_dot_product_attention(*[(x @ x.t()).expand(2, 2, 4, 4)] * 3),
    "autocast": lambda x: autocast(x),
}


def autocast(x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return F.linear(x, x).relu(), x @ x.t()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name):
    same_as_eager(PROGRAMS[name], torch.randn(4, 6, device="cuda"))


@pytest.mark.parametrize("name", ["mlp", "view and base", "a write in the middle", "dropout", "convolution", "norms",
                                  "attention", "softmax and losses"])
def test_gradients(name):
    program, *shapes = test_pending_training.PROGRAMS[name]
    same_as_eager(program, *[torch.randn(*s, device="cuda", requires_grad=True) for s in shapes])


@pytest.mark.parametrize("name", ["item of a pending tensor", "mask", "nonzero", "branch"])
def test_a_read_of_data(name):
    same_as_eager(test_pending.DATA_PROGRAMS[name], torch.randn(4, 6, device="cuda"), reads=None, replay=False)


MODELS = {
    "cnn": (small_models.Cnn, lambda m: F.cross_entropy(m(IMAGES.cuda()), LABELS.cuda())),
    "transformer": (small_models.Block, lambda m: F.cross_entropy(m(IDS.cuda()).view(-1, 100), IDS.cuda().view(-1))),
}
IMAGES, LABELS, IDS = small_models.IMAGES, small_models.LABELS, small_models.IDS


def traced(f):
    with tracing():
        return f()


@pytest.mark.parametrize("inside", ["the forward", "the whole step"])
@pytest.mark.parametrize("name", MODELS)
def test_three_steps_of_training(name, inside, monkeypatch):
    make, loss_of = MODELS[name]
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)

    def train(call):
        torch.manual_seed(0)
        model = make().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        torch.manual_seed(5)

        def step():
            optimizer.zero_grad()
            loss = call(lambda: loss_of(model)) if inside == "the forward" else loss_of(model)
            loss.backward()
            optimizer.step()
            return loss.detach()
        losses = [(step() if inside == "the forward" else call(step)) for _ in range(3)]
        return losses + [p.detach() for p in model.parameters()] + list(model.buffers())
    eager, mine = train(lambda f: f()), train(traced)
    torch.testing.assert_close(mine, eager, rtol=1e-5, atol=1e-6)


def test_no_lies():
    assert T.counters()["lies"] == 0, T.counters()["last_lie"]
