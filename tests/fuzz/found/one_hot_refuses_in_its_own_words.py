# What a replay cannot take back is raised as it is: in torch's words.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1, x2):
    x0[x2] *= 2
    x2[:] *= 2
    v6 = F.one_hot(x2, 3)
    return ()


run_script(
    f,
    inputs=[Input('x0', 'f32', (6, 2), storage='A'),
            Input('x1', 'f32', (2, 6), storage='B'),
            Input('x2', 'i64', (2,), storage='C', content=3)],
    storages={'A': {'graph': True}},
    calls=[{'seed': 558159416},
           {'seed': 578095134}],
)
