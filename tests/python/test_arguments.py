"""Numbers that change among the arguments of a module: its call takes them as *args and **kwargs."""

import pytest
import torch
from torch import nn, randn

import magneto
from harness import fresh, same_as_eager


class Cache(nn.Module):
    """A key-value cache that is written to at a position."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("keys", torch.zeros(1, 64, 8))

    def forward(self, x, position, scale=1.0, *, bias=0.0):
        h = self.linear(x) * scale + bias
        self.keys[:, position : position + x.shape[1]] = h.detach()
        return h + self.keys[:, : position + x.shape[1]].sum(1, keepdim=True)


CALLS = {
    "by place": lambda model, x, n: model(x, n, n * 0.3),
    "by name": lambda model, x, n: model(x, position=n, scale=n * 0.1, bias=n * 0.2),
    "both": lambda model, x, n: model(x, n, bias=n * 0.2),
    "the same number twice": lambda model, x, n: model(x, n, n),
    "numbers that stay": lambda model, x, n: model(x, 7, 0.5, bias=n * 0.2),
}


@pytest.mark.needs_capture
@pytest.mark.parametrize("call", CALLS)
def test_numbers_that_a_module_is_called_with_are_few_graphs(call):
    plain, other = Cache(), Cache()
    other.load_state_dict(plain.state_dict())
    compiled = magneto.compile(other)
    for n in range(2, 24):
        x = randn(1, 1, 8)
        torch.testing.assert_close(CALLS[call](compiled, x, n), CALLS[call](plain, x, n))
    assert len(magneto.report().graphs) <= 3 and not magneto.report().fallbacks, str(magneto.report())


def test_numbers_in_args_and_kwargs_are_the_callers():
    @fresh
    def program():
        seen = []

        def f(x, *rest, **options):
            seen.append((len(rest), sorted(options)))
            return x * rest[0] + options["bias"], rest, options, rest[-1] is rest[-2], rest.index(3)

        return f, seen

    for numbers in ((2, 5, 6), (2.0, 5.0, 6.5)):
        calls = [((randn(3), n, 3, 3), {"bias": n * 0.5}) for n in numbers]
        same_as_eager(program, *calls[0][0], kwargs=calls[0][1], more=calls[1:])
