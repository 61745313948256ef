"""Peak memory of the first call, which records, and of the second, beside eager's: eleven models, inference and training.

    python bench/first_call_memory.py [--device cuda] [--no-training] [--small] [names ...]

The peak is what torch's allocator has given out at most during a call (forward, and backward where it trains), above what it
had before. The bars: at most 1.02 of eager's.
"""

import argparse
import os
import pathlib
import sys
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "python"))

import torch

import magneto
from measure import Bars, once, table
from memory import peak
from zoo import flatten, ids

MOST = 1.02


def of_torchvision(name, **fields):
    def build(rows, side):
        import torchvision

        return getattr(torchvision.models, name)(**fields), {"args": (torch.randn(rows, 3, side, side),)}

    return build


def of_transformers(name, config, vocabulary, decodes=False, **fields):
    def build(rows, length):
        import transformers

        model = getattr(transformers, name)(getattr(transformers, config)(**fields))
        kwargs = {"input_ids": ids(rows, length, vocabulary)}
        if decodes:
            kwargs["decoder_input_ids"] = ids(rows, length, vocabulary, seed=1)
        return model, {"kwargs": kwargs}

    return build


def whisper(rows, length):
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration(WhisperConfig())
    sound = torch.randn(rows, 80, 2 * model.config.max_source_positions)
    return model, {"kwargs": {"input_features": sound, "decoder_input_ids": ids(rows, length, 50000)}}


LLAMA = dict(vocab_size=8000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=16,
             num_key_value_heads=8, max_position_embeddings=256)

# name: build, rows and image side or sequence length, the same in small
MODELS = {
    "ResNet-50": (of_torchvision("resnet50"), (8, 224), (2, 96)),
    "ViT-B/16": (of_torchvision("vit_b_16"), (8, 224), (2, 224)),
    "BERT-base": (of_transformers("BertModel", "BertConfig", 30000), (4, 128), (2, 64)),
    "GPT-2": (of_transformers("GPT2LMHeadModel", "GPT2Config", 50000), (2, 128), (1, 64)),
    "Llama of four layers": (of_transformers("LlamaForCausalLM", "LlamaConfig", 8000, **LLAMA), (4, 128), (2, 64)),
    "T5-small": (of_transformers("T5ForConditionalGeneration", "T5Config", 32000, decodes=True), (4, 128), (2, 64)),
    "ConvNeXt-tiny": (of_torchvision("convnext_tiny"), (4, 224), (2, 96)),
    "EfficientNet-B0": (of_torchvision("efficientnet_b0"), (8, 224), (2, 96)),
    "MobileNetV3": (of_torchvision("mobilenet_v3_large"), (8, 224), (2, 96)),
    "Swin-T": (of_torchvision("swin_t"), (4, 224), (2, 96)),
    "Whisper-tiny": (whisper, (1, 64), (1, 16)),
}


def call(f, model, given, trains):
    with torch.set_grad_enabled(trains):
        answer = flatten(f(*given.get("args", ()), **given.get("kwargs", {})))[0]
        if trains:
            answer.float().pow(2).mean().backward()
    del answer
    model.zero_grad()


def on(device, given):
    return {"args": tuple(x.to(device) for x in given.get("args", ())),
            "kwargs": {name: x.to(device) for name, x in given.get("kwargs", {}).items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-training", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    bars, rows = Bars(), []
    for name, (build, large, small) in MODELS.items():
        if options.names and not any(word.lower() in name.lower() for word in options.names):
            continue
        torch.manual_seed(0)
        model, given = build(*(small if options.small else large))
        model.to(options.device)
        given = on(options.device, given)
        for trains in (False, True)[: 1 if options.no_training else 2]:
            what = f"{name}, {'training' if trains else 'inference'}"
            print(f"{what} ...", end="\r", file=sys.stderr, flush=True)
            model.train(trains)
            magneto.reset()
            compiled = magneto.compile(model)
            call(model, model, given, trains)  # torch's own caches are filled
            eager, first, second = (peak(lambda f=f: call(f, model, given, trains), options.device)
                                    for f in (model, compiled, compiled))
            magneto.reset()
            seconds = once(lambda: call(compiled, model, given, trains))[0]
            graphs = len(magneto.report().graphs)
            rows.append((what, *(f"{bytes_ / 1e6:.1f}" for bytes_ in (eager, first, second)), f"{first / eager:.3f}",
                         f"{second / eager:.3f}", f"{seconds:.2f}", graphs))
            bars.at_most(f"{what}: first call", first / eager, MOST, "of eager's")
            bars.at_most(f"{what}: second call", second / eager, MOST, "of eager's")
    table(("peak memory", "eager MB", "first call MB", "second call MB", "first / eager", "second / eager", "first call s",
           "graphs"), rows)
    return bars.check()


if __name__ == "__main__":
    sys.exit(main())
