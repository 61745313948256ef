#!/usr/bin/env bash
# scripts/build.sh: builds the extension for one interpreter that has torch, and links the package into it.
#
#   PYTHON=.venv/bin/python scripts/build.sh
#
# The package in site-packages is a folder of links: the Python files to python/magneto, the extension to the build folder
# of this interpreter and this torch. So several environments share one checkout, an edited Python file counts at once,
# and an edited C++ file costs one incremental build. Needs no network, so it also serves a machine that has torch already.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
PYTHON=$(command -v "${PYTHON:-python3}")
case $PYTHON in /*) ;; *) PYTHON=$root/$PYTHON ;; esac

read -r tag site < <("$PYTHON" -c '
import importlib.metadata, sys, sysconfig
torch = importlib.metadata.version("torch").split("+")[0]
print("torch-%s-cp%d%d" % (torch, *sys.version_info[:2]), sysconfig.get_path("platlib"))')
build=build/$tag

# One compiler process over torch's headers takes up to 2 GB.
memory_gb=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
jobs=${JOBS:-$(nproc)}
if [ "$jobs" -gt $((memory_gb / 2 + 1)) ]; then jobs=$((memory_gb / 2 + 1)); fi

. scripts/ccache.sh
printf '== build: %s\n' "$build"
log=$build.cmake.log
mkdir -p build
cmake -S . -B "$build" -G Ninja -DPython_EXECUTABLE="$PYTHON" -DMAGNETO_TESTS=OFF >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
cmake --build "$build" -j "$jobs"

link() { if [ "$(readlink "$2" 2>/dev/null)" != "$1" ]; then mkdir -p "$(dirname "$2")"; ln -sfn "$1" "$2"; fi; }
while IFS= read -r file; do
  link "$root/python/$file" "$site/$file"
done < <(cd python && find magneto -type f ! -name '*.so' ! -name '*.pyc')
for extension in "$build"/_C.*.so; do
  link "$root/$extension" "$site/magneto/$(basename "$extension")"
done
find -L "$site/magneto" -type l -delete  # links to files that are no more

# What pip would write: torch finds our backend by its entry point.
"$PYTHON" - "$site" <<'EOF'
import pathlib, sys, tomllib

project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
folder = pathlib.Path(sys.argv[1], f"{project['name']}-{project['version']}.dist-info")
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
groups = [f"[{group}]\n" + "".join(f"{name} = {what}\n" for name, what in names.items()) for group, names in project["entry-points"].items()]
(folder / "entry_points.txt").write_text("\n".join(groups))
EOF
