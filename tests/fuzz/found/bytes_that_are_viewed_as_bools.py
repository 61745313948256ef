# On a GPU a byte that is neither 0 nor 1 was compared as a number.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1):
    x1.index_put_((torch.tensor([1]),), torch.tensor(2049, dtype=torch.complex64), accumulate=True)
    v2 = x0.view(torch.bool)
    v3 = x0.unfold(0, 1, 2)
    v4 = torch.nonzero(v2)
    v5 = v2[0:, None]
    v6 = v5.expand(-1, 1)
    with torch.enable_grad():
        v7 = torch.cos(v3)
        v8 = torch.ne(v4, v6)
    return (v2, v7, v6, v8, )


run_script(
    f,
    inputs=[Input('x0', 'c64', (5,), storage='A'),
            Input('x1', 'c64', (5,), layout=('permuted', (0,)), storage='B', offset=3, grad=True)],
    storages={'B': {'tail': 0, 'graph': True}},
    dynamic=True,
    backward={'kind': 'backward', 'wanted': ['x0', 'x1'], 'weights': 'plain', 'input hooks': ['x0']},
    calls=[{'seed': 142045053},
           {'seed': 617519375},
           {'seed': 756003836},
           {'seed': 374700821, 'sizes': {'5': 7}},
           {'seed': 576406287, 'sizes': {'5': 7}}],
)
