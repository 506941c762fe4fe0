"""Attention functions of our own in a model of `transformers`. Needs the extra `hf`.

A function that is registered without its mask function gets a mask of another kind, or none, and gives wrong logits
without a word: `attending` registers both, the mask of `eager`, which is added to the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gapless.torch.heads.library import eager_mask, transformers
from gapless.torch.library import torch

__all__ = ["attending", "probabilities", "repeated"]

_NAME = "gapless"

AttentionFunction = Callable[..., tuple[Any, Any]]


def _dispatch(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float | None = None, **_: Any) -> Any:
    """What the layer was given by `attending`."""
    return module.gapless_attention(query, key, value, mask, query.shape[-1] ** -0.5 if scaling is None else scaling)


transformers.AttentionInterface.register(_NAME, _dispatch)
transformers.AttentionMaskInterface.register(_NAME, eager_mask)


@contextmanager
def attending(found: Any, functions: Sequence[AttentionFunction]) -> Iterator[None]:
    """Within the block, layer l of a language model attends by `functions[l](query, key, value, mask, scaling)`.

    Arguments as in transformers: (batch, heads, tokens, dimension). It returns the outputs, (batch, tokens, heads,
    dimension), and anything. Afterwards layers attend by `eager` again.
    """
    for layer, function in zip(found.layers, functions, strict=True):
        layer.module.gapless_attention = function
    found.model.set_attn_implementation(_NAME)
    try:
        yield
    finally:
        found.model.set_attn_implementation("eager")
        for layer in found.layers:
            del layer.module.gapless_attention


def probabilities(query: Any, key: Any, mask: Any, scaling: float) -> Any:
    """The attention of heads whose keys are there one by one, (batch, heads, tokens, cached tokens)."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if mask is not None:
        scores = scores + mask[..., : key.shape[2]]
    return torch.nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)


def repeated(states: Any, times: int) -> Any:
    """Keys or values of each key head for each of its query heads."""
    return states if times == 1 else states.repeat_interleave(times, dim=1)
