"""Keys and values in few bits: rounded as whole numbers with a scale and a least value. Needs the extra `hf`."""

from __future__ import annotations

from gapless.profiles.cache.layout import Layout, bits_of
from gapless.torch.library import Tensor, torch

__all__ = ["coded", "decoded", "rounded"]

_SMALLEST_SCALE = 2.0**-24
"""Of numbers of 16 bits."""


def coded(states: Tensor, part: str, name: str, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
    """Whole groups of tokens, (batch, heads, tokens, dimension), as codes, uint8, and as scales and least values.

    These have 16 bits, shape (batch, heads, groups of tokens, 1, dimension) for keys, (batch, heads, tokens, groups of
    channels, 1) for values.
    """
    grouped = _grouped(states.float(), part, layout)
    axis, levels = (3 if part == "keys" else 4), 2 ** bits_of(name) - 1
    low, high = grouped.amin(axis, keepdim=True), grouped.amax(axis, keepdim=True)
    low = low.half()
    scale = ((high - low.float()) / levels).clamp(min=_SMALLEST_SCALE).half()
    codes = ((grouped - low.float()) / scale.float()).round_().clamp_(0, levels).to(torch.uint8)
    return codes.view(states.shape), scale, low


def decoded(codes: Tensor, scale: Tensor, low: Tensor, part: str, layout: Layout, dtype: torch.dtype) -> Tensor:
    """The numbers that codes stand for, (batch, heads, tokens, dimension)."""
    grouped = _grouped(codes.float(), part, layout)
    return grouped.mul_(scale.float()).add_(low.float()).view(codes.shape).to(dtype)


def rounded(states: Tensor, part: str, name: str, layout: Layout) -> Tensor:
    """Whole groups of tokens as a cache in a format has them."""
    return decoded(*coded(states, part, name, layout), part, layout, states.dtype)


def _grouped(states: Tensor, part: str, layout: Layout) -> Tensor:
    """Keys as (batch, heads, groups, tokens, dimension), values as (batch, heads, tokens, groups, channels)."""
    batch, heads, tokens, dimension = states.shape
    if part == "keys":
        return states.reshape(batch, heads, tokens // layout.group, layout.group, dimension)
    return states.reshape(batch, heads, tokens, dimension // layout.channels, layout.channels)
