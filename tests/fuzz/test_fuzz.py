"""A few minutes of each fuzzer: one half with a seed that never changes, one half with the commit's own.

A failure prints its smallest program as a script. MAGNETO_FUZZ_SECONDS: how long each fuzzer runs; MAGNETO_FUZZ_SEED: instead
of the commit's seed.
"""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
SECONDS = float(os.environ.get("MAGNETO_FUZZ_SECONDS", "150"))
FIXED = 1


def seed_of_this_commit():
    """The same for everybody who runs this commit, and another one for the next."""
    if "MAGNETO_FUZZ_SEED" in os.environ:
        return int(os.environ["MAGNETO_FUZZ_SEED"])
    head = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=HERE, capture_output=True, text=True)
    return int(head.stdout, 16) if head.returncode == 0 else 2


@pytest.mark.parametrize("seed", [FIXED, seed_of_this_commit()], ids=["fixed", "commit"])
@pytest.mark.parametrize("fuzzer", ["graphs", "programs"])
def test_every_program_is_as_in_eager(fuzzer, seed):
    command = [sys.executable, str(HERE / f"{fuzzer}.py"), "--seed", str(seed), "--programs", "1000000", "--seconds", str(SECONDS / 2),
               "--jobs", str(max(1, (os.cpu_count() or 1) // 2)), "--shrink", "--shrink-at-most", "5"]
    if os.environ.get("MAGNETO_TEST_DEVICE") == "cuda":
        command += ["--device", "cuda", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS * 10 + 600)
    print(done.stdout[-4000:].strip())
    assert done.returncode == 0, f"{' '.join(command[1:])}\n{done.stdout}\n{done.stderr[-2000:]}"
