# Eager refuses writes to one of several views: after a break it is still one of several.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x2):
    v7 = x2.chunk(1, -4)[0]
    v7.addcmul_(x0, x2, value=2)
    return ()


run_script(
    f,
    inputs=[Input('x0', 'f32', (1, 1), storage='A', grad=True),
            Input('x2', 'f32', (2, 2, 1, 1), storage='C')],
    calls=[{'seed': 153992027},
           {'seed': 61603947},
           {'seed': 491248271}],
)
