# create_graph: the history of an input was made again when its memory counted a write, and a gradient was lost.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x1):
    v4 = x1.detach()
    v9 = x1 * 2
    v4.t_()
    return (v9, x1, )


run_script(
    f,
    inputs=[Input('x1', 'f32', (2, 2), storage='B', grad=True)],
    backward={'kind': 'double', 'wanted': ['x1'], 'weights': 'plain'},
    calls=[{'seed': 777111097},
           {'seed': 17273137}],
)
