# Two leaves got one memory for their second gradients: one gradient was a view of the other.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1, x2, x3):
    v4 = x0 + x1.clone() + x2 + x3.unsqueeze(0).squeeze(0)
    v5 = F.linear(x1, v4)
    v6 = F.conv1d(v5, torch.ones(2, 6, 2, dtype=torch.float32), padding=1)
    v7 = torch.clamp(v6, max=2)
    v8 = torch.tensor([1.0, 2.0, -3.0])
    return (v7, v8, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (6, 33), storage='A', grad=True),
            Input('x1', 'f32', (6, 33), storage='B', grad=True),
            Input('x2', 'f32', (6, 33), storage='C'),
            Input('x3', 'f32', (6, 33), storage='D', grad=True)],
    dynamic=True,
    backward={'kind': 'double', 'wanted': ['x3', 'x1', 'x2'], 'weights': 'plain'},
    calls=[{'seed': 383842389},
           {'seed': 94885085},
           {'seed': 795185907},
           {'seed': 88044141, 'dtypes': {'B': 'f16'}},
           {'seed': 773807622, 'dtypes': {'B': 'f16'}}],
)
