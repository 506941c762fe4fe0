"""What it costs to train an example on a trainer: the rows of its ids that other trainers hold.

A batch names its ids by slots: `slot[i, t]` is the slot of example i's id of table t, and `owner[s]` the trainer that
has the row of slot s in its part of the cache, -1 where none has. Ids are private to their table, so no example uses a
slot twice; of bags, a batch has the distinct slots of each example (`Bags.once`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.ids.loops import partition_loops
from gapless.errors import InputError
from gapless.profiles.traces.bags import Bags, Lookups

__all__ = ["Batch", "capacities", "checked_capacities", "cost_matrix", "places_of"]

Ints = NDArray[np.int64]

_MOST_TRAINERS = 2**15 - 1


@dataclass(frozen=True)
class Batch:
    """The ids of a batch and where their rows are.

    `slot`: integers, examples x tables, or bags. `owner`: integers, one per slot, a trainer or -1.

    Raises `InputError` for slots without an owner entry, owners that are no trainers, and fewer than one trainer.
    """

    slot: Lookups
    owner: NDArray[Any]
    trainers: int

    def __post_init__(self) -> None:
        if not 1 <= self.trainers <= _MOST_TRAINERS:
            raise InputError(f"trainers: must be between 1 and {_MOST_TRAINERS}, got {self.trainers}")
        slot = self.slot.values[:, None] if isinstance(self.slot, Bags) else self.slot
        for name, array, axes in (("slot", slot, 2), ("owner", self.owner, 1)):
            if array.ndim != axes or not np.issubdtype(array.dtype, np.integer):
                kind = f"{array.ndim} axes of {array.dtype}"
                raise InputError(f"{name}: must be an array of integers with {axes} axes, got {kind}")
        _check_range("slot", slot, 0, len(self.owner) - 1)
        _check_range("owner", self.owner, -1, self.trainers - 1)

    @property
    def examples(self) -> int:
        """The number of examples."""
        return len(self.slot)


def cost_matrix(batch: Batch) -> NDArray[np.signedinteger[Any]]:
    """The paper's C: `C[i, j]` counts the ids of example i whose rows trainers other than j have; int16 or int32.

    What no trainer has comes from an embedding server, at the same cost everywhere.
    """
    slot = batch.slot
    if isinstance(slot, Bags) or (compiled := partition_loops(slot.size)) is None:
        return _cost_matrix(batch)
    cost = np.empty((batch.examples, batch.trainers), np.int16 if slot.shape[1] < 2**15 else np.int32)
    compiled.costs(np.ascontiguousarray(batch.owner), slot, cost)
    return cost


def _cost_matrix(batch: Batch) -> NDArray[np.signedinteger[Any]]:
    width = batch.trainers + 1  # column 0 counts what is cached nowhere
    owner, slot = batch.owner.astype(np.int32), batch.slot
    first = (np.arange(batch.examples, dtype=np.int64) * width + 1).astype(_index_type(batch.examples * width))
    if isinstance(slot, Bags):
        bins, ids = owner.take(slot.values) + first[slot.example], np.diff(slot.starts)
    else:
        bins, ids = owner.take(slot), np.full(batch.examples, slot.shape[1])
        bins += first[:, None]
    held = np.bincount(bins.reshape(-1), minlength=batch.examples * width).reshape(batch.examples, width)
    cached = ids[:, None] - held[:, :1]
    dtype: type[np.signedinteger[Any]] = np.int16 if ids.max(initial=0) < 2**15 else np.int32
    return np.subtract(cached, held[:, 1:], dtype=dtype, casting="unsafe")


def capacities(examples: int, trainers: int, shares: Sequence[float] | None = None) -> Ints:
    """How many examples each trainer takes.

    As even as whole numbers allow: `examples / trainers` rounded down or up, the first trainers taking one more. With
    `shares` (one weight a trainer, of any sum) in proportion to them, what rounding leaves going to the largest parts.

    Raises `InputError` for shares that are negative or not finite, all zero, or not one per trainer.
    """
    if trainers < 1:
        raise InputError(f"trainers: must be at least 1, got {trainers}")
    if examples < 0:
        raise InputError(f"batch size: must be at least 0, got {examples}")
    if shares is None:
        even: Ints = examples // trainers + (np.arange(trainers) < examples % trainers).astype(np.int64)
        return even
    weight = np.asarray(shares, dtype=np.float64)
    if weight.shape != (trainers,):
        raise InputError(f"shares: must be one per trainer, {trainers} in all, got {weight.size}")
    is_bad = ~(np.isfinite(weight) & (weight >= 0))
    if is_bad.any():
        raise InputError(f"shares: must be finite and >= 0, got {weight[is_bad][0]:g} for trainer {is_bad.argmax()}")
    if not weight.any():
        raise InputError("shares: at least one must be > 0, got zeros only")
    exact = examples * (weight / weight.sum())
    whole: Ints = np.floor(exact).astype(np.int64)
    most_cut_off = np.lexsort((np.arange(trainers), whole - exact))
    whole[most_cut_off[: examples - int(whole.sum())]] += 1
    return whole


def places_of(examples: int, batch_size: int, trainers: int, shares: Sequence[float] | None = None) -> Ints:
    """How many examples of a batch each trainer takes, of a short one never more than of a whole one.

    Rounding alone doesn't see to that: of 5 examples a trainer may get none, and one of 4.
    """
    most = capacities(batch_size, trainers, shares)
    places = np.minimum(capacities(examples, trainers, shares), most)
    while rest := examples - int(places.sum()):
        places[np.flatnonzero(places < most)[:rest]] += 1
    return places


def checked_capacities(given: Any, examples: int, trainers: int) -> Ints:
    """The capacities that a caller gives, or even ones for None.

    Raises `InputError` unless they are whole numbers >= 0, one per trainer, that add up to the number of examples.
    """
    if given is None:
        return capacities(examples, trainers)
    numbers = np.asarray(given)
    if numbers.shape != (trainers,) or not np.issubdtype(numbers.dtype, np.integer):
        kind = f"shape {numbers.shape} of {numbers.dtype}"
        raise InputError(f"capacities: must be whole numbers, one per trainer ({trainers}), got {kind}")
    if (numbers < 0).any():
        where = int(np.argmax(numbers < 0))
        raise InputError(f"capacities: must be >= 0, got {numbers[where]} for trainer {where}")
    if int(numbers.sum()) != examples:
        raise InputError(f"capacities: must add up to the number of examples, {examples}, got {numbers.sum()}")
    return numbers.astype(np.int64)


def _index_type(most: int) -> type[np.signedinteger[Any]]:
    return np.int32 if most < 2**31 else np.int64


def _check_range(name: str, array: NDArray[Any], low: int, high: int) -> None:
    if array.size and not (low <= int(array.min()) and int(array.max()) <= high):
        is_bad = (array < low) | (array > high)
        raise InputError(f"{name}: must be between {low} and {high}, got {array[is_bad].flat[0]}")
