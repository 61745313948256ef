# tanh_ of a view saves that view: a second backward comes through it, and calls its hook.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0):
    v4 = F.conv1d(x0, torch.ones(2, 2, 2, dtype=torch.float32), padding=1)
    v4.tanh_()
    return v4


run_script(
    f,
    inputs=[Input('x0', 'f32', (2, 2), storage='A', grad=True)],
    backward={'kind': 'double', 'wanted': ['x0', 'x2', 'x1'], 'weights': 'plain', 'output hooks': True, 'input hooks': ['x0']},
    calls=[{'seed': 653027149},
           {'seed': 405010909}],
)
