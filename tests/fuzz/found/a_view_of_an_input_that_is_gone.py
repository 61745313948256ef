# create_graph: a view of an input that nobody held stood there without numbers.
import sys; sys.path.insert(0, "tests/fuzz")
from graphs import F, Input, fuzz, run_script, torch, torchvision


def f(x0):
    v1 = x0[-1:, None]
    v2 = v1.view(1)
    v3 = torch.exp(v2)
    torch._dynamo.graph_break()
    return (v3, v1, )


run_script(
    f,
    inputs=[Input('x0', 'f32', (2,), storage='A')],
    storages={'A': {'graph': True}},
    backward={'kind': 'double', 'wanted': ['A'], 'weights': 'plain'},
    calls=[{'seed': 98370312},
           {'seed': 893561360}],
)
