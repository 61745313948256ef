"""Real architectures, trained: more than a hundred of them, tiny, with random weights, compiled and in eager side by side.

    python tests/python/zoo_train.py [--models REGEX] [--shard I/N] [--device cuda] [--steps N] [--seconds N] [--list]

The last line says how many are equal; before it, for information, which are not one graph and why.

Each goes through three *trials* in a process of its own: eval on two inputs, three steps of an optimizer (SGD with momentum
and weight decay, or AdamW, in turn), and the same three steps with a graph break forced in the middle of the model: a forward
hook that prints, on the module that is called half way. Outputs, gradients, parameters and buffers must be eager's after
each step, a gradient that is None included. Then the compiled world takes over eager's state, so that each step is held to the
rounding of one step.

An error is measured against the same step in double precision, relative to the tensor, not to 1: ours may be a few times
eager's own, or a few times what eager's answer moves when its weights move by their last bit. Where the true gradient is zero (a bias before a batch norm), rounding is all there is: nothing below the rounding of
the largest gradient of the model counts. Some models make much of little (a batch norm over eight numbers, then a relu): where
an error is small, but too large, or one element of a tensor alone is off (a relu whose argument is zero up to rounding), the trial is
made again in double precision, and there the answers must agree.
"""

import argparse
import copy
import gc
import io
import itertools
import os
import re
import sys
import time
import traceback

import torch

import device
import magneto
import zoo
from device import moved
from forked import told_by
from zoo import HEADS, SHORT, SMALL, VISION, WIDE_HEADS, ids, image, of_timm, of_torchvision, of_transformers, seeded

zoo.INPUTS.update({
    "ids and mask": lambda s: ((), dict(input_ids=ids(seed=s), attention_mask=torch.ones(2, 16, dtype=torch.long))),
    "features": lambda s: ((), dict(input_features=torch.randn(2, 80, 64, generator=seeded(s)),
                                    decoder_input_ids=ids(length=8, seed=s + 1))),
    "spectrogram": lambda s: ((), dict(input_values=torch.randn(2, 64, 16, generator=seeded(s)))),
    "text and pixels": lambda s: ((), dict(input_ids=ids(seed=s), pixel_values=image(side=32, seed=s),
                                           attention_mask=torch.ones(2, 16, dtype=torch.long))),
    "series": lambda s: ((), dict(past_values=torch.randn(2, 32, 2, generator=seeded(s)))),
    "pixels 64": lambda s: ((), dict(pixel_values=image(side=64, seed=s))),
})

BART = dict(vocab_size=100, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, **SHORT)
T5 = dict(vocab_size=100, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2)
SPEECH = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, conv_dim=(16, 16),
              conv_kernel=(10, 3), conv_stride=(5, 2), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2)
EXPERTS = dict(moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2, **HEADS, **SMALL)
CLIP_TEXT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100,
                 max_position_embeddings=64)
CLIP_VISION = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32,
                   patch_size=8)

