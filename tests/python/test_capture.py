"""What was captured: graphs, breaks with line, reason and cure, guards, recompiles. The stub cannot pass these."""

import collections
import inspect
import time
import warnings

import pytest
import torch
from torch import nn, ones, randn

import magneto

pytestmark = pytest.mark.needs_capture


def line_of(f, text):
    """The number of the one source line of f that contains the text."""
    lines, first = inspect.getsourcelines(f)
    (number,) = [first + index for index, line in enumerate(lines) if text in line]
    return number


def test_a_plain_function_is_one_graph():
    found = magneto.explain(lambda x: torch.relu(x @ x + 1))(randn(3, 3))
    assert (found.graph_count, found.break_count) == (1, 0)
    assert found.graphs[0].nodes == 3
    for op in ("mm", "add", "relu"):
        assert op in found.graphs[0].text


def test_a_module_is_one_graph():
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 2)).eval()
    with torch.no_grad():
        found = magneto.explain(model)(randn(3, 4))
    assert (found.graph_count, found.break_count) == (1, 0) and found.guards


def test_a_module_that_answers_with_an_ordered_dict_is_one_graph():
    """As torchvision's segmentation models do."""
    class Model(nn.Module):
        def forward(self, x):
            found = collections.OrderedDict(low=x * 2)
            found["out"] = found["low"] + 1
            found.move_to_end("low")
            found.note = "made here"
            return found

    with torch.no_grad():
        found = magneto.explain(Model())(randn(3))
    assert (found.graph_count, found.break_count) == (1, 0)
    compiled = magneto.compile(Model())
    for _ in range(2):
        answer = compiled(ones(3))
        assert type(answer) is collections.OrderedDict and list(answer) == ["out", "low"] and answer.note == "made here"
        assert torch.equal(answer["low"] + 1, answer["out"])


PLAIN_PYTHON = {
    "a loop and a list": lambda x: torch.stack([x * i for i in range(4)]),
    "a generator": lambda x: sum(x * i for i in range(4)),
    "a dict": lambda x: {k: x * i for i, k in enumerate("abc")},
    "sizes": lambda x: x.reshape(x.shape[1], x.shape[0]) * x.shape[0] / len(x),
    "a closure": lambda x: (lambda y: y + x)(x * 2),
    "an f-string": lambda x: (f"{x.shape[0]} rows", x + 1),
    "isinstance and getattr": lambda x: getattr(x, "relu")() if isinstance(x, torch.Tensor) else x,
    "sorting sizes": lambda x: x.sum(sorted(range(x.dim()))),
    "an exception caught": lambda x: (lambda d: d.get("k", x * 2))({}),
    "in place": lambda x: (x + 1).mul_(2).add_(x),
    "views": lambda x: x.t()[1:].unsqueeze(0).expand(2, -1, -1),
}


@pytest.mark.parametrize("name", PLAIN_PYTHON)
def test_plain_python_makes_no_break(name):
    found = magneto.explain(PLAIN_PYTHON[name])(randn(3, 4))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)


def test_a_try_block_and_a_with_block_make_no_break():
    def f(x):
        try:
            with torch.no_grad():
                y = x * {"k": 2}["missing"]
        except KeyError:
            y = x - 1
        finally:
            y = y + 1
        return y

    found = magneto.explain(f)(randn(3))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)


def chatty(x):
    y = x * 2
    print("sum", y)
    return y + 1


def test_a_print_of_a_tensor_is_a_break_with_line_reason_and_cure(capsys):
    found = magneto.explain(chatty)(randn(3))
    assert (found.graph_count, found.break_count) == (2, 1)
    (stop,) = found.breaks
    assert stop.file.endswith("test_capture.py") and stop.line == line_of(chatty, "print(")
    assert stop.source.strip() == 'print("sum", y)'
    assert stop.reason and stop.cure
    assert capsys.readouterr().out.startswith("sum tensor(")


def reads(x):
    y = x * 2
    same = y.data_ptr() == x.data_ptr()
    return y * (1 + same)


def branches(x):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y * 3


def test_a_number_of_a_tensor_is_read_by_the_graph():
    found = magneto.explain(branches)(ones(3))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)
    assert "magneto::read(" in found.graphs[0].text


@pytest.mark.parametrize("f, text", [(reads, "y.data_ptr()")])
def test_reading_data_is_a_break_at_its_line(f, text):
    found = magneto.explain(f)(ones(3))
    assert (found.graph_count, found.break_count) == (2, 1)
    assert found.breaks[0].line == line_of(f, text) and text in found.breaks[0].source
    assert found.breaks[0].reason != found.breaks[0].cure


def test_the_explanation_can_be_read(capsys):
    text = str(magneto.explain(chatty)(randn(3)))
    assert "test_capture.py" in text and str(line_of(chatty, "print(")) in text and 'print("sum", y)' in text
    assert "cure" in text


