"""Training with one autograd node for a whole program: the joint graph, its two halves and the node, against eager.

Each half is run operator by operator, so values and gradients are bit-equal where the same operators run; what is
computed again instead of saved is the same operator on the same values.
"""
import gc
import re
import threading
import weakref

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import magneto
import small_models
from small_models import IDS, IMAGES, LABELS, train
from test_pending_harness import T, assert_same, backward, clones, tensors_in, tracing

torch.manual_seed(0)


def grad(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


class Compiled:
    """A function that is traced once and run with its node ever after. `inputs` are the tensors it closes over and its
    arguments, in the order of the graph."""

    def __init__(self, f, *args, reason=None):
        self.trace = T.Trace()
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        for i, a in enumerate(tensors):
            self.trace.add_input(a, f"arg{i}")
        places = {self.trace.find(a): i for i, a in enumerate(tensors)}
        with tracing(self.trace):
            self.result = f(*args)
        assert self.trace.data_reads() == 0, self.trace.last_data_read()
        self.program = self.trace.finish(tensors_in(self.result))
        self.sources = [places.get(i, self.trace.input_tensor(i)) for i in self.program.inputs]
        self.training = self.program.training([self.trace.input_tensor(i) for i in self.program.inputs])
        del self.trace, self.result
        if reason is not None:
            assert reason in self.training.reason, self.training.reason
            return
        assert self.training.reason == ""
        assert self.training.verify() == []
        self.nodes = self.training.facts()
        self.saved_bytes = sum(node["saved_bytes"] for node in self.nodes)

    def __call__(self, *args):
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        outputs = self.training.run([tensors[s] if isinstance(s, int) else s for s in self.sources])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def compare(mine, eager, my_args, eager_args):
    """As the harness does, but how often a gradient was added to is the engine's business."""
    tensors = lambda args: [a for a in args if isinstance(a, torch.Tensor)]
    assert_same(mine, eager, "output")
    assert_same(tensors(my_args), tensors(eager_args), "argument")
    backward(mine)
    backward(eager)
    for i, (m, e) in enumerate(zip(tensors(my_args), tensors(eager_args))):
        assert (m.grad is None) == (e.grad is None), f"gradient of argument {i}"
        if m.grad is not None:
            assert m.grad.stride() == e.grad.stride()
            torch.testing.assert_close(m.grad, e.grad, rtol=0, atol=0, msg=lambda s: f"gradient of argument {i}: {s}")


def same_as_eager(f, *args, seed=7):
    compiled = Compiled(f, *clones(args))
    for n in range(2):
        eager_args, my_args = clones(args), clones(args)
        torch.manual_seed(seed + n)
        eager = tensors_in(f(*eager_args))
        torch.manual_seed(seed + n)
        mine = tensors_in(compiled(*my_args))
        compare(mine, eager, my_args, eager_args)
    return compiled


# ---- programs --------------------------------------------------------------------------------------------------------

def view_and_base(x):
    y = x * 2 + 1
    return y, y.view(-1), y[0]


def write_in_the_middle(x):
    y = x * 2
    y.add_(1)
    y.mul_(x)
    return y


def write_through_a_view(x):
    y = x * 2
    y[0].mul_(3)
    y.t()[1:].add_(x.t()[1:])
    return y


def a_written_view_leaves(x):
    y = x * 2
    v = y.view(-1)
    v.mul_(2)
    return v, v.view(2, 10)


def no_grad_inside(x):
    w = torch.ones(5, 3)
    with torch.no_grad():
        a = x @ w
    b = (x @ w).detach()
    return a, b, (x @ w) * a + b


def no_grad_views(x):
    y = x * 2
    with torch.no_grad():
        v = y.view(-1)
    return y, v, y.detach(), y.t().detach()[0]


def fills_a_buffer(x):
    buffer = torch.zeros(4, 5)
    buffer.add_(x)
    buffer[1] = x[0] * 2
    return buffer


def written_behind_autograds_back(x):
    y = x * 2
    with torch.no_grad():
        y.mul_(3)
    return y, y + x


def pieces(x):
    a, b, c = x.chunk(3, 1)
    d, e = (x * 2).split([4, 2], 1)
    return torch.cat([a * b, c], 1), d, e


def pieces_of_a_result(x):
    return (x * 2).unbind(0) + tuple(x.exp().split(2))


def numbers_and_tensors(x):
    v, i = x.max(1)
    return v, i, x > 0, x.argmax()


def same_twice(x):
    y = x.sin()
    return y, y, x, y.view(-1), x.t()


def several_losses(x, w):
    h = torch.tanh(x @ w)
    return h.sum(), (h ** 2).mean(), h.abs().amax()


def gated(x, w):
    a, b = (x @ w).chunk(2, -1)
    return F.silu(a) * b


def attention(q, k, v):
    s = q @ k.transpose(-1, -2) / 4
    s = s.masked_fill(torch.ones(8, 8).triu(1).bool(), float("-inf"))
    return F.dropout(s.softmax(-1), 0.2) @ v


def two_layers(x, w, b):
    return F.gelu(F.gelu(x @ w + b) @ w + b)


PROGRAMS = {
    "mlp": (lambda x, w, b: torch.relu(x @ w + b) @ w.t(), grad(4, 5), grad(5, 3), grad(3)),
    "two layers": (two_layers, grad(4, 5), grad(5, 5), grad(5)),
    "view and base": (view_and_base, grad(4, 5)),
    "a view alone": (lambda x: (x * 2).view(-1)[2:9], grad(4, 5)),
    "views of an input": (lambda x: (x.view(-1), x.t(), x * 2), grad(4, 5)),
    "a write in the middle": (write_in_the_middle, grad(4, 5)),
    "a write through a view": (write_through_a_view, grad(4, 5)),
    "a written view leaves": (a_written_view_leaves, grad(4, 5)),
    "a buffer filled in place": (fills_a_buffer, grad(4, 5)),
    "no_grad inside": (no_grad_inside, grad(4, 5)),
    "views without a history": (no_grad_views, grad(4, 5)),
    "written behind autograd's back": (written_behind_autograds_back, grad(4, 5)),
    "dropout": (lambda x: F.dropout(x * 2, 0.5) + F.dropout(x, 0.1), grad(40, 5)),
    "a random number that nobody reads": (lambda x: (torch.rand(3), F.dropout(x, 0.5))[1], grad(40, 5)),
    "expand, stack, cat": (lambda x: (torch.stack([x, x * 2]), torch.cat([x, x]), x.sum().expand(3)), grad(4, 5)),
    "pieces": (pieces, grad(4, 6)),
    "pieces of a result": (pieces_of_a_result, grad(4, 6)),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1).relu(), grad(2, 3, 8, 8), grad(4, 3, 3, 3)),
    "relu in place": (lambda x, w: F.relu(F.conv2d(x, w), inplace=True), grad(2, 3, 8, 8), grad(4, 3, 3, 3)),
    "pooling": (lambda x: (F.max_pool2d(x.sin(), 2), F.avg_pool2d(x, 2)), grad(2, 3, 8, 8)),
    "norms": (lambda x, w: (F.layer_norm(x, (5,), w), F.batch_norm(x, None, None, training=True)), grad(4, 5), grad(5)),
    "group norm": (lambda x: F.group_norm(x, 2), grad(2, 4, 6)),
    "sdpa": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), grad(2, 2, 8, 16)),
    "attention": (attention, grad(2, 8, 16), grad(2, 8, 16), grad(2, 8, 16)),
    "softmax and losses": (lambda x: (F.log_softmax(x, -1), F.mse_loss(x, x.detach() * 2), F.gelu(x)), grad(4, 5)),
    "cross entropy": (lambda x, y: F.cross_entropy(x, y), grad(4, 5), torch.tensor([0, 1, 4, 2])),
    "a custom loss": (lambda x, y: (torch.where(x > y, x - y, 0.5 * (y - x)) ** 2).mean(), grad(4, 5), torch.randn(4, 5)),
    "embedding": (lambda i, w: F.embedding(i, w) * 2, torch.tensor([[1, 2], [2, 0]]), grad(4, 6)),
    "indexing": (lambda x, i: (x[i], x[:, 1], x[1:3, ::2]), grad(4, 5), torch.tensor([0, 2, 2])),
    "numbers and tensors": (numbers_and_tensors, grad(4, 5)),
    "the same twice": (same_twice, grad(4, 5)),
    "several losses": (several_losses, grad(4, 5), grad(5, 3)),
    "a gate": (gated, grad(4, 5), grad(5, 6)),
    "an input without a gradient": (lambda x, w: (x @ w).sigmoid(), torch.randn(4, 5), grad(5, 3)),
    "an input that is no parameter": (lambda x, w: (x * 2) * (w * 3), grad(4, 5), grad(4, 5)),
    "bfloat16": (lambda x, w: F.gelu(x @ w).float().sum(), grad(4, 5, dtype=torch.bfloat16), grad(5, 3, dtype=torch.bfloat16)),
    "casts": (lambda x, w: F.layer_norm((x.bfloat16() @ w.bfloat16()).float(), (3,)), grad(4, 5), grad(5, 3)),
    "complex": (lambda x: torch.view_as_real(torch.fft.fft(x)).abs(), grad(4, 8)),
    "cumsum, sort, gather": (lambda x: (x.cumsum(1), x.sort(1)[0], x.gather(1, x.argsort(1))), grad(4, 5)),
    "permuted weights": (lambda x, w: torch.einsum("bij,kj->bki", x, w), grad(2, 4, 5), grad(3, 5)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name):
    same_as_eager(*PROGRAMS[name])