MORE = {
    # transformers: encoders
    "MobileBert": of_transformers("MobileBertModel", "MobileBertConfig", "mask", vocab_size=100, hidden_size=32,
                                  num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, embedding_size=16,
                                  intra_bottleneck_size=16),
    "SqueezeBert": of_transformers("SqueezeBertModel", "SqueezeBertConfig", "mask", embedding_size=32, **SMALL),
    "ConvBert": of_transformers("ConvBertModel", "ConvBertConfig", "mask", embedding_size=32, **SMALL),
    "MPNet": of_transformers("MPNetModel", "MPNetConfig", "mask", **SMALL),
    "Deberta": of_transformers("DebertaModel", "DebertaConfig", "mask", relative_attention=True, pos_att_type=["p2c", "c2p"],
                               **SMALL),
    "RoFormer": of_transformers("RoFormerModel", "RoFormerConfig", "mask", embedding_size=32, **SMALL),
    "FNet": of_transformers("FNetModel", "FNetConfig", "ids", vocab_size=100, hidden_size=32, num_hidden_layers=2,
                            intermediate_size=64, max_position_embeddings=64),
    "Nystromformer": of_transformers("NystromformerModel", "NystromformerConfig", "mask", num_landmarks=4, segment_means_seq_len=16,
                                     **SMALL),
    "ModernBert": of_transformers("ModernBertModel", "ModernBertConfig", "mask", pad_token_id=0, attn_implementation="sdpa",
                                  **SMALL),
    "XLMRoberta": of_transformers("XLMRobertaModel", "XLMRobertaConfig", "mask", **SMALL),
    "Camembert": of_transformers("CamembertForMaskedLM", "CamembertConfig", "mask", **SMALL),
    "Ernie": of_transformers("ErnieModel", "ErnieConfig", "mask", **SMALL),
    "RemBert": of_transformers("RemBertModel", "RemBertConfig", "mask", input_embedding_size=16, output_embedding_size=16,
                               **SMALL),
    "Flaubert": of_transformers("FlaubertModel", "FlaubertConfig", "mask", vocab_size=100, emb_dim=32, n_layers=2, n_heads=2),
    "XLM": of_transformers("XLMModel", "XLMConfig", "mask", vocab_size=100, emb_dim=32, n_layers=2, n_heads=2),
    "Funnel": of_transformers("FunnelModel", "FunnelConfig", "mask", vocab_size=100, block_sizes=[1, 1], d_model=32, n_head=2,
                              d_head=16, d_inner=64),
    "BigBird": of_transformers("BigBirdModel", "BigBirdConfig", "mask", attention_type="original_full", **SMALL),
    "Canine": of_transformers("CanineModel", "CanineConfig", "mask", hidden_size=32, num_hidden_layers=2,
                              num_attention_heads=2, intermediate_size=64, local_transformer_stride=8,
                              upsampling_kernel_size=4, downsampling_rate=4, num_hash_buckets=64),
    "Ibert": of_transformers("IBertModel", "IBertConfig", "mask", **SMALL),
    "LayoutLM": of_transformers("LayoutLMModel", "LayoutLMConfig", "mask", **SMALL),
    # transformers: decoders
    "GPTNeo": of_transformers("GPTNeoForCausalLM", "GPTNeoConfig", vocab_size=100, hidden_size=32, num_layers=2,
                              attention_types=[[["global", "local"], 1]], num_heads=2, window_size=4, **SHORT),
    "GPTJ": of_transformers("GPTJForCausalLM", "GPTJConfig", vocab_size=100, n_embd=32, n_layer=2, n_head=2, rotary_dim=8,
                            n_positions=64),
    "CodeGen": of_transformers("CodeGenForCausalLM", "CodeGenConfig", vocab_size=100, n_embd=64, n_layer=2, n_head=4,
                               rotary_dim=8, n_positions=64),
    "CTRL": of_transformers("CTRLLMHeadModel", "CTRLConfig", vocab_size=100, n_embd=32, n_layer=2, n_head=2, dff=64,
                            n_positions=64),
    "XGLM": of_transformers("XGLMForCausalLM", "XGLMConfig", vocab_size=100, d_model=32, num_layers=2, attention_heads=2,
                            ffn_dim=64, **SHORT),
    "StableLm": of_transformers("StableLmForCausalLM", "StableLmConfig", **HEADS, **SMALL),
    "Starcoder2": of_transformers("Starcoder2ForCausalLM", "Starcoder2Config", **HEADS, **SMALL),
    "Olmo": of_transformers("OlmoForCausalLM", "OlmoConfig", **HEADS, **SMALL),
    "Olmo2": of_transformers("Olmo2ForCausalLM", "Olmo2Config", **HEADS, **SMALL),
    "Phi3": of_transformers("Phi3ForCausalLM", "Phi3Config", pad_token_id=0, **HEADS, **SMALL),
    "Granite": of_transformers("GraniteForCausalLM", "GraniteConfig", **HEADS, **SMALL),
    "Cohere": of_transformers("CohereForCausalLM", "CohereConfig", **HEADS, **SMALL),
    "Cohere2": of_transformers("Cohere2ForCausalLM", "Cohere2Config", **HEADS, **SMALL),
    "Persimmon": of_transformers("PersimmonForCausalLM", "PersimmonConfig", **SMALL),
    "Nemotron": of_transformers("NemotronForCausalLM", "NemotronConfig", **WIDE_HEADS, **SMALL),
    "Glm": of_transformers("GlmForCausalLM", "GlmConfig", pad_token_id=0, **WIDE_HEADS, **SMALL),
    "Gemma3": of_transformers("Gemma3ForCausalLM", "Gemma3TextConfig", **WIDE_HEADS, **SMALL),
    "Helium": of_transformers("HeliumForCausalLM", "HeliumConfig", **WIDE_HEADS, **SMALL),
    "SmolLM3": of_transformers("SmolLM3ForCausalLM", "SmolLM3Config", pad_token_id=0, **HEADS, **SMALL),
    "Ministral": of_transformers("MinistralForCausalLM", "MinistralConfig", **WIDE_HEADS, **SMALL),
    "Qwen2Moe": of_transformers("Qwen2MoeForCausalLM", "Qwen2MoeConfig", shared_expert_intermediate_size=32, **EXPERTS),
    "Qwen3Moe": of_transformers("Qwen3MoeForCausalLM", "Qwen3MoeConfig", head_dim=16, **EXPERTS),
    "Olmoe": of_transformers("OlmoeForCausalLM", "OlmoeConfig", num_experts=4, num_experts_per_tok=2, **HEADS, **SMALL),
    "GraniteMoe": of_transformers("GraniteMoeForCausalLM", "GraniteMoeConfig", num_local_experts=4, num_experts_per_tok=2,
                                  **HEADS, **SMALL),
    "PhiMoE": of_transformers("PhimoeForCausalLM", "PhimoeConfig", num_local_experts=4, num_experts_per_tok=2, **HEADS,
                              **SMALL),
    "DeepseekV3": of_transformers("DeepseekV3ForCausalLM", "DeepseekV3Config", moe_intermediate_size=32, n_routed_experts=4,
                                  num_experts_per_tok=2, n_group=2, topk_group=1, q_lora_rank=16, kv_lora_rank=16,
                                  qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16, first_k_dense_replace=1, **HEADS,
                                  **SMALL),
    "Mamba2": of_transformers("Mamba2ForCausalLM", "Mamba2Config", vocab_size=100, hidden_size=32, num_hidden_layers=2,
                              state_size=8, num_heads=4, head_dim=16, n_groups=2, expand=2, chunk_size=8),
    "Falcon Mamba": of_transformers("FalconMambaForCausalLM", "FalconMambaConfig", vocab_size=100, hidden_size=32,
                                    num_hidden_layers=2, state_size=8),
    "RecurrentGemma": of_transformers("RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", lru_width=32, attention_window_size=8,
                                      block_types=["recurrent", "attention"], **SMALL),
    "Rwkv": of_transformers("RwkvForCausalLM", "RwkvConfig", vocab_size=100, hidden_size=32, num_hidden_layers=2,
                            attention_hidden_size=32, intermediate_size=64, context_length=64),
    "Biogpt": of_transformers("BioGptForCausalLM", "BioGptConfig", **SMALL),
    "GPTBigCode": of_transformers("GPTBigCodeForCausalLM", "GPTBigCodeConfig", vocab_size=100, n_positions=64, n_embd=32,
                                  n_layer=2, n_head=2),
    "OpenAIGPT": of_transformers("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", vocab_size=100, n_positions=64, n_embd=32,
                                 n_layer=2, n_head=2),
    "Mpt": of_transformers("MptForCausalLM", "MptConfig", vocab_size=100, d_model=32, n_heads=2, n_layers=2, max_seq_len=64),
    # transformers: sequence to sequence
    "MBart": of_transformers("MBartModel", "MBartConfig", "sequence to sequence", **BART),
    "Pegasus": of_transformers("PegasusModel", "PegasusConfig", "sequence to sequence", **BART),
    "Marian": of_transformers("MarianModel", "MarianConfig", "sequence to sequence", pad_token_id=1, **BART),
    "Blenderbot": of_transformers("BlenderbotSmallModel", "BlenderbotSmallConfig", "sequence to sequence", **BART),
    "M2M100": of_transformers("M2M100Model", "M2M100Config", "sequence to sequence", **BART),
    "ProphetNet": of_transformers("ProphetNetModel", "ProphetNetConfig", "sequence to sequence", vocab_size=100,
                                  hidden_size=32, num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=2,
                                  num_decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, **SHORT),
    "MT5": of_transformers("MT5ForConditionalGeneration", "MT5Config", "sequence to sequence", **T5),
    "UMT5": of_transformers("UMT5ForConditionalGeneration", "UMT5Config", "sequence to sequence", **T5),
    "LongT5": of_transformers("LongT5ForConditionalGeneration", "LongT5Config", "sequence to sequence", local_radius=4, **T5),
    "SwitchTransformers": of_transformers("SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig",
                                          "sequence to sequence", num_experts=2, num_sparse_encoder_layers=1,
                                          num_sparse_decoder_layers=1, **T5),
    "LED": of_transformers("LEDModel", "LEDConfig", "sequence to sequence", vocab_size=100, d_model=32, encoder_layers=2,
                           decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64,
                           decoder_ffn_dim=64, attention_window=4, max_encoder_position_embeddings=64,
                           max_decoder_position_embeddings=64),
    # transformers: vision
    "DeiT": of_transformers("DeiTModel", "DeiTConfig", "pixels", intermediate_size=64, **VISION),
    "Beit": of_transformers("BeitModel", "BeitConfig", "pixels", intermediate_size=64, use_relative_position_bias=True,
                            **VISION),
    "ViTMSN": of_transformers("ViTMSNModel", "ViTMSNConfig", "pixels", intermediate_size=64, **VISION),
    "Swinv2": of_transformers("Swinv2Model", "Swinv2Config", "pixels", image_size=32, patch_size=2, embed_dim=16,
                              depths=[1, 2], num_heads=[2, 2], window_size=4),
    "Segformer": of_transformers("SegformerForSemanticSegmentation", "SegformerConfig", "pixels", hidden_sizes=[8, 16, 16, 16],
                                 depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2], decoder_hidden_size=16),
    "ConvNextV2": of_transformers("ConvNextV2Model", "ConvNextV2Config", "pixels", hidden_sizes=[8, 16, 16, 16],
                                  depths=[1, 1, 1, 1]),
    "PoolFormer": of_transformers("PoolFormerModel", "PoolFormerConfig", "pixels", hidden_sizes=[8, 16, 16, 16],
                                  depths=[1, 1, 1, 1]),
    "MobileViT": of_transformers("MobileViTModel", "MobileViTConfig", "pixels 64", image_size=64, hidden_sizes=[16, 16, 16],
                                 neck_hidden_sizes=[8, 8, 16, 16, 16, 16, 32]),
    "RegNet of transformers": of_transformers("RegNetModel", "RegNetConfig", "pixels", embedding_size=8,
                                              hidden_sizes=[8, 16], depths=[1, 1], groups_width=8),
    "ResNet of transformers": of_transformers("ResNetModel", "ResNetConfig", "pixels", embedding_size=8,
                                              hidden_sizes=[8, 16], depths=[1, 1]),
    "FocalNet": of_transformers("FocalNetModel", "FocalNetConfig", "pixels", image_size=32, patch_size=2, embed_dim=16,
                                depths=[1, 1], hidden_sizes=[16, 32], focal_levels=[2, 2], focal_windows=[3, 3]),
    "Pvt": of_transformers("PvtModel", "PvtConfig", "pixels", image_size=32, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1],
                           num_attention_heads=[1, 1, 2, 2], sequence_reduction_ratios=[2, 2, 1, 1]),
    "PvtV2": of_transformers("PvtV2Model", "PvtV2Config", "pixels", image_size=32, hidden_sizes=[8, 16, 16, 16],
                             depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2], sr_ratios=[2, 2, 1, 1]),
    "Hiera": of_transformers("HieraModel", "HieraConfig", "pixels 64", image_size=[64, 64], embed_dim=16, depths=[1, 1, 1],
                             num_heads=[1, 2, 4], query_stride=[2, 2], num_query_pool=2),
    "Yolos": of_transformers("YolosForObjectDetection", "YolosConfig", "pixels", hidden_size=32, num_hidden_layers=2,
                             num_attention_heads=2, intermediate_size=64, image_size=[32, 32], patch_size=8,
                             num_detection_tokens=4),
    "GLPN": of_transformers("GLPNForDepthEstimation", "GLPNConfig", "pixels", hidden_sizes=[8, 16, 16, 16],
                            depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2], decoder_hidden_size=16),
    "Dinov2 with registers": of_transformers("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", "pixels", **VISION),
    "Ijepa": of_transformers("IJepaModel", "IJepaConfig", "pixels", intermediate_size=64, **VISION),
    # transformers: audio, several kinds of input, series
    "Hubert": of_transformers("HubertModel", "HubertConfig", "wave", **SPEECH),
    "WavLM": of_transformers("WavLMModel", "WavLMConfig", "wave", **SPEECH),
    "UniSpeech": of_transformers("UniSpeechModel", "UniSpeechConfig", "wave", **SPEECH),
    "Data2VecAudio": of_transformers("Data2VecAudioModel", "Data2VecAudioConfig", "wave", conv_pos_kernel_size=5, **SPEECH),
    "Whisper": of_transformers("WhisperModel", "WhisperConfig", "features", num_mel_bins=80, max_source_positions=32,
                               max_target_positions=32, pad_token_id=1, bos_token_id=1, eos_token_id=2,
                               decoder_start_token_id=1, **{k: v for k, v in BART.items() if k != "max_position_embeddings"}),
    "AST": of_transformers("ASTModel", "ASTConfig", "spectrogram", hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                           intermediate_size=64, patch_size=8, frequency_stride=4, time_stride=4, max_length=64,
                           num_mel_bins=16),
    "CLIP": of_transformers("CLIPModel", "CLIPConfig", "text and pixels", text_config=CLIP_TEXT, vision_config=CLIP_VISION,
                            projection_dim=16),
    "Siglip": of_transformers("SiglipModel", "SiglipConfig", "text and pixels", text_config=CLIP_TEXT,
                              vision_config=CLIP_VISION),
    "Vilt": of_transformers("ViltModel", "ViltConfig", "text and pixels", image_size=32, patch_size=8, max_image_length=-1,
                            **SMALL),
    "Git": of_transformers("GitForCausalLM", "GitConfig", "text and pixels", vision_config=CLIP_VISION, **SMALL),
    "PatchTST": of_transformers("PatchTSTModel", "PatchTSTConfig", "series", num_input_channels=2, context_length=32,
                                patch_length=4, patch_stride=4, d_model=16, num_hidden_layers=2, num_attention_heads=2,
                                ffn_dim=32),
    "PatchTSMixer": of_transformers("PatchTSMixerModel", "PatchTSMixerConfig", "series", num_input_channels=2,
                                    context_length=32, patch_length=4, patch_stride=4, d_model=16, num_layers=2),
}


