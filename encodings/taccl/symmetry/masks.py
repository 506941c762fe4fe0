"""Masks: sets of ranks as the bits of a number, and their images under a permutation, byte by byte."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["image_of", "image_table"]

_BITS = 8
_BYTE = 1 << _BITS


def image_table(images: Sequence[int]) -> list[list[int]]:
    """For each byte of a mask, what a permutation makes of each of its values; `images[r]`: where it takes rank r."""
    table = []
    for first in range(0, len(images), _BITS):
        bits = images[first : first + _BITS]
        row = [0] * _BYTE
        for value in range(1, _BYTE):
            low = (value & -value).bit_length() - 1
            row[value] = row[value & (value - 1)] | (1 << bits[low] if low < len(bits) else 0)
        table.append(row)
    return table


def image_of(table: list[list[int]], mask: int) -> int:
    """The image of a set."""
    found = 0
    for row in table:
        found |= row[mask & (_BYTE - 1)]
        mask >>= _BITS
    return found
