# x2 is kept for softsign's gradient, which nobody asks for: that of pow_ must not be computed from it, since it has changed.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x2):
    v4 = F.softsign(x2)
    v6 = x2 * 2
    v6.flatten().pow_(2)
    v7 = x2[x2 > 0]
    x2.mul_(2)
    return v6


run_script(
    f,
    inputs=[Input('x2', 'f32', (2, 2), storage='C')],
    storages={'C': {'graph': True}},
    backward={'kind': 'backward', 'wanted': ['x0'], 'weights': 'plain'},
    calls=[{'seed': 694309685},
           {'seed': 897554618},
           {'seed': 945926154}],
)