# ---- what the node is like -------------------------------------------------------------------------------------------

def both(run, tolerance=0):
    """What `run` gives with eager and with our node as the way to call a function; errors by type and text."""
    results = []
    for wrap in (lambda f, *a: f, Compiled):
        torch.manual_seed(3)
        try:
            results.append(run(wrap))
        except Exception as error:
            results.append((type(error), str(error)))
    eager, mine = results
    if isinstance(eager, tuple) or isinstance(mine, tuple):
        assert mine == eager
    else:
        torch.testing.assert_close(mine, eager, rtol=tolerance, atol=tolerance)
    return mine


X, W = torch.randn(4, 5), torch.randn(5, 3)


def leaf(t):
    return t.clone().requires_grad_()


def test_its_name():
    f = Compiled(lambda x: x.sin(), leaf(X))
    assert f(leaf(X)).grad_fn.name() == "MagnetoBackward"


def test_two_outputs_one_unused():
    def run(wrap):
        x, w = leaf(X), leaf(W)
        a, b = wrap(lambda x, w: (x @ w, (x * 3).sin()), x, w)(x, w)
        b.sum().backward()
        assert w.grad is None
        return x.grad
    both(run)


def test_an_unused_output_adds_no_nan():
    """Eager does not run the backward of an output that nobody asked for: 0 * inf would be nan."""
    def run(wrap):
        x = torch.zeros(3, requires_grad=True)
        a, b = wrap(lambda x: (x.sin(), x.sqrt()), x)(x)
        a.sum().backward()
        return x.grad
    both(run)


def test_outputs_one_after_the_other():
    """Parts that share nothing are let go one by one."""
    def run(wrap):
        x, y = leaf(X), leaf(X)
        a, b = wrap(lambda x, y: (x.sin(), y.exp() * y), x, y)(x, y)
        a.sum().backward()
        b.sum().backward()
        return [x.grad, y.grad]
    both(run)


def test_outputs_that_share_a_part_one_after_the_other():
    def run(wrap):
        x = leaf(X)
        a, b = wrap(lambda x: (lambda h: (h.sin(), h.cos()))(x.exp()), x)(x)
        a.sum().backward()
        b.sum().backward()
    mine = both(run)
    assert mine[0] is RuntimeError


def test_backward_three_times():
    def run(wrap):
        x = leaf(X)
        out = wrap(lambda x: (x @ W).tanh().exp(), x)(x)
        for keep in (True, True, False):
            out.sum().backward(retain_graph=keep)
        return x.grad
    both(run)


