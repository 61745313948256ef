# A view that is told strides was laid on the memory itself, above a view that no gradient goes through.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x3):
    v4 = x3 * 2
    with torch.no_grad():
        v6 = v4[..., 1]
    v7 = v6.reshape(3, -1)
    return v7


run_script(
    f,
    inputs=[Input('x3', 'f32', (2, 33, 2, 2), storage='D', grad=True)],
    backward={'kind': 'backward', 'wanted': ['x1', 'x3'], 'weights': 'plain'},
    calls=[{'seed': 266346058},
           {'seed': 207676321, 'sizes': {'2': 4}},
           {'seed': 47702803}],
)
