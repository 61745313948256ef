"""Gradients that are differentiated themselves, where the inputs of the function are no more what they were: what eager saved is
enough for eager, and what was saved here is enough, too."""

import pytest
import torch
import torch.nn.functional as F
from torch import randn

import magneto


def written(h, b):
    b.mul_(2)
    v = h * b
    b.add_(1)
    return (v * b).tanh()


def filled(h, b):
    b.fill_(2)
    return h.exp() ** b


def written_before(h, b):
    b.mul_(2)
    return (h * b).tanh()


def written_in_part(h, b):
    b[1:, 0].exp_()
    v = (h @ b).sigmoid()
    return v * b


def written_by_others(h, b):
    b.detach().zero_()
    b[:, 1:].add_(h.detach()[:, :3])
    return torch.addmm(b.exp(), h, b.t())


def in_place(h, b):
    y = h * 2
    y.exp_()
    return y.mul_(3).sigmoid_()


def through_views(h, b):
    y = h * 2
    y[0].exp_()
    y[:, 1:].tanh_()
    return y.sin() * y[1]


def row_by_row(h, b):
    y = torch.zeros(4, 4)
    for i in range(4):
        y[i] = (h[i] * 2).sigmoid()
    return y.cumsum(0).exp()


def without_history(h, b):
    y = h.exp()
    with torch.no_grad():
        y.mul_(2)
    return y * h.detach()


def turned(h, b):
    y = (h * 2).tanh()
    y.t_()
    y.unsqueeze_(0)
    return y.mul_(3).exp()


def written_to_itself(h, b):
    y = h * 2 + b
    y *= h
    y.sin_().div_(b.exp())
    return y.pow_(2).clamp_(-1, 1)


def a_part_written_to(h, b):
    y = h * 2
    y[0].mul_(h[1])
    y[:, 1:].t().sin_()
    y.view(-1)[::2].div_(h[:2].exp().view(-1))
    return y


PROGRAMS = {
    "exp": lambda h, b: h.exp(),
    "exp of a product": lambda h, b: (h * 2).exp() + 1,
    "softmax": lambda h, b: torch.softmax(h * 3, -1),
    "sigmoid, tanh": lambda h, b: (h * 2).sigmoid().tanh(),
    "a product": lambda h, b: (h @ b).relu() @ b,
    "layer norm": lambda h, b: F.layer_norm(h * 2, (4,), b[0]).exp(),
    "expanded": lambda h, b: (h[:1] * 2).expand(4, 4).exp() * (b.sum(0) * 2).sigmoid(),
    "attention": lambda h, b: torch.softmax(h @ h.t(), -1) @ h,
    "largest": lambda h, b: h.exp().max(0)[0].exp(),
    "where": lambda h, b: torch.where(h > 0, h.exp(), h.tanh() * b),
    "dropout": lambda h, b: F.dropout((h * 2).exp(), 0.5).tanh(),
    "std": lambda h, b: h.std(0) * h.exp(),
    "half": lambda h, b: (h.bfloat16() * 0.5).tanh().float().tanh(),
    "a product and a number": lambda h, b: torch.addcmul(b, h, b.sigmoid(), value=0.5).tanh(),
    "an index": lambda h, b: (h * 2).exp()[[1, 2, 2]].tanh(),
    "clamp": lambda h, b: (h * 2).clamp(-1, 1),
    "clamp to tensors": lambda h, b: (h * 2).clamp(b, b.exp() + 1).clamp_min(-0.5),
    "largest in a row": lambda h, b: (h * 2).amax(1) + (h * 3).amin(),
    "larger, smaller": lambda h, b: torch.maximum(h * 2, h @ b) + torch.minimum(h.exp(), b * 2),
    "hard": lambda h, b: F.relu6(h * 4) + F.hardtanh(h * 2) + F.hardswish(h * 3),
    "signs": lambda h, b: (h * 2).abs() * torch.copysign(h * 3, b),
    "masked": lambda h, b: (h * 2).masked_fill(b > 0, 1).cumprod(0) + (h * 3).where(h * 2 > b, b).square(),
    "norms": lambda h, b: (h * 2).norm() + (h * 3).norm(1, dim=0) + (h * 2).norm(float("inf"), dim=1),
    "written to itself": written_to_itself,
    "a part written to": a_part_written_to,
    "written": written,
    "written before": written_before,
    "written in part": written_in_part,
    "written by others": written_by_others,
    "filled": filled,
    "in place": in_place,
    "through views": through_views,
    "row by row": row_by_row,
    "without history": without_history,
    "turned": turned,
}