def test_backward_twice_is_an_error():
    def run(wrap):
        x = leaf(X)
        out = wrap(lambda x: (x @ W).tanh(), x)(x).sum()
        out.backward()
        out.backward()
    assert both(run)[0] is RuntimeError


def test_backward_twice_where_nothing_is_saved():
    def run(wrap):
        x = leaf(X)
        out = wrap(lambda x: x + 1, x)(x)
        out.backward(torch.ones(4, 5))
        out.backward(torch.ones(4, 5))
        return x.grad
    both(run)


def test_hooks_and_retained_gradients():
    def run(wrap):
        x, seen = leaf(X), []
        x.register_hook(lambda g: seen.append(g.clone()))
        h, out = wrap(lambda x: (lambda h: (h, h.sin()))(x * 2), x)(x)
        h.retain_grad()
        h.register_hook(lambda g: g * 3)
        out.register_hook(lambda g: g * 2)
        (out + h).sum().backward()
        assert len(seen) == 1
        return [x.grad, h.grad, seen[0]]
    both(run)


def test_hooks_after_accumulation():
    def run(wrap):
        x, seen = leaf(X), []
        x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        wrap(lambda x: x.sin(), x)(x).sum().backward()
        return seen
    both(run)


@pytest.mark.parametrize("which", ["x", "w", "out"])
def test_a_saved_tensor_changed_later_is_an_error(which):
    def run(wrap):
        x, w = leaf(X), leaf(W)
        out = wrap(lambda x, w: (x @ w).exp(), x, w)(x, w)
        with torch.no_grad():
            {"x": x, "w": w, "out": out}[which].add_(1)
        out.sum().backward()
    kind, text = both(lambda wrap: strip(lambda: run(wrap)))
    assert kind is RuntimeError and "modified by an inplace operation" in text


def strip(run):
    """The name of the node that made a tensor is ours to choose."""
    try:
        return run()
    except RuntimeError as error:
        raise RuntimeError(re.sub(r"output 0 of \w+", "output 0 of a node", str(error))) from None


def test_a_view_of_a_kept_value_changed_later_is_an_error():
    def run(wrap):
        x = leaf(X)

        def f(x):
            y = x @ X.t()
            y.view(-1).mul_(2)
            return y, y.sin()
        y, out = wrap(f, x)(x)
        y.view(-1)[0].add_(1)
        out.sum().backward()
    kind, text = both(lambda wrap: cut(lambda: run(wrap)))
    assert kind is RuntimeError and "modified by an inp" in text


def cut(run):
    try:
        return run()
    except RuntimeError as error:
        raise RuntimeError(str(error)[:80]) from None


def test_an_input_that_eager_does_not_save_may_change():
    def run(wrap):
        x, w = X.clone(), leaf(W)
        out = wrap(lambda x, w: ((x * 2).sin() @ w).exp(), x, w)(x, w)
        x.zero_()
        out.sum().backward()
        return w.grad
    both(run)


def test_a_gradient_of_a_tensor_that_crosses_segments():
    def run(wrap):
        x = leaf(X)
        h = wrap(lambda x: torch.tanh(x @ W), x)(x)
        k = wrap(lambda h: h * h, h.detach().requires_grad_())(h)
        (g,) = torch.autograd.grad(k.sum(), h, retain_graph=True)
        k.sum().backward()
        return [g, x.grad]
    both(run)


def test_outputs_on_the_way_to_others():
    """Hooks, retain_grad and autograd.grad of an output see all of its gradient, as if each line had a node."""
    def f(x, w):
        a = torch.tanh(x @ w)
        h = F.dropout(a.exp() + a, 0.3)
        v = h.view(-1)
        return h, v, (v * 2).sin(), (h * a).sum()

    def run(wrap):
        x, w, seen = leaf(X), leaf(W), []
        torch.manual_seed(1)
        compiled = wrap(f, x, w)
        torch.manual_seed(1)
        h, v, out, loss = compiled(x, w)
        h.retain_grad()
        (g,) = torch.autograd.grad(out.sum(), v, retain_graph=True)
        (k,) = torch.autograd.grad(loss, h, retain_graph=True)
        v.register_hook(lambda g: seen.append(g.clone()))
        (out.sum() + loss).backward()
        return [g, k, h.grad, x.grad, w.grad, *seen]
    both(run)
    compiled = Compiled(f, leaf(X), leaf(W))
    assert len(compiled.nodes) == 1


# ---- outputs on the way to others --------------------------------------------------------------------------------------

def both_close(run):
    """In float64, where sums are made in another order."""
    return both(run, tolerance=1e-12)


def layered(x, w):
    """Stops of all kinds: roots, a view, a view of an input, one that several others need, one behind another."""
    t = x.t()
    a = torch.tanh(t.t() @ w)
    b = a.exp() * a
    v = b.view(-1)
    c = v.sin() + b.reshape(-1)
    d = (a * b).sum() * c
    return a, b, v, c, d, t, w.cos()


NAMES = dict(a=0, b=1, v=2, c=3, d=4, t=5, e=6)


def layers(wrap):
    x, w = leaf(X.double()), leaf(W.double())
    return x, w, wrap(layered, x, w)(x, w)


@pytest.mark.parametrize("losses", ["a", "b", "v", "c", "d", "e", "ab", "ad", "cd", "vt", "abvcdte"])
def test_losses_of_some_outputs(losses):
    def run(wrap):
        x, w, outs = layers(wrap)
        sum(outs[NAMES[n]].sum() * (k + 1) for k, n in enumerate(losses)).backward()
        return [g if g is not None else torch.tensor(-1.) for g in (x.grad, w.grad)]
    both_close(run)


