#!/usr/bin/env bash
# scripts/pytest.sh PYTHON [pytest arguments]: the Python tests. Without arguments in two processes side by side, each with a
# half of the files: most tests keep one core busy. Each half prints its own summary; with arguments it is one process.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
shift
if [ $# -gt 0 ] || [ "$(nproc)" -lt 2 ]; then exec "$python" -m pytest "$@"; fi

first=build/pytest-first.log
"$python" -m pytest tests/python/test_[a-m]*.py >"$first" 2>&1 &
half=$!
status=0
"$python" -m pytest tests/python/test_[n-z]*.py || status=$?
wait "$half" || status=$?
cat "$first"
exit "$status"
