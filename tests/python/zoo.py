"""Sixty-five real models in tiny configurations, random weights, no downloads.

MAIN: the eight that every experiment of this project runs. ZOO: fifty-seven more. `build(name)` gives the model in
eval mode and a maker of inputs: make(seed) -> (args, kwargs). All of them must be one graph.
"""

import torch

from device import moved


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def ids(rows=2, length=16, vocabulary=100, seed=0):
    return moved(torch.randint(3, vocabulary, (rows, length), generator=seeded(seed)))


def image(rows=2, side=64, seed=0):
    return moved(torch.randn(rows, 3, side, side, generator=seeded(seed)))


INPUTS = {
    "ids": lambda s: ((), dict(input_ids=ids(seed=s))),
    "ids as the only argument": lambda s: ((ids(seed=s),), {}),
    "mask": lambda s: ((), dict(input_ids=ids(seed=s), attention_mask=torch.ones(2, 16, dtype=torch.long))),
    "sequence to sequence": lambda s: ((), dict(input_ids=ids(seed=s), decoder_input_ids=ids(length=8, seed=s + 1))),
    "pixels": lambda s: ((), dict(pixel_values=image(side=32, seed=s))),
    "wave": lambda s: ((), dict(input_values=torch.randn(2, 2000, generator=seeded(s)))),
    "labels": lambda s: ((), dict(input_ids=ids(seed=s), labels=ids(seed=s + 1))),
}


def of_transformers(name, config, inputs="ids", **fields):
    def build():
        import transformers

        return getattr(transformers, name)(getattr(transformers, config)(**fields)), INPUTS[inputs]

    return build


def of_torchvision(name, side=64, **fields):
    def build():
        import torchvision

        return getattr(torchvision.models, name)(**fields), lambda s: ((image(side=side, seed=s),), {})

    return build


def of_timm(name, side=64, **fields):
    def build():
        import timm

        return timm.create_model(name, **fields), lambda s: ((image(side=side, seed=s),), {})

    return build


SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100)
SHORT = dict(max_position_embeddings=64)

MAIN = {
    "bert": of_transformers("BertModel", "BertConfig", "mask", **SMALL, **SHORT),
    "bert without mask": of_transformers("BertModel", "BertConfig", "ids as the only argument", **SMALL, **SHORT),
    "gpt2": of_transformers("GPT2LMHeadModel", "GPT2Config", vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=2),
    "llama": of_transformers("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, **SMALL, **SHORT),
    "resnet18": of_torchvision("resnet18"),
    "vit": of_torchvision("VisionTransformer", 32, image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=32,
                          mlp_dim=64),
    "convnext": of_timm("convnext_atto", num_classes=10),
    "swin": of_timm("swin_tiny_patch4_window7_224", num_classes=10, img_size=64, embed_dim=24, depths=(1, 2),
                    num_heads=(2, 2), window_size=4),
}

HEADS = dict(num_key_value_heads=2)
WIDE_HEADS = dict(num_key_value_heads=2, head_dim=16)
VISION = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8)

