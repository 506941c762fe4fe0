"""Models of `transformers` in a plain loop, eager's and planned: `python tests/support/planned_zoo.py [MODEL ...]`.

Each trains three steps with the loss inside. A line says whether losses and gradients have eager's bits, and what was
planned. Ends with exit code 1 where one doesn't. Needs the extras torch and hf.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
import transformers

from gapless.torch import planned

WORDS, ROWS, LENGTH = 211, 2, 16
SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": WORDS,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2}
ENDS = {"pad_token_id": 0, "decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2}


def _words(**more: object) -> dict[str, object]:
    words = torch.randint(3, WORDS, (ROWS, LENGTH))
    return {"input_ids": words, "labels": words, **more}


def _masked(**more: object) -> dict[str, object]:
    return _words(attention_mask=torch.ones(ROWS, LENGTH, dtype=torch.long), **more)


def _pixels() -> dict[str, object]:
    return {"pixel_values": torch.randn(ROWS, 3, 32, 32), "labels": torch.randint(10, (ROWS,))}


def _sound() -> dict[str, object]:
    return {"input_features": torch.randn(ROWS, 16, 40), "labels": torch.randint(3, WORDS, (ROWS, 8))}


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, object]]]] = {
    "GPT-2": (
        lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=WORDS, bos_token_id=1, eos_token_id=2)
        ),
        lambda: _masked(use_cache=False),
    ),
    "Llama": (
        lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED)),
        lambda: _masked(use_cache=False),
    ),
    "Qwen3": (
        lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**GROUPED, head_dim=16)),
        lambda: _masked(use_cache=False),
    ),
    "Gemma 2": (
        lambda: transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**GROUPED, head_dim=16)),
        lambda: _masked(use_cache=False),
    ),
    "Mixtral": (
        lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig(**GROUPED, num_local_experts=4)),
        lambda: _masked(use_cache=False),
    ),
    "BERT": (lambda: transformers.BertForMaskedLM(transformers.BertConfig(**SIZES)), _masked),
    "T5": (
        lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=WORDS, decoder_start_token_id=0
            )
        ),
        _words,
    ),
    "ViT": (
        lambda: transformers.ViTForImageClassification(
            transformers.ViTConfig(
                **{name: size for name, size in SIZES.items() if name != "vocab_size"},
                image_size=32,
                patch_size=8,
                num_labels=10,
            )
        ),
        _pixels,
    ),
    "Whisper": (
        lambda: transformers.WhisperForConditionalGeneration(
            transformers.WhisperConfig(
                d_model=64,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=128,
                decoder_ffn_dim=128,
                vocab_size=WORDS,
                num_mel_bins=16,
                max_source_positions=20,
                max_target_positions=20,
                **ENDS,
            )
        ),
        _sound,
    ),
}
"""How each is made, and the arguments of a step."""


def differences(name: str, steps: int = 3, report: Callable[[str], None] = print) -> list[str]:
    """What isn't equal bit by bit between eager's training of a model and the planned one."""
    make, arguments = MODELS[name]
    torch.manual_seed(0)
    eager = make().train()
    model = planned(copy.deepcopy(eager), "0.9x", report=lambda line: report(f"{name}: {line}"))
    given = arguments()
    off = []
    for step in range(steps):
        losses = []
        for its in (eager, model):
            torch.manual_seed(step)
            loss = its(**given).loss
            loss.backward()
            losses.append(loss.item())
        off += [f"loss {step}"] if losses[0] != losses[1] else []
    for (label, one), other in zip(eager.named_parameters(), model.parameters(), strict=True):
        is_same = torch.equal(one.grad, other.grad) if one.grad is not None and other.grad is not None else (
            one.grad is other.grad
        )  # fmt: skip
        off += [] if is_same else [label]
    return off


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = {name: differences(name) for name in sys.argv[1:] or MODELS}
    for name, off in found.items():
        print(f"{name}: {'bit-equal' if not off else ', '.join(off)}")
    sys.exit(1 if any(found.values()) else 0)