# ---- torchvision ----------------------------------------------------------------------------------------------------

class Backbone(torch.nn.Module):
    """A small one, as detectors want it: two feature maps by name."""

    def __init__(self, channels=16):
        super().__init__()
        self.out_channels = channels
        self.first = torch.nn.Sequential(torch.nn.Conv2d(3, channels, 3, 4, 1), torch.nn.BatchNorm2d(channels),
                                         torch.nn.ReLU(inplace=True))
        self.second = torch.nn.Conv2d(channels, channels, 3, 2, 1)

    def forward(self, x):
        x = self.first(x)
        return {"0": x, "1": self.second(x).relu()}


def detection(name):
    """Boxes are part of the input in training; in eval the images alone."""
    def build():
        from torchvision.models import detection as d
        from torchvision.ops import MultiScaleRoIAlign

        def as_list(backbone):
            backbone.out_channels = [16, 16]
            return backbone

        sizes = dict(min_size=64, max_size=64)
        anchors = d.anchor_utils.AnchorGenerator(((16, 32),) * 2, ((0.5, 1.0, 2.0),) * 2)
        pool = lambda n: MultiScaleRoIAlign(["0", "1"], n, 2)  # noqa: E731
        classes = 2 if name == "KeypointRCNN" else 4
        boxes = dict(rpn_post_nms_top_n_train=50, rpn_post_nms_top_n_test=20, rpn_anchor_generator=anchors,
                     box_roi_pool=pool(4), box_detections_per_img=5, box_head=d.faster_rcnn.TwoMLPHead(16 * 16, 32),
                     box_predictor=d.faster_rcnn.FastRCNNPredictor(32, classes), **sizes)
        model = {
            "FasterRCNN": lambda: d.FasterRCNN(Backbone(), **boxes),
            "MaskRCNN": lambda: d.MaskRCNN(Backbone(), mask_roi_pool=pool(8), mask_head=d.mask_rcnn.MaskRCNNHeads(16, (16,), 1),
                                           mask_predictor=d.mask_rcnn.MaskRCNNPredictor(16, 16, classes), **boxes),
            "KeypointRCNN": lambda: d.KeypointRCNN(
                Backbone(), keypoint_roi_pool=pool(8), keypoint_head=d.keypoint_rcnn.KeypointRCNNHeads(16, (16,)),
                keypoint_predictor=d.keypoint_rcnn.KeypointRCNNPredictor(16, 2), **boxes),
            "RetinaNet": lambda: d.RetinaNet(Backbone(), classes, anchor_generator=anchors, detections_per_img=5, **sizes),
            "FCOS": lambda: d.FCOS(Backbone(32), classes, detections_per_img=5,
                                   anchor_generator=d.anchor_utils.AnchorGenerator(((8,), (16,)), ((1.0,),) * 2), **sizes),
            "SSD": lambda: d.ssd.SSD(as_list(Backbone()), d.anchor_utils.DefaultBoxGenerator(
                [[2], [2]], scales=[0.1, 0.4, 0.8]), (64, 64), classes, detections_per_img=5),
        }[name]()

        def make(seed):
            images = list(image(side=64, seed=seed))
            corners = torch.tensor([[4.0, 4, 40, 40], [10, 20, 50, 60]]) + seed % 4
            targets = [dict(boxes=corners.clone(), labels=torch.tensor([1, 1 if name == "KeypointRCNN" else 2]),
                            masks=(torch.rand(2, 64, 64, generator=seeded(seed)) > 0.5).to(torch.uint8),
                            keypoints=torch.cat([corners.view(2, 2, 2), torch.ones(2, 2, 1)], -1)) for _ in images]
            return (images, targets), {}

        return model, make

    return build


