# The gradient is a view of the tangent that came, whose strides are not those that were expected.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x1, x2):
    v8 = x1.view(2, -1)
    v9 = torch.cat([x2, v8], 1)
    return v9


run_script(
    f,
    inputs=[Input('x1', 'f32', (2,), storage='B', grad=True),
            Input('x2', 'f32', (2, 1), storage='C')],
    dynamic=True,
    backward={'kind': 'backward', 'wanted': ['A', 'x1', 'x0'], 'weights': 'ones'},
    calls=[{'seed': 1046074884},
           {'seed': 1014801569}],
)
