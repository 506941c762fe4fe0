"""Rows that trainers really move: an id that many examples of a trainer use reaches it once per batch.

A trainer fetches an id that an example of its own uses and that it doesn't own: from the trainer that owns it, or from
an embedding server where none does. A fetch between trainers is a row that the owner sends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.ids.loops import partition_loops
from gapless.encodings.bagpipe.partition.costs import Batch
from gapless.profiles.traces.bags import Bags, Lookups, cells, chosen

__all__ = ["Sharing", "Traffic", "uses_by_trainer"]

Ints = NDArray[np.int64]


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

    def counts(self, trainer: Ints) -> NDArray[np.int32]:
        """How often each trainer's examples use each id, ids x trainers."""
        return np.ascontiguousarray(uses_by_trainer(self.index, trainer, self.ids, self.trainers).T)

    def add_uses(self, counts: NDArray[np.int32], examples: Ints | slice, trainer: Ints, times: int) -> None:
        """Add `times` the uses of the examples, on these trainers, to the counts; -1 takes them away."""
        np.add.at(counts.reshape(-1), cells(chosen(self.index, examples), trainer, self.trainers), np.int32(times))

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


def uses_by_trainer(index: Lookups, trainer: Ints, ids: int, trainers: int) -> NDArray[np.int32]:
    """How often each trainer's examples use each id, trainers x ids."""
    if not isinstance(index, Bags) and (compiled := partition_loops(index.size)) is not None:
        found: NDArray[np.int32] = compiled.used_by_trainer(index, trainer, ids, trainers)
        return found
    first = trainer * ids
    if isinstance(index, Bags):
        cells = index.values + first[index.example]
    else:
        cells = (index + first[:, None]).ravel(order="K")  # however it lies in memory, without a copy
    return np.bincount(cells, minlength=trainers * ids).reshape(trainers, ids).astype(np.int32)
