# v9 looks at v7 as another dtype and is gone after the break at conj(): it is made again on v7.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, x1):
    v7 = torch.fft.rfft(x0)
    v9 = v7.imag
    v10 = torch.addcdiv(v9, x1, v9.abs() + 1)
    v12 = v7.conj()
    return (v12, v10, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (2, 2), storage='A', grad=True),
            Input('x1', 'f32', (1,), storage='B')],
    backward={'kind': 'double', 'wanted': ['x0'], 'weights': 'plain'},
    calls=[{'seed': 333508713},
           {'seed': 559382469},
           {'seed': 49104004}],
)
