#!/usr/bin/env bash
# scripts/setup.sh: everything between a fresh clone and `import magneto`, as `make setup` calls it.
#
#   system packages --apt-get--> compiler, cmake, ninja, GoogleTest ...   only what is missing
#   interpreter     --venv-----> .venv (torch 2.11.0) or .venv-<torch>
#   requirements/   --pip------> torch and the tools                      once, until one of the files changes
#   src/            --ninja----> the extension, linked into the venv      only what changed
#
# Each step looks first whether its result is there, so a second call takes seconds.
# Reads: VENV, TORCH, PYTHON (empty: the venv's own, else the first of python3, python3.11, python3.12, python3.13 that fits).
set -euo pipefail
cd "$(dirname "$0")/.."
TORCH=${TORCH:-2.11.0}
VENV=${VENV:-.venv}
PYTHON=${PYTHON:-}

say() { printf '== setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Two calls in one checkout would install into each other's feet.
mkdir -p build
exec 9>build/.setup.lock
flock 9

# --- The interpreter. We follow CPython's frame layout, so an unknown minor version is of no use. 3.14 is for who works on
# it: MAGNETO_UNTESTED_PYTHON=1 (compiled functions run in eager without that).
fits() {
  "$1" -c 'import os, sys
untested = ((3, 14),) if os.environ.get("MAGNETO_UNTESTED_PYTHON") else ()
sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)) + untested)' >/dev/null 2>&1
}
minor() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }
find_python() {
  local candidate
  for candidate in "$VENV/bin/python" python3 python3.11 python3.12 python3.13; do
    if fits "$candidate"; then echo "$candidate"; return; fi
  done
}
if [ -n "$PYTHON" ]; then
  fits "$PYTHON" || die "PYTHON=$PYTHON does not run, or is not CPython 3.11, 3.12 or 3.13"
else
  PYTHON=$(find_python)
fi

# --- System packages, by what they bring and not by their names: a compiler from elsewhere will do.
missing=()
need() { local package=$1; shift; "$@" </dev/null >/dev/null 2>&1 || missing+=("$package"); }
header() { echo "#include <$1>" | g++ -std=c++20 -E -x c++ -; }
need g++ command -v g++
need cmake command -v cmake
need ninja-build command -v ninja
[ "$(id -u)" != 0 ] || need ccache command -v ccache  # saves time, no more
need clang-tidy command -v clang-tidy
need libgtest-dev header gtest/gtest.h
need libbenchmark-dev header benchmark/benchmark.h
if [ -z "$PYTHON" ]; then
  missing+=(python3 python3-venv python3-dev libpython3-testsuite)
else
  need "python$(minor "$PYTHON")-venv" "$PYTHON" -c 'import ensurepip, venv'
  need "python$(minor "$PYTHON")-dev" "$PYTHON" -c \
    'import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "internal", "pycore_frame.h"))'
  need "libpython$(minor "$PYTHON")-testsuite" "$PYTHON" -c \
    'import importlib.util, sys; sys.exit(importlib.util.find_spec("test.test_grammar") is None)'
fi
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null ||
    die "missing: ${missing[*]} (Debian's names). Install them with this system's package manager, then run make setup again."
  [ "$(id -u)" = 0 ] ||
    die "missing: ${missing[*]}. Run: sudo apt-get update && sudo apt-get install ${missing[*]}    then make setup again."
  say "apt-get install ${missing[*]}"
  apt-get -q update
  DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}"
  [ -n "$PYTHON" ] || PYTHON=$(find_python)
  [ -n "$PYTHON" ] || die "no CPython 3.11, 3.12 or 3.13 here; install one and name it: PYTHON=/path/to/python3.11 make setup"
fi

# --- The virtual environment, and what PyPI gives. The stamp holds the key of what was installed.
torch_file=requirements/torch-$TORCH.txt
wanted=(-r requirements/dev.txt)
if [ -e "$torch_file" ]; then
  wanted+=(-r "$torch_file")
else
  wanted+=("torch==$TORCH" torchvision)  # a version that nobody has pinned: pip finds the torchvision that goes with it
fi
key=$({ "$PYTHON" -c 'import sys; print(sys.version)'; echo "${wanted[@]}"; cat requirements/dev.txt
        if [ -e "$torch_file" ]; then cat "$torch_file"; fi; } | sha256sum | cut -d' ' -f1)
stamp=$VENV/.magneto-packages
if [ "$(cat "$stamp" 2>/dev/null)" != "$key" ]; then
  if [ -x "$VENV/bin/python" ] && [ "$(minor "$VENV/bin/python" 2>/dev/null)" != "$(minor "$PYTHON")" ]; then
    say "$VENV holds another Python; made again"
    rm -rf "$VENV"
  fi
  if [ ! -x "$VENV/bin/python" ]; then
    say "virtual environment $VENV, Python $(minor "$PYTHON")"
    "$PYTHON" -m venv "$VENV"
  fi
  say "torch $TORCH and tools from PyPI (several GB; minutes)"
  "$VENV/bin/python" -m pip install -q --progress-bar off --disable-pip-version-check "${wanted[@]}"
  echo "$key" >"$stamp"
fi

PYTHON=$VENV/bin/python scripts/build.sh