def nothing(h, b):
    return h, b


def gone(h, b):
    return None, None


def changed(h, b):
    with torch.no_grad():
        h.mul_(2)
        b.add_(1)
    return h, b


def resized(h, b):
    b.resize_(5)
    return h, b


def derivatives(f, happens, leaf):
    torch.manual_seed(3)
    x = randn(4, 4, requires_grad=True)
    b = randn(4, 4)
    h = x if leaf else x * 1.5
    y = f(h, b)
    kept = happens(h, b)
    del h, b
    try:
        (d,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        (e,) = torch.autograd.grad(d.square().sum(), x, create_graph=True, allow_unused=True)
        third = None if e is None else torch.autograd.grad(e.sum(), x, allow_unused=True)[0]
    except RuntimeError as error:
        return str(error)
    del kept
    return [d.detach(), None if e is None else e.detach(), third]


@pytest.mark.parametrize("happens", [nothing, gone, changed, resized])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_what_is_no_more(name, happens):
    f = PROGRAMS[name]
    c = magneto.compile(f)
    for leaf in (False, True):
        expected = derivatives(f, happens, leaf)
        for _ in range(3):
            got = derivatives(c, happens, leaf)
            if isinstance(expected, str) or isinstance(got, str):
                assert "modified by an inplace operation" in expected and "modified by an inplace operation" in got
                continue
            for e, g in zip(expected, got):
                assert (e is None) == (g is None)
                assert e is None or torch.allclose(e, g, rtol=2e-3, atol=0.1 if name == "half" else 2e-3)


def test_after_a_break():
    """The rest of a function begins with tensors that nobody else has."""
    def f(x):
        v = x.view(-1)[:3] * 2
        w = v[v > -9]
        return torch.softmax(w, -1)

    c = magneto.compile(f)
    for g in (f, c, c, c):
        torch.manual_seed(1)
        x = randn(2, 2, requires_grad=True)
        (d,) = torch.autograd.grad(g(x)[0], x, create_graph=True)
        (e,) = torch.autograd.grad(d.square().sum(), x)
        if g is f:
            expected = e
        assert torch.allclose(e, expected, atol=1e-5)


def an_empty_view(a, x):
    v = a[1:1]
    v.unsqueeze_(0)
    return x.exp() * a, v


def a_view_that_nobody_has(a, x):
    v = a.view(1, 3)
    v.unsqueeze_(0)
    return x.exp() * a


def two_views(a, x):
    v, w = a[:2], a[1:]
    v.unsqueeze_(0)
    w.t_()
    return x.exp() * a


def of_the_leaf(a, x):
    with torch.no_grad():
        v = x[1:]
        v.unsqueeze_(0)
    return x.exp() * a, v


@pytest.mark.parametrize("f", [an_empty_view, a_view_that_nobody_has, two_views, of_the_leaf])
@pytest.mark.parametrize("shared", [False, True])
def test_versions_stay_what_they_are(f, shared):
    """A view whose shape is changed counts a version of what it is a view of, once."""
    def run(g):
        memory, x = torch.ones(6), torch.linspace(0, 1, 3).requires_grad_()
        a = memory[2:5] if shared else torch.ones(3)
        ys = g(a, x)
        y = ys[0] if isinstance(ys, tuple) else ys
        seen = [(a._version, x._version)]
        (d,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        seen.append((a._version, x._version))
        (e,) = torch.autograd.grad(d.sum(), x, create_graph=True)
        seen.append((a._version, x._version))
        a.add_(1)
        try:
            torch.autograd.grad(e.sum(), x)
        except RuntimeError as error:
            seen.append("modified by an inplace operation" in str(error))
        return e.detach(), seen

    c = magneto.compile(f)
    e, seen = run(f)
    assert seen[-1] is True
    for _ in range(3):
        same, again = run(c)
        assert again == seen
        torch.testing.assert_close(same, e)


def test_a_stop_that_was_changed():
    """An output that others were computed from, and that eager did not save."""
    def f(x):
        h = x * 2
        return h, h.exp()

    c = magneto.compile(f)
    for g in (f, c, c, c):
        x = torch.ones(3, requires_grad=True)
        h, y = g(x)
        with torch.no_grad():
            h.mul_(3)
        (d,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (e,) = torch.autograd.grad(d.sum(), x)
        assert torch.allclose(e, 4 * torch.full((3,), 2.0).exp())


HOOKED = {
    "exp": lambda x: x.exp(),
    "a view of it": lambda x: x.exp().view(-1),
    "softmax": lambda x: torch.softmax(x * 2, -1),
    "two": lambda x: (x.exp(), x.sigmoid()),
    "one of the other": lambda x: one_of_the_other(x.exp()),
    "of one operator": lambda x: torch.std_mean(x, 0),
    "in place": lambda x: (x * 2).tanh_(),
    "one that saves its input": lambda x: (x * 2).sin(),
    "one that saves another result": lambda x: F.group_norm(x * 2, 1, eps=1),
    "two that save other results": lambda x: two_that_save_other_results(F.group_norm(x * 2, 1, eps=1)),
    "layer norm": lambda x: F.layer_norm(x * 2, (3,)),
    "a part of it": lambda x: a_part_of_it_written_to(x * 2),
}


def two_that_save_other_results(y):
    return y, F.group_norm(y.exp(), 1, eps=1)


def a_part_of_it_written_to(y):
    y[0].sigmoid_()
    return y


def one_of_the_other(y):
    return y, y.tanh()


@pytest.mark.parametrize("to_the_end", [False, True])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", HOOKED)
def test_hooks_of_outputs_in_second_gradients(name, together, to_the_end):
    """An operator that saved its result has a gradient that depends on the result: its hooks are called again."""
    def seen(f):
        torch.manual_seed(5)
        x = randn(2, 3, requires_grad=True)
        lines = []
        ys = f(x)
        ys = ys if isinstance(ys, tuple) else (ys,)
        handles = []
        for i, y in enumerate(ys):
            handles.append(y.register_hook(lambda g, i=i: lines.append((i, 0 if g is None else g.detach().clone()))))
        x.register_hook(lambda g: lines.append(("x", g.detach().clone())))
        (d,) = torch.autograd.grad([y.sin().sum() for y in ys], x, create_graph=True)
        lines.append(("first", d.detach().clone()))
        loss = d.square().sum() + (sum(y.sum() for y in ys) if together else 0)
        (e,) = torch.autograd.grad(loss, x, create_graph=True)
        lines.append(("second", e.detach().clone()))
        for handle in handles if not to_the_end else ():
            handle.remove()
        if e.requires_grad:
            e.sum().backward()
            lines.append(("third", x.grad))
        try:
            ys[0].sum().backward()
        except RuntimeError as error:
            lines.append(("again", str(error)[:60]))
        return lines

    f = HOOKED[name]
    c = magneto.compile(f)
    expected = seen(f)
    for _ in range(3):
        got = seen(c)
        assert [who for who, _ in got] == [who for who, _ in expected]
        for (_, a), (_, b) in zip(got, expected):
            assert a == b if not isinstance(a, torch.Tensor) else torch.allclose(a, b, rtol=1e-3, atol=1e-4)


def unbound(y):
    a, b, c = y.unbind(1)
    return a, (b * 2).exp() * c


def split(y):
    a, b, c = y.split(1, 1)
    return c[0], a, b * b * a.detach(), b.sin().sum()


def split_of_a_library(y):
    a, b = torch.nn.functional.conv1d(y, torch.ones(2, 2, 2), padding=1).split(2, 1)
    return a, b * b


def std_and_mean(y):
    a, b = torch.std_mean(y, 0)
    return a, b.exp() * y


@pytest.mark.parametrize("of_the_input", [False, True])
@pytest.mark.parametrize("f", [unbound, split, split_of_a_library, std_and_mean])
def test_hooks_beside_the_way_of_second_gradients(f, of_the_input):
    """Who comes to an operator comes to all its results: hooks of those that no gradient is for are called with None."""
    def seen(g):
        x = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()
        lines = []
        ys = g(x)
        for i, y in enumerate(ys):
            y.register_hook(lambda g, i=i: lines.append((i, None if g is None else [round(v, 3) for v in g.view(-1).tolist()])))
        (d,) = torch.autograd.grad(ys[-1].sum(), x, create_graph=True)
        lines.append("second")
        (e,) = torch.autograd.grad(d.square().sum(), x, create_graph=True)
        lines.append("third")
        e.sum().backward()
        return lines

    def whole(x):
        return f(x if of_the_input else x * 2)

    c = magneto.compile(whole)
    for _ in range(3):
        assert seen(c) == seen(whole)


def looked_at_first(x, b):
    v = b.as_strided((2, 2), (2, 1), 0)
    b[1] += 1
    return x.exp(), v


def an_empty_write(x, b):
    v = b.expand(3, 3, 2).as_strided((1, 1), (2, 1), 8)
    b[:0].add_(1)
    return x.exp() * 2, v


def product_beside(x, b):
    y = x * b.as_strided((2, 2), (2, 1), 0)
    return y.exp()


def product_within(x, b):
    return (x * b.as_strided((2, 2), (2, 1), 4)).exp()


def product_and_a_write(x, b):
    y = (x * b.as_strided((2, 2), (2, 1), 0)).exp() * x
    b[:1].mul_(2)
    return y


@pytest.mark.parametrize("f", [looked_at_first, an_empty_write, product_beside, product_within, product_and_a_write])
@pytest.mark.parametrize("keeps", [True, False])
def test_strides_over_memory_beside_an_input(f, keeps):
    """What stands in its place begins where it began in its memory."""
    def derived(g):
        torch.manual_seed(2)
        x, memory = randn(2, 2, requires_grad=True), randn(16)
        b = memory[3:9].view(3, 2)
        ys = g(x, b)
        y = ys[0] if isinstance(ys, tuple) else ys
        if not keeps:
            del b, memory, ys
        try:
            (d,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            (e,) = torch.autograd.grad(d.square().sum(), x)
        except RuntimeError as error:
            return str(error).split(":")[0]
        return d.detach(), e

    c = magneto.compile(f)
    for _ in range(4):
        want, have = derived(f), derived(c)
        if isinstance(want, str) or isinstance(have, str):
            assert have == want
        else:
            torch.testing.assert_close(have, want)


@pytest.mark.parametrize("kept", ["", "v", "w", "vw"], ids=lambda kept: f"kept: {kept or 'none'}")
@pytest.mark.parametrize("f", [lambda x: (v := x * 2, w := v.reshape(8), w.sin()), lambda x: (v := x.exp(), w := v[1], w * w),
                               lambda x: (v := x * x, w := v.t(), torch.sort(w, -1)[0] * w), lambda x: (v := x.sin(), w := v.view(8), w.exp() + v.view(8)),
                               lambda x: (v := torch.fft.rfft(x), w := v.imag, w.abs() * w), lambda x: (v := torch.complex(x, x.exp()), w := torch.view_as_real(v)[1:], w * w),
                               lambda x: (v := x.view(4, 2).exp(), w := torch.view_as_complex(v), w.abs())],
                         ids=["reshape", "row", "sort", "twice", "imag", "view_as_real", "view_as_complex"])
def test_a_view_on_the_way_that_is_gone(f, kept):
    """v, a view of it, and what was made of the view: the way to v leads through the view, though nobody holds it."""
    compiled = magneto.compile(f)
    for seed in range(4):
        answers = []
        for function in (f, compiled):
            torch.manual_seed(seed)
            leaf = torch.rand(2, 4, requires_grad=True)
            v, w, u = function(leaf * 1)
            ends = [t for name, t in (("v", v), ("w", w), ("u", u)) if name in kept + "u"]
            del v, w
            grad, = torch.autograd.grad(ends, leaf, [torch.full_like(t, 0.5) for t in ends], create_graph=True)
            if grad.requires_grad:
                grad.sin().sum().backward()
            answers.append((grad.detach(), leaf.grad))
        torch.testing.assert_close(answers[1], answers[0])


DETACHED = {
    "the input": lambda x, ys: x.detach_(), "an output": lambda x, ys: ys[0].detach_(), "both": lambda x, ys: (x.detach_(), ys[0].detach_()),
    "the input, a leaf now": lambda x, ys: x.detach_().requires_grad_(), "an output, a leaf now": lambda x, ys: ys[0].detach_().requires_grad_(),
}


@pytest.mark.parametrize("happens", DETACHED)
@pytest.mark.parametrize("f", [lambda x: (x * 2, (x * 2).exp()), lambda x: (v := x * 2, v.exp()), lambda x: (v := x.exp(), v[0] * v, v.t().sin())],
                         ids=["beside", "chain", "views"])
def test_detached_after_the_call(f, happens):
    """detach_() changes where a tensor's own gradient goes, not what was computed from it before."""
    compiled, refused = magneto.compile(f), []
    for seed in range(4):
        answers = []
        for function in (f, compiled):
            torch.manual_seed(seed)
            leaf, seen = torch.rand(3, 3, requires_grad=True), []
            x = leaf * 1
            x.register_hook(lambda grad: seen.append(grad.detach().clone()))
            ys = function(x)
            DETACHED[happens](x, ys)
            try:
                grad, = torch.autograd.grad(ys[-1].sum(), leaf, create_graph=True)
                second, = torch.autograd.grad(grad.sin().sum(), leaf)
            except RuntimeError as error:  # eager refuses where it saved that tensor
                refused.append((function is f, "detached in-place" in str(error)))
                continue
            answers.append((grad.detach(), second, seen))
        if len(answers) == 2:
            torch.testing.assert_close(answers[1], answers[0])
    assert all(of_eager and words for of_eager, words in refused)


def symmetric(x):
    return x @ x.mT + torch.eye(3)


# k is 1 and 2 when they run, and 0 when they are differentiated: nothing of them may run on zeros.
RAISING = {
    "divided by itself": lambda x, k: (k.remainder_(k), x.sin() * 2)[1],
    "written by a division": lambda x, k: x.sin() * (k.remainder_(k + 1) + 1),
    "a quotient": lambda x, k: x.sin() * (k.clone() // k),
    "a part of one": lambda x, k: x.sin() * torch.stack([k, k * 2])[0].fmod_(k + k),
    "a count of quotients": lambda x, k: x.sin() * (6 // k + 1).float().log(),
    "an index into numbers": lambda x, k: x.sin() * torch.arange(4)[4 - k],
    "an index into constants": lambda x, k: x.sin() * torch.linspace(1, 2, 4).index_select(0, 4 - k.reshape(-1)).reshape(3, 3),
    "draws": lambda x, k: x.sin() * torch.multinomial(k.float(), 2)[:, 1:],
    "a draw and another": lambda x, k: F.dropout(x.sin() * torch.bernoulli(k / 4.0), 0.5),
    "an inverse": lambda x, k: torch.linalg.inv(symmetric(x) + k),
    "a factor": lambda x, k: torch.linalg.cholesky(symmetric(x) + torch.eye(3) * k),
    "an inverse that nobody differentiates": lambda x, k: x.sin() * torch.linalg.inv(symmetric(x).detach() * k),
}


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("name", RAISING)
def test_operators_that_refuse_other_numbers(name, changed):
    f, seen = RAISING[name], []
    for g in [f] + [magneto.compile(f)] * 3:
        torch.manual_seed(3)
        x = torch.arange(9.0).reshape(3, 3).cos().requires_grad_()
        k = torch.tensor([[1, 2, 1], [2, 1, 2], [1, 1, 1]])
        out = g(x * 1, k)
        if changed:
            k.zero_()
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sin().sum(), x)
        seen.append((first.detach(), second))
    for have in seen[1:]:
        torch.testing.assert_close(have, seen[0])
