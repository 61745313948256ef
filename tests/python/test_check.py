"""The shadow check: eager beside compiled graphs. A kernel that computes something else is found, named and written down."""

import os
import pathlib
import runpy
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn, ones, randn

import magneto
import rounding
from device import DEVICE, moved

testing = pytest.importorskip("magneto._C")._testing_trace

pytestmark = [pytest.mark.needs_capture, pytest.mark.skipif(rounding.EXACT, reason="operator by operator")]


@pytest.fixture(autouse=True)
def no_fault_afterwards(tmp_path, monkeypatch):
    monkeypatch.setenv("MAGNETO_CHECK_DIR", str(tmp_path))
    yield
    testing.spoil(None)


def checked(f, check="every", **more):
    return magneto.compile(f, options={"check": check}, **more)


def found(f, *args, calls=3):
    """Calls a function with a check: its last answer, what was found, what was warned of."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        g = checked(f)
        for _ in range(calls):
            answer = g(*args)
    (note,) = magneto.report().checks
    return answer, note, [str(w.message) for w in seen if "differs from eager" in str(w.message)]


def shows(script):
    """Whether the script says that it differs, in this process and its faults."""
    with pytest.raises(SystemExit) as end:
        runpy.run_path(script, run_name="__main__")
    return end.value.code == 1


def program(x, w):
    y = torch.tanh(x @ w) * 2
    z = torch.relu(y - 0.5) + y
    return z.sum(1), z


def test_a_wrong_kernel_is_found_and_eager_answers():
    testing.spoil("aten::relu", "aten::neg")
    x, w = moved(randn(4, 3)), moved(randn(3, 5))
    answer, note, messages = found(program, x, w)
    for want, have in zip(program(x, w), answer):
        assert torch.equal(want, have)
    assert len(messages) == 1
    assert note.operators == ["aten::relu"] and "output 0" in note.what
    assert pathlib.Path(note.file).name == "test_check.py" and "torch.relu" in note.source
    assert note.script in messages[0] and f"{note.file}:{note.line}" in messages[0] and "aten::relu" in messages[0]
    assert "1 differ" in str(magneto.report()) and note.script in str(magneto.report())


def test_the_script_stands_alone():
    testing.spoil("aten::relu", "aten::neg")
    _, note, _ = found(program, moved(randn(4, 3)), moved(randn(3, 5)))
    assert shows(note.script)
    text = pathlib.Path(note.script).read_text()
    assert "torch.ops.aten.relu.default(x0)" in text and "aten.tanh" not in text and "pickle" not in text
    run = subprocess.run([sys.executable, note.script], capture_output=True, text=True)  # where nothing is spoiled
    assert run.returncode == 0 and run.stdout.strip() == "agrees", run.stdout + run.stderr


def test_a_right_program_is_compared_and_nothing_is_said():
    x, w = moved(randn(4, 3)), moved(randn(3, 5))
    g = checked(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            g(x, w)
    assert magneto.report().checked == 3 and not magneto.report().checks


@pytest.mark.parametrize("check, runs", [("off", 0), ("first", 1), ("every", 9), (1, 9), (3, 3), ("4", 3), (100, 1)])
def test_how_often(check, runs):
    g = checked(lambda x: torch.relu(x) + 1, check)
    for _ in range(10):
        g(moved(ones(4)))
    assert magneto.report().checked == runs


@pytest.mark.parametrize("check", ["always", 0, -1, True, 1.5, None])
def test_what_is_no_check(check):
    with pytest.raises(RuntimeError, match="check is 'first', 'every', 'off' or a number"):
        checked(program, check)


def test_the_environment_asks_for_a_check(monkeypatch):
    monkeypatch.setenv("MAGNETO_CHECK", "2")
    g = magneto.compile(lambda x: torch.relu(x) + 1)
    for _ in range(7):
        g(moved(ones(4)))
    assert magneto.report().checked == 3
    monkeypatch.setenv("MAGNETO_CHECK", "sometimes")
    with pytest.raises(RuntimeError, match="'sometimes'"):
        magneto.compile(program)


def test_a_wrong_gradient_is_found():
    testing.spoil("aten::tanh_backward", "aten::sigmoid_backward")
    model = moved(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)))
    g = checked(model)
    x = moved(randn(3, 4))
    with pytest.warns(RuntimeWarning, match="the gradient of"):
        for _ in range(3):
            model.zero_grad()
            g(x).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(gradients, model.parameters()))
    (note,) = magneto.report().checks
    assert note.operators == ["aten::tanh"] and shows(note.script)


def test_gradients_are_left_alone():
    """A check runs backward on copies: neither .grad nor hooks of the caller's see it."""
    weight = moved(randn(3, 3)).requires_grad_()
    calls = []
    weight.register_hook(calls.append)
    x = moved(randn(2, 3)).requires_grad_()
    g = checked(lambda x: torch.tanh(x @ weight))
    for _ in range(3):
        y = g(x)
        assert weight.grad is None and x.grad is None and not calls
    y.sum().backward()
    assert len(calls) == 1 and magneto.report().checked == 2 and not magneto.report().checks


