"""Includes point down only: bindings -> driver -> stages -> ops -> graph, loop, plan -> types -> base.

A stage includes no other stage (capture may include the evaluator, whose semantics it overrides, and aten: it holds the
trace; aten may include runtime: it runs plans on tensors, and autograd: what it records is cut there into what its node
runs), and the three languages do not include one another. Python.h stays in evaluator/, capture/ and bindings/, torch's
headers in aten/, capture/ and bindings/; aten/ may also include torch/csrc. Run with the path of src/. A folder this file
does not know is a stage.
"""
import pathlib
import re
import sys

LEVELS = [{"base"}, {"types"}, {"graph", "loop", "plan"}, {"ops"}, None, {"driver"}, {"bindings"}]  # None: the stages
STAGES = LEVELS.index(None)
BESIDE = {("capture", "evaluator"), ("capture", "aten"), ("aten", "runtime"), ("aten", "autograd")}  # arrows within a level that are meant
TORCH = {"aten", "capture", "bindings"}
PYTHON = {"evaluator", "capture", "bindings"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def level(folder):
    for i, folders in enumerate(LEVELS):
        if folders and folder in folders:
            return i
    return STAGES


def fault(folder, quote, path, folders):
    """Why a file in `folder` must not include `path`, or None."""
    head = path.split("/")[0]
    if path == "Python.h" or head in ("cpython", "internal"):
        return None if folder in PYTHON else "Python's headers belong to " + " and ".join(sorted(PYTHON))
    if head in ("ATen", "c10", "torch", "caffe2"):
        return None if folder in TORCH else "torch's headers belong to " + ", ".join(sorted(TORCH))
    if quote == "<" or head not in folders or head == folder:
        if head == folder or quote == "<" or "/" in path:
            return None
        return "a header of ours is named with its folder"
    if path.endswith("_internal.h"):
        return f"{path} is for {head}/ alone"
    if (folder, head) in BESIDE or level(head) < level(folder):
        return None
    if level(head) == level(folder):
        return f"{folder}/ and {head}/ stand beside one another"
    return f"{head}/ stands above {folder}/"


def main():
    root = pathlib.Path(sys.argv[1])
    folders = {p.name for p in root.iterdir() if p.is_dir()}
    faults = seen = 0
    for path in sorted(root.rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cc", ".inc", ".def"):
            continue
        seen += 1
        folder = path.relative_to(root).parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            why = match and fault(folder, match[1], match[2], folders)
            if why:
                print(f"{path.relative_to(root)}:{number}  {line.strip()}\n    {why}")
                faults += 1
    print(f"{seen} files, {faults} includes that point up")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
