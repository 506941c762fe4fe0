"""A batch by the rows that it uses, and what it costs to train its examples where they are trained.

A batch names its ids by slots: `slot[i, t]` is the slot of example i's id of table t, and `owner[s]` the trainer that
has the row of slot s in its part of the cache, -1 where none has. Ids are private to their table, so no example uses a
slot twice; of bags, a batch has the distinct slots of each example (`Bags.once`).

The paper charges an example for each of its ids whose row another trainer holds (`cost_matrix`). What trainers really
move is less: an id that many examples of a trainer use reaches it once a batch (`Sharing`, `Traffic`), from the trainer
that owns it, or from an embedding server where none does. A fetch between trainers is a row that the owner sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints
from gapless.encodings.bagpipe.ids.loops import partition_loops
from gapless.errors import InputError
from gapless.profiles.traces.bags import Bags, Lookups, cells, chosen, sums

__all__ = ["Batch", "Sharing", "Traffic", "add_uses", "cost_matrix", "pair_costs", "summed", "uses_by_trainer"]

Counts = NDArray[np.int32]
Number = TypeVar("Number", bound=np.number)

_MOST_TRAINERS = 2**15 - 1
_MOST_AT_ONCE = 2**22
"""Costs of uses that are gathered at a time, so that memory doesn't grow with examples times tables times trainers."""


@dataclass(frozen=True)
class Batch:
    """The ids of a batch and where their rows are.

    `slot`: integers, examples x tables, or bags. `owner`: integers, one per slot, a trainer or -1.

    Raises `InputError` for slots without an owner entry, owners that are no trainers, and fewer than one trainer.
    """

    slot: Lookups
    owner: NDArray[np.integer]
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


def cost_matrix(batch: Batch) -> NDArray[np.signedinteger]:
    """The paper's C: `C[i, j]` counts the ids of example i whose rows trainers other than j have; int16 or int32.

    What no trainer has comes from an embedding server, at the same cost everywhere.
    """
    slot = batch.slot
    if isinstance(slot, Bags) or (compiled := partition_loops(slot.size)) is None:
        return _cost_matrix(batch)
    cost = np.empty((batch.examples, batch.trainers), np.int16 if slot.shape[1] < 2**15 else np.int32)
    compiled.costs(np.ascontiguousarray(batch.owner), slot, cost)
    return cost


def _cost_matrix(batch: Batch) -> NDArray[np.signedinteger]:
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
    dtype: type[np.signedinteger] = np.int16 if ids.max(initial=0) < 2**15 else np.int32
    return np.subtract(cached, held[:, 1:], dtype=dtype, casting="unsafe")


@dataclass(frozen=True)
class Traffic:
    """Rows per trainer in one batch, int64: what it gets from other trainers and from servers, and what it sends."""

    from_trainers: Ints
    from_servers: Ints
    sent: Ints

    @classmethod
    def of_users(cls, users: NDArray[np.bool_], owner: Ints) -> Traffic:
        """What moves when trainers use ids as `users` says (ids x trainers) and `owner` has them, -1: the servers."""
        if (compiled := partition_loops(users.size)) is not None:
            return cls(*compiled.between_trainers(np.ascontiguousarray(users.T), owner))
        readers = users.sum(axis=1, dtype=np.int32)
        is_served = owner < 0
        rows = np.zeros((3, users.shape[1]), dtype=np.int64)
        for trainer, uses in enumerate(users.T):
            is_own = np.equal(owner, trainer)
            own = np.count_nonzero(uses & is_own)
            served = np.count_nonzero(uses & is_served)
            rows[:, trainer] = np.count_nonzero(uses) - own - served, served, readers[is_own].sum() - own
        return cls(*rows)

    @classmethod
    def of_moved(cls, rows: Ints) -> Traffic:
        """Of rows from the servers (row 0) and each owner to each trainer."""
        return cls(rows[1:].sum(axis=0), rows[0].copy(), rows[1:].sum(axis=1))

    @property
    def fetched(self) -> Ints:
        """Rows that reach each trainer."""
        return self.from_trainers + self.from_servers

    @property
    def load(self) -> Ints:
        """Rows that each trainer receives or sends."""
        return self.fetched + self.sent

    @property
    def fetches(self) -> int:
        """Pairs of an id and a trainer that uses it and doesn't own it."""
        return int(self.fetched.sum())

    @property
    def max_load(self) -> int:
        """The load of the busiest trainer."""
        return int(self.load.max())


