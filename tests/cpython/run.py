"""CPython's own tests with every Python frame executed by our evaluator.

    python tests/cpython/run.py --module <path of the extension> [--sample SECONDS] [--random] [modules ...]

Each test module runs in a process of its own, in these modes:

    plain         CPython alone: what fails here is the machine's business
    pass          our hook is armed and wants no frame: what fails here is PEP 523's own side effect
    frames        the evaluator runs every frame of every thread
    random        (--random) the same, and every frame goes to CPython after a random number of instructions

A failure in the last two that the first two do not have is a difference. It is tried again before it is believed, since
some tests depend on time; the exit status tells whether one remained that EXPLAINED does not list.
"""
import argparse
import importlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import time
import unittest

# Slow or fundamental ones are spread over the list, so that a sample bounded in time sees all kinds.
MODULES = """
    test_grammar test_generators test_except_star test_contextlib test_descr test_coroutines test_exceptions test_patma
    test_traceback test_fstring test_scope test_with test_frame test_super test_unpack_ex test_extcall test_threading
    test_asyncgen test_sys_settrace test_raise test_class test_dict test_functools test_list test_set test_listcomps
    test_genexps test_opcodes test_inspect test_signal test_gc test_sys_setprofile test_dataclasses test_typing test_enum
    test_asyncio.test_tasks test_re test_pickle test_decimal test_builtin test_iter test_itertools test_collections
    test_keywordonlyarg test_positional_only_arg test_call test_funcattrs test_exception_group test_exception_variations
    test_exception_hierarchy test_named_expressions test_decorators test_property test_tuple test_unpack test_types
    test_code test_compile test_weakref test_threading_local test_contextlib_async test_pep380 test_dictcomps
    test_setcomps test_global test_copy test_heapq test_operator test_format test_int test_float test_string
    test_statistics test_json.test_decode test_asyncio.test_futures test_asyncio.test_locks test_asyncio.test_taskgroups
    test_dynamic test_type_annotations test_metaclass test_generator_stop test_subclassinit test_slice test_bool
    test_concurrent_futures test_context test_reprlib test_userdict test_abc test_import.__init__ test_importlib.test_util
    test_argparse test_configparser test_textwrap test_pprint test_doctest test_pdb test_type_params test_type_aliases
    test_monitoring test_tstring test_string.test_templatelib test_annotationlib
""".split()

# (test, reason). A test stands here only if the difference cannot matter to a user.
EXPLAINED = {
    "test.test_monitoring.ExceptionMonitoringTest.test_no_unwind_for_shim_frame":
        "looks for a specialised instruction; CPython specialises only code that it runs itself",
}

RANDOM_BUDGET = 60


def load(path):
    spec = importlib.util.spec_from_file_location("_evaluator", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module if hasattr(module, "run_all_frames") else module._testing


def is_here(name):
    """Whether this version has the test module."""
    try:
        return importlib.util.find_spec("test." + name.removesuffix(".__init__")) is not None
    except ModuleNotFoundError:
        return False


def flatten(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def work(extension, mode, name, seed, wanted):
    evaluator = load(extension)
    runner = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0)
    {"plain": evaluator.off, "pass": evaluator.pass_through, "frames": evaluator.run_all_frames,
     "random": lambda: evaluator.run_all_frames(RANDOM_BUDGET, seed)}[mode]()
    try:
        module = importlib.import_module("test." + name.removesuffix(".__init__"))
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        if wanted:
            suite = unittest.TestSuite(test for test in flatten(suite) if test.id() in wanted)
        result = runner.run(suite)
    finally:
        evaluator.off()
    # Failures of subtests belong to their test.
    failures = {}
    for test, text in result.failures + result.errors:
        failures.setdefault(getattr(test, "test_case", test).id(), text)
    return {"run": result.testsRun, "failures": failures, "statistics": evaluator.statistics()}


def run(arguments, mode, name, wanted=()):
    """The worker's answer, or a text that says how it ended."""
    command = [sys.executable, "-X", "faulthandler", __file__, "--module", arguments.module, "--worker", mode, name,
               str(arguments.seed), *wanted]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.timeout, errors="replace",
                              stdin=subprocess.DEVNULL, cwd=arguments.folder)
    except subprocess.TimeoutExpired:
        return f"no end after {arguments.timeout} s"
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("ANSWER "):
            return json.loads(line[len("ANSWER "):])
    return f"ended with status {done.returncode}: {done.stderr[-1500:]}"


