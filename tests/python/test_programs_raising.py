"""Operators that raise, in every place an exception can be seen from.

What the program did before the operator is done once, what stands after it is not done, and the exception has eager's
type and text: when the line is recorded, and when it is replayed; when only the data of this call make it raise.
"""

import collections
import contextlib
import io
import math

import pytest
import torch

import magneto

# name: expression of x [2, 3], bad (another tensor, or the one that makes it raise), k (a number)
FINE, BAD = torch.tensor([0, 1]), torch.tensor([0, 99])
ERRORS = {
    "shapes": ("x + torch.ones(7)", None), "matmul": ("x @ torch.ones(9, 9)", None), "view": ("x.view(7)", None), "cat": ("torch.cat([x, torch.ones(4, 4)])", None),
    "an index": ("x[10]", None), "a dimension": ("x.sum(dim=5)", None), "a dtype that no kernel has": ("torch.nn.functional.softplus(x.to(torch.int8))", None),
    "two dtypes": ("torch.mm(x, x.mT.double())", None), "linear": ("torch.nn.functional.linear(x, torch.ones(5, 5))", None), "no such attribute": ("x.no_such_thing", None),
    "a wrong argument": ("torch.sum(x, dim='z')", None), "item of many": ("x.item()", None), "truth of many": ("bool(x)", None), "squeeze": ("x.expand(5, 5, 5)", None),
    "conv": ("torch.nn.functional.conv2d(x[None, None], torch.ones(1, 3, 2, 2))", None), "in place": ("x.add_(torch.ones(7, 7, 7))", None), "in place of a leaf": ("torch.ones(2, requires_grad=True).add_(1)", None),
    "library": ("torch.ops.aten.index_select(x, 7, torch.tensor([0]))", None), "reshape": ("x.reshape(5, -1)", None), "stack": ("torch.stack([])", None), "einsum": ("torch.einsum('ij,jk->ik', x, x)", None),
    "unbind": ("(lambda a, b, c, d, e: a)(*x)", None), "split": ("torch.split(x, [1, 9], 0)", None), "bitwise of floats": ("x & x", None), "not implemented": ("torch.linalg.cholesky(x.to(torch.int64)[:2, :2])", None),
    # by the data of this call
    "indices": ("x[idx]", BAD), "index_select": ("torch.index_select(x, 0, idx)", BAD), "gather": ("torch.gather(x, 0, idx.view(-1, 1))", BAD), "embedding": ("torch.nn.functional.embedding(idx, x)", BAD),
    "scatter": ("torch.zeros(2, 3).scatter(0, idx.view(-1, 1), 1.0)", BAD), "division of ints": ("torch.tensor([4, 4]) // idx.clamp(0, 1).sub(1).mul(idx.ge(50).long().neg().add(1)).sub(idx.lt(50).long())", torch.tensor([99, 99])),
    "one_hot": ("torch.nn.functional.one_hot(idx, 3)", BAD), "cross_entropy": ("torch.nn.functional.cross_entropy(x, idx)", BAD), "index_put": ("x.clone().index_put_((idx,), x)", BAD), "take": ("torch.take(x, idx)", BAD),
    "cholesky": ("torch.linalg.cholesky(torch.eye(2) * (50 - idx[1]))", BAD), "inverse": ("torch.linalg.inv(torch.eye(2) * (99 - idx[1]))", BAD), "multinomial": ("torch.multinomial(50.0 - idx.float(), 1).shape", BAD),
    "repeat_interleave": ("torch.repeat_interleave(torch.ones(2), 1 - idx.clamp(max=2))", BAD), "index_add": ("torch.zeros(2, 3).index_add(0, idx, x)", BAD), "bincount": ("torch.bincount(50 - idx)", BAD), "item": ("[1, 2][idx[1].item()]", BAD),
    "write to an index": ("x.__setitem__(idx, 0.0)", BAD), "index_add_": ("x.index_add_(0, idx, x.detach() * 2)", BAD), "an index after a draw": ("(torch.rand(2, 3) + x)[idx]", BAD),
    "an index after a dropout": ("torch.nn.functional.dropout(x, 0.5)[idx]", BAD), "a draw in place": ("x.detach().normal_()[idx]", BAD),
}

