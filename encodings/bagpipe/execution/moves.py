"""Moves: which process sends which rows of a batch to which other one, for every design of the cache.

A run says of each row what happens to it (`lowering/actions.py`). Here that becomes exchanges: planned all-to-alls, of
which every process knows beforehand what it sends to each other one, and what it gets. Gradients of rows that all
trainers hold are all-reduced. No process asks another for anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints, Mask
from gapless.encodings.bagpipe.ids.row_map import RowMap
from gapless.encodings.bagpipe.lowering.actions import (
    BY_USERS,
    EVERYWHERE,
    SENT_LATER,
    SENT_NOW,
    SHARED,
    SYNC_LATER,
    SYNC_NOW,
    Actions,
)
from gapless.profiles.traces.bags import Lookups

__all__ = ["NOBODY", "BatchMoves", "Exchange", "Holders", "IdsOfBatch", "moves_of"]

NOBODY = -2
"""Instead of a trainer that holds a row."""


@dataclass(frozen=True)
class Exchange:
    """A planned all-to-all: `row` k, a place among a batch's ids, goes from process `source` to `target`; int64 (n,).

    In the order of sources, targets and rows, in which its values lie in messages too.
    """

    row: Ints
    source: Ints
    target: Ints

    @classmethod
    def of(cls, row: Ints, source: Ints, target: Ints) -> Exchange:
        """In order."""
        order = np.lexsort((row, target, source))
        return cls(row[order], source[order], target[order])

    @classmethod
    def where(cls, chosen: Mask, source: Ints) -> Exchange:
        """Rows that trainers get from a process each. `chosen`: bool (rows, p); `source`: int64 (rows,)."""
        row, target = np.nonzero(chosen)
        return cls.of(row, source[row], target)

    def __len__(self) -> int:
        return len(self.row)

    def turned(self) -> Exchange:
        """The same rows back."""
        return Exchange.of(self.row, self.target, self.source)

    def sent_by(self, rank: int) -> tuple[Ints, Ints]:
        """The rows that a process sends, target after target, and where each goes."""
        own = np.equal(self.source, rank)
        return self.row[own], self.target[own]

    def got_by(self, rank: int) -> tuple[Ints, Ints]:
        """The rows that a process gets, source after source, and where each comes from."""
        own = np.equal(self.target, rank)
        return self.row[own], self.source[own]


@dataclass(frozen=True)
class IdsOfBatch:
    """The number of a batch, its count of examples, and its distinct global ids, ascending."""

    batch: int
    examples: int
    ids: Ints


@dataclass(frozen=True)
class BatchMoves:
    """All that happens to the n rows of a batch, for p trainers; int64 and bool arrays of shape (n,).

    `index`: int32, the place of each lookup in `step.ids`, (examples, tables) or bags. `trainer`: of each example.
    `users`: bool (n, p). `holder`: who holds a row from now on: a trainer, or `SHARED` for all. `sync`, `evicted`: as
    in `Actions`. `before`: who held it until now, `NOBODY` where it is fetched. `prefetch_after`: a batch.

    Exchanges: `prefetch`, from servers; `lend`, from owners before the forward pass; `send_now`, `send_later`, from
    those who held rows, right after the batch before or in the background of the batch before that; `gather_now`,
    `gather_later`: gradients, to who holds the row; `write_early`, `write_late`: to servers.
    """

    step: IdsOfBatch
    index: Lookups
    trainer: Ints
    users: Mask
    before: Ints
    holder: Ints
    sync: Ints
    evicted: Mask
    prefetch_after: int
    server: Ints
    prefetch: Exchange
    lend: Exchange
    send_now: Exchange
    send_later: Exchange
    gather_now: Exchange
    gather_later: Exchange
    write_early: Exchange
    write_late: Exchange

    def shared(self, sync: int) -> Ints:
        """The rows that all trainers hold, and synchronise now or later."""
        return np.flatnonzero((self.holder == SHARED) & (self.sync == sync))

    def gathered(self, sync: int) -> Exchange:
        """Gradients that go to who holds the row, now or later."""
        return self.gather_now if sync == SYNC_NOW else self.gather_later

    def updated_by(self, trainer: int, sync: int) -> Ints:
        """The rows that a trainer alone updates, once gradients are gathered; with 0, by its own alone."""
        chosen = (self.holder == trainer) & (self.sync == sync)
        return np.flatnonzero(chosen & self.users[:, trainer] if sync == 0 else chosen)

    def dropped_by(self, trainer: int) -> Ints:
        """The rows that a trainer has and another one holds alone, once the batch is trained.

        A row that this trainer had no copy of may already come from who trained on it, for the next batch.
        """
        had = self.users[:, trainer] | (self.before == SHARED)
        return np.flatnonzero(had & (self.holder != SHARED) & (self.holder != trainer))

    @property
    def relay_write(self) -> Exchange:
        """Each row of `send_now` once, from who held it to its server."""
        row, first = np.unique(self.send_now.row, return_index=True)
        return Exchange.of(row, self.send_now.source[first], self.server[row])

    @property
    def relay_fetch(self) -> Exchange:
        """The rows of `send_now`, from their servers."""
        return Exchange.of(self.send_now.row, self.server[self.send_now.row], self.send_now.target)


class Holders:
    """Who holds each cached row between its batches."""

    def __init__(self) -> None:
        self._places = RowMap()
        self._holder: Ints = np.empty(0, dtype=np.int64)

    def before(self, ids: Ints) -> Ints:
        """The holders of rows, `NOBODY` of those that aren't cached."""
        places = self._places.find(ids)
        is_held = places >= 0
        holder = np.full(len(ids), NOBODY, dtype=np.int64)
        holder[is_held] = self._holder[places[is_held]]
        return holder

    def settle(self, ids: Ints, holder: Ints, evicted: Mask) -> None:
        """After a batch."""
        places = self._places.find(ids)
        self._places.remove(places[evicted & (places >= 0)])
        new = ~evicted & (places < 0)
        places[new] = self._places.add(ids[new])
        if (most := int(places.max(initial=-1)) + 1) > len(self._holder):
            more = max(most, 2 * len(self._holder)) - len(self._holder)
            self._holder = np.concatenate([self._holder, np.full(more, NOBODY, dtype=np.int64)])
        self._holder[places[~evicted]] = holder[~evicted]

    def held(self) -> tuple[Ints, Ints]:
        """The ids of all cached rows, ascending, and who holds each."""
        ids = self._places.ids[:-2]
        places = np.flatnonzero(ids >= 0)
        places = places[np.argsort(ids[places])]
        return ids[places], self._holder[places]


