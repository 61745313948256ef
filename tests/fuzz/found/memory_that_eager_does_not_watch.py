# kron saves an _unsafe_view of x1: who writes to x1 gets no error, and the numbers that are there.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x1):
    v3 = torch.kron(x1, x1)
    return (v3, x1, )


run_script(
    f,
    inputs=[Input('x1', 'f32', (2, 1), storage='B')],
    storages={'B': {'graph': True}},
    backward={'kind': 'backward', 'wanted': ['x0'], 'weights': 'plain', 'after': [1, 'y.detach().add_(1)']},
    calls=[{'seed': 916262651},
           {'seed': 882371181}],
)
