"""The six models of the comparison at equal peaks, with the arguments of a step; `is_small` for its shortest form."""

from __future__ import annotations

import torch
from torch_models import Bert, Gpt, ResNet, UNet

from gapless.torch.run.workload import Workload

__all__ = ["KINDS", "ItsLoss", "made"]

KINDS = ("gpt", "bert", "unet", "resnet", "llama", "vit")


def made(kind: str, is_small: bool = False) -> Workload:
    """A model with random weights that returns its loss, and a batch."""
    torch.manual_seed(0)
    if kind in ("llama", "vit"):
        return _of_transformers(kind, is_small)
    if kind == "resnet":
        model, batch, pixels = (ResNet((1, 1, 2), 8, 10), 2, 32) if is_small else (ResNet(), 8, 96)
        return Workload(model, (torch.randn(batch, 3, pixels, pixels), torch.randint(10, (batch,))))
    if kind == "unet":
        pixels = 32 if is_small else 96
        model = UNet(8, 2) if is_small else UNet()
        return Workload(model, (torch.randn(4, 3, pixels, pixels), torch.randint(4, (4, pixels, pixels))))
    width, layers, words, length = (32, 2, 64, 16) if is_small else (256, 4, 5000, 128)
    model = (Gpt if kind == "gpt" else Bert)(width, layers, 4, words, length)
    return Workload(model, tuple(torch.randint(words, (8, length)) for _ in range(2)))


def _of_transformers(kind: str, is_small: bool) -> Workload:
    import transformers

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    if kind == "llama":
        sizes = sizes if is_small else {
            "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 688,
        }  # fmt: skip
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=5000, use_cache=False)
        )
        words = torch.randint(5000, (8, 16 if is_small else 128))
        mask = torch.ones_like(words)
        return Workload(ItsLoss(model), {"input_ids": words, "attention_mask": mask, "labels": words})
    sizes = sizes if is_small else {
        "hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3, "intermediate_size": 768,
    }  # fmt: skip
    configuration = transformers.ViTConfig(
        **sizes, image_size=96, patch_size=32 if is_small else 8, num_labels=100, hidden_dropout_prob=0.1
    )
    inputs = {"pixel_values": torch.randn(8, 3, 96, 96), "labels": torch.randint(100, (8,))}
    return Workload(ItsLoss(transformers.ViTForImageClassification(configuration)), inputs)


class ItsLoss(torch.nn.Module):
    """A model of `transformers` that returns its loss alone: scores beside it would count."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **given: torch.Tensor) -> torch.Tensor:
        return self.model(**given).loss
