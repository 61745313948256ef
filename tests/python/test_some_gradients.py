"""Some gradients of some outputs, differentiated again, after something was changed in between: an operator of eager's reads what
it saved when its gradient is asked for, and refuses then if that was changed; what nobody asks for is not looked at."""

import pytest
import torch

import magneto


def result_and_product(x, y):
    a = x.exp()
    return a, (a * 2) * y


def three_in_a_row(x, y):
    a = torch.softmax(x, 0)
    w = a * 2
    return a, w * y, (w * y).sin()


def each_of_the_one_before(x, y):
    a = x.sigmoid()
    b = a * y
    return a, b, b.tanh()


def two_that_saved_their_results(x, y):
    a = x.exp()
    return a + 0, (a * y).exp()


def older_views(x, y):
    a = x.sin()
    b = a.t()
    a.mul_(a > 0)
    return y.sin() * x, b


def views_of_results_that_were_saved(x, y):
    a = x.softmax(-1)[...]
    return a, (y + a) / (a + 3)


CHANGES = {"nothing": lambda ins, outs: None, "shape of the first": lambda ins, outs: outs[0].t_(), "the first": lambda ins, outs: outs[0].mul_(2),
           "the last": lambda ins, outs: outs[-1].mul_(2), "x": lambda ins, outs: ins[0].mul_(1.5), "y": lambda ins, outs: ins[1].mul_(1.5),
           "shape of the second": lambda ins, outs: outs[1].t_(), "the first is gone": lambda ins, outs: outs.pop(0)}


def gradients(function, change, ends, wanted, again, looks=False):
    torch.manual_seed(0)
    leaves = [torch.randn(3, requires_grad=True) for _ in range(2)]
    ins = [leaf * 1 for leaf in leaves]
    try:
        outs = list(function(*ins))
        if looks:
            for out in outs:
                out.grad_fn
                out.register_hook(lambda g: None)
        used = [outs[k] * 1 for k in ends] if looks or change is CHANGES["the first is gone"] else None
        change(ins, outs)
        first = torch.autograd.grad(used or [outs[k] for k in ends], [leaves[k] for k in wanted], [torch.linspace(1, 2, 3) for _ in ends],
                                    create_graph=bool(again), allow_unused=True)
        more = [g.pow(2).sum() for g in first if g is not None and g.requires_grad]
        second = torch.autograd.grad(more, [leaves[k] for k in again], allow_unused=True) if more and again else ()
    except RuntimeError as error:
        return str(error).split(":")[0]
    return [g if g is None else g.detach() for g in (*first, *second)]


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("function", [result_and_product, three_in_a_row, each_of_the_one_before, two_that_saved_their_results,
                                      older_views, views_of_results_that_were_saved])
def test_gradients_that_are_asked_for(function, change, looks):
    compiled = magneto.compile(function)
    for ends in ([0], [1], [-1], [0, 1], [0, -1]):
        for wanted in ([0], [1], [0, 1]):
            for again in ([], [0], [1], [0, 1]):
                want = gradients(function, CHANGES[change], ends, wanted, again, looks)
                for _ in range(2):
                    have = gradients(compiled, CHANGES[change], ends, wanted, again, looks)
                    at = (ends, wanted, again)
                    assert type(have) is type(want), (at, want, have)
                    if isinstance(want, str):
                        assert have == want, at
                        continue
                    assert [g is None for g in have] == [g is None for g in want], at
                    assert all(a is None or torch.allclose(a, b, atol=1e-5) for a, b in zip(want, have)), (at, want, have)


def test_tangents_that_do_not_come_are_no_zeros():
    """0 * inf: a size that only the gradient of the other outputs fixes."""
    def f(x):
        a, b = x * 2, x * 2
        a[:-1] = x.flatten()[:1]
        c = torch.rsqrt(b)
        b.clamp_(min=0.3)
        return a, b, c

    compiled = magneto.compile(f, dynamic=True)
    for _ in range(3):
        for k in range(3):
            want, have = (torch.tensor([[-1.0], [0.0]], requires_grad=True) for _ in range(2))
            f(want * 1)[k].sum().backward()
            compiled(have * 1)[k].sum().backward()
            assert torch.equal(want.grad, have.grad) or torch.equal(want.grad.nan_to_num(7), have.grad.nan_to_num(7)), k


def test_each_of_many_outputs_on_its_own():
    """However many choices of tangents there are: none of the others is a zero."""
    def f(x):
        return [torch.rsqrt(x * k) for k in range(20)]

    compiled = magneto.compile(f)
    for _ in range(2):
        for k in range(20):
            want, have = (torch.tensor([0.0, 1.0, 4.0], requires_grad=True) for _ in range(2))
            f(want)[k].sum().backward()
            compiled(have)[k].sum().backward()
            assert torch.equal(want.grad.nan_to_num(7), have.grad.nan_to_num(7)), k


def test_histories_that_are_repeated():
    """Differentiated gradients: beside an input whose memory counts a write, and of a view of an input that is gone."""
    def beside(x):
        other = x.detach()
        y = x * 2
        other.t_()
        return y, x

    def gone(x):
        part = x[-1:, None]
        y = torch.exp(part.view(1))
        torch._dynamo.graph_break()
        return y, part

    for function, leaf in ((beside, torch.rand(2, 2)), (gone, torch.rand(2))):
        compiled = magneto.compile(function)
        for _ in range(3):
            answers = []
            for f in (function, compiled):
                x = leaf.clone().requires_grad_()
                outs = f(x if function is beside else x * 1)
                g, = torch.autograd.grad(outs, [x], [torch.ones_like(t) for t in outs], create_graph=True)
                answers.append([g.detach(), *torch.autograd.grad((g * x).sum(), [x])])
            assert all(torch.allclose(a, b) for a, b in zip(*answers)), answers
