"""magneto.compile as an interface: its signature, bad use, and modules that stay modules."""

import copy
import functools
import inspect
import io
import operator
import pickle

import pytest
import torch
from torch import nn, ones, randn

import magneto


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)
        self.register_buffer("steps", torch.zeros(1))
        self.scale = 2.0

    def forward(self, x, twice=False):
        y = self.b(torch.relu(self.a(x))) * self.scale
        return y * 2 if twice else y

    def helper(self, x):
        return x + self.scale


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def test_the_signature_is_torch_compiles():
    ours, theirs = (inspect.signature(c).parameters for c in (magneto.compile, torch.compile))
    known = ["model", "fullgraph", "dynamic", "backend", "mode", "options", "disable"]
    assert [name for name in ours if name in known] == known
    for name in known:
        assert ours[name].kind is theirs[name].kind
        if name != "backend":
            assert ours[name].default == theirs[name].default


def test_a_decorator_without_parentheses():
    @magneto.compile
    def f(x):
        return x * 2

    assert torch.equal(f(ones(2)), ones(2) * 2)


def test_a_decorator_with_parentheses():
    @magneto.compile()
    def f(x):
        return x * 2

    @magneto.compile(dynamic=True, mode="default")
    def g(x):
        return x * 3

    assert torch.equal(f(ones(2)), ones(2) * 2) and torch.equal(g(ones(2)), ones(2) * 3)


def test_a_decorated_method():
    class Scaler:
        def __init__(self, k):
            self.k = k

        @magneto.compile
        def go(self, x):
            return x * self.k

    a, b = Scaler(2), Scaler(3)
    for _ in range(2):
        assert torch.equal(a.go(ones(2)), ones(2) * 2) and torch.equal(b.go(ones(2)), ones(2) * 3)
    a.k = 5
    assert torch.equal(a.go(ones(2)), ones(2) * 5)
    assert torch.equal(Scaler.go(b, ones(2)), ones(2) * 3)


def test_a_decorated_forward(net):
    plain = Net.forward
    x = randn(3, 4)
    expected = net(x)
    Net.forward = magneto.compile(Net.forward)
    try:
        assert torch.equal(net(x), expected) and torch.equal(net(x, twice=True), expected * 2)
    finally:
        Net.forward = plain


def test_classmethods_and_staticmethods_decorated():
    class C:
        k = 4

        @classmethod
        @magneto.compile
        def of_class(cls, x):
            return x * cls.k

        @staticmethod
        @magneto.compile
        def plain(x):
            return x - 1

    assert torch.equal(C.of_class(ones(2)), ones(2) * 4) and torch.equal(C().plain(ones(2)), ones(2) * 0)


def test_a_compiled_function_keeps_its_name_and_doc():
    def f(x, y: int = 2) -> int:
        """doubles"""
        return x * y

    g = magneto.compile(f)
    assert g.__name__ == "f" and g.__doc__ == "doubles" and g.__module__ == f.__module__
    assert inspect.signature(g) == inspect.signature(f)


@pytest.mark.parametrize("f", [
    pytest.param(torch.fmod, id="builtin"),
    pytest.param(functools.partial(torch.add, alpha=2), id="partial of a builtin"),
    pytest.param(functools.partial(lambda k, x, y: x * k + y, 3), id="partial"),
    pytest.param(torch.Tensor.mul, id="method descriptor"),
    pytest.param(randn(3).add, id="builtin method"),
    pytest.param(torch.ops.aten.mul, id="packet"),
    pytest.param(torch.ops.aten.mul.Tensor, id="overload"),
    pytest.param(operator.mul, id="operator"),
])
def test_what_is_written_in_c_is_compiled_too(f):
    magneto.reset()
    args = (randn(3),) if getattr(f, "__self__", None) is not None and isinstance(f.__self__, torch.Tensor) else (randn(3), randn(3))
    compiled = magneto.compile(f)
    for _ in range(2):
        assert torch.allclose(compiled(*args), f(*args))
    assert len(magneto.report().graphs) == 1 and not magneto.report().breaks
    assert len(magneto.explain(f)(*args).graphs) == 1


