#!/usr/bin/env bash
# scripts/gpu_middle.sh [gtest filter]: builds the C++ tests and the kernel benchmark on a machine with an NVIDIA GPU and runs
# what needs one. Needs cmake, ninja, a compiler and a Python with torch (for NVRTC); no CUDA toolkit. Where GoogleTest is not
# installed, its sources are taken from build/googletest:
#
#     mkdir -p build && cp -r /usr/src/googletest build/googletest
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
filter=${1:-*}
VIRTUAL_ENV=$(python3 -c 'import sys; print(sys.prefix)')
export VIRTUAL_ENV
MAGNETO_SITE_PACKAGES=$(python3 -c 'import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))')
export MAGNETO_SITE_PACKAGES
jobs=${JOBS:-$(nproc)}
folder=build/gpu
log=build/gpu.log
prefix=$PWD/build/gtest
mkdir -p build
step() { "$@" >"$log" 2>&1 || { tail -40 "$log"; echo "failed: $*"; exit 1; }; }
if [ -d build/googletest ] && [ ! -d "$prefix" ]; then
  step cmake -S build/googletest -B build/gtest_build -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DBUILD_GMOCK=OFF
  step cmake --build build/gtest_build -j "$jobs" --target install
fi
step cmake -S . -B $folder -G Ninja -DMAGNETO_EXTENSION=OFF -DMAGNETO_TESTS=ON -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$prefix"
step cmake --build $folder -j "$jobs" --target test_codegen test_runtime test_plan bench_kernels_cuda
echo "built in ${SECONDS}s"; nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
failed=0
for part in "test_codegen Cuda.$filter" "test_runtime CudaDevice.$filter:CudaEndToEnd.$filter"; do
  set -- $part
  timeout 200 $folder/tests/"$1" --gtest_filter="$2" >"$log" 2>&1 || failed=1
  cp "$log" "build/$1.log"
  grep -E "^\[ +(OK|FAILED|SKIPPED) +\] [A-Z].*ms|runs agree|tests ran|Skipped" "$log"
  grep -E -m2 -A70 "Failure|terminate|what\(\)" "$log" | cut -c1-220 | head -150
done
echo "tests done at ${SECONDS}s"
bench="timeout 120 $folder/tests/bench_kernels_cuda"
$bench
echo "times a copy, in the same order:"
for variant in ${VARIANTS:-unroll=2,block=2048 vector=1,unroll=4 flat_threads=128 threads=512 threads=256 block=4096 columns=16 part=65536}; do
  echo "$variant $($bench ${BENCH_ONLY:+"$BENCH_ONLY"} brief=1 ${variant//,/ })"
done
echo "all done at ${SECONDS}s, failed=$failed"
[ -n "${OUT:-}" ] && cp build/test_codegen.log build/test_runtime.log "$OUT"/ 2>/dev/null
exit $failed