PLACES = {
    "plain": "    out.append(OP)",
    "try, except": "    try:\n        log.append('in')\n        out.append(OP)\n        log.append('not here')\n    except Exception as e:\n        log.append(('caught', type(e).__name__, str(e)))",
    "try, finally": "    try:\n        log.append('in')\n        out.append(OP)\n        log.append('not here')\n    finally:\n        log.append('finally')\n        x.mul_(2)",
    "except of another type": "    try:\n        out.append(OP)\n    except ZeroDivisionError:\n        log.append('wrong one')\n    finally:\n        log.append('finally')",
    "except, else, finally": "    try:\n        y = OP\n    except (RuntimeError, IndexError, TypeError, NotImplementedError, ValueError, AttributeError) as e:\n        log.append(type(e))\n    else:\n        log.append('else')\n        out.append(y)\n    finally:\n        log.append('finally')",
    "suppress": "    with contextlib.suppress(Exception):\n        log.append('in')\n        out.append(OP)\n        log.append('not here')",
    "with": "    with Watch(log):\n        log.append('in')\n        out.append(OP)\n        log.append('not here')",
    "with that swallows": "    with Watch(log, True):\n        out.append(OP)\n    log.append('behind')",
    "no_grad": "    with torch.no_grad():\n        log.append(torch.is_grad_enabled())\n        out.append(OP)\n        log.append('not here')",
    "a function": "    out.append(inner(x, idx, log))",
    "a function in a try": "    try:\n        out.append(inner(x, idx, log))\n    except Exception as e:\n        log.append((type(e), str(e)))",
    "a generator": "    for y in generator(x, idx, log):\n        out.append(y)\n        log.append('took')",
    "a generator in a try": "    try:\n        out.extend(generator(x, idx, log))\n    except Exception as e:\n        log.append(type(e))",
    "a comprehension": "    out.extend([OP for _ in range(2)])",
    "raised again": "    try:\n        out.append(OP)\n    except Exception:\n        log.append('again')\n        raise",
    "raised from": "    try:\n        out.append(OP)\n    except Exception as e:\n        log.append('from')\n        raise KeyError('mine') from e",
    "a loop": "    for k in range(3):\n        try:\n            log.append(k)\n            out.append(OP)\n        except Exception as e:\n            log.append(type(e))\n            continue\n        log.append('good')",
    "return in finally": "    try:\n        out.append(OP)\n    finally:\n        log.append('finally')\n        return ('finally', x * 2)",
    "nested": "    try:\n        try:\n            out.append(OP)\n        finally:\n            log.append('inner')\n            state['k'] = state.get('k', 0) + 1\n    except Exception as e:\n        log.append(('outer', type(e)))",
    "unused": "    y = OP\n    log.append('made')\n    out.append(1)",
    "unused in a try": "    try:\n        y = OP\n        log.append('made')\n    except Exception as e:\n        log.append(type(e))\n    out.append(1)",
    "context manager of a function": "    with managed(log):\n        out.append(OP)\n        log.append('not here')",
    "ExitStack": "    with contextlib.ExitStack() as stack:\n        stack.callback(log.append, 'callback')\n        out.append(OP)\n        log.append('not here')",
}

PROGRAM = """
COUNT = 0
def inner(x, idx, log):
    log.append('inner')
    try:
        return OP
    finally:
        log.append('inner ends')
def generator(x, idx, log):
    log.append('starts')
    try:
        yield x + 1
        yield OP
        log.append('not here')
    finally:
        log.append('generator ends')
class Watch:
    def __init__(self, log, swallows=False): self.log, self.swallows = log, swallows
    def __enter__(self):
        self.log.append('enter')
        return self
    def __exit__(self, kind, error, trace):
        self.log.append(('exit', kind, str(error)))
        return self.swallows
@contextlib.contextmanager
def managed(log):
    log.append('enter')
    try:
        yield
    except Exception as e:
        log.append(('managed', type(e)))
        raise
    finally:
        log.append('leave')
def f(x, idx, log, state):
    global COUNT
    out = []
    log.append('before')
    COUNT += 1
    state['n'] = state.get('n', 0) + 1
    x.add_(1)
    z = x * 2
    PRINT
PLACE
    log.append('after')
    state['last'] = z
    x.sub_(0.5)
    return out, z
"""