def test_each_output_alone_has_its_gradients():
    def f(x):
        h = torch.tanh(x)
        return h, h.exp(), (h * 2).sum(0)

    g = checked(f)
    for _ in range(8):
        g(moved(randn(3, 3)).requires_grad_())
    assert magneto.report().checked == 7 and not magneto.report().checks


def test_what_is_written_to_inputs_is_eagers():
    testing.spoil("aten::relu_", "aten::neg_")

    def f(x, y):
        x.relu_()
        y[1:].copy_(x[:-1])
        return x + y.sum()

    g = checked(f)
    with pytest.warns(RuntimeWarning, match="differs from eager"):
        for _ in range(3):
            x = moved(randn(4, 3))
            both = [(a, torch.zeros_like(a)) for a in (x.clone(), x.clone())]
            want, have = f(*both[0]), g(*both[1])
            assert torch.equal(want, have)
            assert all(torch.equal(a, b) and a._version == b._version for a, b in zip(*both))


def test_inputs_that_share_memory_share_it_in_the_copies():
    base = moved(randn(4, 6))

    def f(left, right):
        left.add_(right.t())
        return right * 2

    g = checked(f)
    for _ in range(4):
        a, b = base.clone(), base.clone()
        assert torch.equal(f(a[:, 2:], a[:, 1:5].t()), g(b[:, 2:], b[:, 1:5].t())) and torch.equal(a, b)
    assert magneto.report().checked == 3 and not magneto.report().checks


def test_random_numbers_are_drawn_once():
    model = moved(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.ReLU()))
    g = checked(model)
    x = moved(randn(8, 4))
    answers = []
    for f in (model, g):
        torch.manual_seed(3)
        answers.append([f(x) for _ in range(4)] + [torch.rand(3)])
    assert all(torch.equal(a, b) for a, b in zip(*answers))
    assert magneto.report().checked == 3 and not magneto.report().checks


def test_a_fault_behind_random_numbers_is_found():
    testing.spoil("aten::relu", "aten::neg")
    _, note, _ = found(lambda x: torch.relu(F.dropout(x, 0.5) - 0.1) * torch.rand(4), moved(randn(8, 4)))
    assert "aten::relu" in note.operators and len(note.operators) <= 3 and shows(note.script)


def test_a_pass_is_named():
    testing.spoil("aten::relu", "aten::neg", skip="fuse")
    _, note, messages = found(program, moved(randn(4, 3)), moved(randn(3, 5)))
    assert note.pass_ == "fuse" and "not without the pass fuse" in messages[0]
    assert "Without the pass fuse" in pathlib.Path(note.script).read_text()


