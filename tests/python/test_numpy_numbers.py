"""Numbers that numpy makes of numbers: np.sqrt(64) is the same in each call. Arrays stay breaks."""

import numpy as np
import pytest
import torch
from torch import randn

import magneto
from harness import fresh, same_as_eager


class Attention(torch.nn.Module):
    """As many write it: the temperature is a number of numpy's."""

    def __init__(self):
        super().__init__()
        self.temperature = np.power(16, 0.5)
        self.shape = (2, 3)

    def forward(self, x):
        return (x @ x.t() / self.temperature).softmax(-1) * int(np.prod(self.shape))


KNOWN = {
    "sqrt": lambda x: x / np.sqrt(x.shape[-1]),
    "on the left": lambda x: np.float64(2) * x + np.int64(3),
    "a product of sizes": lambda x: x.reshape(int(np.prod(x.shape))),
    "a size": lambda x: x.reshape(np.prod(x.shape)),
    "arithmetic": lambda x: x * (np.log(8) / np.log(2) - np.pi) * -np.float32(0.5),
    "a branch": lambda x: x + 1 if np.sqrt(16) > 3 else x - 1,
    "a comparison": lambda x: x * (1 if np.int64(3) == 3 and np.maximum(2, 5) >= np.float64(5) else 2),
    "functions of Python": lambda x: x * float(np.exp(0.0)) * int(np.ceil(2.2)) * abs(np.int64(-2)) * round(np.float64(2.6)),
    "what is returned": lambda x: (x * 2, np.sqrt(4.0), np.int64(7)),
}
BREAKS = {
    "an array": lambda x: x * float(np.ones(3).sum()),
    "not finite": lambda x: x * (0.0 if np.isnan(np.float64("nan")) else 1.0) + float(np.log(np.float64(0.0)) < 0),
}


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("use", KNOWN | BREAKS)
def test_a_number_of_numpy_is_eagers(use):
    same_as_eager((KNOWN | BREAKS)[use], randn(2, 3))


@pytest.mark.needs_capture
@pytest.mark.parametrize("use", KNOWN)
def test_a_number_of_numpy_is_no_break(use):
    found = magneto.explain(KNOWN[use])(randn(2, 3))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)


@pytest.mark.needs_capture
def test_a_number_that_a_module_holds():
    compiled = magneto.compile(Attention())
    for _ in range(3):
        x = randn(4, 4)
        torch.testing.assert_close(compiled(x), Attention()(x))
    assert len(magneto.report().graphs) == 1 and not magneto.report().breaks, str(magneto.report())


def test_a_number_that_a_module_holds_and_changes():
    @fresh
    def program():
        model = Attention()
        return (lambda x: model(x)), model

    def change(model):
        model.temperature = np.float64(7.0)

    same_as_eager(program, randn(4, 4), change=change)
