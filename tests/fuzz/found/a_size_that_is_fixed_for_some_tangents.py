# 0 * inf: where a choice of tangents could not be made for these sizes, those that did not come were zeros.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x1):
    v1 = x1 * 2
    v6 = x1 * 2
    v1[:-1] = x1.flatten()[:1]
    v8 = torch.rsqrt(v6)
    v6.clamp_(min=0.3)
    return (v1, v6, v8, )


run_script(
    f,
    inputs=[Input('x1', 'f32', (2, 1), storage='B')],
    storages={'B': {'graph': True}},
    dynamic=True,
    backward={'kind': 'backward', 'wanted': ['x0', 'A'], 'weights': 'plain', 'ends': [1]},
    calls=[{'seed': 875130050},
           {'seed': 1048212864}],
)