def video(name, **fields):
    def build():
        import torchvision

        return (getattr(torchvision.models.video, name)(num_classes=5, **fields),
                lambda s: ((torch.randn(1, 3, 4, 32, 32, generator=seeded(s)),), {}))

    return build


def segmentation(name, **fields):
    def build():
        import torchvision

        return (getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, num_classes=4, **fields),
                lambda s: ((image(side=64, seed=s),), {}))

    return build


for _name in ("FasterRCNN", "MaskRCNN", "KeypointRCNN", "RetinaNet", "FCOS", "SSD"):
    MORE[f"torchvision {_name}"] = detection(_name)
for _name in ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large"):
    MORE[f"torchvision {_name}"] = segmentation(_name)
MORE["torchvision mc3_18"] = video("mc3_18")
for _name in ("mnasnet0_5", "mobilenet_v2", "shufflenet_v2_x1_0", "regnet_x_400mf", "squeezenet1_1", "swin_v2_t"):
    MORE[f"torchvision {_name}"] = of_torchvision(_name)

for _name in ("dpn68", "efficientnet_b0", "fbnetc_100", "gernet_s", "hardcorenas_a", "lcnet_050", "mnasnet_small",
              "mobilenetv2_035", "mobileone_s0", "repvgg_a0", "resnest14d", "rexnet_100", "seresnet18", "skresnet18",
              "spnasnet_100", "tinynet_e", "selecsls42", "semnasnet_075", "fastvit_t8", "repghostnet_050",
              "mobilenetv4_conv_small", "starnet_s1", "inception_next_atto", "pvt_v2_b0", "poolformerv2_s12",
              "ese_vovnet19b_dw"):
    MORE[f"timm {_name}"] = of_timm(_name, num_classes=10)
