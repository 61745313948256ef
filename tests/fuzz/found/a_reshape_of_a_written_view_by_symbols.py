# What reshape gives for sizes that are symbols tells its strides: those of the tensor before it was written to.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x1, x2):
    v3 = x1 * 2
    v4 = torch.swapdims(v3, 1, 2)
    v4[...] = v4
    v5 = torch.matmul(v4, x2)
    return v5


run_script(
    f,
    inputs=[Input('x1', 'f16', (2, 2, 2), storage='A'),
            Input('x2', 'f16', (2, 2), storage='B')],
    mode='no_grad',
    dynamic=True,
    calls=[{'seed': 796182560},
           {'seed': 342474461}],
)
