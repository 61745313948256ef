"""Module hooks of every kind, there before the compile, added after it, removed again."""

import torch
from torch import nn, randn

from harness import fresh, same_as_eager


def hooked(before=None):
    @fresh
    def program():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        model.log = []
        if before is not None:
            before(model)
        return model, model

    return program


def test_a_forward_hook_there_before():
    def before(m):
        m[0].register_forward_hook(lambda module, args, out: m.log.append(out.shape) or out * 2)

    same_as_eager(hooked(before), randn(3, 4))


def test_a_forward_hook_added_after_the_first_call():
    same_as_eager(hooked(), randn(3, 4), change=lambda m: m[1].register_forward_hook(lambda module, args, out: out + 1))


def test_a_forward_hook_on_the_compiled_module_itself():
    same_as_eager(hooked(), randn(3, 4), change=lambda m: m.register_forward_hook(lambda module, args, out: out * 5))


def test_a_hook_removed_again():
    def before(m):
        m[0].register_forward_hook(lambda module, args, out: out * 2)
        m.handle = m[0].register_forward_hook(lambda module, args, out: out - 1)

    same_as_eager(hooked(before), randn(3, 4), change=lambda m: m.handle.remove())


def test_a_pre_hook_that_changes_the_input():
    def before(m):
        m[2].register_forward_pre_hook(lambda module, args: (args[0] * 3,))

    same_as_eager(hooked(before), randn(3, 4))


def test_a_pre_hook_with_keywords():
    class Scaled(nn.Module):
        def forward(self, x, scale=1):
            return x * scale

    @fresh
    def program():
        module = Scaled()
        module.register_forward_pre_hook(lambda m, args, kwargs: (args, {**kwargs, "scale": 4}), with_kwargs=True)
        module.register_forward_hook(lambda m, args, kwargs, out: out + kwargs["scale"], with_kwargs=True)
        return module, module

    same_as_eager(program, randn(3), more=[((randn(3),), {"scale": 2})])


def test_the_order_of_hooks():
    def before(m):
        m[0].register_forward_hook(lambda module, args, out: out + 1)
        m[0].register_forward_hook(lambda module, args, out: out * 2, prepend=True)
        m[0].register_forward_hook(lambda module, args, out: print("last"))

    same_as_eager(hooked(before), randn(3, 4))


def test_a_hook_that_prints_and_reads_data():
    def before(m):
        m[0].register_forward_hook(lambda module, args, out: print(type(module).__name__, f"{out.mean().item():.4f}"))

    same_as_eager(hooked(before), randn(3, 4))


def test_a_hook_that_keeps_activations():
    def before(m):
        m.kept = {}
        for name, layer in m.named_children():
            layer.register_forward_hook(lambda module, args, out, name=name: m.kept.__setitem__(name, out.detach()))

    same_as_eager(hooked(before), randn(3, 4))


def test_full_backward_hooks():
    def before(m):
        m[0].register_full_backward_hook(lambda module, grads_in, grads_out: m.log.append(grads_out[0].clone()))
        m[2].register_full_backward_pre_hook(lambda module, grads_out: (grads_out[0] * 2,))

    same_as_eager(hooked(before), randn(3, 4))


def test_a_hook_for_all_modules():
    calls = []

    def call(g, x):
        handle = torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: calls.append(type(module)))
        try:
            return g(x), calls[-1]
        finally:
            handle.remove()

    same_as_eager(hooked(), randn(3, 4), call=call)


def test_a_hook_that_raises():
    def before(m):
        def fail(module, args, out):
            raise ValueError("hook says no")

        m[1].register_forward_hook(fail)

    same_as_eager(hooked(before), randn(3, 4), raises=ValueError)


def test_an_always_called_hook_after_an_error():
    def before(m):
        m[2].register_forward_hook(lambda module, args, out: m.log.append("called"), always_call=True)
        m[2].register_forward_pre_hook(lambda module, args: (args[0][:, :1],))

    same_as_eager(hooked(before), randn(3, 4), raises=RuntimeError)


def test_state_dict_and_load_state_dict_hooks_inside():
    def before(m):
        m.register_state_dict_post_hook(lambda module, state, prefix, meta: m.log.append(len(state)))

    def call(g, x):
        g(x)
        g.load_state_dict(g.state_dict())
        return g(x)

    same_as_eager(hooked(before), randn(3, 4), call=call)


def test_a_hook_that_removes_itself():
    def before(m):
        def once(module, args, out):
            handle.remove()
            return out * 7

        handle = m[0].register_forward_hook(once)

    same_as_eager(hooked(before), randn(3, 4))