def picture(value):
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, tuple(value.shape), value.detach().tolist())
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [picture(v) for v in value])
    if isinstance(value, dict):
        return [(k, picture(v)) for k, v in value.items()]
    return value if isinstance(value, (str, int, float, bool, type(None), type)) else type(value).__name__


# What x is: of no history, or computed by the caller; written to in place, it gets another one.
INPUTS = {"plain": lambda x: x, "with a history": lambda x: x.requires_grad_() * 1, "a view": lambda x: torch.cat([x, x])[1:3]}


def run(error, place, kind, printing, compiled):
    expression, bad = ERRORS[error]
    space = {"torch": torch, "contextlib": contextlib, "collections": collections}
    text = PROGRAM.replace("PRINT", "print('printed')" if printing else "pass").replace("PLACE", PLACES[place]).replace("OP", expression)
    exec(compile(text, f"<{error}, {place}>", "exec"), space)
    f = magneto.compile(space["f"], **compiled) if compiled is not None else space["f"]
    seen = []
    for round in range(4 if bad is None else 6):
        x, log, state = INPUTS[kind](torch.linspace(1, 2, 6).reshape(2, 3)), [], {}
        version = x._version
        idx = FINE if bad is None or round in (0, 1, 3) else bad
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            try:
                result = ("returned", picture(f(x, idx, log, state)))
            except Exception as raised:
                result = ("raised", type(raised), str(raised), type(raised.__cause__), type(raised.__context__))
        seen.append((result, picture(log), picture(state), picture(x), output.getvalue(), space["COUNT"], torch.rand(1).item(), x._version - version, x.grad_fn is None))
    return seen


def alike(a, b):
    """Equal, floats up to rounding."""
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b))
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6) if isinstance(a, float) and isinstance(b, float) else a == b


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("backend", ["eager", None])
def test_operators_that_raise(place, backend):
    wrong = []
    for number, error in enumerate(ERRORS):
        for kind, printing in (("plain", False), ("plain", True), (("with a history", "a view")[number % 2], False)):
            magneto.reset()
            torch.manual_seed(0)
            expected = run(error, place, kind, printing, None)
            torch.manual_seed(0)
            got = run(error, place, kind, printing, {"backend": backend} if backend else {})
            for round, (theirs, ours) in enumerate(zip(expected, got)):
                if not alike(theirs, ours):
                    wrong.append(f"{error}, x {kind}, printing {printing}, call {round}\n  eager: {theirs}\n  ours:  {ours}")
                    break
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong)


@pytest.mark.parametrize("backend", ["eager", None])
def test_what_was_written_beside_an_input_is_taken_back(backend):
    """as_strided reaches all of a storage, not only the elements of its argument."""
    def f(x, i):
        x.as_strided((2,), (2,), 3).mul_(2)
        x.as_strided((6,), (1,), 0).view(2, 3)[1].add_(1)
        return x[i]

    compiled = magneto.compile(f, **({"backend": backend} if backend else {}))
    for index in (0, 1, 2, 0, 7, 1, -9):
        seen = []
        for call in (f, compiled):
            memory = torch.arange(10.0)
            x = memory[1:8:3]
            try:
                answer = call(x, torch.tensor(index)).tolist()
            except IndexError as error:
                answer = str(error)
            seen.append((answer, memory.tolist(), x._version))
        assert seen[0] == seen[1]


@pytest.mark.parametrize("backend", ["eager", None])
def test_a_view_that_torch_tells_no_history_of(backend):
    """One of several results, whose memory was written to: whoever asks for its history is refused, who writes its bytes is not."""
    def f(x):
        first = x.split(1, 0)[0]
        where = torch.argmax(x, dim=0)
        x.narrow(0, 2, 1).masked_fill_(where > 0, 0.3)
        torch.nonzero(where)  # a break
        bytes = first.view(torch.uint8)
        bytes[..., :1] *= 3
        torch.nn.functional.one_hot(torch.arange(4) % 1, 1)  # it may refuse
        return bytes + 1

    compiled = magneto.compile(f, dynamic=True, **({"backend": backend} if backend else {}))
    for row in (7, 6, 6, 7, 6):
        answers = []
        for call in (f, compiled):
            torch.manual_seed(1)
            base = torch.rand(40, dtype=torch.float64, requires_grad=True).clone()
            answers.append((call(base.as_strided((3, 6), (row, 1), 3)).tolist(), base.tolist()))
        assert answers[0] == answers[1]