@pytest.mark.parametrize("what", ["a", "b", "v", "c", "t"])
@pytest.mark.parametrize("of", ["a", "b", "v", "c", "d", "e"])
def test_the_gradient_of_one_output_in_another(of, what):
    """autograd.grad between outputs, alone and with an input beside it; where there is no way, eager's error."""
    def run(wrap, inputs):
        x, w, outs = layers(wrap)
        return list(torch.autograd.grad(outs[NAMES[of]].sum(), [outs[NAMES[what]], *(x for _ in range(inputs))]))
    for inputs in (0, 1):
        both_close(lambda wrap: run(wrap, inputs))


@pytest.mark.parametrize("look", ["hook", "retain", "replace", "node hook", "node prehook"])
@pytest.mark.parametrize("at", ["a", "b", "v", "c", "t", "av", "bt", "abvcd"])
def test_who_looks_at_an_output_sees_its_whole_gradient(at, look):
    def run(wrap):
        x, w, outs = layers(wrap)
        seen = []
        for n in at:
            out = outs[NAMES[n]]
            if look == "hook":
                out.register_hook(lambda g: seen.append(g.clone()))
            elif look == "retain":
                out.retain_grad()
                seen.append(out)
            elif look == "replace":
                out.register_hook(lambda g: g * 3)
            elif look == "node prehook":
                out.grad_fn.register_prehook(lambda gs: seen.append(gs[0].clone()))
            else:
                out.grad_fn.register_hook(lambda _, gs: seen.append(gs[0].clone()))
        (outs[4].sum() + outs[0].sum() * 2 + outs[2].sum() * 3).backward()
        seen = sorted([s.grad if look == "retain" else s for s in seen], key=lambda g: (g.numel(), float(g.sum())))
        return [x.grad, w.grad, *seen]
    both_close(run)


def test_a_hook_that_comes_and_goes():
    def run(wrap):
        x, w, outs = layers(wrap)
        results = []
        for looks in (False, True, False):
            handle = outs[1].register_hook(lambda g: results.append(g.clone())) if looks else None
            results += torch.autograd.grad(outs[4].sum(), [x, w], retain_graph=True)
            if handle:
                handle.remove()
        return results
    both_close(run)


def test_a_hook_in_the_middle_of_a_long_chain():
    def f(x):
        states = []
        for _ in range(12):
            x = torch.tanh(x * 1.1) + x.mean()
            states.append(x)
        return tuple(states)

    def run(wrap, hooked):
        x, seen = leaf(X.double()), []
        states = wrap(f, x)(x)
        for k in hooked:
            states[k].register_hook(lambda g: seen.append(g.clone()))
        (states[-1].sum() + states[7].sum()).backward()
        return [x.grad, *seen]
    for hooked in ([3], [0, 6, 10], range(12), [11]):
        both_close(lambda wrap: run(wrap, hooked))


def test_gradients_of_several_outputs_at_once():
    """A multi-grad hook counts which of its tensors the engine will reach."""
    def run(wrap):
        x, w, outs = layers(wrap)
        seen = []
        torch.autograd.graph.register_multi_grad_hook(outs[:4], lambda gs: seen.extend(g.clone() for g in gs))
        outs[4].sum().backward()
        return [x.grad, w.grad, *seen]
    both_close(run)


def test_backward_into_an_output():
    """backward(inputs=[h]) leaves the gradient in h, and only there."""
    def run(wrap):
        x, w, outs = layers(wrap)
        outs[4].sum().backward(inputs=[outs[0], w])
        assert x.grad is None
        return [outs[0].grad, w.grad]
    both_close(run)


def test_outputs_changed_in_place_behind_the_call():
    def run(wrap):
        x = leaf(X)
        a, b = wrap(lambda x: (lambda a: (a, a * 3))(x.sin() + 1), x)(x)
        seen = []
        a.register_hook(lambda g: seen.append(g.clone()))
        a.mul_(2)
        a.register_hook(lambda g: seen.append(g.clone()))
        (a.sum() + b.sum()).backward()
        return [x.grad, *seen]
    both_close(run)


def test_a_view_that_leaves_changed_in_place_behind_the_call():
    def run(wrap):
        x = leaf(X)

        def f(x):
            a = x.sin() + 1
            v = a.view(-1)
            return v, (v * 3).view(2, 10)
        v, b = wrap(f, x)(x)
        seen = []
        v.mul_(2)
        v.register_hook(lambda g: seen.append(g.clone()))
        (v.sum() + b.sum()).backward()
        return [x.grad, *seen]
    both_close(run)


def test_an_output_saved_for_another_and_changed_is_an_error():
    def run(wrap):
        x = leaf(X)
        a, b = wrap(lambda x: (lambda a: (a, a.sin() * a))(x * 2), x)(x)
        with torch.no_grad():
            a.add_(1)
        b.sum().backward()
    kind, text = both(lambda wrap: strip(lambda: run(wrap)))
    assert kind is RuntimeError and "modified by an inplace operation" in text


def test_an_output_that_forgets_its_history():
    """Those that were computed from it before remember. (Eager refuses where it was saved; nothing is lost here.)"""
    def run(wrap):
        x = leaf(X)
        a, b = wrap(lambda x: (lambda a: (a, a * 3))(x.sin()), x)(x)
        a.detach_()
        (b.sum() + a.sum()).backward()
        return x.grad
    both(run)


@pytest.mark.parametrize("calls", [
    "d d", "a d", "d a", "a a", "d/a d", "d/a a", "a d/a", "d/a d/a", "d+ d", "d+ a", "d/a+ d", "d/a+ d/a a", "c e", "e d"])
def test_backwards_one_after_the_other(calls):
    """d: backward of d; d/a: of d with respect to a; +: the graph is kept. A second time is eager's error."""
    def run(wrap):
        x, w, outs = layers(wrap)
        results = []
        for call in calls.split():
            of, _, what = call.rstrip("+").partition("/")
            keep = call.endswith("+")
            if what:
                results += torch.autograd.grad(outs[NAMES[of]].sum(), [outs[NAMES[what]]], retain_graph=keep)
            else:
                outs[NAMES[of]].sum().backward(retain_graph=keep)
        return [*results, *(torch.tensor(-1.) if t.grad is None else t.grad for t in (x, w))]
    both_close(run)


