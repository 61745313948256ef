# The program ran again on zeros, for a gradient that is differentiated: a division that has no part in it raised.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1, x2, x3):
    with torch.enable_grad():
        x2.remainder_(x2)
        v4 = x1.bool()
    v5 = torch.rand_like(x0)
    v6 = F.scaled_dot_product_attention(x1, x1, x1, is_causal=True)
    v7 = F.embedding((torch.arange(4) % 5), x1)
    v8 = v7.as_strided((1,), (12,))
    v7 = F.mse_loss(v8, v8, reduction='none')
    return (v4, v6, v5, x2, v7, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (5, 4, 6), layout=('permuted', (2, 0, 1)), storage='A', offset=8, grad=True),
            Input('x1', 'f32', (5, 6), layout=('stepped', (2, 3)), storage='A', offset=10, grad=True),
            Input('x2', 'i64', (), storage='B', offset=8, grad=True),
            Input('x3', 'i64', (4, 6), storage='C', offset=2)],
    storages={'A': {'tail': 5}, 'B': {'tail': 1, 'graph': True}, 'C': {'tail': 5}},
    backward={'kind': 'double', 'wanted': ['x1', 'B', 'x2'], 'weights': 'plain', 'output hooks': True},
    calls=[{'seed': 733335772},
           {'seed': 801696678},
           {'seed': 863093947},
           {'seed': 72937438, 'sizes': {'4': 5}},
           {'seed': 1039391514, 'sizes': {'4': 5}}],
)
