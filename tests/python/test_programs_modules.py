"""nn.Module: the standard layers, containers, buffers, tying, copying, and modules that do odd things."""

import copy

import torch
from torch import nn, ones, randn

from harness import fresh, same_as_eager


def built(make, prepare=None):
    """A module as a program: built anew for each side from the same seed, and watched as state."""

    @fresh
    def program():
        torch.manual_seed(1)
        module = make()
        if prepare is not None:
            prepare(module)
        return module, module

    return program


def test_linear_and_sequential():
    same_as_eager(built(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))), randn(3, 4),
                  change=lambda m: m[0].weight.data.mul_(2))


def test_a_layer_appended_to_sequential():
    same_as_eager(built(lambda: nn.Sequential(nn.Linear(4, 4))), randn(3, 4), change=lambda m: m.append(nn.Tanh()))


def test_a_layer_replaced():
    def change(m):
        m[1] = nn.Sigmoid()

    same_as_eager(built(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU())), randn(3, 4), change=change)


def test_a_parameter_replaced():
    def change(m):
        m.weight = nn.Parameter(ones(4, 4))

    same_as_eager(built(lambda: nn.Linear(4, 4)), randn(3, 4), change=change)


def test_a_frozen_parameter():
    same_as_eager(built(lambda: nn.Linear(4, 4)), randn(3, 4), change=lambda m: m.weight.requires_grad_(False))


def test_a_bias_removed():
    def change(m):
        m.bias = None

    same_as_eager(built(lambda: nn.Linear(4, 4)), randn(3, 4), change=change)


def test_the_whole_module_in_double():
    same_as_eager(built(lambda: nn.Linear(4, 4)), randn(3, 4), change=lambda m: m.double())


def test_train_and_eval():
    make = lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))  # noqa: E731
    same_as_eager(built(make), randn(3, 4), change=lambda m: m.eval())
    same_as_eager(built(make, lambda m: m.eval()), randn(3, 4), change=lambda m: m.train())


def test_batch_norm_updates_its_buffers():
    same_as_eager(built(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())), randn(2, 3, 6, 6),
                  units=4)  # what is constant over a batch has no gradient but rounding
    same_as_eager(built(lambda: nn.BatchNorm1d(4, momentum=None)), randn(3, 4))


def test_norms_of_every_kind():
    class Norms(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(6), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4, affine=True), nn.RMSNorm(6)])

        def forward(self, x):
            return [norm(x) for norm in self.norms]

    same_as_eager(built(Norms), randn(3, 4, 6))


def test_convolutions_and_pools():
    same_as_eager(built(lambda: nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.MaxPool2d(2), nn.ConvTranspose2d(6, 3, 2, 2),
                                              nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 2))), randn(2, 3, 8, 8))


def test_embedding_and_padding():
    same_as_eager(built(lambda: nn.Embedding(10, 4, padding_idx=0, max_norm=1.0)), torch.tensor([[0, 3], [9, 3]]))


def test_recurrent_layers():
    same_as_eager(built(lambda: nn.LSTM(4, 5, num_layers=2, batch_first=True)), randn(3, 6, 4))
    same_as_eager(built(lambda: nn.GRU(4, 5, bidirectional=True)), randn(6, 3, 4))
    same_as_eager(built(lambda: nn.LSTMCell(4, 5)), randn(3, 4))


def test_multihead_attention():
    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=True)

    same_as_eager(built(Attend), randn(2, 5, 8))
    same_as_eager(built(Attend, lambda m: m.eval()), randn(2, 5, 8))


def test_a_transformer_encoder_layer():
    make = lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)  # noqa: E731
    same_as_eager(built(make), randn(2, 5, 8))
    same_as_eager(built(make, lambda m: m.eval()), randn(2, 5, 8))


def test_a_whole_transformer():
    @fresh
    def program():
        torch.manual_seed(1)
        model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
        return model, model

    same_as_eager(program, randn(2, 5, 8), randn(2, 3, 8))


def test_module_list_and_module_dict():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Identity()})

        def forward(self, x, head="a"):
            for i, layer in enumerate(self.layers[:2]):
                x = layer(x) * (i + 1)
            return self.heads[head](self.layers[-1](x)), list(self.heads), len(self.layers)

    same_as_eager(built(Both), randn(3, 4), more=[((randn(3, 4), "b"), {})], change=lambda m: m.layers.append(nn.Tanh()))


def test_parameter_list_and_parameter_dict():
    class Lists(nn.Module):
        def __init__(self):
            super().__init__()
            self.ws = nn.ParameterList([randn(4) for _ in range(3)])
            self.d = nn.ParameterDict({"a": randn(4), "b": randn(4)})

        def forward(self, x):
            for w in self.ws:
                x = x * w
            return x + sum(self.d.values()) + self.d["a"]

    same_as_eager(built(Lists), randn(3, 4))