def test_fullgraph_refuses_a_break_and_names_all_of_them():
    def f(x):
        print("one", x)
        y = x + 1
        print("two", y)
        return y

    g = magneto.compile(f, fullgraph=True)
    with pytest.raises(Exception) as caught:
        g(randn(3))
    assert 'print("one"' in str(caught.value) and 'print("two"' in str(caught.value)
    assert str(line_of(f, 'print("two"')) in str(caught.value)


def test_the_same_call_again_is_no_recompile():
    g = magneto.compile(lambda x: x * 2)
    for _ in range(5):
        g(randn(3))
    assert len(magneto.report().graphs) == 1 and not magneto.report().recompiles


def test_a_hit_runs_no_bytecode():
    def f(x):
        n = 0
        for i in range(200_000):  # about ten milliseconds of Python that a hit does not run
            n += i & 1
        return x * n

    g = magneto.compile(f)
    x = randn(3)
    g(x)

    def seconds():
        start = time.perf_counter()
        assert torch.equal(g(x), x * 100_000)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(20)) < 0.002  # one of them the machine leaves alone


def test_a_changed_global_is_a_recompile_with_its_reason():
    scope = {}
    exec("scale = 2\ndef f(x):\n    return x * scale\n", scope)
    g = magneto.compile(scope["f"])
    g(ones(2))
    scope["scale"] = 3
    assert torch.equal(g(ones(2)), ones(2) * 3)
    (again,) = magneto.report().recompiles
    assert again.function == "f" and "scale" in again.reason


@pytest.mark.parametrize("other, word", [(lambda: ones(3, dtype=torch.float64), "dtype"), (lambda: ones(3, 3), "dim"),
                                         (lambda: ones(3, requires_grad=True), "grad"), (lambda: 3, "type")])
def test_another_kind_of_argument_is_a_recompile_with_its_reason(other, word):
    g = magneto.compile(lambda x: x * 2)
    g(ones(3))
    g(other())
    (again,) = magneto.report().recompiles
    assert again.reason


def test_a_size_that_changes_becomes_dynamic():
    g = magneto.compile(lambda x: (x * 2).sum(0))
    for rows in (3, 5, 7, 9, 11, 13):
        g(randn(rows, 4))
    assert len(magneto.report().recompiles) <= 1


def test_a_recompile_names_dtypes_and_devices():
    f = magneto.compile(lambda x, d: x.to(d) + 1)
    f(torch.ones(2), torch.float64)
    f(torch.ones(2), torch.int64)
    f(torch.ones(2), torch.device("cpu"))
    of_a_dtype, of_a_device = (str(again) for again in magneto.report().recompiles)
    assert "was torch.float64, is torch.int64" in of_a_dtype
    assert "device(type='cpu')" in of_a_device


def test_dynamic_true_never_recompiles_for_a_size():
    g = magneto.compile(lambda x: x.reshape(-1) * x.shape[0], dynamic=True)
    for rows in (3, 5, 7, 9):
        g(randn(rows, 4))
    assert not magneto.report().recompiles


def test_restoring_a_value_hits_the_old_entry_again():
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    g = magneto.compile(module)
    x = randn(2, 3)
    for _ in range(5):
        module.train(), g(x), module.eval(), g(x)
    assert len(magneto.report().recompiles) == 1


def test_after_eight_entries_eager_with_one_warning():
    def f(x, k):
        return x * len(k)

    g = magneto.compile(f)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for n in range(20):
            assert torch.equal(g(ones(2), "a" * n), ones(2) * n)
    ours = [w for w in warned if str(w.message).lower().startswith("magneto")]
    assert len(ours) == 1 and "f" in str(ours[0].message)
    assert len(magneto.report().fallbacks) >= 1
    assert len(magneto.report().graphs) <= 8


def test_the_report_covers_the_process_and_reset_clears_it():
    f, g = magneto.compile(lambda x: x + 1), magneto.compile(chatty)
    f(ones(2)), g(ones(2))
    whole = magneto.report()
    assert len(whole.graphs) == 3 and len(whole.breaks) == 1 and "chatty" in str(whole)
    magneto.reset()
    assert not magneto.report().graphs


def test_guards_are_readable():
    scope = {}
    exec("scale = 2\ndef f(x):\n    return x * scale\n", scope)
    found = magneto.explain(scope["f"])(ones(2))
    assert all(isinstance(guard, str) for guard in found.guards)
    assert any("scale" in guard for guard in found.guards)


def test_a_graph_prints_and_the_text_names_its_inputs():
    found = magneto.explain(lambda x, y: torch.relu(x + y))(ones(2), ones(2))
    text = found.graphs[0].text
    assert "add" in text and "relu" in text and text.count("\n") >= 2


def test_training_captures_too():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.BatchNorm1d(4))
    found = magneto.explain(model)(randn(3, 4))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)


def test_explain_leaves_no_effect_behind_but_the_calls_own():
    calls = []

    def f(x):
        calls.append(1)
        return x + 1

    magneto.explain(f)(ones(2))
    assert calls == [1]
