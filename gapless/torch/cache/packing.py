"""Codes of few bits in bytes, and products with them that never make the numbers; compiled where numba is installed.

A code of b bits lies in one or two planes of 8, 4, 2 or 1 bits, and is the planes' sum, each times its weight. Byte
i of n of a plane holds the codes of channels i, n + i, 2n + i, ...: loops over bytes run over neighbours in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.methods.compiled import compiled, is_numba_here
from gapless.torch.library import Tensor, torch

__all__ = ["add_scores", "add_values", "packed", "planes_of", "unpacked"]

_PLANES = {
    "int8": ((8, 1),),
    "int6": ((4, 1), (2, 16)),
    "int5": ((4, 1), (1, 16)),
    "int4": ((4, 1),),
    "int3": ((2, 1), (1, 4)),
    "int2": ((2, 1),),
}


def planes_of(name: str) -> tuple[tuple[int, int], ...]:
    """The width, in bits, and the weight of each plane of a format."""
    return _PLANES[name]


def packed(codes: Tensor, width: int, weight: int) -> Tensor:
    """One plane of codes, uint8, (..., channels), as bytes, (..., channels * width / 8)."""
    per_byte = 8 // width
    parts = ((codes // weight) & (2**width - 1)).unflatten(-1, (per_byte, -1)).unbind(-2)
    made = parts[0].clone()
    for place, part in enumerate(parts[1:], 1):
        made |= part << (width * place)
    return made


def unpacked(plane: Tensor, width: int, weight: int) -> Tensor:
    """The share of the codes that a plane holds, uint8, (..., channels)."""
    parts = [(plane >> (width * place)) & (2**width - 1) for place in range(8 // width)]
    return torch.cat(parts, dim=-1) * weight


Bytes: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]


def _scores(plane: Bytes, scaled: Floats, scores: Floats, start: int, width: int, weight: int) -> None:
    """Add to scores, (batch, heads, queries, groups, tokens), those of keys, (batch, some heads, groups, bytes,
    tokens).

    `scaled`: queries times the scales, (batch, heads, queries, groups, channels). `start`: the plane's first head.
    """
    batch, heads, groups, count, tokens = plane.shape
    for row in range(batch):
        for head in range(heads):
            for query in range(scaled.shape[2]):
                here, added = scaled[row, start + head, query], scores[row, start + head, query]
                for group in range(groups):
                    for place in range(8 // width):
                        shift, mask = np.uint8(width * place), np.uint8(2**width - 1)
                        for byte in range(count):
                            factor = np.float32(weight) * here[group, place * count + byte]
                            for token in range(tokens):
                                code = (plane[row, head, group, byte, token] >> shift) & mask
                                added[group, token] += factor * np.float32(code)


def _values(plane: Bytes, shares: Floats, sums: Floats, start: int, width: int, weight: int, run: int) -> None:
    """Add to sums, (batch, heads, queries, channels), values, (batch, some heads, tokens, bytes), by shares
    times scales.

    `shares`: (batch, heads, queries, tokens, groups of channels). `run`: channels in a row that surely have one scale.
    """
    batch, heads, tokens, count = plane.shape
    channels = sums.shape[3] // shares.shape[4]
    for row in range(batch):
        for head in range(heads):
            for query in range(shares.shape[2]):
                here, made = shares[row, start + head, query], sums[row, start + head, query]
                for place in range(8 // width):
                    shift, mask = np.uint8(width * place), np.uint8(2**width - 1)
                    for first in range(0, count, run):
                        channel = place * count + first
                        # Slices: an index that is a sum is looked at for being negative, and the loop stays slow.
                        added, factors = made[channel : channel + run], here[:, channel // channels]
                        for token in range(tokens):
                            factor = np.float32(weight) * factors[token]
                            codes = plane[row, head, token, first : first + run]
                            for byte in range(run):
                                added[byte] += factor * np.float32((codes[byte] >> shift) & mask)


@cache
def _loops() -> tuple[Callable[..., None], Callable[..., None]]:
    return compiled(_scores), compiled(_values)


def _is_compiled(states: Tensor) -> bool:
    return states.device.type == "cpu" and is_numba_here()


def add_scores(plane: Tensor, scaled: Tensor, scores: Tensor, start: int, width: int, weight: int) -> None:
    """Scores of keys in a plane, added to `scores`; all contiguous, in single precision, shaped as `_scores` says."""
    if _is_compiled(scores):
        _loops()[0](plane.numpy(), scaled.numpy(), scores.numpy(), start, width, weight)
        return
    heads = slice(start, start + plane.shape[1])
    codes = unpacked(plane.transpose(3, 4), width, weight).to(scaled.dtype)
    scores[:, heads] += torch.einsum("bhqgd,bhgtd->bhqgt", scaled[:, heads], codes)


def add_values(plane: Tensor, shares: Tensor, sums: Tensor, start: int, width: int, weight: int) -> None:
    """Values in a plane, added to `sums` by shares; all contiguous, in single precision, as `_values` says."""
    groups = shares.shape[4]
    if _is_compiled(sums):
        run = math.gcd(plane.shape[3], sums.shape[3] // groups)
        _loops()[1](plane.numpy(), shares.numpy(), sums.numpy(), start, width, weight, run)
        return
    heads = slice(start, start + plane.shape[1])
    codes = unpacked(plane, width, weight).to(shares.dtype).unflatten(3, (groups, -1))
    sums[:, heads] += torch.einsum("bhqtg,bhtgc->bhqgc", shares[:, heads], codes).flatten(3)
