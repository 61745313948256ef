"""The step of an optimizer, compiled: eager's parameters, few graphs, and none more once they have settled."""

import pytest
import torch
from torch import nn

import magneto

OPTIMIZERS = {
    "sgd": lambda ps: torch.optim.SGD(ps, 0.1),
    "momentum": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda ps: torch.optim.Adam(ps, 0.01),
    "adamw": lambda ps: torch.optim.AdamW(ps, 0.01, amsgrad=True),
    "adam of lists": lambda ps: torch.optim.Adam(ps, 0.01, foreach=True),
    "sgd of lists": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, foreach=True),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, 0.01, momentum=0.5, centered=True),
    "adagrad": lambda ps: torch.optim.Adagrad(ps, 0.01, lr_decay=0.1),
    "adamax": lambda ps: torch.optim.Adamax(ps, 0.01),
    "adadelta": lambda ps: torch.optim.Adadelta(ps, 0.1),
    "nadam": lambda ps: torch.optim.NAdam(ps, 0.01),
    "radam": lambda ps: torch.optim.RAdam(ps, 0.01),
    "groups": lambda ps: torch.optim.SGD([{"params": ps[:2], "lr": 0.2}, {"params": ps[2:], "momentum": 0.5}], 0.1),
}
STEPS = 12


def trained(make, compile, schedule=False, whole=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    optimizer = make(list(model.parameters()))

    def all_of_it(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = compile(all_of_it if whole else lambda: optimizer.step())
    rate = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9) if schedule else None
    recompiles = []
    for n in range(STEPS):
        x = torch.randn(3, 4)
        if whole:
            step(x)
        else:
            optimizer.zero_grad(set_to_none=n % 3 != 2)
            model(x).square().mean().backward()
            step()
        if rate:
            rate.step()
        recompiles.append(len(magneto.report().recompiles))
    return [p.detach() for p in model.parameters()], [t for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)], recompiles


@pytest.mark.parametrize("schedule", [False, True], ids=["", "rates"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_of_an_optimizer(name, schedule):
    expected = trained(OPTIMIZERS[name], lambda f: f, schedule)
    magneto.reset()
    found = trained(OPTIMIZERS[name], magneto.compile, schedule)
    for mine, eagers in zip(found[0] + found[1], expected[0] + expected[1], strict=True):
        torch.testing.assert_close(mine, eagers)
    if schedule and "of lists" in name:  # a rate that changes is a constant of an operator on lists
        return
    report = magneto.report()
    assert not report.fallbacks, str(report.fallbacks)
    assert found[2][-1] == found[2][8], [str(note) for note in report.recompiles]


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adagrad"])
def test_a_whole_step_of_training(name):
    """zero_grad() and backward() are breaks; what stands after them has few graphs, too."""
    expected = trained(OPTIMIZERS[name], lambda f: f, whole=True)
    magneto.reset()
    found = trained(OPTIMIZERS[name], magneto.compile, whole=True)
    for mine, eagers in zip(found[0] + found[1], expected[0] + expected[1], strict=True):
        torch.testing.assert_close(mine, eagers)
    report = magneto.report()
    assert not report.fallbacks and found[2][-1] == found[2][8], str(report)
