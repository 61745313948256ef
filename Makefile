# Magneto. `make help` lists what there is; README.md tells the story.
#
#   TORCH=2.15.0 make test          another torch, in a virtual environment of its own
#   PYTHON=python3.12 make setup    another interpreter (3.11 to 3.13)
#   PYTEST_ARGS="-k softmax -x" make test-python

TORCH ?= 2.11.0
PYTHON ?=
JOBS ?= $(shell nproc)
PYTEST_ARGS ?=
CPYTHON_ARGS ?=
CPYTHON_SAMPLE ?= 240

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

VENV := $(if $(filter 2.11.0,$(TORCH)),.venv,.venv-$(TORCH))
PY := $(VENV)/bin/python
SOURCES = $$(find src tests bench -name '*.h' -o -name '*.cpp' | sort)

export TORCH PYTHON VENV JOBS
# No test, example or benchmark loads weights from a hub; one that tried should fail at once and not wait for a network.
export HF_HUB_OFFLINE := 1

.PHONY: help setup demo test test-cpp test-sanitized test-python test-fuzz test-cpython test-cpython-sample format format-check tidy bench clean distclean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## packages, virtual environment, torch, the extension; seconds when nothing changed
	@scripts/setup.sh

demo: setup  ## a transformer and a program full of graph breaks, beside eager
	@$(PY) examples/demo.py

test: test-cpp test-sanitized test-cpython-sample test-fuzz test-python  ## all that .ci/run runs, for one torch
	@echo "== test: all passed with torch $(TORCH)"

# The middle is built and tested without Python and torch, twice: as it ships, and under Address- and UBSanitizer.
test-cpp: setup  ## C++ tests
	@echo "== C++ tests"
	@scripts/ctest.sh build/tests -DCMAKE_BUILD_TYPE=Release

test-sanitized: setup  ## C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@echo "== C++ tests, sanitized"
	@scripts/ctest.sh build/sanitized -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS=-O1 -DMAGNETO_SANITIZE=ON

test-python: setup  ## Python tests: whole programs against eager
	@echo "== Python tests, torch $(TORCH)"
	@scripts/pytest.sh $(PY) $(PYTEST_ARGS)

# A fixed choice of programs, two minutes each; other seeds by hand.
test-fuzz: setup  ## random graph programs and Python programs against eager
	@echo "== fuzzers"
	@$(PY) tests/fuzz/graphs.py --again tests/fuzz/found
	@$(PY) tests/fuzz/graphs.py --seed 1 --programs 1800 --seconds 150 --jobs $(JOBS)
	@$(PY) tests/fuzz/graphs.py --seed 2 --programs 900 --seconds 60 --jobs $(JOBS) --backend eager
	@$(PY) tests/fuzz/programs.py --seed 3 --programs 300 --seconds 150 --jobs $(JOBS)

# The evaluator alone, without torch: a build of its own.
test-cpython: setup  ## CPython's own tests, every frame run by our evaluator (long)
	@echo "== CPython's tests, every frame by our evaluator"
	@module=$$($(PY) tests/cpython/build.py $(VENV)/evaluator); $(PY) tests/cpython/run.py --module "$$module" $(CPYTHON_ARGS)

test-cpython-sample: CPYTHON_ARGS += --sample $(CPYTHON_SAMPLE)
test-cpython-sample: test-cpython  ## the same, as many modules as fit into CPYTHON_SAMPLE seconds

format: setup  ## rewrites src, tests and bench with clang-format
	@$(VENV)/bin/clang-format -i $(SOURCES)

format-check: setup  ## fails where clang-format would change something
	@$(VENV)/bin/clang-format --dry-run -Werror $(SOURCES)
	@echo "== format: clean"

tidy: setup  ## clang-tidy over src, with the compile database of the extension (TIDY=src/graph for a part)
	@scripts/tidy.sh $(TIDY)

bench: setup  ## eager, torch.compile(backend="eager") and Magneto side by side
	@for program in bench/*.py; do echo "== $$program"; $(PY) $$program; done

clean:  ## forgets what was built; keeps the virtual environments
	rm -rf build dist .pytest_cache
	find python tests bench examples -name __pycache__ -prune -exec rm -rf {} +

distclean: clean  ## forgets the virtual environments, too
	rm -rf .venv .venv-*
