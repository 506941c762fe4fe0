"""Attention functions of a model that stand in for its own, and a plain model with copied rows. Needs the extra `hf`.

An attention function that is registered with transformers without its mask function gets a mask of another kind, or
none, and gives wrong logits without a word: here both are registered, that of `eager`, which is added to the scores.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.torch.heads.models import Attention, LanguageModel, eager_mask, transformers
from gapless.torch.library import Module, Tensor, torch

__all__ = ["AttentionFunction", "Rows", "attending", "edited", "probabilities", "repeated"]

_NAME = "gapless"

AttentionFunction: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor | None, float], tuple[Tensor, None]]
"""From query, key, value, (batch, heads, tokens, dimension), mask and scaling to outputs, (batch, tokens, heads,
dimension)."""
Rows: TypeAlias = Sequence[Sequence[int] | NDArray[np.int64]] | NDArray[np.int64]
"""By layer, the head whose attention each head uses."""


class _Dispatched(Protocol):
    """An attention layer within `attending`."""

    gapless_attention: AttentionFunction


def _dispatch(
    module: _Dispatched, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:  # fmt: skip
    """What the layer was given by `attending`."""
    return module.gapless_attention(query, key, value, mask, query.shape[-1] ** -0.5 if scaling is None else scaling)


transformers.AttentionInterface.register(_NAME, _dispatch)
transformers.AttentionMaskInterface.register(_NAME, eager_mask)


@contextmanager
def attending(found: LanguageModel, functions: Sequence[AttentionFunction]) -> Iterator[None]:
    """Within the block, layer l of a language model attends by `functions[l]`; afterwards by `eager` again."""
    for layer, function in zip(found.layers, functions, strict=True):
        layer.module.gapless_attention = function
    found.model.set_attn_implementation(_NAME)
    try:
        yield
    finally:
        found.model.set_attn_implementation("eager")
        for layer in found.layers:
            del layer.module.gapless_attention


def probabilities(query: Tensor, key: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
    """The attention of heads whose keys are there one by one, (batch, heads, tokens, cached tokens)."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if mask is not None:
        scores = scores + mask[..., : key.shape[2]]
    precision = torch.promote_types(query.dtype, torch.float32)
    return torch.nn.functional.softmax(scores, dim=-1, dtype=precision).to(query.dtype)


def repeated(states: Tensor, times: int) -> Tensor:
    """Keys or values of each key head for each of its query heads."""
    return states if times == 1 else states.repeat_interleave(times, dim=1)


def edited(found: LanguageModel, representative: Rows) -> Module:
    """A plain model that does the same: rows of queries and keys are copies of those of the representatives.

    Key heads that several query heads share become a key head for each of them.
    """
    model = copy.deepcopy(found.model)
    modules = [module for module in model.modules() if hasattr(module, "layer_idx") and _is_attention(module)]
    with torch.no_grad():
        for layer, module, row in zip(found.layers, modules, representative, strict=True):
            rows = torch.tensor([int(head) for head in row], device=found.device)
            if layer.is_fused:
                _edit_fused(layer, module, rows)
            else:
                _edit_split(layer, module, rows)
    return model


def _is_attention(module: Module) -> bool:
    return hasattr(module, "q_proj") or hasattr(module, "c_attn")


def _edit_fused(layer: Attention, module: Module, rows: Tensor) -> None:
    """GPT-2: columns of one matrix, (model, 3 x heads x dimension)."""
    for part in (module.c_attn.weight, module.c_attn.bias):
        view = part.view(*part.shape[:-1], 3, layer.heads, layer.dimension)
        view[..., :2, :, :] = view[..., :2, rows, :]


def _edit_split(layer: Attention, module: Module, rows: Tensor) -> None:
    """Llama, OPT: rows of three matrices, (heads x dimension, model)."""
    times = layer.heads // layer.key_heads
    own = torch.arange(layer.heads, device=rows.device) // times
    for name, heads, chosen in (("q_proj", layer.heads, rows), ("k_proj", layer.key_heads, rows // times),
                                ("v_proj", layer.key_heads, own)):  # fmt: skip
        part = getattr(module, name)
        taken = part.weight.view(heads, layer.dimension, -1)[chosen].reshape(layer.heads * layer.dimension, -1)
        part.weight = torch.nn.Parameter(taken.clone(), requires_grad=False)
        if part.bias is not None:
            bias = part.bias.view(heads, layer.dimension)[chosen].reshape(-1)
            part.bias = torch.nn.Parameter(bias.clone(), requires_grad=False)
        part.out_features = layer.heads * layer.dimension
    module.num_key_value_groups = 1
