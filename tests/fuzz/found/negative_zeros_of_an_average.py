# A sum that begins with zero has no negative zero.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1, x3):
    x3 = F.avg_pool1d(x0, 2)
    x1 = x3 * 2
    v6 = torch.reciprocal(x1)
    return v6


run_script(
    f,
    inputs=[Input('x0', 'f32', (5, 2, 6), storage='A', content='ties'),
            Input('x1', 'f32', (1, 2, 2), storage='B'),
            Input('x3', 'f32', (2, 2, 2, 2), storage='D')],
    mode='no_grad',
    calls=[{'seed': 750376425},
           {'seed': 847038071}],
)
