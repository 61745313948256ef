# detach_() is a break: v1 is an output that v2 was computed from and has no history any more.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0):
    v1 = x0 * 2
    v2 = v1 * 2
    v1.detach_()
    return (v1, v2, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (2, 2, 2, 1), storage='A')],
    storages={'A': {'graph': True}},
    backward={'kind': 'double', 'wanted': ['A', 'x0'], 'weights': 'plain'},
    calls=[{'seed': 816659315},
           {'seed': 1071032476}],
)
