# transpose_ of a dimension with itself made a view of what was detached.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x1):
    v2 = x1 * 2
    v5 = x1.detach()
    v5.swapaxes_(-1, 2)
    return (v2, v5, )


run_script(
    f,
    inputs=[Input('x1', 'f32', (2, 2, 2), storage='B', grad=True)],
    calls=[{'seed': 981005142},
           {'seed': 917078747}],
)
