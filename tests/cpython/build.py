"""Builds the evaluator alone, without torch, for the interpreter that runs this script:

    python3.12 tests/cpython/build.py <folder>      prints the path of the module
"""
import glob
import os
import subprocess
import sys
import sysconfig

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FLAGS = "-std=c++20 -O2 -g1 -fPIC -Wall -Wextra -Werror -fno-strict-aliasing -fvisibility=hidden".split()


def sources():
    return sorted(glob.glob(f"{ROOT}/src/evaluator/*.cpp")) + [f"{ROOT}/src/bindings/testing_evaluator.cpp", f"{ROOT}/tests/cpython/module.cpp"]


def newest_header():
    return max(os.path.getmtime(file) for file in glob.glob(f"{ROOT}/src/evaluator/*.h"))


def build(folder):
    os.makedirs(folder, exist_ok=True)
    include = sysconfig.get_paths()["include"]
    compiler = os.environ.get("CXX", "g++")
    objects = []
    for source in sources():
        target = os.path.join(folder, os.path.basename(source) + ".o")
        objects.append(target)
        if os.path.exists(target) and os.path.getmtime(target) > max(os.path.getmtime(source), newest_header()):
            continue
        subprocess.run([compiler, *FLAGS, f"-I{ROOT}/src", "-isystem", include, "-c", source, "-o", target], check=True)
    module = os.path.join(folder, "_evaluator" + sysconfig.get_config_var("EXT_SUFFIX"))
    subprocess.run([compiler, "-shared", *objects, "-o", module], check=True)
    return module


if __name__ == "__main__":
    print(build(sys.argv[1] if len(sys.argv) > 1 else f"/tmp/magneto_evaluator_{sys.version_info[0]}{sys.version_info[1]}"))