def test_a_second_backward_where_nothing_was_saved():
    def run(wrap):
        x = leaf(X)
        a, b = wrap(lambda x: (lambda a: (a, a + 2))(x + 1), x)(x)
        g = []
        for _ in range(2):
            b.sum().backward()
            g += torch.autograd.grad(b.sum(), a)
        return [x.grad, *g]
    both_close(run)


@pytest.mark.parametrize("f", [
    lambda x: x * 2, lambda x: x / 2, lambda x: 1 / x, lambda x: x - 2, lambda x: x * 2 + 1, lambda x: x.sum(0), lambda x: x.view(-1)[1:] + 1,
    lambda x: x.relu(), lambda x: torch.where(x > 0, x, 0.5), lambda x: (x * 2, x + 1), lambda x: (lambda a: (a, a * 3))(x + 1),
    lambda x: (lambda a: (a, a + 3))(x * 2), lambda x: (x * x, x * 2)], ids=range(13))
@pytest.mark.parametrize("calls", ["0 0", "-1 -1", "0 -1", "-1 0", "0+ 0 0", "0 -1 -1"])
def test_a_second_backward_of_what_saved_only_numbers(f, calls):
    """Eager keeps a number as it keeps a tensor, and lets it go after the backward; ours has it in its code."""
    def run(wrap):
        x = leaf(X)
        outs = wrap(f, x)(x)
        outs = outs if isinstance(outs, tuple) else (outs,)
        for call in calls.split():
            outs[int(call.rstrip("+"))].sum().backward(retain_graph=call.endswith("+"))
        return x.grad
    both_close(run)


def test_an_output_on_the_way_adds_no_nan():
    def run(wrap):
        x = torch.zeros(3, requires_grad=True)
        a, b, c = wrap(lambda x: (lambda a: (a, a.sqrt(), a.exp()))(x * 2), x)(x)
        a.register_hook(lambda g: g * 2)
        c.sum().backward()
        return x.grad
    both_close(run)


def test_double_backward_through_outputs_on_the_way():
    def run(wrap):
        x, w, outs = layers(wrap)
        a, d = outs[0], outs[4]
        (g,) = torch.autograd.grad(d.sum(), a, create_graph=True)
        (h,) = torch.autograd.grad(g.pow(2).sum(), a, retain_graph=True)
        gx, gw = torch.autograd.grad(d.sum(), [x, w], create_graph=True)
        (gx.pow(2).sum() + gw.sum() + g.sum()).backward()
        return [g.detach(), h, gx.detach(), gw.detach(), x.grad, w.grad]
    both_close(run)


def test_second_derivatives_in_an_output_on_the_way():
    def run(wrap):
        x = leaf(X.double())
        a, b = wrap(lambda x: (lambda a: (a, a.exp() * a))(x.sin()), x)(x)
        (g,) = torch.autograd.grad(b.sum(), x, create_graph=True)
        return [g.detach(), *torch.autograd.grad(g.pow(2).sum(), [a, x])]
    both_close(run)


def test_double_backward_when_outputs_on_the_way_are_gone():
    def run(wrap):
        x, w, outs = layers(wrap)
        d = outs[4]
        del outs
        (gx,) = torch.autograd.grad(d.sum(), x, create_graph=True)
        gx.pow(2).sum().backward()
        return [gx.detach(), x.grad, w.grad]
    both_close(run)


def test_outputs_on_the_way_in_many_threads():
    x, w = leaf(X), leaf(W)
    f = Compiled(layered, x, w)
    outs = f(x, w)
    expected = torch.autograd.grad(layered(x, w)[4].sum(), [x, w])
    gradients = [None] * 16
    outs[1].register_hook(lambda g: None)

    def work(i):
        gradients[i] = torch.autograd.grad(outs[4].sum(), [x, w], retain_graph=True)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for g in gradients:
        torch.testing.assert_close(g, expected, rtol=1e-5, atol=1e-5)


def test_outputs_on_the_way_in_a_checkpoint():
    def run(wrap):
        x, w = leaf(X), leaf(W)
        outs = torch.utils.checkpoint.checkpoint(wrap(layered, x, w), x, w, use_reentrant=False)
        outs[4].sum().backward()
        return [x.grad, w.grad]
    both(run)


def test_hooks_of_parameters_that_no_gradient_reaches():
    """Eager does not call the hook of a parameter of a head that nobody uses; one node would call it with None."""
    def f(x, w, head):
        h = torch.tanh(x @ w)
        return h, torch.tanh(h @ head)

    def run(wrap):
        x, w, head, seen = leaf(X), leaf(W), leaf(torch.ones(3, 2)), []
        head.register_hook(lambda g: seen.append(g * 2))
        head.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        g = wrap(f, x, w, head)
        h, pooled = g(x, w, head)
        h.sum().backward()
        assert not seen and head.grad is None
        h, pooled = g(x, w, head)
        (pooled.sum() + h.sum()).backward()
        return [x.grad, w.grad, head.grad, *seen]
    both(run)


def test_random_numbers_on_the_way():
    def f(x):
        a = F.dropout(x * 2, 0.5)
        return a, F.dropout(a.exp(), 0.3)

    def run(wrap):
        x = leaf(X)
        g = wrap(f, x)
        torch.manual_seed(5)
        a, b = g(x)
        a.retain_grad()
        (a.sum() + b.sum()).backward()
        return [a.detach(), b.detach(), a.grad, x.grad]
    both(run)


def test_the_nodes_of_outputs_keep_nothing_alive():
    x, w = leaf(X), leaf(W)
    f = Compiled(layered, x, w)
    for backwards in (False, True):
        outs = list(f(x, w))
        refs = [weakref.ref(o) for o in outs]
        if backwards:
            outs[1].retain_grad()
            outs[4].sum().backward()
        del outs
        gc.collect()
        assert [r() for r in refs] == [None] * 7


