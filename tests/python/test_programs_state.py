"""What lies outside the function and changes between calls: globals, attributes, arguments' contents, aliases."""

import sys
import types

import torch
from torch import ones, randn

from harness import fresh, module_program, same_as_eager


def changed(source, change, *args, **options):
    same_as_eager(module_program(source), *(args or (randn(3),)), change=change, **options)


def test_a_global_number():
    changed("""
        scale = 2
        def f(x):
            return x * scale
    """, lambda m: setattr(m, "scale", 3))


def test_a_global_counter():
    changed("""
        calls = 0
        def f(x):
            global calls
            calls += 1
            return x + calls
    """, lambda m: setattr(m, "calls", 100))


def test_a_global_tensor_replaced_and_written():
    source = """
        import torch
        w = torch.ones(3)
        def f(x):
            return x * w
    """
    changed(source, lambda m: setattr(m, "w", torch.zeros(3)))
    changed(source, lambda m: m.w.add_(5))
    changed(source, lambda m: setattr(m, "w", torch.ones(3, dtype=torch.float64)))
    changed(source, lambda m: setattr(m, "w", torch.ones(1)))
    changed(source, lambda m: m.w.requires_grad_())


def test_a_global_that_is_written_as_a_tensor():
    changed("""
        import torch
        last = torch.zeros(3)
        def f(x):
            global last
            y = x + last[0]
            last = x.detach() * 2
            return y
    """, lambda m: setattr(m, "last", ones(3)))


def test_a_global_list():
    changed("""
        scales = [1, 2]
        def f(x):
            for s in scales:
                x = x * s
            return x
    """, lambda m: m.scales.append(5))


def test_a_global_dict_deep_inside():
    changed("""
        config = {"layer": {"scale": [2, 3]}}
        def f(x):
            return x * config["layer"]["scale"][1]
    """, lambda m: m.config["layer"]["scale"].__setitem__(1, 7))


def test_a_global_deleted():
    def change(m):
        del m.scale

    changed("""
        scale = 2
        def f(x):
            return x * scale
    """, change)


def test_a_builtin_shadowed_by_a_global():
    changed("""
        def f(x):
            return x * abs(-3)
    """, lambda m: setattr(m, "abs", lambda v: 100))


def test_a_global_function_rebound():
    changed("""
        import torch
        act = torch.relu
        def f(x):
            return act(x)
    """, lambda m: setattr(m, "act", torch.tanh))


def test_a_flag_that_selects_a_branch():
    changed("""
        verbose = False
        def f(x):
            if verbose:
                print("sum", x.sum().item())
            return x + 1
    """, lambda m: setattr(m, "verbose", True))


def test_an_attribute_of_another_module():
    other = types.ModuleType("settings_of_the_test")

    @fresh
    def program():
        other.scale = 2
        sys.modules["settings_of_the_test"] = other

        def f(x):
            import settings_of_the_test

            return x * settings_of_the_test.scale + other.scale

        return f, other

    same_as_eager(program, randn(3), change=lambda m: setattr(m, "scale", 9))
    del sys.modules["settings_of_the_test"]


def test_torch_itself_patched():
    def call(g, x):
        plain = g(x)
        relu = torch.nn.functional.relu
        torch.nn.functional.relu = lambda x: x * 100
        try:
            return plain, g(x)
        finally:
            torch.nn.functional.relu = relu

    same_as_eager(lambda x: torch.nn.functional.relu(x) + 1, randn(3), call=call)


def test_defaults_changed():
    def change(m):
        m.helper.__defaults__ = (7,)
        m.helper.__kwdefaults__["b"] = 3

    changed("""
        def helper(x, a=2, *, b=1):
            return x * a + b
        def f(x):
            return helper(x)
    """, change)


def test_the_contents_of_a_list_argument():
    def f(xs, scales):
        return [x * s for x, s in zip(xs, scales)]

    same_as_eager(f, [randn(2), randn(2)], [1, 2], more=[(([randn(2), randn(2)], [3, 4]), {}), (([randn(2)], [1, 2]), {}),
                                                         (([randn(2), randn(2)], [1.0, 2]), {})])


def test_the_contents_of_a_dict_argument():
    def f(x, options):
        return x * options["scale"] + options.get("shift", 0)

    same_as_eager(f, randn(2), {"scale": 2}, more=[((randn(2), {"scale": 3}), {}), ((randn(2), {"scale": 2, "shift": 1}), {}),
                                                   ((randn(2), {"scale": ones(2)}), {}), ((randn(2), {}), {})])


