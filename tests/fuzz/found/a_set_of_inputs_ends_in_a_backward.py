# The node of one set of inputs ends while another's gradients are asked for a second time.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1):
    v3 = x0 * 2
    v4, v5 = torch.std_mean(x1, -1)
    v6 = fuzz.scaled(v5, 2.0)
    v7 = v4.pow(1)
    v8 = v3 * 2
    v9 = torch.hstack([v3, v8])
    v7.mul_(2)
    return (v8, v9, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (2, 2), storage='A', grad=True),
            Input('x1', 'f32', (2, 2), storage='B', grad=True)],
    backward={'kind': 'each', 'wanted': ['x1'], 'weights': 'plain'},
    calls=[{'seed': 1063777702},
           {'seed': 1005980012}],
)
