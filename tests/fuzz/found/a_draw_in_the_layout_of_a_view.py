# A draw got the copy of a view that was made for loops: its numbers came in another order.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0):
    v1 = x0[-2:, :]
    v2 = v1.narrow(-1, 0, 1)
    v3 = x0.as_strided((3, 3), (1, 2), 4)
    v4 = F.softmax(v3, -2)
    v5 = v4.view((v4.shape[0], -1,))
    v6 = torch.rand_like(v3)
    v7 = v3[:, 0:]
    v8 = v4.narrow(1, 3, 0)
    return (v8, v6, v7, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (130, 4, 1), layout=('permuted', (1, 2, 0)), storage='A', offset=4, content='positive', grad=True)],
    storages={'A': {'tail': 1, 'graph': True}},
    backward={'kind': 'each', 'wanted': ['x0'], 'weights': 'ones', 'rounds': 2, 'wanted inputs': ['x0'], 'ends': [2]},
    calls=[{'seed': 518922929},
           {'seed': 811009949},
           {'seed': 821299311},
           {'seed': 982646920, 'sizes': {'130': 131}},
           {'seed': 156251229, 'sizes': {'130': 131}},
           {'seed': 183145636}],
)
