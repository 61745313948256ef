# What writes to a view has its edges twice, and torch compares them.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x3):
    v10 = x3 * 2
    v11 = F.smooth_l1_loss(x0, x0, reduction='mean')
    v10[:] /= v11
    v12 = v11.view(1)
    v13 = torch.logcumsumexp(v10, dim=0)
    return (v13, v12, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (2, 2), storage='A'),
            Input('x3', 'f32', (2,), storage='D')],
    storages={'A': {'graph': True}},
    backward={'kind': 'double', 'wanted': ['x2', 'x0', 'x3', 'D', 'x1'], 'weights': 'plain'},
    calls=[{'seed': 306316582},
           {'seed': 981878380}],
)
