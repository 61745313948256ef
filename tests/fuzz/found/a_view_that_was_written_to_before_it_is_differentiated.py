# create_graph: refused with words of our own where eager has its own.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1, x2):
    v3 = x0 + x1.unsqueeze(0).squeeze(0) + x2
    v4 = v3.t()
    v5 = F.pad(v3, (0, 1, 1, 1))
    v5 += v5
    v6 = torch.logaddexp(v4, v4)
    return (v4, v6, v4, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (4, 6), storage='A', grad=True),
            Input('x1', 'f32', (4, 6), storage='B', grad=True),
            Input('x2', 'f32', (4, 6), storage='C', grad=True)],
    backward={'kind': 'double', 'wanted': ['x2', 'x0', 'x1'], 'weights': 'plain', 'wanted inputs': ['x1'], 'after': [3, 'y.add_(1)']},
    calls=[{'seed': 418931334},
           {'seed': 465795748},
           {'seed': 475424715},
           {'seed': 859335482, 'sizes': {'3': 4}},
           {'seed': 633185146, 'sizes': {'3': 4}},
           {'seed': 683788927}],
)
