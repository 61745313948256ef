# leaky_relu_ refuses a negative slope in its backward, although round hands on nothing of it.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0):
    v2 = torch.round(x0)
    F.leaky_relu(v2, -0.7, inplace=True)
    return v2


run_script(
    f,
    inputs=[Input('x0', 'f32', (2, 2, 2), storage='A')],
    storages={'A': {'graph': True}},
    backward={'kind': 'backward', 'wanted': ['A', 'x1', 'x0'], 'weights': 'plain'},
    calls=[{'seed': 371518716},
           {'seed': 386004620}],
)
