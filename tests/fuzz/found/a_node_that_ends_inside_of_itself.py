# Hung: what the backward had saved was let go under its lock, and its history led to the graph's own outputs.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1, x2, x3):
    v4 = F.conv1d(x2, torch.ones(2, 6, 2, dtype=torch.float32), padding=1)
    v6 = v4.mean()
    v7 = F.softmin(x3, dim=-1)
    v8 = torch.masked_select(v6, v6 > 0)
    v9 = torch.stack([v8, v8, v8])
    v10 = v8.squeeze()
    v11 = torch.softmax(v9 @ v9.mT, -1) @ v9
    v12 = torch.diag_embed(v11)
    v13 = v9.view(v12.shape)
    x0[..., :1].masked_fill_(v10 > 0, v10.sum())
    return (v8, v13, v8, v10, v7, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (6, 4), layout=('permuted', (1, 0)), storage='A'),
            Input('x1', 'f32', (4,), layout=('sliced', (0,)), storage='A', offset=3),
            Input('x2', 'f32', (6, 4), storage='A', offset=3, grad=True),
            Input('x3', 'f32', (4, 4), layout=('permuted', (1, 0)), storage='B', content='constants', grad=True)],
    storages={'A': {'tail': 0, 'graph': True}, 'B': {'tail': 0, 'graph': True}},
    backward={'kind': 'backward', 'wanted': ['x1'], 'weights': 'plain', 'after': [3, 'y.detach().add_(1)']},
    calls=[{'seed': 778422252},
           {'seed': 807657172},
           {'seed': 891737475},
           {'seed': 729788133, 'sizes': {'4': 5}},
           {'seed': 231529452, 'sizes': {'4': 5}},
           {'seed': 246812230}],
)
