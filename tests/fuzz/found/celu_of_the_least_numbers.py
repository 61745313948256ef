# expm1 of the least numbers was zero, and celu was divided by its argument.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1, x2, x3):
    v4 = x3.view(torch.int8)
    v5 = v4[-1:, 0::3, None]
    v6 = F.one_hot((torch.arange(3) % 6), 6)
    v7 = torch.softmax(x0 @ x0.mT, -1) @ x0
    v8 = torch.square(v7)
    v9 = torch.nextafter(v4, x2)
    v10 = x1.flip(0)
    v10.transpose(0, -1).index_fill_(-1, (torch.arange(2) % 2), -1.5)
    v11 = F.celu(v9)
    v11 /= v9
    return [v11, v5]


run_script(
    f,
    inputs=[Input('x0', 'f32', (6, 2), layout=('expanded', (0,)), storage='A', content='positive'),
            Input('x1', 'f32', (2,), storage='B', content='ties'),
            Input('x2', 'f32', (), storage='C', offset=2, content='ties'),
            Input('x3', 'i32', (2, 2), storage='D')],
    storages={'A': {'tail': 5}, 'B': {'tail': 5}, 'C': {'tail': 5}, 'D': {'tail': 1}},
    mode='no_grad',
    calls=[{'seed': 918016567},
           {'seed': 170181011},
           {'seed': 467498355}],
)
