# The gradient of x1 is the real part of that of x2: two leaves, one memory.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1, x2):
    v3 = torch.tanh(x0.clone() + x1.clone() + x2.clone())
    return v3


run_script(
    f,
    inputs=[Input('x0', 'f32', (), storage='A'),
            Input('x1', 'f32', (), storage='B', grad=True),
            Input('x2', 'f32', (), storage='C', grad=True)],
    backward={'kind': 'backward', 'wanted': ['x2'], 'weights': 'plain'},
    calls=[{'seed': 457211174, 'dtypes': {'C': 'c64'}},
           {'seed': 600577226, 'dtypes': {'C': 'c64'}}],
)
