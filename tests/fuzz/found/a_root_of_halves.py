# Roots of halves are powers on a CPU: that of -inf is inf.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x2):
    v10 = x2.pow(0.5)
    x2 = v10 * 2
    return x2


run_script(
    f,
    inputs=[Input('x2', 'f16', (2, 2, 2, 2), storage='C', content='special')],
    mode='no_grad',
    calls=[{'seed': 574374250},
           {'seed': 325891530}],
)
