"""Models of transformers, timm and diffusers in the zoo, small and with random weights.

A package is imported when a model of it is made: what isn't installed is a row that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch.nn import functional
from zoo_cases import Case, its_loss

__all__ = ["DIFFUSERS", "TIMM", "TRANSFORMERS"]

WORDS, ROWS, LENGTH = 211, 4, 16
SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": WORDS,
}  # fmt: skip
SIGHT = {**{name: size for name, size in SIZES.items() if name != "vocab_size"}, "image_size": 32, "patch_size": 8}
GROUPED = {**SIZES, "num_key_value_heads": 2}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": WORDS,
    "decoder_start_token_id": 1, **ENDS,
}  # fmt: skip


def _words(**more: object) -> dict[str, Any]:
    words = torch.randint(3, WORDS, (ROWS, LENGTH))
    return {"input_ids": words, "labels": words, **more}


def _masked(**more: object) -> dict[str, Any]:
    """With a row that ends before the others."""
    given = _words(attention_mask=torch.ones(ROWS, LENGTH, dtype=torch.long), **more)
    given["attention_mask"][0, -3:], given["labels"] = 0, given["labels"].clone()
    given["labels"][0, -3:] = -100
    return given


def _causal() -> dict[str, object]:
    return _masked(use_cache=False)


def _pixels() -> dict[str, object]:
    return {"pixel_values": torch.randn(ROWS, 3, 32, 32), "labels": torch.randint(10, (ROWS,))}


def _sound() -> dict[str, object]:
    return {"input_features": torch.randn(ROWS, 16, 40), "labels": torch.randint(3, WORDS, (ROWS, 8))}


def _pair() -> dict[str, object]:
    words = torch.randint(3, WORDS, (ROWS, LENGTH))
    words[:, -1] = WORDS - 1  # which ends a text
    return {
        "input_ids": words, "pixel_values": torch.randn(ROWS, 3, 32, 32), "return_loss": True,
        "attention_mask": torch.ones(ROWS, LENGTH, dtype=torch.long),
    }  # fmt: skip


def _of_transformers(
    kind: str, configuration: str, arguments: Callable[[], dict[str, object]], sizes: dict[str, object]
) -> Case:
    transformers = import_module("transformers")
    model = getattr(transformers, kind)(getattr(transformers, configuration)(**sizes))
    return Case(model, (), its_loss, arguments())


def _sizes(**more: object) -> dict[str, object]:
    return {**SIZES, **more}


_NAMED: dict[str, tuple[str, str, Callable[[], dict[str, object]], dict[str, object]]] = {
    "GPT-2": (
        "GPT2LMHeadModel", "GPT2Config", _causal,
        {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": 2},
    ),
    "Llama": ("LlamaForCausalLM", "LlamaConfig", _causal, GROUPED),
    "Qwen3": ("Qwen3ForCausalLM", "Qwen3Config", _causal, {**GROUPED, "head_dim": 16}),
    "Gemma 2": ("Gemma2ForCausalLM", "Gemma2Config", _causal, {**GROUPED, "head_dim": 16}),
    "Mixtral": ("MixtralForCausalLM", "MixtralConfig", _causal, {**GROUPED, "num_local_experts": 4}),
    "BERT": ("BertForMaskedLM", "BertConfig", _masked, SIZES),
    "T5": (
        "T5ForConditionalGeneration", "T5Config", _words,
        {
            "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": WORDS,
            "decoder_start_token_id": 0,
        },
    ),
    "ViT": ("ViTForImageClassification", "ViTConfig", _pixels, {**SIGHT, "num_labels": 10}),
    "Whisper": (
        "WhisperForConditionalGeneration", "WhisperConfig", _sound,
        {**DECODER, "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 20},
    ),
    "Phi-3": ("Phi3ForCausalLM", "Phi3Config", _causal, {**GROUPED, **ENDS}),
    "GPT-NeoX": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _causal, SIZES),
    "RoBERTa": ("RobertaForMaskedLM", "RobertaConfig", _masked, SIZES),
    "BART": ("BartForConditionalGeneration", "BartConfig", _masked, {**DECODER, "max_position_embeddings": 32}),
    "CLIP": (
        "CLIPModel", "CLIPConfig", _pair,
        {
            "text_config": {**SIZES, **ENDS, "eos_token_id": WORDS - 1, "max_position_embeddings": 32},
            "vision_config": SIGHT, "projection_dim": 32,
        },
    ),
}  # fmt: skip
TRANSFORMERS = {name: partial(_of_transformers, *made) for name, made in _NAMED.items()}
"""How each is made."""

_USED = (
    "resnet50", "vit_tiny_patch16_224", "efficientnet_b0", "convnext_atto", "mobilenetv3_small_100",
    "swin_tiny_patch4_window7_224", "regnety_002", "densenet121", "deit_tiny_patch16_224", "mixer_s32_224",
)  # fmt: skip
_SIZED = {"vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "deit_tiny_patch16_224", "mixer_s32_224"}
_SMALLER: dict[str, dict[str, object]] = {
    "swin_tiny_patch4_window7_224": {"window_size": 4, "embed_dim": 24, "depths": (1, 1, 2, 1)},
    "vit_tiny_patch16_224": {"depth": 4},
    "deit_tiny_patch16_224": {"depth": 4},
}


def _of_timm(name: str) -> Case:
    timm = import_module("timm")
    given: dict[str, Any] = {"img_size": 64} if name in _SIZED else {}
    model = timm.create_model(name, num_classes=10, drop_rate=0.1, **given, **_SMALLER.get(name, {}))
    label = torch.randint(10, (ROWS,))
    return Case(model, (torch.randn(ROWS, 3, 64, 64),), lambda made: functional.cross_entropy(made, label))


TIMM = {f"timm {name}": partial(_of_timm, name) for name in _USED}
"""How each is made; the loss is outside."""


def _of_diffusers(kind: str) -> Case:
    diffusers = import_module("diffusers")
    noise, time = torch.randn(2, 3, 16, 16), torch.randint(1000, (2,))
    sizes: dict[str, Any] = {
        "sample_size": 16, "in_channels": 3, "out_channels": 3, "layers_per_block": 1, "block_out_channels": (16, 32),
        "norm_num_groups": 4,
    }  # fmt: skip
    if kind == "UNet2DModel":
        model = diffusers.UNet2DModel(
            down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), **sizes
        )
        named = {}
    else:
        model = diffusers.UNet2DConditionModel(
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=32, attention_head_dim=8, **sizes,
        )  # fmt: skip
        named = {"encoder_hidden_states": torch.randn(2, 8, 32)}
    return Case(model, (noise, time), lambda made: functional.mse_loss(made.sample, noise), named)


DIFFUSERS = {f"diffusers {kind}": partial(_of_diffusers, kind) for kind in ("UNet2DModel", "UNet2DConditionModel")}
"""How each is made; the loss is outside."""
