"""Runs that are kept: checkpoints of them, and what all do when a trainer is lost (section 5.2.4).

A trainer that dies breaks the exchanges of all others. Each waits for its threads to end, and all meet in new groups
with the process that takes its place. They go back to the last batch that all have carried out, write-backs too: what
trainers and servers changed after it is undone, and gradients that were under way are discarded. The others send the
new trainer a slice each of the dense parameters and of the rows that all caches hold then. What was fetched ahead is
fetched again. Then all go on with the next batch. Nothing is lost where every cached row is on all trainers, or at its
server before its batch counts as carried out: in the designs of `REPLICATING`.

So that nobody goes back further than others can, all wait at the beginning of a batch until everybody has carried out
all batches but the last.
"""

from __future__ import annotations

import gc
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.rows.descent import Descent
from gapless.encodings.bagpipe.rows.network import Network
from gapless.encodings.bagpipe.rows.served import Served
from gapless.encodings.bagpipe.rows.standing import Standing
from gapless.encodings.bagpipe.rows.store import Journal, RowStore
from gapless.encodings.bagpipe.training.carrier import Carrier, Networks
from gapless.encodings.bagpipe.training.records import RunsTask, batches_of, roles_of, stream_of
from gapless.encodings.bagpipe.training.trainer import Trainer
from gapless.errors import GaplessError, RunError
from gapless.torch.embeddings.checkpoints import ids_digest, load_part, publish, save_part
from gapless.torch.embeddings.roles import Roles
from gapless.torch.embeddings.sharding import Group
from gapless.torch.embeddings.task import flat
from gapless.torch.library import Tensor, torch
from gapless.torch.processes import meet_again, replaced

__all__ = ["train_kept"]


