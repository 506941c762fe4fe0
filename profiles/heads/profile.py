"""Head profile: what it spoils when an attention head takes over another one's attention, and rises of the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.report.short_repr import Brief

__all__ = ["DISTANCES", "HeadProfile", "Rises", "counts_to_measure", "nearest"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DISTANCES = {
    "output": "||(A_j - A_h) V_h O_h||^2: by how much the layer's output changes",
    "scores": "||A_j - A_h||^2: by how much the attention itself changes",
}
"""What a head h that takes over the attention A of head j is charged, means over tokens."""


@dataclass(frozen=True, repr=False)
class HeadProfile(Brief):
    """The heads of a model, and how far they are from each other.

    `scores[l, h, j]`, `output[l, h, j]`: float, shape (layers, heads, heads), >= 0, the distances of `DISTANCES` of
    head h in layer l that takes over the attention of head j; 0 for itself. `key_heads`: heads that have keys and
    values of their own, as many query heads to each in turn. `dimension`: of a head. `parameters`: of the whole model.
    `tokens`: how many the means are over. `rises`: of the loss, where they are measured. `squares`: of each head's
    scores, summed over the tokens that a token attends to, float, shape (layers, heads). Raises `InputError` where one
    doesn't fit the others.
    """

    name: str
    scores: Floats
    output: Floats
    key_heads: int
    dimension: int
    parameters: int
    tokens: int
    source: str = ""
    rises: Rises | None = None
    squares: Floats | None = None

    def __post_init__(self) -> None:
        shape = self.scores.shape
        if len(shape) != 3 or 0 in shape or shape[1] != shape[2]:
            raise InputError(f"head profile {self.name!r}: scores must be (layers, heads, heads), got {shape}")
        if self.output.shape != shape:
            rule = f"output must be {shape}, as scores is"
            raise InputError(f"head profile {self.name!r}: {rule}, got {self.output.shape}")
        for name in DISTANCES:
            _check_distances(f"head profile {self.name!r}: {name}", getattr(self, name))
        for name in ("key_heads", "dimension", "parameters", "tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"head profile {self.name!r}: {name} must be >= 1, got {getattr(self, name)}")
        if shape[1] % self.key_heads:
            rule = f"must divide the {shape[1]} heads"
            raise InputError(f"head profile {self.name!r}: key_heads {rule}, got {self.key_heads}")
        if self.squares is not None and not (self.squares.shape == shape[:2] and (self.squares >= 0).all()):
            raise InputError(f"head profile {self.name!r}: squares must be {shape[:2]}, layers and heads, and >= 0")
        if self.rises is not None and self.rises.loss.shape != (shape[0], self.key_heads):
            rule = f"rise must be {(shape[0], self.key_heads)}, layers and key heads"
            raise InputError(f"head profile {self.name!r}: {rule}, got {self.rises.loss.shape}")

    @property
    def layers(self) -> int:
        """The number of layers."""
        return len(self.scores)

    @property
    def heads(self) -> int:
        """Query heads of a layer."""
        return int(self.scores.shape[1])

    @property
    def group(self) -> int:
        """Query heads that share one key head."""
        return self.heads // self.key_heads

    def correlation(self, visible: float) -> Floats | None:
        """Of the scores of each two heads, (layers, heads, heads); None where squares aren't measured.

        `visible`: how many tokens a token attends to, in the mean; the scores of a token are 1 in sum.
        """
        if self.squares is None:
            return None
        products = (self.squares[:, :, None] + self.squares[:, None] - self.scores) / 2 - 1 / visible
        spread = np.sqrt(np.maximum(np.einsum("lhh->lh", products), np.finfo(np.float64).tiny))
        return np.asarray(products / (spread[:, :, None] * spread[:, None]))

    def distance(self, name: str) -> Floats:
        """The distances of one name of `DISTANCES`."""
        found: Floats = getattr(self, name)
        return found


def _check_distances(where: str, distance: Floats) -> None:
    bad = ~(np.isfinite(distance) & (distance >= 0))
    bad |= np.eye(distance.shape[1], dtype=np.bool_) & (distance != 0)
    if bad.any():
        layer, head, other = np.argwhere(bad)[0].tolist()
        rule = "of a head from itself must be 0" if head == other else "must be numbers >= 0"
        value = distance[layer, head, other]
        raise InputError(f"{where} distances {rule}, got {value} in layer {layer}, heads {head} and {other}")


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


def nearest(distance: Floats, kept: Sequence[int], group: int) -> Ints:
    """The nearest query head of the kept key heads for each head of a layer; the head itself where it is kept.

    `distance`: float, shape (heads, heads). `group`: query heads of a key head.
    """
    offered = np.isin(np.arange(len(distance)) // group, np.asarray(kept))
    found = np.where(offered, distance, np.inf).argmin(axis=1)
    return np.asarray(np.where(offered, np.arange(len(distance)), found))
