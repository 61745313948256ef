# create_graph: what a product saved was asked for, though no gradient comes to it.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0):
    v2 = x0 * 2
    v3 = torch.matmul(x0.mT, x0)
    v4 = fuzz.unknown(v2)
    x0.mul_(2)
    return v2


run_script(
    f,
    inputs=[Input('x0', 'f32', (0, 2), storage='A')],
    storages={'A': {'graph': True}},
    backward={'kind': 'double', 'wanted': ['x0', 'x1', 'A'], 'weights': 'plain'},
    calls=[{'seed': 64557729},
           {'seed': 506238213},
           {'seed': 354173258}],
)
