"""By how much a model's loss rises when one layer alone keeps the keys of some of its heads: measured, not added up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.brief import Brief
from gapless.errors import InputError

__all__ = ["Rises", "counts_to_measure"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_ALL_COUNTS = 8
"""With so many key heads at most, every count is measured."""


@dataclass(frozen=True, repr=False)
class Rises(Brief):
    """Of every layer and count of key heads whose keys it keeps, while all other layers keep theirs.

    `loss[l, k-1]`: nats a token, >= 0, float, shape (layers, key heads); nan where it wasn't measured, which neither
    one head nor all of them are; 0 for all. `kept[l, k-1, g]`: whether key head g is one of those k, shape (layers, key
    heads, key heads). Raises `InputError`, which opens with the field's name.
    """

    loss: Floats
    kept: Bools

    def __post_init__(self) -> None:
        shape = self.loss.shape
        if len(shape) != 2 or 0 in shape:
            raise InputError(f"rise must be (layers, key heads), got {shape}")
        if self.kept.shape != (*shape, shape[1]):
            raise InputError(f"rise_kept must be {(*shape, shape[1])}, as rise is, got {self.kept.shape}")
        ends = np.zeros(shape, dtype=np.bool_)
        ends[:, [0, -1]] = True
        bad = np.where(np.isnan(self.loss), ends, ~(np.isfinite(self.loss) & (self.loss >= 0)))
        bad[:, -1] |= self.loss[:, -1] != 0
        if bad.any():
            layer, place = np.argwhere(bad)[0].tolist()
            rule = "of all heads must be 0" if place + 1 == shape[1] else "must be >= 0, or nan between one and all"
            raise InputError(f"rise {rule}, got {self.loss[layer, place]} in layer {layer}, {place + 1} heads")
        wrong = self.kept.sum(axis=2) != np.arange(1, shape[1] + 1)
        if wrong.any():
            layer, place = np.argwhere(wrong)[0].tolist()
            count = int(self.kept[layer, place].sum())
            raise InputError(f"rise_kept of layer {layer} must be {place + 1} heads at {place + 1}, got {count}")

    @property
    def is_measured(self) -> Bools:
        """Whether a layer's rise at a count was measured, shape (layers, key heads)."""
        return np.asarray(~np.isnan(self.loss))

    @cached_property
    def filled(self) -> Floats:
        """As `loss`; counts that weren't measured are on the line between their neighbours that were."""
        counts = np.arange(self.loss.shape[1])
        rows = [
            np.interp(counts, counts[known], row[known]) for row, known in zip(self.loss, self.is_measured, strict=True)
        ]
        return np.array(rows)

    def heads(self, layer: int) -> tuple[tuple[int, ...], ...]:
        """The key heads that a layer keeps, by count - 1, ascending."""
        return tuple(tuple(np.flatnonzero(row).tolist()) for row in self.kept[layer])


def counts_to_measure(key_heads: int) -> list[int]:
    """Counts below that of all, ascending: each of them up to 8 key heads, else 1, 2, 3, 4, 6, 8, 12, 16, 24, ..."""
    if key_heads <= _ALL_COUNTS:
        return list(range(1, key_heads))
    powers = [2**k for k in range(key_heads.bit_length())]
    return [count for count in sorted({*powers, *(3 * power for power in powers)}) if count < key_heads]
