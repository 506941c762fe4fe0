"""Standing rows: those that trainers have between two batches, beside those fetched for later ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gapless.array_types import Ints, Mask
from gapless.encodings.bagpipe.execution.moves import BatchMoves, Exchange, Holders
from gapless.encodings.bagpipe.execution.stream import BatchStream
from gapless.encodings.bagpipe.lowering.actions import SHARED
from gapless.encodings.bagpipe.rows.network import Network
from gapless.encodings.bagpipe.rows.served import Served
from gapless.encodings.bagpipe.rows.store import RowStore
from gapless.torch.embeddings.roles import Roles
from gapless.torch.library import Tensor

__all__ = ["Standing"]


class Standing:
    """The rows that stand before `batch`, the first that isn't over. `network`: of all processes."""

    def __init__(self, stream: BatchStream, roles: Roles, network: Network, server_of: Callable[[Ints], Ints]) -> None:
        self.batch = 0
        self._stream, self._roles, self._network, self._server_of = stream, roles, network, server_of
        self._holders = Holders()

    def follow(self, moves: BatchMoves) -> None:
        """A batch is over."""
        self._holders.settle(moves.step.ids, moves.holder, moves.evicted)
        self.batch += 1

    def rows(self) -> tuple[Ints, Mask]:
        """Their ids, ascending, and which trainers have them, (n, p)."""
        ids, holder = self._holders.held()
        has = (holder == SHARED)[:, None] | (holder[:, None] == np.arange(self._roles.trainers))
        for batch in range(self.batch, min(self.batch + 2, self._stream.count)):
            moves = self._stream.of(batch)
            for exchange in (moves.send_now, moves.send_later) if batch == self.batch else (moves.send_later,):
                row = np.unique(exchange.row)
                has[np.searchsorted(ids, moves.step.ids[row])] = moves.users[row]
        return ids, has

    def refill(self, store: RowStore, served: Served | None) -> None:
        """Let trainers have them from the servers, once no row is anywhere else."""
        ids, has = self.rows()
        read = _no_rows(store) if served is None else served.read
        self._moved(ids, Exchange.where(has, self._server_of(ids)), read, store.add)

    def flush(self, store: RowStore, served: Served | None) -> None:
        """Let the servers have their current values, once all that was left of the batches before is done."""
        ids, has = self.rows()
        back = Exchange.of(np.arange(len(ids)), has.argmax(axis=1), self._server_of(ids))

        def write(got: Ints, values: Tensor) -> None:
            if served is not None:
                served.write(got, values, self.batch - 1)

        self._moved(ids, back, store.read, write)

    def _moved(
        self, ids: Ints, exchange: Exchange, read: Callable[[Ints], Tensor], write: Callable[[Ints, Tensor], None]
    ) -> None:
        rank = self._roles.rank
        (sent, targets), (got, sources) = exchange.sent_by(rank), exchange.got_by(rank)
        arrived, _ = self._network.exchange(read(ids[sent]), targets, sources, 0.0)
        write(ids[got], arrived)


def _no_rows(store: RowStore) -> Callable[[Ints], Tensor]:
    """What a process that is no server has of any."""
    return lambda ids: store.read(ids[:0])
