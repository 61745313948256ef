# Two leaves got parts of one copy.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1):
    v2 = (x0.clone() - x1.clone()).sin()
    v3 = torch.stack([x0, x1])
    v4 = x0.reshape(1, 5, 1, 5)
    v4 = torch.rand_like(x0)
    F.dropout(v2.view(-1), 0.5, inplace=True)
    return (v4, [v3], {'k': ()})


run_script(
    f,
    inputs=[Input('x0', 'f64', (5, 5, 1), storage='A', grad=True),
            Input('x1', 'f64', (5, 5, 1), storage='B', grad=True)],
    backward={'kind': 'backward', 'wanted': ['x0'], 'weights': 'ones'},
    calls=[{'seed': 407236701},
           {'seed': 590362946},
           {'seed': 851649596},
           {'seed': 841407504, 'dtypes': {'A': 'c64'}},
           {'seed': 578721278, 'dtypes': {'A': 'c64'}},
           {'seed': 1064324929}],
)