def train_kept(task: RunsTask, rank: int, record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One process's part: its server's rows, dense parameters, losses. `folder`: where it hears who was replaced."""
    known = replaced(folder)
    process = _Process(task, roles_of(task.training, rank), record, is_new=rank in known)
    while True:
        try:
            return process.carry_on(known[-1] if known else None)
        except RuntimeError as error:  # torch's, of a process that is gone
            if isinstance(error, GaplessError) or task.training.lost_trainer < 0:
                raise
        process.abandon()
        known = meet_again(folder, task.training.ranks, rank, len(known), task.training.wait_s)


class _Process:
    """What a process keeps while groups and carriers come and go. `is_new`: it takes the place of a lost one."""

    def __init__(self, task: RunsTask, roles: Roles, record: dict[str, Any], is_new: bool) -> None:
        training = task.training
        self._task, self._roles, self._record, self._is_new = task, roles, record, is_new
        self._trainer = Trainer(training, task.cluster, roles.rank) if roles.is_trainer else None
        self._descent = Descent(training.optimizer, training.step_size, training.dimension)
        goes_back = training.lost_trainer >= 0
        self._journals = [Journal(), Journal()] if goes_back else [None, None]
        self._store = RowStore(self._descent.width, self._journals[0])
        self._served, self._settled = self._begun(), training.start - 1
        self._states: dict[int, Tensor] = {}
        self._may_be_lost = roles.rank == training.lost_trainer and not is_new
        self._carrier: Carrier | None = None
        self._groups: list[Group] = []
        self._recovery: dict[str, int] | None = None

    def _begun(self) -> Served | None:
        """The rows of its server, if it is one, and the trainer's state: where training or its checkpoint begins."""
        training = self._task.training
        folder, last = Path(training.checkpoint), training.start - 1
        if self._trainer is not None and training.start:
            like = {"state": self._trainer.state_after(training.start)}
            self._trainer.take_over(load_part(folder, last, "trainers", like)["state"])
        if (server := self._roles.server(self._roles.rank)) is None:
            return None
        rows = training.started()[1][training.sharding.rows_of(server)].clone()
        served = Served(rows, training.optimizer, training.sharding, journal=self._journals[1])
        if training.start:
            found = load_part(folder, last, f"server{server}", {"weights": served.weights, "state": served.state})
            served.weights.copy_(found["weights"])
            served.state.copy_(found["state"])
        return served

    def carry_on(self, lost: int | None) -> dict[str, Any]:
        """All batches that are left; in new groups, after trainer `lost` was lost."""
        training, networks = self._task.training, self._met()
        if lost is not None:
            self._agree(lost)
        start, stream = self._settled + 1, stream_of(self._task, self._record)
        standing = Standing(stream, self._roles, networks[3], stream.server_of)
        for batch in range(start):
            standing.follow(stream.of(batch))
            stream.forget(batch)
        carrier = self._carrier = Carrier(
            stream, self._record["lanes"], self._record["relayed"].numpy(), self._roles, Networks(*networks[:3]),
            self._served, self._descent, training.wait_s, start=start, store=self._store,
        )  # fmt: skip
        if lost is not None:
            self._go_back(lost, standing)
        elif start:
            standing.refill(self._store, self._served)
        carrier.begin()
        for batch in range(start, stream.count):
            self._train(carrier, standing, batch)
        carrier.finish()
        torch.distributed.barrier(self._groups[-1])  # who is lost now is still waited for
        trainer = self._trainer
        return {
            "rows": carrier.rows_left(), "dense": torch.empty(0) if trainer is None else flat(trainer.model),
            "losses": [] if trainer is None else trainer.losses, "recovery": self._recovery,
            "moved_rows": carrier.moved_rows,
        }  # fmt: skip

    def _met(self) -> list[Network]:
        """In new groups: the networks of trainers, up and down between them and servers, and of all."""
        training, roles = self._task.training, self._roles
        wait = timedelta(seconds=training.wait_s)
        of_trainers = torch.distributed.new_group(list(range(training.trainers)), timeout=wait)
        self._groups = [of_trainers, *(torch.distributed.new_group(timeout=wait) for _ in range(3))]
        ranks = (roles.trainers, roles.ranks, roles.ranks, roles.ranks)
        return [Network(group, roles.rank, count, None) for group, count in zip(self._groups, ranks, strict=True)]

    def abandon(self) -> None:
        """Let go of all exchanges, after another process was lost: who still waits for this one hears of it so."""
        if self._carrier is not None:
            self._carrier.abandon()
        self._carrier, self._groups = None, []
        torch.distributed.destroy_process_group()
        gc.collect()  # errors hold the frames of threads, which hold connections

    def _train(self, carrier: Carrier, standing: Standing, batch: int) -> None:
        carrier.settle(batch - 1)
        torch.distributed.barrier(self._groups[-1])
        self._settled = max(batch - 2, self._task.training.start - 1)
        for journal in self._journals:
            if journal is not None:
                journal.forget(self._settled + 1)
        moves = carrier.stream.of(batch)
        if self._trainer is None:
            carrier.skip(batch + 1)
        else:
            self._states = {each: self._states[each] for each in self._states if each > self._settled}
            self._states[batch] = self._trainer.state()
            self._trainer.train(carrier, lambda moment: self._die(batch, moment))
        standing.follow(moves)
        every = self._task.training.checkpoint_every
        if every and (batch + 1) % every == 0 and batch + 1 < carrier.stream.count:
            carrier.settle(batch + 1)
            self._save(standing, batch)

    def _die(self, batch: int, moment: str) -> None:
        """At the moment at which this trainer is to be lost."""
        training = self._task.training
        if self._may_be_lost and (training.lost_batch, training.lost_moment) == (batch, moment):
            os.kill(os.getpid(), signal.SIGKILL)

    # -- after a loss --------------------------------------------------------------------------------------------------

    def _agree(self, lost: int) -> None:
        """On the last batch that all who were there have carried out."""
        if lost >= self._roles.trainers:
            raise RunError(f"rank {lost}: a server was lost; go on from a checkpoint")
        settled = torch.tensor([2**62 if self._is_new else self._settled])
        torch.distributed.all_reduce(settled, torch.distributed.ReduceOp.MIN)
        self._settled = int(settled)

    def _go_back(self, lost: int, standing: Standing) -> None:
        """To where that batch was over; the new trainer gets what all trainers have."""
        last, (ids, _) = self._settled, standing.rows()
        if self._served is not None:
            self._served.go_back(last)
        if self._trainer is None:
            return
        trainer, group = self._trainer, self._groups[0]
        if self._is_new:
            state, rows = trainer.state_after(last + 1), torch.empty(len(ids), self._store.width)
        else:
            state = self._states.get(last + 1, trainer.state())
            self._store.go_back(last, ids)
            rows = self._store.read(ids)
        state = _copied(state[:, None], self._roles, lost, group)[:, 0]
        rows = _copied(rows, self._roles, lost, group)
        trainer.take_over(state)
        if self._is_new:
            self._store.add(ids, rows)
            copied_bytes = sum(each.numel() * each.element_size() for each in (state, rows))
            self._recovery = {"lost": lost, "kept": last, "copied_bytes": copied_bytes}
            self._is_new = False

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def _save(self, standing: Standing, batch: int) -> None:
        """What this process's part of a checkpoint is, once servers have all rows."""
        standing.flush(self._store, self._served)
        folder, task = Path(self._task.training.checkpoint), self._task.training
        if self._served is not None:
            part = {"weights": self._served.weights.contiguous(), "state": self._served.state.contiguous()}
            save_part(folder, batch, f"server{self._roles.server(self._roles.rank)}", part)
        is_first = self._roles.rank == 0
        if is_first and self._trainer is not None:
            save_part(folder, batch, "trainers", {"state": self._trainer.state()})
        torch.distributed.barrier(self._groups[-1])
        if is_first:
            digest = ids_digest(list(batches_of(self._record)), batch)
            publish(folder, batch, {**task.question, "ids": digest})


def _copied(values: Tensor, roles: Roles, lost: int, group: Group) -> Tensor:
    """What all trainers have, in the one that stands in for a lost one too: each of the others sends it a slice.

    `values` (n, width): of n entries, the new one's too.
    """
    survivors = [trainer for trainer in range(roles.trainers) if trainer != lost]
    bounds = np.linspace(0, len(values), len(survivors) + 1).astype(np.int64)
    source = np.repeat(survivors, np.diff(bounds))
    nobody: Ints = np.empty(0, dtype=np.int64)
    is_new, own = roles.rank == lost, np.equal(source, roles.rank)
    target = nobody if is_new else np.full(int(own.sum()), lost)
    arrived, _ = Network(group, roles.rank, roles.trainers, None).exchange(
        values[own], target, source if is_new else nobody, 0.0
    )
    return arrived if is_new else values
