"""Codes of few bits in bytes, and products with them that never make the numbers: machine code where numba is installed.

A code of b bits lies in one or two planes of 8, 4, 2 or 1 bits, and is the planes' sum, each times its weight. In a plane
byte i of n holds the codes of channels i, n + i, 2n + i, ..., so that loops over bytes run over neighbours in memory.
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

_PLANES = {"int8": ((8, 1),), "int4": ((4, 1),), "int3": ((2, 1), (1, 4)), "int2": ((2, 1),)}


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


def _scores(plane: Bytes, scaled: Floats, scores: Floats, width: int, weight: int) -> None:
    """Add to scores, (rows, queries, groups, tokens), those of a plane of keys, (rows, groups, bytes, tokens).

    `scaled`: queries times the scales, (rows, queries, groups, channels).
    """
    rows, groups, count, tokens = plane.shape
    for row in range(rows):
        for query in range(scaled.shape[1]):
            for group in range(groups):
                for place in range(8 // width):
                    shift, mask = np.uint8(width * place), np.uint8(2**width - 1)
                    for byte in range(count):
                        factor = np.float32(weight) * scaled[row, query, group, place * count + byte]
                        for token in range(tokens):
                            code = (plane[row, group, byte, token] >> shift) & mask
                            scores[row, query, group, token] += factor * np.float32(code)


def _values(plane: Bytes, shares: Floats, sums: Floats, width: int, weight: int, run: int) -> None:
    """Add to sums, (rows, queries, channels), a plane of values, (rows, tokens, bytes), by shares times scales.

    `shares`: (rows, queries, tokens, groups of channels). `run`: channels in a row that surely have one scale.
    """
    rows, tokens, count = plane.shape
    channels = sums.shape[2] // shares.shape[3]
    for row in range(rows):
        for query in range(shares.shape[1]):
            for token in range(tokens):
                for place in range(8 // width):
                    shift, mask = np.uint8(width * place), np.uint8(2**width - 1)
                    for first in range(0, count, run):
                        channel = place * count + first
                        factor = np.float32(weight) * shares[row, query, token, channel // channels]
                        # Slices: an index that is a sum is looked at for being negative, and the loop stays slow.
                        codes, added = plane[row, token, first : first + run], sums[row, query, channel : channel + run]
                        for byte in range(run):
                            added[byte] += factor * np.float32((codes[byte] >> shift) & mask)


@cache
def _loops() -> tuple[Callable[..., None], Callable[..., None]]:
    return compiled(_scores), compiled(_values)


def _is_compiled(states: Tensor) -> bool:
    return states.device.type == "cpu" and is_numba_here()


def add_scores(plane: Tensor, scaled: Tensor, scores: Tensor, width: int, weight: int) -> None:
    """Scores of keys in a plane, added to `scores`; all are contiguous, in single precision, shaped as `_scores` says."""
    if _is_compiled(scores):
        _loops()[0](plane.numpy(), scaled.numpy(), scores.numpy(), width, weight)
    else:
        codes = unpacked(plane.transpose(2, 3), width, weight).to(scaled.dtype)
        scores += torch.matmul(scaled.transpose(1, 2), codes.transpose(2, 3)).transpose(1, 2)


def add_values(plane: Tensor, shares: Tensor, sums: Tensor, width: int, weight: int) -> None:
    """Values in a plane, added to `sums` by shares; all are contiguous, in single precision, shaped as `_values` says."""
    groups = shares.shape[3]
    if _is_compiled(sums):
        run = math.gcd(plane.shape[2], sums.shape[2] // groups)
        _loops()[1](plane.numpy(), shares.numpy(), sums.numpy(), width, weight, run)
    else:
        codes = unpacked(plane, width, weight).to(shares.dtype).unflatten(2, (groups, -1))
        sums += torch.einsum("rqtg,rtgc->rqgc", shares, codes).flatten(2)

