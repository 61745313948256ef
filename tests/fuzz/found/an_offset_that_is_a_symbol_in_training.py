# Training asked for the values of symbols that sizes have; a storage offset was none of them.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x2):
    v4 = x2 * 2
    v13 = x0.as_strided((1, 1), (1, 1), 4)
    return ()


run_script(
    f,
    inputs=[Input('x0', 'f32', (2,), storage='A'),
            Input('x2', 'f32', (2, 2, 2, 2), storage='C', grad=True)],
    storages={'A': {'tail': 5}},
    calls=[{'seed': 220457155},
           {'seed': 816883616, 'offsets': {'x0': 7}}],
)
