# The same, with dimensions in another order.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x1):
    v3 = x1.view(x1.shape)
    v4 = v3.clone()
    return v4


run_script(
    f,
    inputs=[Input('x1', 'f32', (2, 2, 2), layout=('permuted', (1, 0, 2)), storage='B')],
    storages={'B': {'graph': True}},
    dynamic=True,
    backward={'kind': 'backward', 'wanted': ['A', 'x0', 'x1'], 'weights': 'plain'},
    calls=[{'seed': 710415217},
           {'seed': 31241787}],
)
