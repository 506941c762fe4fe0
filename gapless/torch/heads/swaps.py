"""Swaps of kept heads that lower the true loss: what distances of heads one by one can't see. Needs the extra `hf`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.torch.heads.models import LanguageModel, mean_loss
from gapless.torch.heads.sharing import sharing
from gapless.torch.library import Tensor

__all__ = ["Swapped", "swapped"]

Kept = tuple[tuple[int, ...], ...]
RowOf = Callable[[int, Sequence[int]], tuple[NDArray[np.int64], float]]
"""The representatives of a layer's heads, (heads,), for the key heads that are kept in it, and their error."""


@dataclass(frozen=True)
class Swapped:
    """The kept heads after the swaps; the losses before and after, how many were tried, and how many were made."""

    kept: Kept
    loss_before: float
    loss_after: float
    tried: int
    made: int


def swapped(
    found: LanguageModel, kept: Kept, key_heads: int, row_of: RowOf, sequences: Tensor, tries: int,
    is_over: Callable[[], bool],
) -> Swapped:  # fmt: skip
    """Try swaps in the order of their error by distance, each once, and make those that lower the mean loss.

    A swap drops the keys of one head and keeps those of another, in the same layer or in another one: the bytes stay.
    """

    def loss_of(each: Kept) -> float:
        rows = [row_of(layer, heads)[0] for layer, heads in enumerate(each)]
        with sharing(found, each, rows):
            return mean_loss(found.model, sequences)

    before = loss_of(kept)
    best, tried, made, seen = before, 0, 0, {kept}
    has_gained = True
    while has_gained:
        has_gained = False
        for drop, add in _swaps(kept, key_heads, row_of):
            each = _after(kept, drop, add)
            if each in seen:
                continue
            if tried >= tries or is_over():
                return Swapped(kept, before, best, tried, made)
            seen.add(each)
            tried += 1
            loss = loss_of(each)
            if loss < best:
                kept, best, has_gained = each, loss, True
                made += 1
                break
    return Swapped(kept, before, best, tried, made)


Head = tuple[int, int]
"""A layer, and a key head of it."""


def _swaps(kept: Kept, key_heads: int, row_of: RowOf) -> list[tuple[Head, Head]]:
    """All swaps of a kept head for another one that leave a head to each layer, least error first."""
    dropped = [(layer, head) for layer, heads in enumerate(kept) for head in heads]
    added = [(layer, head) for layer, heads in enumerate(kept) for head in range(key_heads) if head not in heads]
    before = [row_of(layer, heads)[1] for layer, heads in enumerate(kept)]

    def rise(layer: int, drop: Head | None, add: Head | None) -> float:
        heads = set(kept[layer]) - ({drop[1]} if drop else set()) | ({add[1]} if add else set())
        return row_of(layer, sorted(heads))[1] - before[layer]

    drop_rise = {drop: rise(drop[0], drop, None) for drop in dropped if len(kept[drop[0]]) > 1}
    add_rise = {add: rise(add[0], None, add) for add in added}
    rises = [(rise(drop[0], drop, add), drop, add) for drop in dropped for add in added if drop[0] == add[0]]
    rises += [(drop_rise[drop] + add_rise[add], drop, add) for drop in drop_rise for add in added if drop[0] != add[0]]
    return [(drop, add) for _, drop, add in sorted(rises)]


def _after(kept: Kept, drop: Head, add: Head) -> Kept:
    rows = [set(heads) for heads in kept]
    rows[drop[0]].remove(drop[1])
    rows[add[0]].add(add[1])
    return tuple(tuple(sorted(row)) for row in rows)
