#!/usr/bin/env bash
# scripts/gpu_product.sh: builds the extension on a machine with an NVIDIA GPU, with the Python and torch that are there, and
# runs the Python tests with all tensors on the GPU, file by file at a time, then the benches.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
PYTHON=${PYTHON:-$(command -v python3)} JOBS=${JOBS:-$(nproc)} bash scripts/build.sh >build.log 2>&1 || { tail -30 build.log; exit 1; }
echo "built in ${SECONDS}s"
export MAGNETO_TEST_DEVICE=cuda
ls tests/python/test_programs_*.py tests/python/test_guards.py tests/python/test_models*.py tests/python/test_dynamic.py tests/python/test_joint.py |
  xargs -P "${TESTS_AT_A_TIME:-8}" -I{} sh -c 'timeout 400 python3 -m pytest -q -p no:cacheprovider {} >{}.log 2>&1; tail -1 {}.log | sed "s|^|{}: |"'
echo "tests done at ${SECONDS}s"
cat tests/python/*.py.log | grep "^FAILED\|^ERROR\|Fatal" | cut -c1-150 | head -60
for file in tests/python/*.py.log; do [ -n "${OUT:-}" ] && cat "$file"; done >"${OUT:-/tmp}/tests.log"
rm -f tests/python/*.py.log build.log
timeout 150 python3 bench/kernels.py --device cuda
timeout 60 python3 bench/call.py | tail -4
echo "all done at ${SECONDS}s"
