#!/usr/bin/env bash
# scripts/gpu_opinfo.sh: builds the extension on a machine with an NVIDIA GPU and runs torch's own operator samples there:
# all of them on the processor, a few of each operator on the GPU.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
out=${OUT:-/tmp}
PYTHON=${PYTHON:-$(command -v python3)} JOBS=${JOBS:-$(nproc)} bash scripts/build.sh >"$out/build.log" 2>&1 || { tail -30 "$out/build.log"; exit 1; }
echo "built in ${SECONDS}s"
python3 tests/python/opinfo.py --full --jobs "${CPU_JOBS:-13}" >"$out/cpu.log" 2>"$out/cpu.err" &
MAGNETO_TEST_DEVICE=cuda timeout 400 python3 tests/python/opinfo.py --jobs 3 >"$out/cuda.log" 2>"$out/cuda.err"
echo "cuda done at ${SECONDS}s"; grep -v "^operator by operator" "$out/cuda.log" | cut -c1-300 | tail -40
wait
echo "cpu done at ${SECONDS}s"; grep -v "^operator by operator" "$out/cpu.log" | cut -c1-300 | tail -60
