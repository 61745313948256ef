#!/usr/bin/env bash
# scripts/gpu_session.sh [tests] [opinfo] [bench]: what a machine with an NVIDIA GPU has to tell. Builds the extension, then
#   tests   the Python tests with all tensors on the GPU, several files at a time
#   opinfo  torch's own operator samples on the GPU
#   bench   kernels, calls, big models, one after the other
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
out=${OUT:-/tmp}
PYTHON=${PYTHON:-$(command -v python3)} JOBS=${JOBS:-$(nproc)} bash scripts/build.sh >"$out/build.log" 2>&1 || { tail -30 "$out/build.log"; exit 1; }
echo "built in ${SECONDS}s"
for part in "$@"; do
  case $part in
    tests)
      ls tests/python/test_programs_*.py tests/python/test_guards.py tests/python/test_models*.py tests/python/test_dynamic.py tests/python/test_joint.py tests/python/test_compiler.py |
        MAGNETO_TEST_DEVICE=cuda xargs -P "${TESTS_AT_A_TIME:-10}" -I{} sh -c 'timeout 300 python3 -m pytest -q -p no:cacheprovider {} >{}.log 2>&1; tail -1 {}.log | sed "s|^|{}: |"' >"$out/summary.log"
      cat tests/python/*.py.log >"$out/tests.log"
      rm -f tests/python/*.py.log
      grep -E "^FAILED|^ERROR|Fatal" "$out/tests.log" | cut -c1-170 | head -40
      ;;
    opinfo)
      MAGNETO_TEST_DEVICE=cuda timeout 400 python3 tests/python/opinfo.py --jobs 12 >"$out/opinfo.log" 2>"$out/opinfo.err"
      grep -v "^operator by operator\|^lowerings" "$out/opinfo.log" | cut -c1-300 | tail -20
      ;;
    bench)
      timeout 150 python3 bench/kernels.py --device cuda --no-inductor 2>/dev/null
      timeout 40 python3 bench/call.py 2>/dev/null | tail -4
      timeout 150 python3 bench/big_models.py --device cuda ResNet-50 BERT-base GPT-2 2>/dev/null
      ;;
  esac
  echo "$part done at ${SECONDS}s"
done