def test_a_buffer_written_inside():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))
            self.register_buffer("mean", torch.zeros(4), persistent=False)

        def forward(self, x):
            self.steps += 1
            self.mean.lerp_(x.detach().mean(0).float(), 0.5)  # exact: a sum that rounds once more shows in an x of f64
            self.last = x.detach()
            return x - self.mean

    same_as_eager(built(Counter), randn(3, 4), change=lambda m: m.steps.fill_(100))


def test_a_buffer_replaced_inside():
    class Ema(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            return x - self.mean

    same_as_eager(built(Ema), randn(3, 4))


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(6, 4)
            self.head = nn.Linear(4, 6, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, i):
            return self.head(self.embedding(i)), self.head.weight is self.embedding.weight

    same_as_eager(built(Tied), torch.tensor([0, 5, 2]))


def test_a_number_attribute_of_a_module():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.by, self.calls = 2.0, 0

        def forward(self, x):
            self.calls += 1
            return x * self.by, self.calls

    same_as_eager(built(Scale), randn(3), change=lambda m: setattr(m, "by", -1.0))


def test_layers_made_on_the_first_call():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = None

        def forward(self, x):
            if self.layer is None:
                torch.manual_seed(4)
                self.layer = nn.Linear(x.shape[-1], 2)
            return self.layer(x)

    same_as_eager(built(Lazy), randn(3, 4))


def test_lazy_linear():
    same_as_eager(built(lambda: nn.LazyLinear(3)), randn(3, 4))


def test_a_module_called_in_a_plain_function():
    @fresh
    def program():
        torch.manual_seed(1)
        layer = nn.Linear(4, 4)
        return (lambda x: layer(layer(x)).relu()), layer

    same_as_eager(program, randn(3, 4), change=lambda layer: layer.bias.data.fill_(3))


def test_a_method_other_than_forward():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def encode(self, x):
            return self.inner(x).tanh()

        def forward(self, x):
            return self.encode(x) * 2

    @fresh
    def program():
        torch.manual_seed(1)
        module = Two()
        return module.encode, module

    same_as_eager(program, randn(3, 4))


def test_keyword_arguments_and_structured_results():
    class Out(dict):
        def __getattr__(self, name):
            return self[name]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x=None, *, mask=None, return_dict=True, **extra):
            y = self.layer(x)
            y = y if mask is None else y * mask
            return Out(y=y, n=len(extra)) if return_dict else (y,)

    same_as_eager(built(Model), kwargs={"x": randn(3, 4)}, more=[
        ((randn(3, 4),), {"mask": ones(4)}), ((), {"x": randn(3, 4), "return_dict": False, "z": 1})])


def test_a_module_copied_inside():
    @fresh
    def program():
        torch.manual_seed(1)
        layer = nn.Linear(4, 4)

        def f(x):
            twin = copy.deepcopy(layer)
            twin.weight.data.zero_()
            return layer(x) + twin(x)

        return f, layer

    same_as_eager(program, randn(3, 4))


def test_a_module_made_inside():
    def f(x):
        torch.manual_seed(2)
        layer = nn.Linear(4, 3)
        return layer(x), layer

    same_as_eager(f, randn(3, 4))


def test_named_parameters_walked_inside():
    @fresh
    def program():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))

        def f(x):
            penalty = sum(p.pow(2).sum() for n, p in model.named_parameters() if n.endswith("weight"))
            return model(x), penalty, [n for n, _ in model.named_modules()], len(list(model.buffers()))

        return f, model

    same_as_eager(program, randn(3, 4), change=lambda m: m[0].weight.data.add_(1))


def test_functional_call_and_state_dict():
    @fresh
    def program():
        torch.manual_seed(1)
        layer = nn.Linear(4, 4)

        def f(x, w):
            return torch.func.functional_call(layer, {"weight": w}, (x,)), list(layer.state_dict())

        return f, layer

    same_as_eager(program, randn(3, 4), randn(4, 4, requires_grad=True))


def test_a_forward_that_was_patched():
    def prepare(m):
        plain = m.forward
        m.forward = lambda x: plain(x) * 3

    same_as_eager(built(lambda: nn.Linear(4, 4), prepare), randn(3, 4), change=lambda m: m.__dict__.pop("forward"))


def test_parametrizations():
    same_as_eager(built(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))), randn(3, 4))
    same_as_eager(built(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))), randn(3, 4))


def test_a_residual_net_with_stochastic_depth():
    import random

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x):
            for block in self.blocks:
                if not self.training or random.random() < 0.5:
                    x = x + block(x)
            return x

    same_as_eager(built(Residual), randn(3, 4), change=lambda m: m.eval())


def test_a_module_that_prints_and_reads_items():
    class Chatty(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            h = self.a(x)
            print("norm", round(h.norm().item(), 4))
            if h.mean() > 0:
                h = -h
            return self.b(h)

    same_as_eager(built(Chatty), randn(3, 4))


def test_quantised_and_pruned_layers():
    from torch.nn.utils import prune

    same_as_eager(built(lambda: prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.5)), randn(3, 4))
