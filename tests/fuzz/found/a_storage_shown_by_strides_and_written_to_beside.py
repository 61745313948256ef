# as_strided shows a storage that another input writes to, beside the input it is taken of.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1):
    v3 = x0.as_strided((1, 2, 2), (1, 2, 0), 9)
    x1[:-1] = 2
    v12 = v3 * 2
    return v12


run_script(
    f,
    inputs=[Input('x0', 'bool', (2, 2), storage='A'),
            Input('x1', 'bool', (2, 2), storage='A', offset=8)],
    mode='no_grad',
    calls=[{'seed': 665516270},
           {'seed': 778355864, 'offsets': {'x0': 12}},
           {'seed': 192193749, 'offsets': {'x0': 32}}],
)
