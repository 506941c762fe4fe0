"""Ten models for a GPU, the largest of the zoo: of `transformers` at published widths, and ResNet-50; or small."""

from __future__ import annotations

from typing import Any

import torch
from planned_zoo import MODELS
from rival_models import ItsLoss
from rival_models import made as rival

from gapless.torch.run.workload import Workload

__all__ = ["KINDS", "made"]

_WORDS, _ROWS, _LENGTH = 32000, 8, 512
_WIDE = {
    "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 16, "intermediate_size": 4096,
    "vocab_size": _WORDS,
}  # fmt: skip
_LARGE: dict[str, dict[str, object]] = {
    "GPT-2": {"n_embd": 1024, "n_layer": 12, "n_head": 16, "vocab_size": _WORDS},
    "Llama": {**_WIDE, "num_key_value_heads": 8, "head_dim": 64},
    "Qwen3": {**_WIDE, "num_key_value_heads": 8, "head_dim": 64},
    "Gemma 2": {**_WIDE, "num_key_value_heads": 8, "head_dim": 64},
    "Mixtral": {**_WIDE, "num_hidden_layers": 4, "num_key_value_heads": 8, "head_dim": 64},
    "BERT": _WIDE,
    "T5": {
        "d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_layers": 8, "num_decoder_layers": 8, "num_heads": 16,
        "vocab_size": _WORDS,
    },
    "ViT": {
        "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 16, "intermediate_size": 4096,
        "image_size": 224, "patch_size": 16,
    },
    "Whisper": {
        "d_model": 768, "encoder_layers": 8, "decoder_layers": 8, "encoder_attention_heads": 12,
        "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "num_mel_bins": 80,
        "max_source_positions": 1500, "max_target_positions": 448,
    },
}  # fmt: skip
"""What is larger in each configuration."""
KINDS = (*_LARGE, "ResNet-50")


def made(kind: str, device: torch.device, is_small: bool = False) -> Workload:
    """A model with random weights that returns its loss, and a batch, on a device."""
    if kind == "ResNet-50":
        work = rival("resnet", is_small)
        if not is_small:
            work = Workload(work.model, (torch.randn(32, 3, 224, 224), torch.randint(10, (32,))))
    else:
        torch.manual_seed(0)
        case = MODELS[kind]()
        small, arguments = case.model, case.named
        large = small if is_small else type(small)(type(small.config)(**{**_plain(small.config), **_LARGE[kind]}))
        work = Workload(ItsLoss(large.train()), arguments if is_small else _batch(arguments, large.config))
    inputs = work.inputs
    if isinstance(inputs, dict):
        inputs = {name: _on(value, device) for name, value in inputs.items()}
    else:
        inputs = tuple(_on(value, device) for value in inputs)
    return Workload(work.model.to(device), inputs)


def _on(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _plain(config: Any) -> dict[str, object]:
    return {name: value for name, value in config.to_diff_dict().items() if name not in ("model_type", "layer_types")}


def _batch(arguments: dict[str, Any], config: Any) -> dict[str, Any]:
    """The same arguments, as many and as long as a GPU takes."""
    batch = dict(arguments)
    for name, value in arguments.items():
        if name == "pixel_values":
            batch[name] = torch.randn(_ROWS, 3, config.image_size, config.image_size)
        elif name == "input_features":
            batch[name] = torch.randn(_ROWS, config.num_mel_bins, 2 * config.max_source_positions)
        elif isinstance(value, torch.Tensor) and value.dim() == 2:
            length = 64 if "input_features" in arguments else _LENGTH
            most = getattr(config, "vocab_size", 10)
            is_mask = name == "attention_mask"
            batch[name] = (
                torch.ones(_ROWS, length, dtype=torch.long) if is_mask else torch.randint(3, most, (_ROWS, length))
            )
        elif isinstance(value, torch.Tensor):
            batch[name] = torch.randint(10, (_ROWS,))
    return batch
