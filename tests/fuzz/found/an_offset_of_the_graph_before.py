# A verifier refused a view from before a graph break: no condition said that its offset is not negative.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0, n0, s0):
    v1 = x0[-1:]
    v2 = torch.lerp(x0, v1, -1)
    x0 = F.embedding((torch.arange(1) % 4), x0)
    x0.copy_(v1)
    v3, v4 = fuzz.two(x0, v1)
    v5 = v1.unfold(1, 3, 2)
    v6 = x0 ** v4
    v7 = v6.view(1, 3)
    return {'k0': v7}


run_script(
    f,
    inputs=[Input('x0', 'f32', (4, 3), layout=('stepped', (1, 2)), storage='A', content='special', grad=True)],
    storages={'A': {'tail': 5}},
    numbers=['n0', 's0'],
    backward={'kind': 'backward', 'wanted': ['x0'], 'weights': 'ones', 'ends': [0]},
    calls=[{'seed': 693084232, 'numbers': {'n0': 3, 's0': -1.5}},
           {'seed': 558146455, 'numbers': {'n0': 3, 's0': -1.5}},
           {'seed': 168452109, 'numbers': {'n0': 3, 's0': -1.5}},
           {'seed': 615795164, 'numbers': {'n0': 1, 's0': 0.1}, 'sizes': {'4': 5}},
           {'seed': 544739764, 'numbers': {'n0': 3, 's0': 0.5}, 'sizes': {'4': 5}}],
)