def test_a_decorated_class():
    @magneto.compile
    class Twice(nn.Module):
        def forward(self, x):
            return x * 2

    @magneto.compile(fullgraph=True)
    class Thrice:
        def __call__(self, x):
            return x * 3

    magneto.reset()
    assert isinstance(Twice, type) and isinstance(Thrice, type)
    for cls, factor in ((Twice, 2), (Thrice, 3)):
        assert torch.equal(cls()(ones(2)), ones(2) * factor) and torch.equal(cls()(ones(3)), ones(3) * factor)
    assert len(magneto.report().graphs) >= 2
    assert Thrice.__call__.__name__ == "__call__"


def test_a_class_without_calls_is_given_back():
    class Plain:
        pass

    assert magneto.compile(Plain) is Plain


def test_disable_gives_the_function_itself():
    def f(x):
        return x * 2

    assert magneto.compile(f, disable=True) is f


def test_compiling_twice_is_harmless():
    g = magneto.compile(magneto.compile(lambda x: x * 2))
    assert torch.equal(g(ones(2)), ones(2) * 2)


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_every_known_mode_gives_the_right_answer(mode, net):
    x = randn(3, 4)
    assert torch.equal(magneto.compile(net, mode=mode)(x), net(x))


@pytest.mark.parametrize("options", [dict(dynamic=True), dict(dynamic=False), dict(fullgraph=True), dict(backend="eager"),
                                     dict(backend="inductor"), dict(options={})])
def test_every_option_gives_the_right_answer(options, net):
    g = magneto.compile(net, **options)
    for rows in (3, 5, 1):
        x = randn(rows, 4)
        assert torch.equal(g(x), net(x))


def same_refusal(*args, **kwargs):
    """The exception type that torch.compile raises, and ours."""
    types, errors = [], []
    for compile in (torch.compile, magneto.compile):
        with pytest.raises(Exception) as caught:
            compile(*args, **kwargs)
        types.append(caught.type)
        errors.append(str(caught.value))
    assert types[0] is types[1], types
    return errors[1]


def test_an_unknown_mode_is_refused_and_the_known_ones_named():
    text = same_refusal(lambda x: x, mode="fastest")
    assert "fastest" in text
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        assert mode in text


def test_an_unknown_backend_is_refused():
    assert "nonsense" in same_refusal(lambda x: x, backend="nonsense")


def test_an_unknown_keyword_is_refused():
    assert "fast" in same_refusal(lambda x: x, fast=True)


def test_mode_together_with_options_is_refused():
    same_refusal(lambda x: x, mode="default", options={"max_autotune": True})


@pytest.mark.parametrize("thing", [3, "f", [1], object()])
def test_what_cannot_be_called_is_refused(thing):
    with pytest.raises(TypeError, match=type(thing).__name__):
        magneto.compile(thing)


def test_positional_options_are_refused():
    with pytest.raises(TypeError):
        magneto.compile(lambda x: x, True)


def test_a_compiled_module_is_a_module(net):
    g = magneto.compile(net)
    assert isinstance(g, nn.Module) and isinstance(g, Net)
    x = randn(3, 4)
    assert torch.equal(g(x), net(x)) and torch.equal(g(x, twice=True), net(x) * 2)


def test_the_state_dict_has_no_prefix(net):
    g = magneto.compile(net)
    g(randn(3, 4))
    assert list(g.state_dict()) == list(net.state_dict())
    other = Net()
    other.load_state_dict(g.state_dict())
    g.load_state_dict(other.state_dict())
    buffer = io.BytesIO()
    torch.save(g.state_dict(), buffer)
    buffer.seek(0)
    assert list(torch.load(buffer)) == list(net.state_dict())