def test_a_number_argument_that_changes_often():
    same_as_eager(lambda x, n: x * n + n, randn(2), 1, more=[((randn(2), n), {}) for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 2.5, 1)])


def test_a_size_that_changes_often():
    def f(x):
        n = x.shape[0]
        return x.reshape(n, -1).sum(1) / n + torch.arange(n)

    same_as_eager(f, randn(2, 3), more=[((randn(n, 3),), {}) for n in (1, 3, 4, 5, 0, 7, 8, 9, 10, 11, 2)])


def test_a_branch_on_a_size():
    def f(x):
        if x.shape[0] > 4:
            return x[:4] * 2
        return x + x.shape[0]

    same_as_eager(f, randn(2), more=[((randn(n),), {}) for n in (4, 5, 9, 1, 3)])


def test_sizes_that_become_equal():
    def f(x, y):
        if x.shape == y.shape:
            return x * y
        return x.sum() + y.sum()

    same_as_eager(f, randn(2), randn(3), more=[((randn(3), randn(3)), {}), ((randn(4), randn(3)), {}), ((randn(2), randn(2)), {})])


def test_broadcasting_that_begins_at_size_one():
    same_as_eager(lambda x, y: (x + y, (x + y).stride()), randn(3, 4), randn(3, 4), more=[
        ((randn(3, 4), randn(1, 4)), {}), ((randn(3, 1), randn(1, 4)), {}), ((randn(1, 1), randn(1, 1)), {}),
        ((randn(3, 4), randn(4)), {})])


def test_an_argument_of_another_type():
    def f(x, y):
        return x + y if y is not None else x

    same_as_eager(f, randn(2), randn(2), more=[((randn(2), None), {}), ((randn(2), 3), {}), ((randn(2), 2.5), {}),
                                               ((torch.nn.Parameter(randn(2)), True), {}), ((3, 4), {}), ((randn(2), "a"), {})])


def test_a_closure_cell_shared_by_two_functions():
    @fresh
    def program():
        scale = 2

        def f(x):
            return x * scale

        def change():
            nonlocal scale
            scale += 3

        return f, change

    same_as_eager(program, randn(2), change=lambda change: change())


def test_a_config_object_read_deep_inside():
    @fresh
    def program():
        config = types.SimpleNamespace(model=types.SimpleNamespace(scale=2, act="relu"), debug=False)

        def act(x):
            return torch.relu(x) if config.model.act == "relu" else torch.tanh(x)

        return (lambda x: act(x) * config.model.scale), config

    same_as_eager(program, randn(3), change=lambda c: setattr(c.model, "act", "tanh"))
    same_as_eager(program, randn(3), change=lambda c: setattr(c, "model", types.SimpleNamespace(scale=5, act="relu")))


def test_two_functions_with_one_code():
    def make(k):
        def f(x):
            return x * k

        return f

    import magneto

    compiled = [magneto.compile(make(k)) for k in range(12)]
    for _ in range(2):
        for k, g in enumerate(compiled):
            assert torch.equal(g(ones(2)), ones(2) * k)


def test_two_modules_of_one_class():
    import magneto

    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 3) for _ in range(12)]
    compiled = [magneto.compile(layer) for layer in layers]
    x = randn(2, 3)
    for _ in range(2):
        for layer, g in zip(layers, compiled):
            assert torch.equal(g(x), layer(x))


def test_an_argument_that_was_a_result():
    def call(g, x):
        for _ in range(4):
            x = g(x)
        return x

    same_as_eager(lambda x: x.sin() + 1, randn(3), call=call)


def test_a_result_written_by_the_caller():
    def call(g, x):
        first = g(x)
        first.detach().fill_(5)
        return first, g(x)

    same_as_eager(lambda x: x * 2, randn(3), call=call)


def test_a_constant_tensor_made_inside_is_new_at_each_call():
    def call(g, x):
        with torch.no_grad():
            first = g(x)
            first.add_(100)
            return first, g(x)

    same_as_eager(lambda x: torch.tensor([1.0, 2.0, 3.0]), randn(3), call=call)


def test_a_list_made_inside_is_new_at_each_call():
    def call(g, x):
        first = g(x)
        first.append("mine")
        return first, g(x), g(x) is g(x)

    same_as_eager(lambda x: [x + 1, [], {}], randn(3), call=call)
