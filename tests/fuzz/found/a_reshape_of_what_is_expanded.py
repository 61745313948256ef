# An output that looks at an expanded input: its gradient is not divided among elements that share memory.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0):
    v2 = x0 * 2
    v3 = x0.reshape((2, -1, 1, 1,))
    return (v3, v2, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (2,), layout=('expanded', (0,)), storage='B', grad=True)],
    dynamic=True,
    backward={'kind': 'backward', 'wanted': ['x1', 'x0'], 'weights': 'plain'},
    calls=[{'seed': 911060199},
           {'seed': 681308770}],
)
