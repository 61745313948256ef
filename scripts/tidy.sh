#!/usr/bin/env bash
# scripts/tidy.sh [FOLDER ...]: clang-tidy (.clang-tidy) over the sources in these folders; all of src without one. Reads the
# compile database of the extension that `make setup` built.
set -euo pipefail
cd "$(dirname "$0")/.."
databases=(build/torch-"${TORCH:-2.11.0}"-cp*/compile_commands.json)
database=$(dirname "${databases[0]}")
mapfile -t files < <(find "${@:-src}" -name '*.cpp' | sort)
[ ${#files[@]} -gt 0 ] || { echo "tidy: no .cpp in ${*:-src}" >&2; exit 1; }
printf '%s\n' "${files[@]}" | xargs -P "${JOBS:-$(nproc)}" -n 1 clang-tidy --quiet -p "$database" \
  2> >(grep -vE '^[0-9]+ warnings? (and [0-9]+ errors? )?generated' >&2)  # findings in system headers, counted and not shown
echo "== tidy: ${#files[@]} files clean"