def failures_of(answer):
    return {"(process)": answer} if isinstance(answer, str) else answer["failures"]


class Totals:
    def __init__(self):
        self.modules = self.tests = self.frames = self.instructions = self.handed_over = self.yielded = 0
        self.differences = []
        self.explained = []

    def add(self, answer):
        self.tests += answer["run"]
        for key in ("frames", "instructions", "handed_over", "yielded"):
            setattr(self, key, getattr(self, key) + answer["statistics"][key])


def compare(arguments, name, totals):
    start = time.time()
    plain = run(arguments, "plain", name)
    if isinstance(plain, str):
        print(f"{name:32} not run: {plain.strip().splitlines()[-1][:100] if plain.strip() else plain}", flush=True)
        return
    passed = run(arguments, "pass", name)
    known = set(failures_of(plain)) | set(failures_of(passed))
    notes = []
    for mode in ["frames"] + ["random"] * arguments.random:
        answer = run(arguments, mode, name)
        if "(process)" in failures_of(answer):
            answer = run(arguments, mode, name)
        new = set(failures_of(answer)) - known
        if new and isinstance(answer, dict):  # alone, and twice: a flaky test will not do that
            for _ in range(2):
                again = run(arguments, mode, name, sorted(new))
                new &= set(failures_of(again)) | ({"(process)"} & set(failures_of(again)))
        explained = {test for test in new if test in EXPLAINED}
        totals.explained += explained
        for test in sorted(new - explained):
            totals.differences.append((mode, test))
            notes.append(f"\n    {mode}: {test}\n{failures_of(answer)[test].rstrip()[-1200:]}")
        if isinstance(answer, dict):
            totals.add(answer)
            if answer["run"] != plain["run"]:
                notes.append(f" {mode} ran {answer['run']} tests, plain {plain['run']}")
    totals.modules += 1
    print(f"{name:32} {plain['run']:5} tests  plain {len(failures_of(plain))} fail, pass {len(failures_of(passed))}"
          f"  {time.time() - start:6.1f} s{''.join(notes)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--module", required=True)
    parser.add_argument("--sample", type=float, nargs="?", const=300.0, metavar="SECONDS",
                        help="begin no test module after this time (at most 600)")
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="module")
    arguments = parser.parse_args()
    arguments.module = os.path.abspath(arguments.module)
    if arguments.worker:
        mode, name, seed, *wanted = arguments.worker
        answer = work(arguments.module, mode, name, int(seed), set(wanted))
        print("\nANSWER " + json.dumps(answer), flush=True)
        os._exit(0)  # threads that a test left behind must not keep us

    import tempfile
    totals = Totals()
    end = time.time() + min(arguments.sample, 600.0) if arguments.sample else None
    if end:
        arguments.timeout = min(arguments.timeout, 60.0)
    with tempfile.TemporaryDirectory() as arguments.folder:
        for name in arguments.names or MODULES:
            if not is_here(name):
                continue
            if end and time.time() > end:
                break
            compare(arguments, name, totals)
    print(f"CPython {sys.version.split()[0]}: {totals.modules} modules, {totals.tests} tests, {totals.frames:,} frames, "
          f"{totals.instructions:,} instructions, {totals.handed_over:,} hand-overs, {totals.yielded:,} yields; "
          f"{len(totals.differences)} differences, {len(set(totals.explained))} explained")
    for mode, test in totals.differences:
        print(f"    {mode}: {test}")
    return 1 if totals.differences else 0


if __name__ == "__main__":
    sys.exit(main())
