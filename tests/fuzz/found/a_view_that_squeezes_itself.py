# A view that is changed in place leaves the history of what it looks at as it is.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x1, x2):
    v3 = x2 * 2
    v7 = v3.view_as(v3)
    v9 = F.embedding(x1, v7)
    v7.squeeze_()
    return (v3, v9, )


run_script(
    f,
    inputs=[Input('x1', 'i64', (2,), storage='B', content=3),
            Input('x2', 'f32', (2, 2), storage='C')],
    storages={'C': {'graph': True}},
    backward={'kind': 'double', 'wanted': ['x2'], 'weights': 'plain', 'output hooks': True},
    calls=[{'seed': 727339696},
           {'seed': 438789848}],
)
