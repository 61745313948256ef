"""A handful of the zoo that trains (zoo_train.py runs all of it): eval, three steps, three steps with a graph break."""

import pathlib
import re
import subprocess
import sys

import pytest

from zoo_train import ALL, FEW


@pytest.fixture(scope="module")
def told():
    """What the zoo says of them. It forks, and a process whose pools have threads cannot: it is one of its own."""
    script = pathlib.Path(__file__).parent / "zoo_train.py"
    names = "|".join(map(re.escape, FEW))
    return subprocess.run([sys.executable, script, "--models", f"^({names})$"], capture_output=True, text=True).stdout


def test_the_zoo_that_trains_has_more_than_a_hundred_architectures():
    assert len(ALL) > 100


@pytest.mark.parametrize("name", FEW)
def test_training_is_eagers(name, told):
    assert f"equal  {name}\n" in told, told
