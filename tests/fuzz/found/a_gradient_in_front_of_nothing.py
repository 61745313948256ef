# The guard of a read in front of an empty tensor never holds, and was not known to.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x2):
    v2 = x2[1:-1]
    v9 = torch.complex(v2, v2)
    return v9


run_script(
    f,
    inputs=[Input('x2', 'f32', (2, 2, 2), storage='C')],
    storages={'C': {'graph': True}},
    calls=[{'seed': 76421180}],
)