def test_an_input_that_is_upstream_of_another():
    def run(wrap):
        x = leaf(X)
        h = x * 2
        out = wrap(lambda x, h: x.sin() * h, leaf(X), leaf(X))(x, h)
        (g,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
        gx, gh = torch.autograd.grad(out.sum(), (x, h))
        return [g, gx, gh]
    both(run)


def test_gradients_of_some_inputs():
    def run(wrap):
        x, w = leaf(X), leaf(W)
        out = wrap(lambda x, w: (x @ w).tanh(), x, w)(x, w)
        (a,) = torch.autograd.grad(out.sum(), w, retain_graph=True)
        for _ in range(4):  # a backward of its own comes when it is often asked for
            (b,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
        out.sum().backward(inputs=[x])
        assert w.grad is None
        return [a, b, x.grad]
    both(run)


def test_backward_in_another_thread():
    def run(wrap):
        x, w = leaf(X), leaf(W)
        out = wrap(lambda x, w: (x @ w).tanh(), x, w)(x, w)
        thread = threading.Thread(target=lambda: out.sum().backward())
        thread.start()
        thread.join()
        return [x.grad, w.grad]
    both(run)


def test_backwards_in_many_threads():
    x, w = leaf(X), leaf(W)
    f = Compiled(lambda x, w: (x @ w).tanh().exp(), x, w)
    (x @ w).tanh().exp().sum().backward()
    expected, w.grad = w.grad, None
    outs = [f(x, w) for _ in range(16)]
    grads = [None] * 16

    def work(i):
        (grads[i],) = torch.autograd.grad(outs[i].sum(), w)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for g in grads:
        torch.testing.assert_close(g, expected, rtol=0, atol=0)


@pytest.mark.parametrize("make", [
    lambda: torch.ones(3, 4).t(), lambda: torch.ones(1).expand(4, 3), lambda: torch.ones(40)[4:16].view(4, 3),
    lambda: torch.ones(4, 3, dtype=torch.float64)], ids=["turned", "expanded", "behind an offset", "of another dtype"])
def test_gradients_that_come_in_another_layout(make):
    def run(wrap):
        x, w = leaf(X), leaf(W)
        out = wrap(lambda x, w: (x @ w).tanh().view(-1).view(4, 3).t().contiguous().t(), x, w)(x, w)
        out.backward(make())
        return [x.grad, w.grad]
    both(run)


def test_an_inference_tensor_cannot_be_saved():
    with torch.inference_mode():
        frozen = torch.randn(5, 3)

    def run(wrap):
        x = leaf(X)
        return wrap(lambda x, w: x @ w, x, W)(x, frozen).detach()
    assert both(run)[0] is RuntimeError


# ---- double backward -------------------------------------------------------------------------------------------------

def test_double_backward():
    def run(wrap):
        x, w = leaf(X), leaf(W)
        out = wrap(lambda x, w: ((x @ w).tanh() ** 3), x, w)(x, w)
        gx, gw = torch.autograd.grad(out.sum(), (x, w), create_graph=True)
        ((gx ** 2).sum() + gw.sin().sum()).backward()
        return [gx.detach(), gw.detach(), x.grad, w.grad]
    both(run)


def test_third_derivatives_and_upstream_graphs():
    def run(wrap):
        x = torch.tensor([1., 2., 3.], requires_grad=True)
        h = x * x
        out = wrap(lambda h: h ** 3, leaf(torch.ones(3)))(h)
        (a,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        (b,) = torch.autograd.grad(a.sum(), x, create_graph=True)
        (c,) = torch.autograd.grad(b.sum(), x)
        return [a.detach(), b.detach(), c]
    both(run)


def test_double_backward_of_random_numbers():
    def run(wrap):
        x = leaf(X)
        f = wrap(lambda x: F.dropout(x ** 3, 0.5), x)
        torch.manual_seed(11)
        out = f(x)
        between = torch.rand(3)
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        g.sum().backward()
        return [g.detach(), x.grad, between, torch.rand(3)]
    both(run)


def test_double_backward_beside_a_buffer():
    def run(wrap):
        x, count = leaf(X), torch.zeros(5)

        def f(x, count):
            count.add_(x.detach().mean(0))
            return x ** 3
        out = wrap(f, x, torch.zeros(5))(x, count)
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        g.sum().backward()
        return [x.grad, count]
    both(run)


def test_double_backward_without_its_inputs():
    def run(wrap):
        x = leaf(X)
        f = wrap(lambda h: h.exp(), leaf(X) * 1)
        h = x * 2
        out = f(h)
        del h
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        g.sum().backward()
        return [g.detach(), x.grad]
    both(run)


def test_double_backward_without_its_inputs_and_with_what_eager_keeps():
    """A mask would be smaller, but then the numbers would be lost."""
    def run(wrap):
        x = leaf(X)
        f = wrap(lambda h: (h * 2).clamp(-1, 1), leaf(X) * 1)
        h = x * 2
        out = f(h)
        del h
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        g.square().sum().backward()
        return [g.detach(), x.grad]
    both(run)
    assert Compiled(lambda h: (h * 2).clamp(-1, 1), leaf(X) * 1).saved_bytes == X.nbytes


# ---- who wants to see everything gets eager ---------------------------------------------------------------------------

def test_hooks_of_saved_tensors_see_what_eager_saves():
    x, w = leaf(X), leaf(W)
    f = Compiled(lambda x, w: (x @ w).tanh(), x, w)
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
        out = f(x, w)
    assert len(seen) == 3 and out.grad_fn.name() == "TanhBackward0"
    out.sum().backward()


def test_checkpoint():
    def run(wrap):
        x, w = leaf(X), leaf(W)
        f = wrap(lambda x, w: torch.tanh(x @ w), x, w)
        out = torch.utils.checkpoint.checkpoint(f, x, w, use_reentrant=False)
        out.sum().backward()
        return [x.grad, w.grad]
    both(run)


def test_anomaly_mode():
    x = leaf(X)
    f = Compiled(lambda x: x.sqrt(), x)
    with torch.autograd.detect_anomaly(check_nan=True):
        out = f(-x.abs())
        with pytest.raises(RuntimeError, match="SqrtBackward0"):
            out.sum().backward()


def test_forward_mode():
    f = Compiled(lambda x: x.sin(), leaf(X))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(leaf(X), torch.ones(4, 5))
        assert torch.autograd.forward_ad.unpack_dual(f(dual)).tangent is not None


# ---- effects on inputs -----------------------------------------------------------------------------------------------

def test_buffers_are_updated():
    def f(x, mean, count):
        mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        count += 1
        return (x - mean).sin(), mean, mean.view(-1)
    same_as_eager(f, grad(4, 5), torch.zeros(5), torch.tensor(0))


def test_batch_norm_called_twice_before_the_backward():
    def run(wrap):
        x, mean, var = leaf(X), torch.zeros(5), torch.ones(5)
        f = wrap(lambda x, m, v: F.batch_norm(x, m, v, training=True), x, torch.zeros(5), torch.ones(5))
        a, b = f(x, mean, var), f(x * 2, mean, var)
        (a * b).sum().backward()
        return [x.grad, mean, var]
    both(run)


def test_inputs_that_overlap_and_are_written_to():
    def f(x, buffer, part):
        buffer.add_(1)
        return x * part.sum()
    apart = (torch.zeros(4), torch.zeros(2))
    compiled = Compiled(f, leaf(X), *apart)
    for make in (lambda: (lambda b: (b, b[:2]))(torch.zeros(4)), lambda: (torch.zeros(4), torch.zeros(2))):
        x, y = leaf(X), leaf(X)
        torch.testing.assert_close(compiled(x, *make()), f(y, *make()), rtol=0, atol=0)


REFUSED = {
    "a buffer with a history": (lambda x, b: (b.add_(x), b * 2)[1], leaf(X), torch.zeros(4, 5), "in-place"),
    "nothing to differentiate": (lambda x: x.detach() * 2, leaf(X), "no output needs a gradient"),
    "an input that needs a gradient": (lambda h: h.mul_(2) * 3, leaf(X) * 2, "a leaf Variable that requires grad"),
    "a backward that reads data": (lambda x: (x * 2).prod(), leaf(X), "its result depends on data"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_joined_says_why(name):
    f, *args, reason = REFUSED[name]
    Compiled(f, *args, reason=reason)


# ---- sizes that change -----------------------------------------------------------------------------------------------

def symbolic(x, w):
    h = F.gelu(x @ w)
    return h.view(-1).mean(), h.t(), F.layer_norm(h.sin(), (8,))


SYMBOLIC = '''graph {
  in %0: f32[s0, 8]
  in %1: f32[8, 8]
  where 2 <= s0
  %2: f32[s0, 8] = aten::mm(%0, %1)
  %3: f32[s0, 8] = aten::gelu(%2, "none")
  %4: f32[8*s0] = aten::view(%3, [8*s0])
  %5: f32[] = aten::mean(%4, none)
  %6: f32[8, s0]{1, 8} = aten::t(%3)
  %7: f32[s0, 8] = aten::sin(%3)
  %8: f32[s0, 8], %9: f32[s0, 1], %10: f32[s0, 1] = aten::native_layer_norm(%7, [8], undef, undef, 1e-05)
  out %5, %6, %8
}
'''


def test_one_node_for_many_sizes():
    w = grad(8, 8)
    program = T.parse(SYMBOLIC)
    training = program.training([grad(5, 8), w])
    assert training.reason == "" and training.verify() == []
    (node,) = training.facts()
    assert "f32[s0, 8]" in node["backward"] and "[5" not in node["backward"]
    for size in (5, 2, 33):
        x = grad(size, 8)
        results = []
        for call in (symbolic, lambda *inputs: training.run(list(inputs), [size])):
            x.grad = w.grad = None
            outputs = call(x, w)
            backward(outputs)
            results.append([*outputs, x.grad, w.grad])
        torch.testing.assert_close(*results, rtol=0, atol=0)


# ---- memory ----------------------------------------------------------------------------------------------------------

def bytes_eager_saves(f, *args):
    """Bytes of the storages that eager keeps for the backward, parameters and inputs left out."""
    outside = {a.untyped_storage()._cdata for a in args if isinstance(a, torch.Tensor)}
    kept = {}

    def pack(t):
        if t.untyped_storage()._cdata not in outside:
            kept[t.untyped_storage()._cdata] = t.untyped_storage().nbytes()
        return t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = f(*args)
    del result
    return sum(kept.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_more_is_kept_than_eager_keeps(name):
    f, *args = PROGRAMS[name]
    args = clones(args)
    assert Compiled(f, *clones(args)).saved_bytes <= bytes_eager_saves(f, *args)


def test_activations_are_not_kept():
    x, w, b = grad(64, 32), grad(32, 32), grad(32)
    compiled = Compiled(two_layers, x, w, b)
    assert compiled.saved_bytes == 2 * 64 * 32 * 4 < bytes_eager_saves(two_layers, x, w, b)


def test_nothing_is_kept_alive_by_the_node():
    x = leaf(X)
    f = Compiled(lambda x: (x.exp(), x.sin()), x)
    for drop in ("outputs", "node"):
        a, b = f(x)
        refs = [weakref.ref(a), weakref.ref(b)]
        if drop == "node":
            a.sum().backward(retain_graph=True)
        del a, b
        gc.collect()
        assert [r() for r in refs] == [None, None]
    h = x * 2
    ref = weakref.ref(h)
    out = f(h)[0]  # exp keeps its result, sin its input
    del h
    assert ref() is not None
    out.sum().backward()
    del out
    assert ref() is None


def test_living_tensors_of_traces():
    before = T.counters()["living"]
    for _ in range(3):
        f = Compiled(two_layers, grad(4, 5), grad(5, 5), grad(5))
        f(grad(4, 5), grad(5, 5), grad(5)).sum().backward()
        del f
    gc.collect()
    assert T.counters()["living"] == before


# ---- models ----------------------------------------------------------------------------------------------------------

def bert(layers=2):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=layers, num_attention_heads=2,
                                     intermediate_size=64, vocab_size=100, max_position_embeddings=32)
    return transformers.BertModel(config)


def bert_loss(m):
    return m(input_ids=IDS).pooler_output.pow(2).mean()


MODELS = small_models.MODELS | {
    "bert": (bert, bert_loss),
    "resnet18": (lambda: pytest.importorskip("torchvision").models.resnet18(num_classes=5),
                 lambda m: F.cross_entropy(m(torch.nn.functional.interpolate(IMAGES, 32)), LABELS)),
}


def restored(model, state):
    with torch.no_grad():
        for k, v in model.state_dict().items():
            v.copy_(state[k])


@pytest.mark.parametrize("name", MODELS)
def test_three_steps_of_training(name):
    make, loss_of = MODELS[name]

    def compiled(f, model):
        # Tracing runs the forward: what it did to buffers and generators is undone.
        state, seeds = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
        result = Compiled(f)
        restored(model, state)
        torch.set_rng_state(seeds)
        return result
    eager = train(make, loss_of, lambda f, model: f)
    mine = train(make, loss_of, compiled)
    torch.testing.assert_close(mine, eager, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["gpt2", "vit", "swin", "Mamba", "Mistral", "GPT2 with hidden states"])
def test_gradients_of_real_models(name):
    """All outputs of the model count, key-value caches included: those lie on the way to others."""
    import zoo
    model, make = zoo.build(name)
    model.train()
    args, kwargs = make(1)
    state = {k: v.clone() for k, v in model.state_dict().items()}

    def forward():
        return zoo.flatten(model(*args, **kwargs))
    compiled = Compiled(forward)
    results = []
    for call in (forward, compiled):
        restored(model, state)
        model.zero_grad(set_to_none=True)
        torch.manual_seed(1)
        outputs = tensors_in(call())
        backward(outputs)
        results.append([t.detach() for t in outputs] + [p.grad for p in model.parameters()] +
                       [b.clone() for b in model.buffers()])
    eager, mine = results
    assert [t is None for t in mine] == [t is None for t in eager]
    torch.testing.assert_close([t for t in mine if t is not None], [t for t in eager if t is not None], rtol=1e-5, atol=1e-6)
    outside = [p for p in model.parameters()] + list(model.buffers())
    assert compiled.saved_bytes <= bytes_eager_saves(lambda *_: forward(), *outside)


# ---- operators that return numbers beside tensors ----------------------------------------------------------------------

def test_attention_that_returns_lengths():
    """Like flash attention on a GPU: two undefined tensors, two numbers, seeds. Kernels are ours, in Python."""
    forward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default

    def attend(q, k, v, *rest, **more):
        scores = q @ k.mT / q.shape[-1]**0.5
        seeds = [torch.zeros(2, dtype=torch.uint64), torch.zeros((), dtype=torch.uint64)]
        return (scores.softmax(-1) @ v, scores.logsumexp(-1), None, None, q.shape[-2], k.shape[-2], *seeds, q.new_empty(0))

    def back(g, q, k, v, bias, mask, out, sums, starts_q, starts_k, most_q, most_k, *rest, **more):
        assert (most_q, most_k) == (q.shape[-2], k.shape[-2])
        weights = (q @ k.mT / q.shape[-1]**0.5).softmax(-1)
        to_weights = g @ v.mT
        to_scores = weights * (to_weights - (to_weights * weights).sum(-1, keepdim=True)) / q.shape[-1]**0.5
        return to_scores @ k, to_scores.mT @ q, weights.mT @ g, None

    library = torch.library.Library("aten", "IMPL")
    library.impl("_scaled_dot_product_fused_attention_overrideable", attend, "CPU")
    library.impl("_scaled_dot_product_fused_attention_overrideable_backward", back, "CPU")
    try:
        f = lambda q, k, v: forward(q + 1, k, v)[0] * 2  # noqa: E731
        compiled = magneto.compile(f)
        for trains in (False, True):
            for length in (3, 3, 5, 3):
                mine = [torch.randn(2, 2, n, 8, device="cpu").requires_grad_(trains) for n in (length, 6, 6)]
                theirs = [t.detach().clone().requires_grad_(trains) for t in mine]
                have, want = compiled(*mine), f(*theirs)
                assert torch.allclose(have, want, atol=1e-5)
                if trains:
                    have.sum().backward()
                    want.sum().backward()
                    assert all(torch.allclose(a.grad, b.grad, atol=1e-5) for a, b in zip(mine, theirs))
        graphs = magneto.report().graphs
        assert not graphs[0].fallback and [call.op for call in graphs[0].code[0].calls] == [forward.name()]
        assert not graphs[-1].fallback, graphs[-1].fallback
        assert {code.part for code in graphs[-1].code} == {"forward", "backward"}
    finally:
        library._destroy()


NAN = float("nan")
TIES = [[1.0, 3.0, 3.0], [NAN, 3.0, NAN], [2.0, 2.0, 2.0], [0.0, -0.0, -1.0], [1.0, float("inf"), float("inf")]]


@pytest.mark.needs_capture
@pytest.mark.parametrize("function", [torch.max, torch.min])
@pytest.mark.parametrize("values", TIES)
def test_the_gradient_of_an_extreme_of_all_elements(function, values):
    compiled = magneto.compile(lambda x: function(x) * 2 + x)
    for gradient in (torch.ones(3), torch.tensor([1.0, -2.0, 4.0])):
        x, y = (torch.tensor(values, requires_grad=True) for _ in range(2))
        (function(x) * 2 + x).backward(gradient)
        compiled(y).backward(gradient)
        torch.testing.assert_close(y.grad, x.grad, equal_nan=True, rtol=0, atol=0)
    assert not any(graph.fallback for graph in magneto.report().graphs)


@pytest.mark.needs_capture
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_least_number_of_a_type_is_filled_in_place(dtype):
    mask = torch.tensor([True, False, True])
    compiled = magneto.compile(lambda x: (x * 2).masked_fill_(mask, torch.finfo(x.dtype).min).softmax(0))
    x = torch.randn(3, dtype=dtype, requires_grad=True)
    compiled(x).sum().backward()
    assert not any(graph.fallback for graph in magneto.report().graphs)
