"""``python -m magneto run script.py [arguments]``: the script's own calls of torch.compile are ours."""

import pathlib
import runpy
import sys


def main(arguments):
    if len(arguments) < 2 or arguments[0] != "run" or arguments[1:] == ["-m"]:
        print("usage: python -m magneto run script.py [arguments]\n"
              "       python -m magneto run -m module [arguments]", file=sys.stderr)
        return 2
    import torch

    from . import compile

    torch.compile = compile
    if arguments[1] == "-m":
        sys.argv = arguments[2:]
        runpy.run_module(arguments[2], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments[1:]
        sys.path[0] = str(pathlib.Path(arguments[1]).resolve().parent)
        runpy.run_path(arguments[1], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
