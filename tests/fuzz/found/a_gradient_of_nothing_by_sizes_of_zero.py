# The places of what is empty are counted with sizes of zero: it is not read.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x2):
    v6 = x2.narrow(-2, 2, 0)
    v10 = v6.reshape((v6.size(0), -1,))
    v12 = v10 * 2
    return v12


run_script(
    f,
    inputs=[Input('x2', 'f32', (2, 2, 2, 2), storage='B', grad=True)],
    backward={'kind': 'backward', 'wanted': ['x0', 'x2'], 'weights': 'ones'},
    calls=[{'seed': 84077248},
           {'seed': 882441131}],
)