def test_a_long_program_is_shrunk():
    testing.spoil("aten::sigmoid", "aten::tanh")

    def f(x):
        for _ in range(10):
            x = torch.exp(-x.abs()) + x.view(-1).view(x.shape) * 0.5
        kept = x.t().contiguous()
        x = torch.sigmoid(x)
        for _ in range(10):
            x = (x - kept.t()).cos() * 1.5
        return x, kept

    _, note, _ = found(f, moved(randn(16, 16)))
    assert note.operators == ["aten::sigmoid"] and shows(note.script)


def test_numbers_that_matter_are_written_down():
    """No random input is a NaN."""
    testing.spoil("aten::maximum", "aten::fmax")
    for count in (7, 3000):  # in the text, and in a file
        magneto.reset()
        x = moved(randn(count))
        x[::2] = float("nan")
        _, note, _ = found(lambda x: torch.maximum(x * 2, torch.nan_to_num(x)) - 1, x)
        assert note.operators == ["aten::maximum"] and shows(note.script)


def test_integers_of_a_seed_stay_in_their_range():
    testing.spoil("aten::relu", "aten::neg")
    table = moved(randn(10, 4))
    _, note, _ = found(lambda i: torch.relu(F.embedding(i, table)), moved(torch.randint(0, 10, (3, 5))))
    assert note.operators == ["aten::relu"] and shows(note.script)


@pytest.mark.parametrize("only_symbolic", [False, True])
def test_sizes_that_change(only_symbolic):
    testing.spoil("aten::relu", "aten::neg", only_symbolic=only_symbolic)
    g = checked(lambda x: torch.relu(x.reshape(x.shape[0] * 2, 2) * 2).sum(0), dynamic=True)
    with pytest.warns(RuntimeWarning, match="differs from eager"):
        for rows in (3, 5, 7):
            x = moved(randn(rows, 4))
            assert torch.equal(g(x), torch.relu(x.view(rows * 2, 2) * 2).sum(0))
    (note,) = magneto.report().checks
    assert shows(note.script)


def test_an_error_is_eagers():
    g = checked(lambda table, i: table[i] * 2)
    table = moved(randn(4, 2))
    if DEVICE != "cpu":
        pytest.skip("an index out of bounds ends the process there")
    for _ in range(3):
        g(table, torch.tensor([0, 1]))
        with pytest.raises(IndexError):
            g(table, torch.tensor([0, 9]))
    assert not magneto.report().checks


def test_rounding_is_no_difference():
    """Differences of nearly equal numbers, comparisons of what is nearly equal, sums of a hundred thousand numbers."""

    def f(x, y):
        a, b = x * y + 1, y * x + 1
        near = (x.exp() * 3 - 1) - (x.exp() * 3 - 1.000001)
        return a - b, near, (near > 1e-6).float() * x, x.sum(), (x * 1e4).softmax(0), (x / 3 * 3).floor()

    x, y = moved(randn(100_000)), moved(randn(100_000))
    g = checked(f)
    for _ in range(3):
        g(x, y)
    assert magneto.report().checked == 2 and not magneto.report().checks


def test_views_and_aliases_of_outputs():
    def f(x):
        y = x + 1
        return y.t(), y[1:], x.view(-1), x, y.view(-1)[3:]

    g = checked(f)
    for _ in range(3):
        g(moved(randn(3, 4)))
    assert magneto.report().checked == 2 and not magneto.report().checks


def test_a_script_is_written_nowhere_where_nothing_can_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MAGNETO_CHECK_DIR", str(tmp_path / "file"))
    testing.spoil("aten::relu", "aten::neg")
    x, w = moved(randn(4, 3)), moved(randn(3, 5))
    answer, note, messages = found(program, x, w)
    assert torch.equal(answer[1], program(x, w)[1]) and note.script == "" and len(messages) == 1


def test_a_folder_is_chosen_where_none_is_given(monkeypatch):
    monkeypatch.delenv("MAGNETO_CHECK_DIR")
    testing.spoil("aten::relu", "aten::neg")
    _, note, _ = found(program, moved(randn(4, 3)), moved(randn(3, 5)))
    assert os.stat(pathlib.Path(note.script).parent).st_mode & 0o777 == 0o700
