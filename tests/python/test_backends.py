"""Backends of others get a torch.fx.GraphModule and example inputs, and what they return runs."""
import gc
import os
import pathlib
import pickle
import subprocess
import sys
import weakref

import magneto
import pytest
import torch
import torch.nn.functional as F
from device import DEVICE

SCRIPT = pathlib.Path(__file__).with_name("backend_script.py")


class Counter:
    """Counts what it is asked for, and runs the graph as it is."""

    def __init__(self):
        self.modules, self.runs = [], 0

    def __call__(self, module, examples):
        assert all(isinstance(example, torch.Tensor) for example in examples)
        self.modules.append(module)

        def run(*args):
            self.runs += 1
            return module(*args)

        return run


def program(x, w):
    a, b = (x @ w).chunk(2, -1)
    a = a + 1
    with torch.no_grad():
        k = a.mean()
    a.mul_(2)
    values, places = torch.sort(b, dim=-1, descending=True)
    return F.dropout(a * values, 0.5).to(torch.float64) + k, places, torch.tensor([1.0, 2.0], device=x.device) * 2


def run(function, x, w):
    torch.manual_seed(3)
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    y, places, numbers = function(x, w)
    y.sum().backward()
    return y.detach(), places, numbers, x.grad, w.grad


@pytest.mark.parametrize("backend", [Counter(), "aot_eager", "eager"], ids=["a function", "aot_eager", "eager"])
def test_a_backend_runs_the_graph(backend):
    compiled = magneto.compile(program, backend=backend)
    for k in range(4):
        x, w = torch.randn(3, 4, device=DEVICE) + k, torch.randn(4, 6, device=DEVICE)
        for mine, eagers in zip(run(compiled, x, w), run(program, x, w)):
            assert torch.equal(mine, eagers)
    if isinstance(backend, Counter):
        assert len(backend.modules) == 1 and backend.runs == 3
        [graph] = magneto.report().graphs[-1:]
        assert graph.backend == "Counter"


def test_a_module_says_what_was_recorded():
    counter = Counter()
    magneto.compile(program, backend=counter)(torch.randn(3, 4, device=DEVICE), torch.randn(4, 6, device=DEVICE))
    [module] = counter.modules
    assert isinstance(module, torch.fx.GraphModule)
    module.graph.lint()
    nodes = list(module.graph.nodes)
    assert [n.name for n in nodes if n.op == "placeholder"] == ["x", "w"]
    assert torch.ops.aten.mul_.Tensor in {n.target for n in nodes}
    [product] = [n for n in nodes if n.target is torch.ops.aten.mm.default]
    assert product.meta["val"].shape == (3, 6) and product.meta["example_value"].dtype is torch.float32
    assert f'"{__file__}"' in product.meta["stack_trace"] and "in program" in product.meta["stack_trace"]


def test_another_size_is_another_graph_for_a_backend():
    counter = Counter()
    compiled = magneto.compile(lambda x: x.reshape(-1)[1:] * x.shape[0], backend=counter)
    for n in (3, 4, 5, 4, 5, 6, 3, 6, 5):
        x = torch.randn(n, 2, device=DEVICE)
        assert torch.equal(compiled(x), x.reshape(-1)[1:] * n)
    assert 4 <= len(counter.modules) <= 5 and counter.runs >= 4


def test_breaks_give_several_modules():
    counter = Counter()

    def f(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    compiled = magneto.compile(f, backend=counter)
    for _ in range(3):
        x = torch.randn(3, device=DEVICE)
        assert torch.equal(compiled(x), f(x))
    assert len(counter.modules) == 2


def test_modules_and_what_a_backend_is_told():
    told = []

    def backend(module, examples, **keywords):
        told.append(keywords)
        return module.forward

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU()).to(DEVICE)
    x = torch.randn(5, 4, device=DEVICE)
    for keywords in ({}, {"mode": "max-autotune"}, {"options": {"a": 1, "cache_size_limit": 4}}):
        compiled = magneto.compile(model, backend=backend, **keywords)
        assert torch.equal(compiled(x), model(x)) and torch.equal(compiled(x), model(x))
    assert told == [{}, {"mode": "max-autotune"}, {"options": {"a": 1}}]


