# Who asks whether eager's backward would raise repeats the program with inputs that begin where they did.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0):
    v3 = x0.as_strided((1,), (1,), 2)
    v7 = v3 * 2
    return v7


run_script(
    f,
    inputs=[Input('x0', 'f32', (), storage='A', offset=2)],
    storages={'A': {'graph': True}},
    backward={'kind': 'backward', 'wanted': ['x0'], 'weights': 'plain', 'after': [3, 'y.detach().add_(1)']},
    calls=[{'seed': 1034514050, 'offsets': {'x0': 16}},
           {'seed': 257418737, 'offsets': {'x0': 23}},
           {'seed': 553479145}],
)
