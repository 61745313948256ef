# hardshrink compares with its bound as a half.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x4):
    x4.scatter_(0, (torch.arange(2).view(1, 2) % 3), 0.3)
    v9 = F.hardshrink(x4, 0.3)
    return v9


run_script(
    f,
    inputs=[Input('x4', 'bf16', (2, 2), storage='C')],
    mode='no_grad',
    calls=[{'seed': 157717133},
           {'seed': 570931007}],
)