for _name, _side in {"levit_128s": 224, "xcit_nano_12_p16_224": 224, "visformer_tiny": 224, "gmlp_ti16_224": 224}.items():
    MORE[f"timm {_name}"] = of_timm(_name, _side, num_classes=10)

LARGE = ("torchvision alexnet", "torchvision vgg11")  # tens of millions of weights, and nothing that others have not
ALL = {name: built for name, built in {**zoo.ALL, **MORE}.items() if name not in LARGE}
"""A few that the test suite trains: what differed once, and one of each kind."""
FEW = ["gpt2", "resnet18", "torchvision FasterRCNN", "T5", "timm mobilevit_xxs"]


# ---- one architecture -----------------------------------------------------------------------------------------------

def build(name):
    torch.manual_seed(0)
    model, make = ALL[name]()
    for parameter in model.parameters():
        if parameter.dim() > 1 and not parameter.any():
            torch.nn.init.normal_(parameter, std=0.02)
    return moved(model), lambda seed: moved(make(seed))


class Difference(Exception):
    """What differs. `size` is the error relative to the largest number of the tensor, where it is one of rounding; 0: of one element."""

    def __init__(self, text, size=float("inf")):
        super().__init__(text)
        self.size = size


def as_double(value):
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: as_double(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(as_double(item) for item in value)
    return value


ROUNDING = {torch.float64: 1e-8, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
FACTOR = 16  # times eager's own error


def same(what, want, have, exact, floor=0.0, moved=list):
    """Raises where a tensor is not eager's. `exact()` gives it in double precision, or None; `moved()` gives what eager makes of it with
    weights that are off by their last bit."""
    if (want is None) != (have is None):
        raise Difference(f"{what}: {'None' if have is None else 'a tensor'} instead of "
                         f"{'None' if want is None else 'a tensor'}")
    if want is None:
        return
    for fact in ("dtype", "shape", "layout"):
        if getattr(want, fact) != getattr(have, fact):
            raise Difference(f"{what}: {fact} {getattr(have, fact)} instead of {getattr(want, fact)}")
    if any(a != b for a, b, n in zip(want.stride(), have.stride(), want.shape) if n > 1) and want.numel():
        raise Difference(f"{what}: strides {have.stride()} instead of {want.stride()}")
    if want.dtype not in ROUNDING:
        if not torch.equal(want, have):
            raise Difference(f"{what}: other values")
        return
    a, b = want.detach().double(), have.detach().double()
    fine = torch.isfinite(a)
    if not torch.equal(fine, torch.isfinite(b)) or not torch.allclose(a[~fine], b[~fine], equal_nan=True):
        raise Difference(f"{what}: other numbers are not finite")
    if not fine.any():
        return
    error, scale = (a - b)[fine].abs().max().item(), a[fine].abs().max().item()
    if error <= max(ROUNDING[want.dtype] * scale, floor):
        return
    truth = exact()
    if truth is not None and truth.shape == a.shape:
        truth = truth.detach().double()
        ours, theirs = (b - truth)[fine].abs().max().item(), (a - truth)[fine].abs().max().item()
        if ours <= FACTOR * theirs:
            return
    if any(error <= FACTOR * (other.detach().double() - a)[fine].abs().max().item() for other in moved()):
        return
    off = ((a - b)[fine].abs() > max(ROUNDING[want.dtype] * scale, floor)).sum()
    size = 0.0 if off == 1 and want.numel() > 1 else error / scale if scale else 1.0
    raise Difference(f"{what}: differs by {error:.3g} where the largest number is {scale:.3g}", size)


def loss_of(answer):
    parts = [t for t in zoo.flatten(answer) if t.is_floating_point() and t.requires_grad]
    return sum(t.double().pow(2).mean().to(t.dtype) for t in parts)


def in_eval(model, make):
    model.eval()
    compiled = magneto.compile(model)
    with torch.no_grad():
        for seed in (0, 0, 3):
            args, kwargs = inputs(model, make, seed)
            want = zoo.flatten(run(model, args, kwargs, seed))
            have = zoo.flatten(run(compiled, args, kwargs, seed))
            if len(want) != len(have):
                raise Difference(f"{len(have)} tensors instead of {len(want)}")

            def exact(k):
                twin = copy.deepcopy(model).double()
                found = zoo.flatten(run(twin, as_double(args), as_double(kwargs), seed))
                return found[k] if k < len(found) else None

            for k, (a, b) in enumerate(zip(want, have)):
                same(f"seed {seed}, tensor {k}", a, b, lambda: exact(k))


def inputs(model, make, seed):
    args, kwargs = make(seed)
    if not model.training and len(args) == 2:  # detection
        args = args[:1]
    return args, kwargs


def run(callee, args, kwargs, seed):
    torch.manual_seed(seed)
    return callee(*args, **kwargs)


def optimizer_for(model, number):
    if number % 2:
        return torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-3, weight_decay=0.05)
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=0.01)