def test_errors_of_a_backend_are_the_users():
    def refuses(module, examples):
        raise ValueError("not this one")

    def fails(module, examples):
        def run(*args):
            raise KeyError("later")

        return run

    x = torch.randn(3, device=DEVICE)
    compiled = magneto.compile(torch.sin, backend=refuses)
    for _ in range(2):
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="not this one") as caught:
            compiled(x)
    assert isinstance(caught.value.__cause__, ValueError)
    compiled = magneto.compile(torch.sin, backend=fails)
    compiled(x)
    with pytest.raises(KeyError, match="later"):
        compiled(x)
    for answer, error in ((7, "returns a callable"), (lambda *args: 7, "gives a tuple of 1"), (lambda *args: [], "not of 0")):
        compiled = magneto.compile(torch.sin, backend=lambda module, examples: answer)
        with pytest.raises(TypeError, match=error):
            compiled(x)
            compiled(x)


def test_unknown_backends_are_refused():
    with pytest.raises(torch._dynamo.exc.InvalidBackend, match="nonsense"):
        magneto.compile(torch.sin, backend="nonsense")
    with pytest.raises(TypeError, match="a backend is a name or a function"):
        magneto.compile(torch.sin, backend=7)
    assert {"magneto", "eager", "inductor"} <= set(magneto.list_backends())


def same_backend(module, examples):
    return module.forward


def test_compiled_twice_pickled_and_let_go():
    model = torch.nn.Linear(3, 3).to(DEVICE)
    compiled = magneto.compile(model, backend=same_backend)
    assert magneto.compile(compiled, backend=same_backend) is compiled
    twin = pickle.loads(pickle.dumps(compiled))
    x = torch.randn(2, 3, device=DEVICE)
    assert torch.equal(twin(x), model(x))
    counter = Counter()
    counter.held = magneto.compile(lambda x: x * 2, backend=counter)  # a circle
    counter.held(x), counter.held(x)
    gone = weakref.ref(counter)
    magneto.reset()
    del counter
    gc.collect()
    assert gone() is None


BY_NAME = """
import torch

def f(x):
    return torch.sin(x) * 2 + x.relu()

compiled = torch.compile(f, backend="magneto")
for _ in range(3):
    x = torch.randn(5, requires_grad=True)
    y = compiled(x)
    assert torch.allclose(y, f(x), 1e-6, 1e-6)
    y.sum().backward()
import magneto

print(len(magneto.report().graphs), len(magneto.report().breaks), "magneto" in torch.compiler.list_backends())
"""


def test_torch_compile_knows_us_by_name(tmp_path):
    script = tmp_path / "by_name.py"  # torch.compile wants to see source code
    script.write_text(BY_NAME)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.stdout.split() == ["1", "0", "True"], done.stderr


@pytest.mark.parametrize("how", [[str(SCRIPT)], ["-m", "backend_script"]], ids=["a file", "a module"])
def test_a_script_with_its_own_torch_compile(how):
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parent)}
    done = subprocess.run([sys.executable, "-m", "magneto", "run", *how, "one", "two"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["['one', 'two']", "Compiled", "1 graph"]
    refused = subprocess.run([sys.executable, "-m", "magneto"], capture_output=True, text=True)
    assert refused.returncode == 2 and "usage" in refused.stderr


def test_a_custom_function_keeps_its_gradient():
    class Triples(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    compiled = magneto.compile(lambda x: Triples.apply(x * 1) + 1, backend=lambda module, examples: module.forward)
    for _ in range(3):
        x = torch.ones(3, requires_grad=True)
        (grad,) = torch.autograd.grad(compiled(x).sum(), x)
        assert grad.tolist() == [3.0] * 3