ZOO = {
    # transformers: encoders
    "Roberta": of_transformers("RobertaModel", "RobertaConfig", "mask", **SMALL, **SHORT),
    "DistilBert": of_transformers("DistilBertModel", "DistilBertConfig", "mask", vocab_size=100, dim=32, n_layers=2,
                                  n_heads=2, hidden_dim=64),
    "Albert": of_transformers("AlbertModel", "AlbertConfig", "mask", embedding_size=16, **SMALL),
    "Electra": of_transformers("ElectraModel", "ElectraConfig", "mask", embedding_size=16, **SMALL),
    "DebertaV2": of_transformers("DebertaV2Model", "DebertaV2Config", "mask", relative_attention=True,
                                 pos_att_type=["p2c", "c2p"], **SMALL),
    "BertForSequenceClassification": of_transformers("BertForSequenceClassification", "BertConfig", "mask", **SMALL),
    "XLNet": of_transformers("XLNetModel", "XLNetConfig", vocab_size=100, d_model=32, n_layer=2, n_head=2, d_inner=64),
    "Longformer": of_transformers("LongformerModel", "LongformerConfig", "mask", attention_window=4, **SMALL, **SHORT),
    # transformers: decoders
    "GPTNeoX": of_transformers("GPTNeoXForCausalLM", "GPTNeoXConfig", "labels", **SMALL),
    "OPT": of_transformers("OPTForCausalLM", "OPTConfig", vocab_size=100, hidden_size=32, num_hidden_layers=2, ffn_dim=64,
                           num_attention_heads=2, word_embed_proj_dim=32, **SHORT),
    "Mistral": of_transformers("MistralForCausalLM", "MistralConfig", sliding_window=8, **HEADS, **SMALL),
    "Qwen2": of_transformers("Qwen2ForCausalLM", "Qwen2Config", **HEADS, **SMALL),
    "Qwen3": of_transformers("Qwen3ForCausalLM", "Qwen3Config", **WIDE_HEADS, **SMALL),
    "Gemma": of_transformers("GemmaForCausalLM", "GemmaConfig", **WIDE_HEADS, **SMALL),
    "Gemma2": of_transformers("Gemma2ForCausalLM", "Gemma2Config", **WIDE_HEADS, **SMALL),
    "Phi": of_transformers("PhiForCausalLM", "PhiConfig", **SMALL),
    "Falcon": of_transformers("FalconForCausalLM", "FalconConfig", vocab_size=100, hidden_size=32, num_hidden_layers=2,
                              num_attention_heads=2),
    "Bloom": of_transformers("BloomForCausalLM", "BloomConfig", vocab_size=100, hidden_size=32, n_layer=2, n_head=2),
    "Mixtral": of_transformers("MixtralForCausalLM", "MixtralConfig", num_local_experts=4, **HEADS, **SMALL),
    "Mamba": of_transformers("MambaForCausalLM", "MambaConfig", vocab_size=100, hidden_size=32, num_hidden_layers=2,
                             state_size=8),
    "GPT2 with hidden states": of_transformers("GPT2Model", "GPT2Config", vocab_size=100, n_positions=64, n_embd=32,
                                               n_layer=2, n_head=2, output_hidden_states=True, output_attentions=False),
    # transformers: sequence to sequence, vision, audio
    "T5": of_transformers("T5ForConditionalGeneration", "T5Config", "sequence to sequence", vocab_size=100, d_model=32,
                          d_kv=16, d_ff=64, num_layers=2, num_heads=2),
    "Bart": of_transformers("BartModel", "BartConfig", "sequence to sequence", vocab_size=100, d_model=32, encoder_layers=2,
                            decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64,
                            decoder_ffn_dim=64, **SHORT),
    "ViT": of_transformers("ViTModel", "ViTConfig", "pixels", intermediate_size=64, **VISION),
    "Dinov2": of_transformers("Dinov2Model", "Dinov2Config", "pixels", **VISION),
    "Swin": of_transformers("SwinModel", "SwinConfig", "pixels", image_size=32, patch_size=2, embed_dim=16, depths=[1, 2],
                            num_heads=[2, 2], window_size=4),
    "ConvNext": of_transformers("ConvNextModel", "ConvNextConfig", "pixels", hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1]),
    "Wav2Vec2": of_transformers("Wav2Vec2Model", "Wav2Vec2Config", "wave", hidden_size=32, num_hidden_layers=2,
                                num_attention_heads=2, intermediate_size=64, conv_dim=(16, 16), conv_kernel=(10, 3),
                                conv_stride=(5, 2), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2),
}

for _name in ("mobilenet_v3_small", "efficientnet_b0", "densenet121", "googlenet", "squeezenet1_0", "shufflenet_v2_x0_5",
              "regnet_y_400mf", "convnext_tiny", "swin_t", "alexnet", "vgg11"):
    ZOO[f"torchvision {_name}"] = of_torchvision(_name, **({"init_weights": False} if _name == "googlenet" else {}))

for _name in ("resnet18", "efficientnet_lite0", "mobilenetv3_small_050", "regnetx_002", "dla46_c", "ghostnet_050",
              "res2net50_14w_8s", "edgenext_xx_small", "poolformer_s12", "mobilevit_xxs"):
    ZOO[f"timm {_name}"] = of_timm(_name)

for _name, _fields in {
    "vit_tiny_patch16_224": dict(img_size=64), "deit_tiny_patch16_224": dict(img_size=64), "mixer_s32_224": dict(img_size=64),
    "beit_base_patch16_224": dict(img_size=64, embed_dim=48, depth=2, num_heads=2), "coat_lite_tiny": dict(img_size=64),
    "cait_xxs24_224": dict(img_size=64, depth=2), "eva02_tiny_patch14_224": dict(img_size=56), "pit_ti_224": dict(img_size=64),
}.items():
    ZOO[f"timm {_name}"] = of_timm(_name, _fields["img_size"], **_fields)

ALL = {**MAIN, **ZOO}


def build(name):
    torch.manual_seed(0)
    model, make = ALL[name]()
    for parameter in model.parameters():
        if parameter.dim() > 1 and not parameter.any():  # heads that start at zero would make every answer the same
            torch.nn.init.normal_(parameter, std=0.02)
    return moved(model.eval()), lambda seed: moved(make(seed))


def flatten(value):
    """All tensors of a model's answer, in order; key-value caches included."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for item in value.values() for t in flatten(item)]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in flatten(item)]
    if type(value).__name__ == "EncoderDecoderCache":
        return flatten(value.self_attention_cache) + flatten(value.cross_attention_cache)
    if hasattr(value, "layers"):
        return [t for layer in value.layers for t in flatten(list(vars(layer).values()))]
    return []
