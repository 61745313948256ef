"""A sample of the mutation fuzz; `python tests/python/mutation.py --full` runs all of it."""

import pytest

from mutation import fuzz
from zoo import MAIN

SEED, CHANGES = 20, 50


@pytest.mark.parametrize("name", MAIN)
def test_no_change_goes_unnoticed_in(name):
    counts, unsound = fuzz(name, CHANGES, SEED)
    assert not unsound, "\n".join(unsound[:10])
    assert counts["changes"] == CHANGES
    assert counts["eager raises"] + counts["eager differs"] >= 3, "the sample changes too little to prove anything"
