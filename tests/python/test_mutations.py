"""A sample of the mutation fuzz; `python tests/python/mutation.py --full` runs all of it."""

import collections

import pytest

from argument_programs import USES, Program
from mutation import fuzz, fuzz_program
from zoo import MAIN

SEED, CHANGES = 20, 50
PROGRAMS, PROGRAM_CHANGES = 180, 6


@pytest.mark.parametrize("name", MAIN)
def test_no_change_goes_unnoticed_in(name):
    counts, unsound = fuzz(name, CHANGES, SEED)
    assert not unsound, "\n".join(unsound[:10])
    assert counts["changes"] == CHANGES and counts["of arguments"] >= 5
    assert counts["eager raises"] + counts["eager differs"] >= 3, "the sample changes too little to prove anything"


def test_no_change_of_an_argument_goes_unnoticed():
    counts, unsound = collections.Counter(), []
    for number in range(0, len(USES), len(USES) // PROGRAMS):
        program = Program(number, SEED)
        made, missed = fuzz_program(program, PROGRAM_CHANGES, SEED)
        counts.update(made)
        unsound += [program.source, *missed] if missed else []
    assert not unsound, "\n".join(unsound[:20])
    assert counts["eager raises"] + counts["eager differs"] >= counts["changes"] / 2
