"""BERT-base, GPT-2, a Llama of eight layers and ResNet-50 in their real sizes: one graph each, trained like eager."""

import pytest
import torch

import magneto
from device import moved
from rounding import EXACT, close
from zoo import flatten, ids, image

pytestmark = pytest.mark.slow


def bert():
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()), lambda seed: {"input_ids": ids(1, 32, 30000, seed)}


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config()), lambda seed: {"input_ids": ids(1, 32, 50000, seed)}


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=8000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8,
                         num_attention_heads=16, num_key_value_heads=8, max_position_embeddings=256)
    return LlamaForCausalLM(config), lambda seed: {"input_ids": ids(1, 32, 8000, seed)}


def resnet50():
    import torchvision

    return torchvision.models.resnet50(), lambda seed: {"x": image(2, 64, seed)}


MODELS = {"BERT-base": bert, "GPT-2": gpt2, "Llama of eight layers": llama, "ResNet-50": resnet50}


@pytest.fixture(autouse=True)
def all_cores():
    torch.set_num_threads(2)


@pytest.fixture(scope="module", params=list(MODELS))
def built(request):
    torch.manual_seed(0)
    model, make = MODELS[request.param]()
    return moved(model), lambda seed: moved(make(seed))


def test_inference_equals_eager(built):
    model, make = built
    model.eval()
    compiled = magneto.compile(model)
    with torch.no_grad():
        for seed in (0, 5):
            for a, b in zip(flatten(model(**make(seed))), flatten(compiled(**make(seed))), strict=True):
                assert a.stride() == b.stride() and close(a, b, units=4)


@pytest.mark.needs_capture
def test_inference_is_one_graph(built):
    model, make = built
    model.eval()
    with torch.no_grad():
        found = magneto.explain(model)(**make(0))
    assert (found.graph_count, found.break_count) == (1, 0), str(found)


def test_ten_training_steps_equal_eager(built):
    """Rounding grows from step to step; a tensor that is further off must be as near to what float64 gives as eager's is."""
    model, make = built
    model.train()
    start = {name: value.clone() for name, value in model.state_dict().items()}

    def train(callee, cast=lambda t: t):
        model.load_state_dict(start)
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses = []
        for step in range(10):
            optimizer.zero_grad()
            answer = flatten(callee(**{name: cast(value) for name, value in make(step % 3).items()}))[0]
            loss = answer.float().pow(2).mean() if answer.dtype != torch.float64 else answer.pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return {"loss": torch.tensor(losses, dtype=torch.float64), **{n: v.clone() for n, v in model.state_dict().items()}}

    eager, compiled = train(model), train(magneto.compile(model))
    off = [name for name, want in eager.items() if not close(want, compiled[name], units=10)]
    if off and not EXACT:
        model.double()
        exact = train(model, lambda t: t.double() if t.is_floating_point() else t)
        model.float()
        error = lambda got, name: (got[name].double() - exact[name].double()).pow(2).mean().sqrt()  # noqa: E731
        off = [name for name in off if error(compiled, name) > 2 * error(eager, name) + 1e-5]
    assert not off and len(set(eager["loss"].tolist())) == 10