def step(callee, model, optimizer, args, kwargs, seed):
    answer = run(callee, args, kwargs, seed)
    optimizer.zero_grad()
    loss_of(answer).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    gradients = {path: None if p.grad is None else p.grad.clone() for path, p in model.named_parameters()}
    optimizer.step()
    return zoo.flatten(answer), gradients


def copied(model, optimizer):
    """A model may keep what it computed in its last step (a recurrent state); torch copies leaves only."""
    kept = [t for m in model.modules() for t in zoo.flatten(list(vars(m).values())) if t.grad_fn is not None]
    return copy.deepcopy((model, optimizer), {id(t): t.detach().clone() for t in kept})


def in_training(model, make, number, breaks, steps):
    model.train()
    twin = copy.deepcopy(model)
    if breaks:
        break_in_the_middle(twin, *inputs(twin, make, 1))
    compiled = magneto.compile(twin)
    ours, theirs = optimizer_for(twin, number), optimizer_for(model, number)
    for count, seed in enumerate(itertools.islice(itertools.cycle((1, 1, 4)), steps)):
        where = f"step {count + 1}"
        args, kwargs = inputs(model, make, seed)
        before = copied(model, theirs)
        truths, others = [], []

        def all_of(other, optimizer, args, kwargs):
            answer, gradients = step(other, other, optimizer, args, kwargs, seed)
            return dict(enumerate(answer)), gradients, dict(other.named_parameters()), dict(other.named_buffers())

        def truth():
            if not truths:
                other, optimizer = copied(*before)
                other.double()
                for state in optimizer.state.values():
                    state.update({k: as_double(v) for k, v in state.items() if k != "step"})
                truths.append(all_of(other, optimizer, as_double(args), as_double(kwargs)))
            return truths[0]

        def moved(kind, key):
            if not others:
                for round in range(4):
                    other, optimizer = copied(*before)
                    noise = torch.Generator().manual_seed(round)
                    with torch.no_grad():
                        for p in other.parameters():
                            up = torch.randint(2, p.shape, generator=noise).bool().to(p.device)
                            p.copy_(torch.nextafter(p, torch.where(up, torch.inf, -torch.inf).to(p)) if p.is_floating_point() else p)
                    others.append(all_of(other, optimizer, args, kwargs))
            return [other[kind][key] for other in others if other[kind].get(key) is not None]

        want, gradients = step(model, model, theirs, args, kwargs, seed)
        have, our_gradients = step(compiled, twin, ours, args, kwargs, seed)
        if len(want) != len(have):
            raise Difference(f"{where}: {len(have)} tensors instead of {len(want)}")
        for k, (a, b) in enumerate(zip(want, have)):
            same(f"{where}, output {k}", a, b, lambda: truth()[0].get(k), 0.0, lambda: moved(0, k))
        largest = max((g.abs().max().item() for g in gradients.values() if g is not None and g.numel()), default=0.0)
        for path, a in gradients.items():
            same(f"{where}, gradient of {path}", a, our_gradients[path], lambda: truth()[1][path], 1e-6 * largest, lambda: moved(1, path))
        for kind, k in (("parameters", 2), ("buffers", 3)):
            mine = dict(getattr(twin, f"named_{kind}")())
            for path, a in dict(getattr(model, f"named_{kind}")()).items():
                same(f"{where}, {path}", a, mine[path], lambda: truth()[k].get(path), 1e-7, lambda: moved(k, path))
        with torch.no_grad():  # the next step starts from the same numbers
            for a, b in zip((*model.parameters(), *model.buffers()), (*twin.parameters(), *twin.buffers()), strict=True):
                b.copy_(a)
        ours.load_state_dict(copy.deepcopy(theirs.state_dict()))