def moves_of(
    number: int, actions: Actions, trainer: Ints, index: Lookups, before: Ints, server_of: Callable[[Ints], Ints],
    writer_is_server: bool, pools: bool,
) -> BatchMoves:  # fmt: skip
    """The moves of one batch.

    `before`: as `Holders.before` has it of its ids. `server_of`: the processes that serve ids. `writer_is_server`: a
    row that all trainers hold is written back by the trainer that serves it. `pools`: tables lie on trainers, which
    exchange sums of rows.
    """
    ids, users, holder, evicted = actions.ids, actions.users, actions.private_to, actions.evicted == 1
    trainers = np.arange(actions.trainers)
    server, fetched_by = server_of(ids), actions.fetched_by[:, None]
    fetched = (fetched_by == EVERYWHERE) | (fetched_by == trainers) | ((fetched_by == BY_USERS) & users)
    others = users & (holder[:, None] != trainers) & (holder != SHARED)[:, None] & (not pools)
    is_owned = (holder != SHARED) & (actions.sync != 0) & (actions.fetched_by > BY_USERS)
    away = users & (before[:, None] != trainers)
    writer = np.where(holder == SHARED, server if writer_is_server else ids % actions.trainers, holder)
    is_early = (holder != SHARED) & (actions.sync == 0)

    def written(chosen: Mask) -> Exchange:
        row = np.flatnonzero(chosen & evicted)
        return Exchange.of(row, writer[row], server[row])

    def gathered(sync: int) -> Exchange:
        return Exchange.where(others & (actions.sync == sync)[:, None], holder).turned()

    return BatchMoves(
        IdsOfBatch(number, len(trainer), ids), index, trainer, users, before, holder, actions.sync, evicted,
        actions.prefetch_after, server,
        prefetch=Exchange.where(fetched, server),
        lend=Exchange.where(others & is_owned[:, None], holder),
        send_now=Exchange.where(away & _is(actions.fetched_by, SENT_NOW), before),
        send_later=Exchange.where(away & _is(actions.fetched_by, SENT_LATER), before),
        gather_now=gathered(SYNC_NOW), gather_later=gathered(SYNC_LATER),
        write_early=written(is_early), write_late=written(~is_early),
    )  # fmt: skip


def _is(column: NDArray[np.integer], value: int) -> Mask:
    """Where a column has a value, (n, 1)."""
    is_value: Mask = np.equal(column, value)[:, None]
    return is_value
