# create_graph: what came through a view that nobody held was lost.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1, x2):
    v3 = torch.softmax(x2 @ x2.mT, -1) @ x2
    v4 = torch.einsum('...ij,...ij->...i', v3, v3)
    v5 = v3.reshape(256)
    v6 = v5.topk(204, -1).values
    x1.swapaxes_(-1, 1)
    v7 = torch.nonzero(v4)
    v8 = x1.transpose(-1, 0)
    v9 = torch.swapdims(v3, 0, 1)
    return (v9, v8, v3, v8, v6, v7, )


run_script(
    f,
    inputs=[Input('x0', 'f64', (5, 5, 4), storage='A', offset=8),
            Input('x1', 'f64', (5, 4), storage='B', offset=8),
            Input('x2', 'f64', (4, 64), layout=('strided', (1, 2)), storage='C', offset=2)],
    storages={'C': {'tail': 0, 'graph': True}},
    dynamic=True,
    backward={'kind': 'double', 'wanted': ['x2', 'C', 'x0'], 'weights': 'ones', 'input hooks': ['x2'], 'after': [1, 'y.zero_()']},
    calls=[{'seed': 804963106},
           {'seed': 943839470},
           {'seed': 170217138},
           {'seed': 287821132, 'sizes': {'5': 1}},
           {'seed': 1001182011, 'sizes': {'5': 1}}],
)
