"""assert statements about a tensor's data: the graph checks them, and eager says what was wrong."""

import pytest
import torch

import magneto
from assert_programs import PROGRAMS, of_either, with_a_gradient, writing
from device import DEVICE
from harness import same_as_eager


@pytest.mark.skipif(DEVICE != "cpu", reason="a check that fails on a GPU ends the process: there it is a break")
@pytest.mark.parametrize("program", [program for program in PROGRAMS if program is not of_either])
def test_one_graph(program):
    compiled = magneto.compile(program, fullgraph=True)
    for k in range(3):
        x = torch.full((2,), float(k))
        assert torch.equal(compiled(x), program(x))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("first", [1.0, 1000.0])
def test_one_that_fails_raises_as_in_eager(program, first):
    compiled = magneto.compile(program)
    for value in (first, 2.0, 1000.0, 3.0):
        x = torch.full((2,), value, device=DEVICE)
        try:
            expected = program(x)
        except AssertionError as error:
            with pytest.raises(AssertionError) as found:
                compiled(x)
            assert str(found.value) == str(error)
        else:
            assert torch.equal(compiled(x), expected)


def test_what_was_written_is_taken_back():
    def call(g, x, log):
        try:
            return g(x, log), x, log
        except AssertionError:
            return x, log

    same_as_eager(writing, torch.ones(2), [], call=call, more=[((torch.full((2,), 1000.0), []), {}), ((torch.ones(2), []), {})])


def test_with_a_gradient():
    compiled = magneto.compile(with_a_gradient)
    for _ in range(3):
        x = torch.ones(3, device=DEVICE, requires_grad=True)
        compiled(x).backward()
        assert x.grad.tolist() == [2.0] * 3
