#!/usr/bin/env bash
# scripts/ctest.sh FOLDER [cmake options]: builds the C++ tests of the middle in FOLDER and runs them. Knows neither Python
# nor torch, so it needs a compiler, cmake, ninja and GoogleTest only.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
shift
mkdir -p "$folder"
log=$folder.cmake.log
. scripts/ccache.sh
cmake -S . -B "$folder" -G Ninja -DMAGNETO_EXTENSION=OFF -DMAGNETO_TESTS=ON "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
cmake --build "$folder" -j "${JOBS:-$(nproc)}"
ctest --test-dir "$folder" --no-tests=error --output-on-failure -j "${JOBS:-$(nproc)}"
