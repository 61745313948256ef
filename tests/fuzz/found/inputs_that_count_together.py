# x0 and x2 count their versions together: torch makes the history of v5 again, and no gradient stops there.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x2):
    v5 = x2.permute(2, 1, 0)
    v6 = v5 * 2
    v7 = x0.narrow(0, 1, 0)
    v7.swapaxes_(1, -1)
    return (v5, v6, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (1, 2), storage='A'),
            Input('x2', 'f32', (2, 2, 2), storage='A', grad=True)],
    backward={'kind': 'backward', 'wanted': ['x0', 'x3', 'x2'], 'weights': 'plain'},
    calls=[{'seed': 288069781},
           {'seed': 370983082}],
)
