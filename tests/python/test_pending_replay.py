"""Programs: a recorded graph run again, operator by operator."""
import pytest
import torch
import torch.nn.functional as F

from test_pending_harness import T, tracing

X = torch.randn(4, 6)


def program_of(f, *args):
    """A program, and its arguments from those of f."""
    trace = T.Trace()
    for i, a in enumerate(args):
        trace.add_input(a, f"arg{i}")
    ids = [trace.find(a) for a in args]
    with tracing(trace):
        out = f(*args)
    program = trace.finish(list(out) if isinstance(out, tuple) else [out])
    outside = {i: trace.input_tensor(i) for i in program.inputs}
    return program, lambda *new: [new[ids.index(i)] if i in ids else outside[i] for i in program.inputs]


def test_grad_mode_is_that_of_recording():
    def f(x):
        with torch.no_grad():
            a = x * 2
        return a, x * 3
    program, arguments = program_of(f, X.clone().requires_grad_())
    x = X.clone().requires_grad_()
    a, b = program.run(arguments(x))
    assert not a.requires_grad and b.requires_grad and torch.is_grad_enabled()
    b.sum().backward()
    assert torch.equal(x.grad, torch.full_like(X, 3))


def test_a_failure_says_where_and_what_was_changed():
    def f(x, y):
        a = x * 2
        x.add_(1)
        return a @ y
    program, arguments = program_of(f, X.clone(), torch.randn(6, 2))
    assert program.run_until_failure(arguments(X.clone(), torch.randn(5, 2))) == (True, 2, True)
    assert program.run_until_failure(arguments(X.clone(), torch.randn(6, 2))) == (False, 0, False)
    program, arguments = program_of(lambda x, y: (x * 2) @ y, X.clone(), torch.randn(6, 2))
    assert program.run_until_failure(arguments(X.clone(), torch.randn(5, 2))) == (True, 1, False)
    # what was drawn is taken back
    program, arguments = program_of(lambda x, y: torch.rand_like(x) @ y, X.clone(), torch.randn(6, 2))
    given = arguments(X.clone(), torch.randn(5, 2))
    torch.manual_seed(3)
    assert program.run_until_failure(given) == (True, 1, False)
    after = torch.rand(3)
    torch.manual_seed(3)
    assert after.equal(torch.rand(3))


def test_grad_mode_survives_a_failure():
    def f(x, y):
        with torch.no_grad():
            return (x * 2) @ y
    program, arguments = program_of(f, X.clone(), torch.randn(6, 2))
    with pytest.raises(RuntimeError):
        program.run(arguments(X.clone(), torch.randn(5, 2)))
    assert torch.is_grad_enabled()


def test_writes_to_inputs_are_known():
    writes = lambda f, *args: program_of(f, *args)[0].writes_inputs()
    assert not writes(lambda x: (x * 2).add_(1), X.clone())
    assert writes(lambda x: x.add_(1) * 2, X.clone())
    assert writes(lambda x: x.view(-1)[1:3].zero_() * 2, X.clone())
    assert writes(lambda x, m, v: F.batch_norm(x, m, v, training=True), torch.randn(3, 2), torch.zeros(2), torch.ones(2))


def test_autocast_does_not_cast_again():
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.t()
    program, arguments = program_of(f, X.clone())
    plain, plain_arguments = program_of(lambda x: x @ x.t(), X.clone())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert program.run(arguments(X))[0].dtype == torch.bfloat16
        assert plain.run(plain_arguments(X))[0].dtype == torch.float32


def test_intermediates_die_after_their_last_reader():
    import weakref
    library = torch.library.Library("magneto_replay_test", "FRAGMENT")
    library.define("look(Tensor x) -> Tensor")
    alive = []

    def look(x):
        alive[:] = [ref() is not None for ref in refs]
        refs.append(weakref.ref(x))
        return x.clone()
    library.impl("look", look, "CPU")
    library.impl("look", torch.empty_like, "Meta")
    refs = []

    def f(x):
        for _ in range(4):
            x = torch.ops.magneto_replay_test.look(x * 2)
        return x
    program, arguments = program_of(f, X.clone())
    refs.clear()
    program.run(arguments(X.clone()))
    assert alive == [False, False, False]


def test_a_constant_is_new_in_each_run():
    def f(x):
        c = torch.tensor([1., 2.])
        c.add_(x.sum() * 0 + 1)
        return c
    program, arguments = program_of(f, X.clone())
    for _ in range(2):
        assert program.run(arguments(X))[0].tolist() == [2., 3.]


def test_random_numbers_come_in_order():
    def f(x):
        a = torch.randn(3)
        b = F.dropout(x, 0.5)
        c = torch.multinomial(torch.ones(6), 3)
        return a, b, c, torch.randn(2)
    program, arguments = program_of(f, X.clone())
    torch.manual_seed(11)
    eager = f(X.clone())
    torch.manual_seed(11)
    for mine, right in zip(program.run(arguments(X.clone())), eager):
        assert torch.equal(mine, right)


def test_numbers_keep_their_place_in_promotion():
    program, arguments = program_of(lambda x: (x * 2.5, x + 1, x > 1, 3 - x), X.half())
    new = torch.randn(4, 6).half()
    for mine, right in zip(program.run(arguments(new)), (new * 2.5, new + 1, new > 1, 3 - new)):
        assert mine.dtype == right.dtype and torch.equal(mine, right)
