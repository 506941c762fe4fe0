"""Served rows: those that one process's embedding server has, with what the optimiser keeps for each."""

from __future__ import annotations

from gapless.array_types import Ints
from gapless.encodings.bagpipe.rows.store import Journal
from gapless.torch.embeddings.optimizers import with_state
from gapless.torch.embeddings.sharding import Sharding
from gapless.torch.library import Tensor, torch

__all__ = ["Served"]


class Served:
    """`weights`: float, one row for each of this server's, changed in place. `state`: its beginning if None.

    `journal`: of what batches change here, where somebody may want to go back.
    """

    def __init__(
        self, weights: Tensor, optimizer: str, sharding: Sharding, state: Tensor | None = None,
        journal: Journal | None = None,
    ) -> None:  # fmt: skip
        self.weights, self._sharding, self._journal = weights.detach(), sharding, journal
        self.state = with_state(optimizer, self.weights)[:, weights.shape[1] :] if state is None else state

    def read(self, ids: Ints) -> Tensor:
        """Rows and their state, side by side."""
        rows = self._rows(ids)
        return torch.cat([self.weights[rows], self.state[rows]], dim=1)

    def write(self, ids: Ints, values: Tensor, batch: int) -> None:
        """Rows and their state, as trainers left them after a batch."""
        if self._journal is not None:
            self._journal.record(batch, ids, self.read(ids))
        self._write(ids, values)

    def go_back(self, last: int) -> None:
        """To where batch `last` was over."""
        assert self._journal is not None
        for ids, values in self._journal.undone(last):
            self._write(ids, values)

    def _write(self, ids: Ints, values: Tensor) -> None:
        rows, dimension = self._rows(ids), self.weights.shape[1]
        self.weights[rows], self.state[rows] = values[:, :dimension], values[:, dimension:]

    def server_of(self, ids: Ints) -> Ints:
        """The server of each row."""
        return self._sharding.rows(ids) % self._sharding.servers

    def _rows(self, ids: Ints) -> Ints:
        return self._sharding.rows(ids) // self._sharding.servers
