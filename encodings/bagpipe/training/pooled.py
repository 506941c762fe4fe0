"""Tables that lie on the trainers: sums of rows go to who has the examples, their gradients come back.

As TorchRec's shards (`encodings/bagpipe/designs/sharding.py`): each trainer looks up what lies on it for all examples,
adds up each bag, and sends the sums. Where the rows of a table lie on several trainers, who gets the sums adds them up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.execution.moves import BatchMoves
from gapless.encodings.bagpipe.training.carrier import Carrier
from gapless.profiles.traces.bags import Bags
from gapless.torch.embeddings.lookup import Lookup
from gapless.torch.library import Tensor, torch

__all__ = ["PooledCarrier"]


class PooledCarrier(Carrier):
    """A trainer that has the rows of its shard in `store`. `design`: how tables are cut, of `SHARDED`."""

    def __init__(self, *run: Any, design: str, **options: Any) -> None:
        super().__init__(*run, **options)
        self._is_table_wise = design == "table-wise"
        self._pooled: dict[int, Tensor] = {}

    def rows_left(self) -> Tensor:
        """Its shard's, by number."""
        return self.store.all()[:, : self.descent.dimension]

    def _peer_fetch(self, batch: int, begin_s: float) -> float:
        moves = self.stream.of(batch)
        place, cell = self._own_lookups(moves)
        examples, tables = moves.index.shape
        rows = self.store.read(moves.step.ids[place])[:, : self.descent.dimension]
        sums = torch.zeros(examples * tables, rows.shape[1]).index_add(0, torch.from_numpy(cell), rows)
        sums = sums.reshape(examples, tables, -1)
        parts, me = self._parts(moves), self._roles.rank
        own = [sums[part][:, self._tables(me, tables)].reshape(-1, sums.shape[2]) for part in parts]
        got = [len(parts[me]) * len(self._tables(trainer, tables)) for trainer in range(len(parts))]
        arrived, end_s = self._exchanged(own, got, begin_s)
        pooled = sums.new_zeros(len(parts[me]), tables, sums.shape[2])
        for trainer, part in enumerate(arrived):
            pooled[:, self._tables(trainer, tables)] += part.reshape(len(parts[me]), -1, sums.shape[2])
        self._pooled[batch] = pooled
        self._count("peer_fetch", np.arange(len(arrived[0])))
        return end_s

    def _looked_up(self, moves: BatchMoves) -> Lookup:
        pooled = self._pooled.pop(moves.step.batch)
        index = torch.arange(pooled.shape[0] * pooled.shape[1]).reshape(pooled.shape[:2])
        return Lookup(pooled.reshape(len(index.reshape(-1)), -1).requires_grad_(), index, moves.step.examples)

    def _gathered(self, moves: BatchMoves, sync: int, begin_s: float) -> float:
        if not len(moves.updated_by(self._roles.rank, sync)) and sync != 1:
            return begin_s
        (examples, tables), me = moves.index.shape, self._roles.rank
        parts = self._parts(moves)
        gradient = self._gradients[moves.step.batch][1].reshape(len(parts[me]), tables, -1)
        width = gradient.shape[2]
        own = [gradient[:, self._tables(r, tables)].reshape(-1, width) for r in range(len(parts))]
        mine = self._tables(me, tables)
        arrived, end_s = self._exchanged(own, [len(part) * len(mine) for part in parts], begin_s)
        whole = gradient.new_zeros(examples, tables, width)
        for part, got in zip(parts, arrived, strict=True):
            whole[np.ix_(part, mine)] = got.reshape(len(part), len(mine), width)
        place, cell = self._own_lookups(moves)
        rows, of = np.unique(place, return_inverse=True)
        total = whole.new_zeros(len(rows), width)
        total.index_add_(0, torch.from_numpy(of), whole.reshape(-1, width)[cell])
        self._descend(moves, rows, total)
        return end_s

    def _update_own(self, moves: BatchMoves) -> None:
        """What is on a shard is updated by what comes."""

    def _placed(self, moves: BatchMoves, gradient: Tensor) -> tuple[Ints, Tensor]:
        return np.empty(0, dtype=np.int64), gradient

    def _tables(self, trainer: int, tables: int) -> Ints:
        """Those of which a trainer has sums."""
        return np.arange(trainer, tables, self._roles.trainers) if self._is_table_wise else np.arange(tables)

    def _parts(self, moves: BatchMoves) -> list[Ints]:
        """The examples of each trainer."""
        return [np.flatnonzero(moves.trainer == trainer) for trainer in range(self._roles.trainers)]

    def _own_lookups(self, moves: BatchMoves) -> tuple[Ints, Ints]:
        """Of the lookups of all examples in this shard: the place of each row, and its bag's number."""
        index, (examples, tables) = moves.index, moves.index.shape
        if isinstance(index, Bags):
            place, cell = index.values.astype(np.int64), index.example * tables + index.table
        else:
            place, cell = index.reshape(-1).astype(np.int64), np.arange(examples * tables)
        own = moves.holder[place] == self._roles.rank
        return place[own], cell[own]

    def _exchanged(self, sent: list[Tensor], got: list[int], begin_s: float) -> tuple[list[Tensor], float]:
        """Parts for each trainer, and those that come from each."""
        assert self._networks.peers is not None
        ranks = np.arange(len(got))
        targets, sources = np.repeat(ranks, [len(part) for part in sent]), np.repeat(ranks, got)
        arrived, end_s = self._networks.peers.exchange(torch.cat(sent), targets, sources, begin_s)
        return list(arrived.split(got)), end_s
