"""The plan's core: in each layer, whose keys are kept, and whose attention each head uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.record import Record
from gapless.profiles.heads.profile import HeadProfile

__all__ = ["HeadMap", "Ints", "nearest", "read_head_map"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class HeadMap:
    """`kept[l]`: key heads of layer l whose keys are cached, ascending. `representative[l, h]`: the query head whose
    attention head h uses, int64, shape (layers, heads); its key head is kept.
    """

    kept: tuple[tuple[int, ...], ...]
    representative: Ints

    @property
    def counts(self) -> Ints:
        """How many key heads are kept in each layer."""
        return np.array([len(each) for each in self.kept], dtype=np.int64)

    def error(self, distance: Floats) -> float:
        """What all heads together are charged, by distances of shape (layers, heads, heads)."""
        return math.fsum(np.take_along_axis(distance, self.representative[:, :, None], axis=2).ravel().tolist())

    @classmethod
    def of(cls, kept: Sequence[Sequence[int]], profile: HeadProfile, distance: str) -> HeadMap:
        """Each head to the nearest of those whose keys are kept, itself where its own are."""
        found = profile.distance(distance)
        rows = [nearest(found[layer], heads, profile.group) for layer, heads in enumerate(kept)]
        return cls(tuple(tuple(sorted(map(int, heads))) for heads in kept), np.array(rows, dtype=np.int64))


def nearest(distance: Floats, kept: Sequence[int], group: int) -> Ints:
    """The nearest query head of the kept key heads for each head of a layer; the head itself where it is kept.

    `distance`: float, shape (heads, heads). `group`: query heads of a key head.
    """
    offered = np.isin(np.arange(len(distance)) // group, np.asarray(kept))
    found = np.where(offered, distance, np.inf).argmin(axis=1)
    return np.asarray(np.where(offered, np.arange(len(distance)), found))


def read_head_map(details: object, layers: int, heads: int, key_heads: int, where: str) -> HeadMap:
    """The map in a plan's details. Raises `InputError`, which opens with `where`, for one that isn't whole."""
    record = Record(details, where)
    rows, kept = record.array("representatives"), record.array("kept")
    if len(rows) != layers or len(kept) != layers:
        raise InputError(f"{where}: kept and representatives must have {layers} layers, got {len(kept)}, {len(rows)}")
    found = []
    for layer, (row, here) in enumerate(zip(rows, kept, strict=True)):
        inner = Record({"heads": row, "kept": here}, f"{where}: layer {layer}")
        used, held = inner.integers("heads", 0, heads - 1), inner.integers("kept", 0, key_heads - 1)
        if len(used) != heads:
            raise InputError(f"{where}: layer {layer}: must have {heads} heads, got {len(used)}")
        strays = sorted({head for head in used if head // (heads // key_heads) not in held})
        if strays:
            raise InputError(f"{where}: layer {layer}: head {strays[0]} is used, but its keys are not kept")
        found.append((held, used))
    return HeadMap(tuple(held for held, _ in found), np.array([used for _, used in found], dtype=np.int64))
