"""A handful of the zoo that trains (zoo_train.py runs all of it): eval, three steps, three steps with a graph break."""

import pytest

from zoo_train import ALL, FEW, in_a_process


def test_the_zoo_that_trains_has_more_than_a_hundred_architectures():
    assert len(ALL) > 100


@pytest.mark.parametrize("name", FEW)
def test_training_is_eagers(name):
    told = in_a_process(name, 300)
    assert len(told) == 3 and all(found.startswith("equal") for _, found, *_ in told), told
