"""The plan's core: in each layer, whose keys are kept, and whose attention each head uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from gapless.decision import Decision
from gapless.errors import InputError
from gapless.io.record import Record
from gapless.io.typed import Stored
from gapless.profiles.heads.profile import HeadProfile, nearest

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["HeadDecision", "HeadMap", "Ints", "map_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class HeadDecision(Decision):
    """`kept[l]`: the key heads of layer l whose keys are cached. `representatives[l][h]`: the head that h uses."""

    kept: tuple[tuple[int, ...], ...]
    representatives: Annotated[tuple[tuple[int, ...], ...], Stored(each="whole numbers >= 0")]


@dataclass(frozen=True)
class HeadMap:
    """`kept[l]`: key heads of layer l whose keys are cached, ascending. `representative[l, h]`: the query head whose
    attention head h uses, int64, shape (layers, heads); its key head is kept.
    """

    kept: tuple[tuple[int, ...], ...]
    representative: Ints

    @property
    def decision(self) -> HeadDecision:
        """For the plan file."""
        return HeadDecision(self.kept, tuple(tuple(row) for row in self.representative.tolist()))

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


def map_of(plan: SavedPlan, where: str = "plan") -> HeadMap:
    """The head map of a plan. Raises `InputError`, which opens with `where`, for one that isn't whole."""
    asked, decision = Record(dict(plan.problem), f"{where}: problem"), HeadDecision.of(plan, where)
    layers, heads, key_heads = (asked.integer(name, 1) for name in ("layers", "heads", "key_heads"))
    rows, kept = decision.representatives, decision.kept
    if len(rows) != layers or len(kept) != layers:
        raise InputError(f"{where}: kept and representatives must have {layers} layers, got {len(kept)}, {len(rows)}")
    for layer, (row, here) in enumerate(zip(rows, kept, strict=True)):
        inner = Record({"heads": list(row), "kept": list(here)}, f"{where}: layer {layer}")
        used, held = inner.integers("heads", 0, heads - 1), inner.integers("kept", 0, key_heads - 1)
        if len(used) != heads:
            raise InputError(f"{where}: layer {layer}: must have {heads} heads, got {len(used)}")
        strays = sorted({head for head in used if head // (heads // key_heads) not in held})
        if strays:
            raise InputError(f"{where}: layer {layer}: head {strays[0]} is used, but its keys are not kept")
    return HeadMap(kept, np.array(rows, dtype=np.int64))