def test_names_of_parameters_and_modules_have_no_prefix(net):
    g = magneto.compile(net)
    assert [n for n, _ in g.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert [n for n, _ in g.named_modules()] == [n for n, _ in net.named_modules()]
    assert [n for n, _ in g.named_buffers()] == ["steps"]
    assert all(p is q for p, q in zip(g.parameters(), net.parameters()))
    assert [n for n, _ in g.named_children()] == ["a", "b"]


def test_attributes_pass_through_a_compiled_module(net):
    g = magneto.compile(net)
    x = randn(3, 4)
    before = g(x)
    g.scale = 4.0
    assert net.scale == 4.0 and torch.equal(g(x), before * 2) and torch.equal(net(x), g(x))
    net.scale = 2.0
    assert g.scale == 2.0 and torch.equal(g(x), before)
    assert torch.equal(g.helper(ones(1)), ones(1) * 3)
    g.a = nn.Linear(4, 8)
    assert net.a is g.a and torch.equal(g(x), net(x))
    g.extra = 5
    assert net.extra == 5
    del g.extra
    assert not hasattr(net, "extra") and not hasattr(g, "extra")
    with pytest.raises(AttributeError):
        g.nothing


def test_train_eval_and_to_pass_through(net):
    g = magneto.compile(net)
    g.eval()
    assert not net.training and not g.training and not net.a.training
    g.train()
    assert net.training
    g.double()
    assert net.a.weight.dtype is torch.float64
    x = randn(3, 4, dtype=torch.float64)
    assert torch.equal(g(x), net(x))
    g.to(torch.float32).requires_grad_(False)
    assert not net.a.weight.requires_grad
    g.zero_grad()
    assert g.to("cpu") is g


def test_a_deep_copy_is_independent(net):
    g = magneto.compile(net)
    x = randn(3, 4)
    expected = g(x)
    twin = copy.deepcopy(g)
    with torch.no_grad():
        twin.a.weight.zero_()
        twin.b.weight.zero_()
    assert torch.equal(g(x), expected) and not torch.equal(twin(x), expected)
    assert isinstance(twin, Net) and list(twin.state_dict()) == list(net.state_dict())


def test_a_compiled_module_can_be_pickled(net):
    g = magneto.compile(net)
    x = randn(3, 4)
    expected = g(x)
    twin = pickle.loads(pickle.dumps(g))
    assert isinstance(twin, Net) and torch.equal(twin(x), expected)
    buffer = io.BytesIO()
    torch.save(g, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(x), expected)


def module_level(x):
    return x * 2 + 1


def test_a_compiled_function_can_be_copied():
    g = magneto.compile(module_level)
    assert torch.equal(copy.copy(g)(ones(2)), ones(2) * 3) and torch.equal(copy.deepcopy(g)(ones(2)), ones(2) * 3)


def test_hooks_registered_through_the_compiled_module(net):
    g = magneto.compile(net)
    x = randn(3, 4)
    before = g(x)
    handle = g.register_forward_hook(lambda module, args, out: out + 1)
    assert torch.equal(g(x), before + 1)
    handle.remove()
    assert torch.equal(g(x), before)


def test_an_optimizer_over_the_compiled_modules_parameters(net):
    g = magneto.compile(net)
    opt = torch.optim.SGD(g.parameters(), lr=0.1)
    weight = net.a.weight.detach().clone()
    g(randn(3, 4)).sum().backward()
    opt.step()
    assert not torch.equal(weight, net.a.weight)


def test_a_compiled_module_inside_another_module(net):
    outer = nn.Sequential(magneto.compile(net), nn.Tanh())
    names = [n for n, _ in outer.named_parameters()]
    assert names == ["0.a.weight", "0.a.bias", "0.b.weight", "0.b.bias"]
    x = randn(3, 4)
    assert torch.equal(outer(x), torch.tanh(net(x)))


def test_the_repr_of_a_compiled_module_shows_the_module(net):
    assert "Linear(in_features=4" in repr(magneto.compile(net))


def test_reset_can_be_called_at_any_time():
    g = magneto.compile(lambda x: x + 1)
    magneto.reset()
    assert torch.equal(g(ones(2)), ones(2) * 2)
    magneto.reset()
    magneto.reset()
    assert torch.equal(g(ones(2)), ones(2) * 2)


def test_explain_of_what_cannot_be_called():
    with pytest.raises(TypeError):
        magneto.explain(3)(ones(2))


def test_explain_gives_the_functions_own_exception():
    def f(x):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        magneto.explain(f)(ones(2))


def test_reset_while_a_compiled_function_runs():
    def inner(x):
        magneto.reset()
        return x + 1

    def f(x):
        return inner(x * 2) * 3

    g = magneto.compile(f)
    x = torch.ones(2)
    for _ in range(4):
        assert torch.equal(g(x), f(x))


def test_reset_ends_compiled_functions_that_only_a_recording_held():
    class Holder:
        def __init__(self):
            self.step = magneto.compile(lambda x: x + 1)

    def f(x, holder):
        return holder.step(x) * 2

    g = magneto.compile(f)
    for _ in range(3):
        g(torch.ones(2), Holder())
    magneto.reset()
    assert torch.equal(g(torch.ones(2), Holder()), torch.full((2,), 4.0))
