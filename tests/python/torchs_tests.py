"""PyTorch's own tests of TorchDynamo, with magneto.compile in the place of torch.compile. Run by hand:

    python tests/python/torchs_tests.py FOLDER [test_functions.py ...] [--with torch] [--out results.jsonl] [--show 40]

FOLDER is test/dynamo of PyTorch's sources, of about the version that is installed. Of what the tests look at, only results count: counters
of compiled frames equal every number, and a test that looks at graphs, guards or errors of TorchDynamo's is skipped. `--with torch` leaves
torch.compile where it is: what fails then says nothing about us. Prints how many passed, and the reasons of the rest, most frequent first.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

FILES = ("functions misc repros dicts sets list generator exceptions ctx_manager comprehensions modules autograd_function hooks unspec enum "
         "tree_map deque_reconstruct reconstruct global subgraphs input_attr_tracking model_output base_output lazy_constant exitstack interop "
         "view sdpa python_autograd polyfills nops buffers_override modes activation_checkpointing compile decorators fwd_loss_bwd optimizers")

# ---- the plugin of pytest ----------------------------------------------------------------------------------------------

AS_IT_IS = {"eager", "aot_eager", "inductor", "aot_eager_decomp_partition", "eager_noexcept", "aot_eager_default_partitioner", "cudagraphs"}


class Anything(int):
    """A count that is right, whatever is asked of it."""

    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = int.__hash__


class Counter:
    """The backends with which TorchDynamo's tests count frames and keep graphs."""

    frame_count = op_count = property(lambda self: Anything(1), lambda self, value: None)

    def __init__(self, *args, **kwargs):
        pass

    def clear(self):
        pass

    def __call__(self, graph, inputs):
        return graph.forward

    def __getattr__(self, name):
        raise unittest.SkipTest(f"looks at {name}")


class Counters(dict):
    def __getitem__(self, key):
        raise unittest.SkipTest("looks at counters")

    def clear(self):
        pass


def skips(what):
    def function(*args, **kwargs):
        raise unittest.SkipTest(what)

    return function


def replace_compile(torch, dynamo):
    """Returns the function that stands for torch.compile."""
    theirs, ours = torch.compile, os.environ["TORCHS_TESTS_WITH"] == "magneto"
    if ours:
        import magneto

    def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", disable=False, **others):
        if model is None:
            return lambda model: compile(model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, disable=disable)
        if disable:
            return model
        options = {"fullgraph": fullgraph, "dynamic": dynamic}
        if not isinstance(backend, Counter) and not (isinstance(backend, str) and backend in AS_IT_IS):
            options["backend"] = backend
        elif not ours:
            options["backend"] = "eager"
        return (magneto.compile if ours else theirs)(model, **options)

    torch.compile = compile
    if ours:
        dynamo.optimize = lambda backend="inductor", *, nopython=False, dynamic=None, **others: (
            lambda model: compile(model, fullgraph=nopython, dynamic=dynamic, backend=backend))
        dynamo.optimize_assert = dynamo.testing.optimize_assert = lambda backend="inductor", *rest, dynamic=None, **others: (
            lambda model: compile(model, fullgraph=True, dynamic=dynamic, backend=backend))
        dynamo.explain, dynamo.export, torch.export.export = skips("explains"), skips("exports"), skips("exports")
        dynamo.testing.extract_graph = dynamo.testing.extract_graph_and_tracker = skips("looks at graphs")
        reset = dynamo.reset
        dynamo.reset = lambda: (reset(), magneto.reset())
    return compile