def break_in_the_middle(model, args, kwargs):
    """A hook that prints, on the module that is called half way."""
    called = []
    handles = [m.register_forward_hook(lambda m, i, o: called.append(m)) for m in model.modules() if m is not model]
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with torch.no_grad():
        run(model, args, kwargs, 1)
    model.load_state_dict(state)
    torch.set_rng_state(random)
    for handle in handles:
        handle.remove()
    nowhere = io.StringIO()
    called[len(called) // 2].register_forward_hook(lambda m, i, o: print("half way", file=nowhere))


TRIALS = ("eval", "training", "training with a break")


def try_all(name, tell, steps=3):
    """Tells a line for each trial: "equal", or what differs."""
    number = list(ALL).index(name)

    def attempt(trial, wide):
        magneto.reset()
        model, make = build(name)
        if wide:
            model.double()
        inputs = lambda seed: as_double(make(seed)) if wide else make(seed)  # noqa: E731
        if trial == "eval":
            in_eval(model, inputs)
        else:
            in_training(model, inputs, number, trial != "training", steps)

    for trial in TRIALS:
        start = time.perf_counter()
        try:
            found = "equal"
            try:
                attempt(trial, False)
            except Difference as difference:
                if difference.size > 0.1:
                    raise
                attempt(trial, True)
                found = "equal, by double precision"
        except Difference as difference:
            found = str(difference)
        except Exception as error:
            found = f"{type(error).__name__}: {str(error)[:300]}"
            if os.environ.get("FORKED_TRACE"):
                traceback.print_exc()
        report = magneto.report()
        facts = f"{len(report.graphs)} graphs, {len(report.breaks)} breaks, " \
                f"{sum(bool(g.fallback) for g in report.graphs)} by operators, {time.perf_counter() - start:.0f} s"
        why = sorted({f"{os.path.basename(b.file)}:{b.line} {b.reason}" for b in report.breaks})
        tell((trial, found, facts, sorted({g.fallback for g in report.graphs if g.fallback}), why))
        gc.collect()


def in_a_process(name, seconds, steps=3):
    told, ended = told_by(lambda tell: try_all(name, tell, steps), seconds)
    if ended:
        told.append((TRIALS[min(len(told), 2)], ended, "", [], []))
    return told


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="", help="a regular expression that a part of the name matches")
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th architecture from the I-th on, from 0")
    parser.add_argument("--device", default=device.DEVICE)
    parser.add_argument("--seconds", type=int, default=600, help="for one architecture")
    parser.add_argument("--steps", type=int, default=3, help="of training")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    device.DEVICE = options.device
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # ten bits are no measure
    first, count = map(int, options.shard.split("/"))
    names = [name for name in ALL if re.search(options.models, name)][first::count]
    if options.list:
        print("\n".join(names))
        return 0
    import timm, torchvision, transformers  # noqa: F401, E401: once, before the forks
    wrong, pieces = [], []
    for name in names:
        told = in_a_process(name, options.seconds, options.steps)
        bad = [line for line in told if not line[1].startswith("equal")]
        print(f"{'equal' if not bad else 'WRONG':6} {name}")
        for trial, found, facts, fallbacks, _ in told:
            print(f"         {trial}: {found} ({facts})" + "".join(f"\n             {why}" for why in fallbacks), flush=True)
        wrong += [name] * bool(bad)
        if why := sorted({reason for trial, *_, reasons in told if trial != TRIALS[2] for reason in reasons}):
            pieces.append(f"  {name}: " + "; ".join(why))
    print(f"\nnot one graph: {len(pieces)}", *pieces, sep="\n")
    print("", *(f"differs: {name}" for name in wrong), f"{len(names) - len(wrong)} of {len(names)} equal", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
