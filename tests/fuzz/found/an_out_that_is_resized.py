# A tensor that is given by out= and has other sizes gets the strides of the kernel.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1, x2, x3):
    torch.exp(x1, out=x3)
    v4 = F.pad(x2, (-1, 2), value=0.1)
    v5 = torch.reshape(x0, (1, -1,))
    return (v4, x3, v5, v5, x1, )


run_script(
    f,
    inputs=[Input('x0', 'bf16', (1, 2, 4), layout=('stepped', (2, 1, 3)), storage='A', offset=8, content='ties', grad=True),
            Input('x1', 'i32', (4, 6), layout=('strided', (3, 3)), storage='B', content='ties'),
            Input('x2', 'bf16', (4,), layout=('expanded', (0,)), storage='A', offset=8, content='ties', grad=True),
            Input('x3', 'bf16', (1, 4, 6), storage='C')],
    storages={'A': {'tail': 0, 'graph': True}, 'B': {'tail': 5}},
    dynamic=True,
    backward={'kind': 'double', 'wanted': ['A', 'x0', 'x3'], 'weights': 'plain'},
    calls=[{'seed': 508403031},
           {'seed': 764980984},
           {'seed': 384014980},
           {'seed': 730387067, 'sizes': {'4': 1}},
           {'seed': 271745308, 'sizes': {'4': 1}}],
)
