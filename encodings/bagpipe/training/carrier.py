"""Carrier: one process of a run, trainer, server, or both, that carries out its part of each batch.

A trainer's loop looks up the rows of a batch, trains, and updates. All else goes on in a thread for each network, in
the order of the plan (`encodings/bagpipe/execution/order.py`):

| activity of batch b | when | what |
|---|---|---|
| `prefetch` | once the batch that it waits for is written back | rows from servers |
| `peer_fetch` | before the forward pass | rows from their owners |
| `sync_now` | after the backward pass | gradients to who holds a row; those of rows that all hold, and of the dense \
layers, added up; rows sent that b + 1 uses |
| `relay_write`, `relay_fetch` | beside the sum | rows that b + 1 uses, through the servers instead |
| `sync_later` | beside the passes of b + 1 | the same for rows that b + 1 doesn't use; rows sent that b + 2 uses |
| `write_early`, `write_late` | after the backward pass; after all gradients | rows to servers |

Gradients are added in the order of ranks, so that a table has the bits of a training without a cache on the same
examples. What the plan doesn't bring is an error, never a silent fetch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Ints, Mask
from gapless.encodings.bagpipe.execution.moves import BatchMoves, Exchange
from gapless.encodings.bagpipe.execution.order import Task
from gapless.encodings.bagpipe.execution.stream import BatchStream
from gapless.encodings.bagpipe.lowering.actions import SYNC_LATER, SYNC_NOW
from gapless.encodings.bagpipe.rows.descent import Descent
from gapless.encodings.bagpipe.rows.lanes import Happened, Lane
from gapless.encodings.bagpipe.rows.network import Emulation, Network
from gapless.encodings.bagpipe.rows.served import Served
from gapless.encodings.bagpipe.rows.store import RowStore
from gapless.errors import InputError, RunError
from gapless.profiles.traces.bags import Bags, chosen
from gapless.torch.embeddings.lookup import Lookup
from gapless.torch.embeddings.roles import Roles
from gapless.torch.library import Tensor, torch

__all__ = ["Carrier", "Networks"]

_OF_PEERS = ("peer_fetch", "sync_now", "sync_later")


@dataclass(frozen=True)
class Networks:
    """Of trainers, and between them and servers, up and down."""

    peers: Network | None
    up: Network
    down: Network


class Carrier:
    """One process. Raises, in `lookup`, `update` and `finish`, what went wrong in any of its threads.

    `lanes`: the tasks of each network, of which those from batch `start` on are left. `store`: its rows then, none if
    None. `relayed`: bool, after which batches rows go through the servers. `served`: the rows of its server, None for a
    process that is none.
    """

    def __init__(
        self, stream: BatchStream, lanes: Mapping[str, Sequence[Task]], relayed: Mask, roles: Roles,
        networks: Networks, served: Served | None, descent: Descent, timeout_s: float,
        emulation: Emulation | None = None, start: int = 0, begin_s: float = 0.0, store: RowStore | None = None,
    ) -> None:  # fmt: skip
        self.stream, self.descent, self.served = stream, descent, served
        self.store = RowStore(descent.width) if store is None else store
        self._roles, self._networks, self._emulation, self._relayed = roles, networks, emulation, relayed
        self._lanes = {name: [task for task in tasks if task[1] >= start] for name, tasks in lanes.items()}
        self._start = start
        self.happened, self.batch, self._now_s = Happened(timeout_s), start, begin_s
        self._gradients: dict[int, tuple[Ints, Tensor]] = {}
        self._dense: dict[int, list[torch.nn.Parameter]] = {}
        self._rows: Tensor | None = None
        self.moved_rows: dict[str, int] = {}
        self._threads: list[Lane] = []
        last = stream.count - 1
        peers = [task for task in lanes["peers"] if task[1] == last]
        self._later_first = peers.index(("sync_later", last)) < peers.index(("sync_now", last))
        self._is_lending = any(activity == "peer_fetch" for activity, _ in lanes["peers"])

    def begin(self) -> None:
        """Start the threads."""
        self._threads = [
            Lane(
                name,
                [task for task in tasks if self._is_own(task)],
                self.happened,
                self._needs,
                self._work,
                self._now_s,
            )
            for name, tasks in self._lanes.items()
        ]
        for thread in self._threads:
            thread.start()

    # -- a trainer's loop ----------------------------------------------------------------------------------------------

    def lookup(self) -> Lookup:
        """The rows of this trainer's examples of the next batch, once they are there."""
        if self._rows is not None:
            raise InputError("lookup: must be followed by update, got another lookup")
        if self.batch >= self.stream.count:
            raise InputError(f"lookup: the run has {self.stream.count} batches, got a lookup for one more")
        ready_s = self.happened.wait(*self._before_forward(self.batch))
        self._now_s = max(self._now_s, ready_s)
        moves = self.stream.of(self.batch)
        found = self._looked_up(moves)
        self._rows = found.rows
        return found

    def spend(self, duration_s: float) -> None:
        """Compute for so long, in emulated time."""
        if self._emulation is None:
            return
        self._now_s += duration_s * self._emulation.dilation
        self._emulation.reach(self._now_s, is_message=False)

    def update(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """After the backward pass: update rows as the plan says, and add up the gradients of dense parameters."""
        if self._rows is None:
            raise InputError("update: must follow a lookup, got none")
        if self._rows.grad is None and len(self._rows):
            raise InputError("update: must follow the backward pass, got rows without a gradient")
        gradient = torch.zeros_like(self._rows) if self._rows.grad is None else self._rows.grad
        batch, self._rows = self.batch, None
        moves = self.stream.of(batch)
        self._gradients[batch], self._dense[batch] = self._placed(moves, gradient), list(parameters)
        self._update_own(moves)
        self.happened.note(("trained", batch), time.monotonic() if self._emulation is None else self._now_s)
        self.batch += 1
        self.happened.wait(("reduced", batch))

    def skip(self, to: int) -> None:
        """Go to a batch, in a process that doesn't train: what is before it, nobody asks for any more."""
        self.batch = to

    def abandon(self) -> None:
        """Wait until all threads end, well or not, after another process was lost."""
        self.happened.fail(RunError("another process was lost"))
        for thread in self._threads:
            thread.join()

    def finish(self) -> None:
        """Wait until all is done."""
        self.settle(self.stream.count)

    def settle(self, below: int) -> None:
        """Wait until all that batches below one leave to others is done."""
        tasks = (task for lane in self._lanes.values() for task in lane)
        self.happened.wait(*(task for task in tasks if task[1] < below and self._is_own(task)))

    def _is_own(self, task: Task) -> bool:
        """Whether this process takes part: servers don't, in what trainers exchange."""
        return self._roles.is_trainer or task[0] not in _OF_PEERS

    def rows_left(self) -> Tensor:
        """What this process's server has."""
        return self._none()[:, : self.descent.dimension] if self.served is None else self.served.weights

    def after(self, batch: int) -> list[Task]:
        """What the batch after one needs of it."""
        if batch < self._start:
            return []
        return [("sync_now", batch), *([("relay_fetch", batch)] if self._relayed[batch] else [])]

    def _before_forward(self, batch: int) -> list[Task]:
        if self._is_lending:
            return [("peer_fetch", batch)]
        return [("prefetch", batch), *self.after(batch - 1)]

    # -- what waits for what -------------------------------------------------------------------------------------------

    def _needs(self, task: Task) -> tuple[Task, ...]:
        activity, batch = task
        if activity == "prefetch":
            after = self.stream.of(batch).prefetch_after
            is_new = after >= self._start and len(self.stream.of(batch).prefetch)
            return (("write_early", after), ("write_late", after)) if is_new else ()
        if activity == "peer_fetch":
            return ("prefetch", batch), *self.after(batch - 1)
        if activity == "relay_fetch":
            return (("relay_write", batch),) if self.served is not None else ()
        if not self._roles.is_trainer:
            return ()
        if activity == "sync_later":
            is_last = batch == self.stream.count - 1
            return (("trained" if is_last and self._later_first else "sync_now", batch),)
        if activity == "write_late":
            return (("gathered", batch) if self._is_lending else ("sync_later", batch),)
        return (("gathered" if activity == "relay_write" else "trained", batch),)

    def _work(self, task: Task, begin_s: float) -> float | None:
        activity, batch = task
        self.stream.forget(min(self.batch, *(thread.lowest for thread in self._threads)))
        work = getattr(self, f"_{activity}")
        end_s: float | None = work(batch, begin_s)
        return end_s

    # -- exchanges with servers ----------------------------------------------------------------------------------------

    def _prefetch(self, batch: int, begin_s: float) -> float | None:
        moves = self.stream.of(batch)
        return self._fetched("prefetch", moves, moves.prefetch, begin_s)

    def _relay_fetch(self, batch: int, begin_s: float) -> float | None:
        moves = self.stream.of(batch + 1)
        return self._fetched("relay_fetch", moves, moves.relay_fetch, begin_s)

    def _fetched(self, activity: str, moves: BatchMoves, exchange: Exchange, begin_s: float) -> float | None:
        if not len(exchange):
            return None
        if self._emulation is not None and self.served is not None:
            begin_s += self._emulation.cluster.fetch_latency_s * self._emulation.dilation
        (sent, targets), (got, sources) = exchange.sent_by(self._roles.rank), exchange.got_by(self._roles.rank)
        ids = moves.step.ids
        values = self._none() if self.served is None else self.served.read(ids[sent])
        arrived, end_s = self._networks.down.exchange(values, targets, sources, begin_s)
        self.store.add(ids[got], arrived)
        self._count(activity, got)
        return end_s

    def _write_early(self, batch: int, begin_s: float) -> float | None:
        moves = self.stream.of(batch)
        return self._written("write_early", moves, moves.write_early, moves.write_early.row, begin_s)

    def _write_late(self, batch: int, begin_s: float) -> float | None:
        moves = self.stream.of(batch)
        return self._written("write_late", moves, moves.write_late, moves.write_late.row, begin_s)

    def _relay_write(self, batch: int, begin_s: float) -> float | None:
        moves = self.stream.of(batch + 1)
        return self._written("relay_write", moves, moves.relay_write, self._leaving(moves, moves.send_now), begin_s)

    def _written(
        self, activity: str, moves: BatchMoves, exchange: Exchange, leaving: Ints, begin_s: float
    ) -> float | None:  # fmt: skip
        """Rows to servers. Those that are `leaving` are dropped before any may come back from who gets them."""
        if not len(exchange):
            return None
        (sent, targets), (got, sources) = exchange.sent_by(self._roles.rank), exchange.got_by(self._roles.rank)
        ids, batch = moves.step.ids, moves.step.batch
        values = self.store.read(ids[sent]) if self._roles.is_trainer else self._none()
        self.store.drop(ids[leaving], batch)
        arrived, end_s = self._networks.up.exchange(values, targets, sources, begin_s)
        if self.served is not None:
            self.served.write(ids[got], arrived, batch)
        self._count(activity, got)
        return end_s

    # -- exchanges of trainers -----------------------------------------------------------------------------------------

    def _peer_fetch(self, batch: int, begin_s: float) -> float | None:
        moves = self.stream.of(batch)
        if self._emulation is not None:
            begin_s += self._emulation.cluster.control_s * self._emulation.dilation
        return self._sent("peer_fetch", moves, moves.lend, begin_s)

    def _sync_now(self, batch: int, begin_s: float) -> float:
        moves = self.stream.of(batch)
        self._gradients.pop(batch - 1, None)  # its background is over
        end_s = self._gathered(moves, SYNC_NOW, begin_s)
        self.happened.note(("gathered", batch), end_s)
        end_s = self._summed(moves, SYNC_NOW, self._dense.pop(batch), end_s)
        self.happened.note(("reduced", batch), end_s)
        if batch + 1 < self.stream.count and not self._relayed[batch]:
            following = self.stream.of(batch + 1)
            end_s = self._sent("send_now", following, following.send_now, end_s) or end_s
        return end_s

    def _sync_later(self, batch: int, begin_s: float) -> float | None:
        moves = self.stream.of(batch)
        end_s = self._summed(moves, SYNC_LATER, [], self._gathered(moves, SYNC_LATER, begin_s))
        if batch + 2 < self.stream.count:
            following = self.stream.of(batch + 2)
            end_s = self._sent("send_later", following, following.send_later, end_s) or end_s
        return end_s if end_s != begin_s or self._emulation is None else None

    def _sent(self, activity: str, moves: BatchMoves, exchange: Exchange, begin_s: float) -> float | None:
        """Rows to trainers that don't have them, from one that does."""
        if not len(exchange):
            return None
        assert self._networks.peers is not None
        (sent, targets), (got, sources) = exchange.sent_by(self._roles.rank), exchange.got_by(self._roles.rank)
        ids, width = moves.step.ids, self.descent.dimension if activity == "peer_fetch" else None
        values = self.store.read(ids[sent])
        if activity != "peer_fetch":
            self.store.drop(ids[self._leaving(moves, exchange)], moves.step.batch)
        arrived, end_s = self._networks.peers.exchange(values[:, :width], targets, sources, begin_s)
        if activity == "peer_fetch":  # who is lent a row doesn't update it
            arrived = torch.cat([arrived, arrived.new_zeros(len(arrived), values.shape[1] - arrived.shape[1])], dim=1)
        self.store.add(ids[got], arrived)
        self._count(activity, got)
        return end_s

    def _leaving(self, moves: BatchMoves, exchange: Exchange) -> Ints:
        """Rows that this trainer sends to all that use them next, being none of these."""
        sent, _ = exchange.sent_by(self._roles.rank)
        return np.unique(sent[~moves.users[sent, self._roles.rank]]) if len(sent) else sent

    def _gathered(self, moves: BatchMoves, sync: int, begin_s: float) -> float:
        """Gradients to who holds the rows, who then updates them."""
        exchange, me, end_s = moves.gathered(sync), self._roles.rank, begin_s
        (sent, targets), (got, sources) = exchange.sent_by(me), exchange.got_by(me)
        place, gradient = self._gradients[moves.step.batch]
        arrived = gradient.new_empty(0, gradient.shape[1])
        if len(exchange):
            assert self._networks.peers is not None
            arrived, end_s = self._networks.peers.exchange(gradient[place[sent]], targets, sources, begin_s)
            self._count("gather", got)
        rows = moves.updated_by(me, sync)
        total = gradient.new_zeros(len(rows), gradient.shape[1])
        for trainer in range(self._roles.trainers):
            if trainer == me:
                own = np.flatnonzero(moves.users[rows, me])
                total[own] += gradient[place[rows[own]]]
            else:
                theirs = np.flatnonzero(sources == trainer)
                total[np.searchsorted(rows, got[theirs])] += arrived[theirs]
        self._descend(moves, rows, total)
        return end_s

    def _summed(
        self, moves: BatchMoves, sync: int, parameters: Sequence[torch.nn.Parameter], begin_s: float
    ) -> float:  # fmt: skip
        """Gradients of rows that all trainers hold, and of dense parameters."""
        rows = moves.shared(sync)
        if not (len(rows) or parameters):
            return begin_s
        assert self._networks.peers is not None
        place, gradient = self._gradients[moves.step.batch]
        own = np.flatnonzero(moves.users[rows, self._roles.rank])
        part = gradient.new_zeros(len(rows), self.descent.dimension)
        part[own] = gradient[place[rows[own]]]
        dense = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
        flat = torch.cat([part.reshape(-1), *(each.reshape(-1) for each in dense)])
        total, end_s = self._networks.peers.sums(flat, self._charged(part, dense), begin_s)
        self._descend(moves, rows, total[: part.numel()].reshape(part.shape))
        sums = total[part.numel() :].split([each.numel() for each in dense])
        for parameter, each in zip(parameters, sums, strict=True):
            parameter.grad = each.reshape(parameter.shape)
        self._count("sum", rows)
        return end_s

    def _charged(self, rows: Tensor, dense: Sequence[Tensor]) -> float:
        """The bytes of a sum, in emulated time: the dense layers are those of the cluster's model."""
        size: int = rows.numel() * rows.element_size()
        return size + (self._emulation.cluster.dense_bytes if self._emulation is not None and dense else 0)

    # -- rows of a batch -----------------------------------------------------------------------------------------------

    def _looked_up(self, moves: BatchMoves) -> Lookup:
        me = self._roles.rank
        used = moves.users[:, me]
        rows = self.store.read(moves.step.ids[used])[:, : self.descent.dimension].contiguous().requires_grad_()
        own = chosen(moves.index, np.flatnonzero(moves.trainer == me))
        place: Ints = np.cumsum(used) - 1
        if isinstance(own, Bags):
            index, lengths = torch.from_numpy(place[own.values]), torch.from_numpy(own.lengths)
            return Lookup(rows, index, moves.step.examples, lengths)
        return Lookup(rows, torch.from_numpy(place[own]), moves.step.examples)

    def _placed(self, moves: BatchMoves, gradient: Tensor) -> tuple[Ints, Tensor]:
        """A batch's gradient, and where in it each row's is."""
        place: Ints = np.cumsum(moves.users[:, self._roles.rank]) - 1
        return place, gradient

    def _update_own(self, moves: BatchMoves) -> None:
        """Rows that this trainer alone uses and holds, from its gradient; what others hold isn't needed any more."""
        place, gradient = self._gradients[moves.step.batch]
        rows = moves.updated_by(self._roles.rank, 0)
        self._descend(moves, rows, gradient[place[rows]])
        self.store.drop(moves.step.ids[moves.dropped_by(self._roles.rank)], moves.step.batch)

    def _descend(self, moves: BatchMoves, rows: Ints, gradient: Tensor) -> None:
        if len(rows):
            ids = moves.step.ids[rows]
            batch = moves.step.batch
            self.store.change(ids, self.descent.step(self.store.read(ids), gradient, batch), batch)

    def _none(self) -> Tensor:
        return torch.empty(0, self.store.width)

    def _count(self, activity: str, rows: Ints) -> None:
        self.moved_rows[activity] = self.moved_rows.get(activity, 0) + len(rows)
