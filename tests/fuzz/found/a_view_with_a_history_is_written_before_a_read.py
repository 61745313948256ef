# wrong exception: call 1: exception of call: RuntimeError: numbers that are read are others than when it was recorded instead of None
# call 1: structure of result: None instead of 'tuple'
# call 1: structure of result[0]: absent instead of Tensor
# call 1: structure of result[1]: absent instead of Tensor
# call 1: dtype of result[0]: absent instead of torch.float32
# call 1: dtype of result[1]: absent instead of torch.float32
# call 1: shape of result[0]: absent instead of [1, 6]
# call 1: shape of result[1]: absent instead of [0, 6]
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1):
    v2 = torch.swapdims(x1, 1, -2)
    v2[..., :1].reciprocal_()
    v3 = x1[(torch.arange(1) % 4)]
    v4 = x0[x0 > 0]
    F.threshold(v3[:, 1:], -0.7, -1, inplace=True)
    v4.log1p_()
    v5 = v2.triu(1)
    v6 = x0.broadcast_to(v5.shape)
    v7 = v3[1:-1, :]
    v5[1:] /= -1
    v8 = v3.expand(v3.shape)
    return (v8, v7, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (6, 4), layout=('permuted', (0, 1)), storage='A'),
            Input('x1', 'f32', (4, 6), storage='B')],
    storages={'A': {'tail': 1}, 'B': {'tail': 0, 'graph': True}},
    backward={'kind': 'backward', 'wanted': ['x0', 'B', 'x1'], 'weights': 'plain'},
    calls=[{'seed': 129604464},
           {'seed': 234236666},
           {'seed': 317992547},
           {'seed': 788098350, 'sizes': {'6': 7}},
           {'seed': 297427957, 'sizes': {'6': 7}},
           {'seed': 214818536}],
)