def pytest_configure(config):
    import expecttest
    import torch
    import torch._dynamo.test_case
    import torch._dynamo.testing
    import torch.testing._internal.common_utils as common

    dynamo = torch._dynamo
    compile = replace_compile(torch, dynamo)
    for name in ("CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs", "AotEagerAndRecordGraphs", "InductorAndRecordGraphs"):
        setattr(dynamo.testing, name, Counter)

    def standard_test(self, fn, nargs, expected_ops=None, expected_ops_dynamic=None, expected_frame_count=1):
        inputs = [[torch.randn(10, 10) for _ in range(nargs)] for _ in range(2)]
        expected = [fn(*args) for args in inputs]
        compiled = compile(fn, fullgraph=expected_frame_count == 1)
        for args, answer in 2 * list(zip(inputs, expected)):
            self.assertTrue(dynamo.testing.same(compiled(*args), answer))

    dynamo.testing.standard_test = standard_test

    def of_torchdynamo(errors):
        errors = errors if isinstance(errors, tuple) else (errors,)
        return any(getattr(error, "__module__", "").startswith(("torch._dynamo", "torch.fx.experimental")) for error in errors)

    def only_of_the_program(check):
        def checked(self, errors, *args, **kwargs):
            if of_torchdynamo(errors):
                raise unittest.SkipTest("expects an error of TorchDynamo's")
            return check(self, errors, *args, **kwargs)

        return checked

    for case in (unittest.TestCase, common.TestCase):
        for name in ("assertRaises", "assertRaisesRegex"):
            if name in vars(case):
                setattr(case, name, only_of_the_program(vars(case)[name]))
    for case in (common.TestCase, expecttest.TestCase):
        for name in ("assertExpectedInline", "assertExpected", "assertExpectedInlineMunged"):
            setattr(case, name, skips("compares texts"))
    equal = common.TestCase.assertEqual
    common.TestCase.assertEqual = lambda self, x, y, *args, **kwargs: (
        None if isinstance(x, Anything) or isinstance(y, Anything) else equal(self, x, y, *args, **kwargs))


def pytest_collection_modifyitems(items):
    for module in {item.module for item in items}:
        if hasattr(module, "counters") and os.environ["TORCHS_TESTS_WITH"] == "magneto":
            module.counters = Counters()


def pytest_runtest_logreport(report):
    if report.when != "call" and report.outcome == "passed":
        return
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")
    with open(os.environ["TORCHS_TESTS_OUT"], "a") as out:
        out.write(json.dumps({"test": report.nodeid, "outcome": report.outcome, "text": text[-3000:]}) + "\n")


# ---- by hand -----------------------------------------------------------------------------------------------------------

def reason(text):
    what = re.search(r"what: (.*)", text)
    errors = re.findall(r"^E   (.*)", text, re.MULTILINE) or [line for line in text.splitlines() if line.strip()] or [""]
    return re.sub(r"0x[0-9a-f]+", "0x", what.group(1) if what else errors[0])[:140]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("files", nargs="*", default=[f"test_{name}.py" for name in FILES.split()])
    parser.add_argument("--with", dest="compiler", choices=["magneto", "torch"], default="magneto")
    parser.add_argument("--out")
    parser.add_argument("--show", type=int, default=40)
    options = parser.parse_args()
    out = os.path.abspath(options.out) if options.out else tempfile.mktemp(suffix=".jsonl")
    open(out, "w").close()
    here = os.path.dirname(os.path.abspath(__file__))
    settings = {"TORCHS_TESTS_WITH": options.compiler, "TORCHS_TESTS_OUT": out, "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(filter(None, [here, os.path.abspath(options.folder), os.environ.get("PYTHONPATH")]))}
    for file in options.files:  # a process each: one that ends takes only its own file with it
        ran = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "torchs_tests", "-p", "no:cacheprovider", "--tb=short", file],
                             cwd=options.folder, env={**os.environ, **settings}, capture_output=True, text=True)
        if ran.returncode not in (0, 1):
            print(f"{file}: ended with {ran.returncode}: {ran.stdout.strip().splitlines()[-1:]}")
    results = [json.loads(line) for line in open(out)]
    print(dict(collections.Counter(result["outcome"] for result in results)), "in", out)
    reasons = collections.defaultdict(list)
    for result in results:
        if result["outcome"] == "failed":
            reasons[reason(result["text"])].append(result["test"].split("::")[-1])
    for text, tests in sorted(reasons.items(), key=lambda item: -len(item[1]))[:options.show]:
        print(len(tests), text, "   ", ", ".join(tests[:2]))


if __name__ == "__main__":
    main()
