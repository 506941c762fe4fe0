"""Transformers of Hugging Face with modest widths, as factories for plans of layouts: nothing is downloaded."""

from __future__ import annotations

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    ViTConfig,
    ViTForImageClassification,
)

BATCH, TOKENS, HEADS, VOCABULARY = 8, 128, 8, 1024


def _loss(output: object) -> torch.Tensor:
    return output.loss  # type: ignore[attr-defined]


def _language(model: torch.nn.Module) -> tuple[object, ...]:
    ids = torch.randint(0, VOCABULARY, (BATCH, TOKENS))
    return model, {"input_ids": ids, "labels": ids}, _loss, ()


def _known(config: PretrainedConfig) -> PretrainedConfig:
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    return config


def gpt2(layers: int = 12, width: int = 256) -> tuple[object, ...]:
    """GPT-2 without dropout."""
    config = GPT2Config(
        n_layer=layers, n_embd=width, n_head=HEADS, n_positions=TOKENS, vocab_size=VOCABULARY, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return _language(GPT2LMHeadModel(_known(config)))


def llama(layers: int = 12, width: int = 256) -> tuple[object, ...]:
    """Llama with as many keys as queries."""
    config = LlamaConfig(
        num_hidden_layers=layers, hidden_size=width, intermediate_size=2 * width, num_attention_heads=HEADS,
        num_key_value_heads=HEADS, vocab_size=VOCABULARY, max_position_embeddings=TOKENS,
    )  # fmt: skip
    return _language(LlamaForCausalLM(_known(config)))


def vit(layers: int = 12, width: int = 256) -> tuple[object, ...]:
    """A vision transformer on 64 patches."""
    config = ViTConfig(
        num_hidden_layers=layers, hidden_size=width, intermediate_size=4 * width, num_attention_heads=HEADS,
        image_size=64, patch_size=8, num_labels=16,
    )  # fmt: skip
    images, labels = torch.randn(BATCH, 3, 64, 64), torch.randint(0, 16, (BATCH,))
    return ViTForImageClassification(config), {"pixel_values": images, "labels": labels}, _loss, ()
