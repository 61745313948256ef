# create_graph: what was changed is needed for gradients that nobody asked for.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1):
    v4 = F.softmax(x1, 0)
    v5 = torch.addcdiv(v4, x0, x0.abs() + 1)
    return (v4, v5, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (2,), storage='A', grad=True),
            Input('x1', 'f32', (2,), storage='B', grad=True)],
    backward={'kind': 'double', 'wanted': ['x0'], 'weights': 'plain', 'after': [2, 'y.t_()']},
    calls=[{'seed': 547162409},
           {'seed': 545367852}],
)