@dataclass(frozen=True)
class Sharing:
    """A batch by its distinct ids, numbered from 0.

    `index`: examples x tables, int32, or bags without an id twice in an example; `owner`: one per id, a trainer or -1;
    `uses`: how many uses each id has.
    """

    index: Lookups
    owner: Ints
    uses: Ints
    trainers: int

    @classmethod
    def of(cls, batch: Batch) -> Sharing:
        """The ids that the batch uses, in the order of their slots."""
        slot = batch.slot.values if isinstance(batch.slot, Bags) else batch.slot
        is_used = np.zeros(len(batch.owner), dtype=np.bool_)
        is_used[slot] = True
        slots = np.flatnonzero(is_used)
        number = np.empty(len(batch.owner), np.int32)
        number[slots] = np.arange(len(slots), dtype=np.int32)
        index = number[slot]
        uses = np.bincount(index.reshape(-1), minlength=len(slots)).astype(np.int64)
        if isinstance(batch.slot, Bags):
            index = Bags(index, batch.slot.lengths)
        return cls(index, batch.owner[slots].astype(np.int64), uses, batch.trainers)

    @property
    def examples(self) -> int:
        """The number of examples."""
        return len(self.index)

    @property
    def ids(self) -> int:
        """The number of distinct ids."""
        return len(self.owner)

    def counts(self, trainer: Ints) -> Counts:
        """How often each trainer's examples use each id, ids x trainers."""
        return np.ascontiguousarray(uses_by_trainer(self.index, trainer, self.ids, self.trainers).T)

    def is_fetched(self, counts: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which trainers fetch which ids, ids x trainers, by the counts of their uses."""
        fetched = counts > 0
        owned = np.flatnonzero(self.owner >= 0)
        fetched[owned, self.owner[owned]] = False
        return fetched

    def traffic(self, trainer: Ints) -> Traffic:
        """What moves when example i is trained on `trainer[i]`."""
        users = uses_by_trainer(self.index, trainer, self.ids, self.trainers) > 0
        return Traffic.of_users(users.T, self.owner)

    def moved(self, fetched: NDArray[np.bool_]) -> Ints:
        """Rows from the servers (row 0) and each owner to each trainer when these ids are fetched by these trainers."""
        pairs = np.flatnonzero(fetched)  # much quicker than np.nonzero in two dimensions
        id_ = pairs // self.trainers
        bins = (self.owner[id_] + 1) * self.trainers + (pairs - id_ * self.trainers)
        flat = np.bincount(bins, minlength=(self.trainers + 1) * self.trainers)
        return flat.reshape(self.trainers + 1, self.trainers)


def uses_by_trainer(index: Lookups, trainer: Ints, ids: int, trainers: int) -> Counts:
    """How often each trainer's examples use each id, trainers x ids."""
    if not isinstance(index, Bags) and (compiled := partition_loops(index.size)) is not None:
        counts: Counts = compiled.used_by_trainer(index, trainer, ids, trainers)
        return counts
    first = trainer * ids
    if isinstance(index, Bags):
        cells = index.values + first[index.example]
    else:
        cells = (index + first[:, None]).ravel(order="K")  # however it lies in memory, without a copy
    return np.bincount(cells, minlength=trainers * ids).reshape(trainers, ids).astype(np.int32)


def pair_costs(owner: Ints, receive: NDArray[Number], send: NDArray[Number]) -> NDArray[Number]:
    """What it costs at these rates, one a trainer, that trainer j uses id e: ids x trainers; nothing where it owns the
    id, and nothing for a sender that is a server."""
    cost: NDArray[Number] = receive + np.where(owner >= 0, send[owner], 0)[:, None]
    owned = np.flatnonzero(owner >= 0)
    cost[owned, owner[owned]] = 0
    return cost


def add_uses(index: Lookups, counts: Counts, examples: Ints, trainer: Ints, times: int) -> None:
    """Add `times` the uses of the examples, on these trainers, to counts (ids x trainers); -1 takes them away."""
    np.add.at(counts.reshape(-1), cells(chosen(index, examples), trainer, counts.shape[1]), np.int32(times))


def summed(per_id: NDArray[Number], index: Lookups, examples: Ints) -> NDArray[Number]:
    """What is said of each id and trainer (ids x trainers), added up over the ids of some examples."""
    trainers = per_id.shape[1]
    total = np.empty((len(examples), trainers), per_id.dtype)
    at_once = max(1, _MOST_AT_ONCE * len(index) // max(1, index.size * trainers))
    for first in range(0, len(examples), at_once):
        total[first : first + at_once] = sums(per_id, chosen(index, examples[first : first + at_once]))
    return total


def _index_type(most: int) -> type[np.signedinteger]:
    return np.int32 if most < 2**31 else np.int64


def _check_range(name: str, array: NDArray[np.integer], low: int, high: int) -> None:
    if array.size and not (low <= int(array.min()) and int(array.max()) <= high):
        is_bad = (array < low) | (array > high)
        raise InputError(f"{name}: must be between {low} and {high}, got {array[is_bad].flat[0]}")
