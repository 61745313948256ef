"""CPython's own tests as programs to compile: each test method runs under magneto.compile. Run by hand, with the package installed:

    python tests/cpython/targets.py [test_list ...] [--out results.jsonl] [--show 40]

A process for each module. A test that passes in plain Python must pass compiled: one that does not is a difference. Of those that pass the
share without a break is told, and why the others break, most frequent first. A test that fails or is skipped in plain Python says nothing.
"""

import argparse
import collections
import concurrent.futures
import doctest
import faulthandler
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

from run import flatten

# What a program does with the language and its containers; the modules on files, processes, threads and text say nothing about it.
MODULES = """
    test_augassign test_baseexception test_binop test_bool test_builtin test_class test_cmath test_collections test_compare test_complex
    test_contains test_contextlib test_copy test_dataclasses test_decorators test_defaultdict test_deque test_descr test_dict test_dictcomps
    test_dictviews test_enum test_enumerate test_except_star test_exception_group test_exception_hierarchy test_exception_variations
    test_exceptions test_extcall test_float test_fractions test_fstring test_functools test_generator_stop test_generators test_genexps
    test_grammar test_hash test_heapq test_index test_int test_int_literal test_isinstance test_iter test_itertools test_keywordonlyarg
    test_list test_listcomps test_long test_math test_named_expressions test_numeric_tower test_operator test_ordered_dict test_patma
    test_positional_only_arg test_pow test_property test_raise test_range test_reprlib test_richcmp test_scope test_set test_setcomps
    test_slice test_sort test_statistics test_string test_subclassinit test_super test_tuple test_unpack test_unpack_ex test_userdict
    test_userlist test_userstring test_with
""".split()


def outcome_of(test):
    result = unittest.TestResult()
    test.run(result)
    bad = result.failures + result.errors + [(test, "unexpected success")] * len(result.unexpectedSuccesses)
    if bad:
        return bad[0][1]
    return "skipped" if result.skipped and not result.testsRun - len(result.skipped) else None


def work(name, last, seconds):
    import magneto

    module = importlib.import_module("test." + name)
    stdout, sys.stdout = sys.stdout, io.StringIO()
    tests = [test for test in flatten(unittest.defaultTestLoader.loadTestsFromModule(module)) if not isinstance(test, doctest.DocTestCase)]
    ids = [test.id() for test in tests]
    for test in tests[ids.index(last) + 1 if last else 0:]:
        method = getattr(test, test._testMethodName, None)
        if not hasattr(method, "__func__") or getattr(method, "__unittest_expecting_failure__", False):
            continue
        print("BEGUN", test.id(), file=stdout, flush=True)
        if outcome_of(test) is not None:
            continue
        test = type(test)(test._testMethodName)
        magneto.reset()
        compiled = magneto.compile(method.__func__)
        setattr(test, test._testMethodName, lambda *args, test=test, compiled=compiled: compiled(test, *args))
        faulthandler.dump_traceback_later(seconds, exit=True)
        failure = outcome_of(test)
        faulthandler.cancel_dump_traceback_later()
        report = magneto.report()
        answer = {"test": test.id(), "failure": failure, "breaks": [[note.reason, f"{note.file}:{note.line}"] for note in report.breaks],
                  "eager": [note.reason for note in report.fallbacks]}
        print("ANSWER", json.dumps(answer), file=stdout, flush=True)
    os._exit(0)


def answers_of(name, seconds):
    """A worker that a test ends is followed by another one for the tests after it."""
    found, last = [], ""
    while True:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-X", "faulthandler", os.path.abspath(__file__), "--worker", name, "--after", last, "--seconds", str(seconds)]
            process = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, text=True, cwd=folder, errors="replace")
        lines = process.stdout.splitlines()
        found += [json.loads(line.removeprefix("ANSWER ")) for line in lines if line.startswith("ANSWER ")]
        if process.returncode == 0:
            return found
        begun = [line.removeprefix("BEGUN ") for line in lines if line.startswith("BEGUN ")]
        found.append({"test": begun[-1] if begun else name, "breaks": [], "eager": [],
                      "failure": f"{process.stderr[-3000:]}\nthe process ended with {process.returncode}"})
        if not begun:
            return found
        last = begun[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--after", help=argparse.SUPPRESS)
    parser.add_argument("--out")
    parser.add_argument("--show", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=60, help="for one test, compiled")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("modules", nargs="*", default=MODULES)
    options = parser.parse_args()
    if options.worker:
        return work(options.worker, options.after, options.seconds)
    answers = []
    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
    for name, found in zip(options.modules, pool.map(lambda name: answers_of(name, options.seconds), options.modules)):
        answers += found
        print(f"{name:32} {len(found):4} tests, {sum(whole(answer) for answer in found):4} without a break, "
              f"{sum(answer['failure'] is not None for answer in found)} differ", flush=True)
    if options.out:
        with open(options.out, "w") as out:
            out.writelines(json.dumps(answer) + "\n" for answer in answers)
    share = sum(map(whole, answers)) / max(len(answers), 1)
    print(f"CPython {sys.version.split()[0]}: {len(answers)} tests, {share:.1%} without a break, "
          f"{sum(answer['failure'] is not None for answer in answers)} differ")
    reasons = collections.defaultdict(set)
    for answer in answers:
        for text in [reason for reason, _ in answer["breaks"]] + answer["eager"]:
            reasons[re.sub(r"0x[0-9a-f]+", "0x", text)[:150]].add(answer["test"])
    for text, tests in sorted(reasons.items(), key=lambda item: -len(item[1]))[:options.show]:
        print(f"{len(tests):5} {text}   ({', '.join(sorted(tests)[:2])})")
    for answer in answers:
        if answer["failure"] is not None:
            print("differs:", answer["test"], answer["failure"].strip().splitlines()[-1][:200])


def whole(answer):
    return answer["failure"] is None and not answer["breaks"] and not answer["eager"]


if __name__ == "__main__":
    main()
