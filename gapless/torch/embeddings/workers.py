"""Trainers and servers of training by plans, each in its process; what they do when a trainer is lost (section 5.2.4).

A trainer that dies breaks the exchanges of all others. Each waits for its background to end, and all meet in a new
group with the process that takes its place. They agree on the last batch that all have carried out, its background too,
and undo what they did after it: gradients that were under way are discarded. The others send the new trainer a slice
each of the dense parameters and of the rows that all caches hold; what it alone had fetched ahead it fetches again.
Then all go on with the next batch. Nothing is lost, as rows that one trainer alone updates reach their server before
their batch counts as carried out; up to two batches are trained again. Needs the extra `torch`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gapless.errors import GaplessError, RunError
from gapless.torch.embeddings.cache import MOVES, LrppCache, add_gradients
from gapless.torch.embeddings.checkpoints import ids_digest, load_part, publish, save_part
from gapless.torch.embeddings.journal import BEFORE_ALL, Journal
from gapless.torch.embeddings.plans import BatchPlan, load_plans
from gapless.torch.embeddings.servers import Groups, Roles, ServedRows, Timeline, copied, serve
from gapless.torch.embeddings.task import MOMENTS, Task, flat, inputs_of, loss_of
from gapless.torch.library import torch
from gapless.torch.processes import Program, meet_again, read_task, replaced

__all__ = ["prepared", "train_rank"]


def prepared(folder: Path) -> Program:
    """What all processes do, by what is in a folder."""
    task, plans = read_task(folder, Task), load_plans(folder / "plans.pt")
    return Program(task.ranks, task.wait_s, lambda rank: train_rank(rank, task, plans, folder))


def train_rank(rank: int, task: Task, plans: Sequence[BatchPlan], folder: Path | None = None) -> dict[str, Any]:
    """One process's part: the rows of its server, its dense parameters, the losses, what has reached it.

    `folder`: where it hears who was replaced; without one a lost trainer ends the training.
    """
    known = [] if folder is None else replaced(folder)
    roles = Roles(rank, task.trainers, task.sharding.servers, task.servers > 0)
    work = (_Trainer if roles.is_trainer else _Server)(task, plans, roles, is_new=rank in known)
    if known:
        work.recover(known[-1])
    while True:
        try:
            return work.done()
        except RuntimeError as error:  # torch's, of a process that is gone
            if isinstance(error, GaplessError) or folder is None or not task.servers:
                raise
            work.abandon()
            known = meet_again(folder, task.ranks, rank, len(known), task.wait_s)
            work.recover(known[-1])


class _Worker:
    """What trainers and servers have in common. `is_new`: it takes the place of a lost one."""

    def __init__(self, task: Task, plans: Sequence[BatchPlan], roles: Roles, is_new: bool) -> None:
        self._task, self._plans, self._roles, self._is_new = task, plans, roles, is_new
        self._journal = Journal(is_kept=task.servers > 0)
        self._model, table = task.started()
        server = roles.server(roles.rank)
        rows = table[[] if server is None else task.sharding.rows_of(server)].clone()
        self._start, self._part = task.start, None if server is None else f"server{server}"
        self._weights, self._state = rows, None
        if task.start and self._part:
            shapes = {"weights": rows, "state": ServedRows.state_of(rows, task.optimizer)}
            found = load_part(Path(task.checkpoint), task.start - 1, self._part, shapes)
            self._weights, self._state = found["weights"], found["state"]

    def _agree(self) -> int:
        """The last batch that all who were there have carried out; what came after it is undone here."""
        settled = torch.tensor([len(self._plans) if self._is_new else self._journal.settled])
        torch.distributed.all_reduce(settled, torch.distributed.ReduceOp.MIN)
        last = int(settled)
        if self._is_new:
            self._journal.settled = last
        else:
            self._journal.undo(last)
        self._is_new = False
        return last

    def _is_due(self, batch: int) -> bool:
        every = self._task.checkpoint_every
        return bool(every) and (batch + 1) % every == 0 and batch + 1 < len(self._plans)

    def _save(self, batch: int, rows: ServedRows) -> None:
        """Keep this process's server, once its rows are those of the caches."""
        if self._part:
            tensors = {"weights": rows.weights, "state": rows.state}
            save_part(Path(self._task.checkpoint), batch, self._part, {k: v.contiguous() for k, v in tensors.items()})
        torch.distributed.barrier()


class _Trainer(_Worker):
    def __init__(self, task: Task, plans: Sequence[BatchPlan], roles: Roles, is_new: bool) -> None:
        super().__init__(task, plans, roles, is_new)
        self._descent = torch.optim.SGD(self._model.parameters(), lr=task.step_size)
        self._losses: list[float] = []
        self._loss = torch.nn.Parameter(torch.zeros(1))  # its gradient is a loss, added up as gradients are
        self._recovery: dict[str, int] | None = None
        self._may_be_lost = roles.rank == task.lost_trainer and not is_new
        if task.start:
            like = {"state": torch.empty(len(flat(self._model)) + task.start)}
            self._take_over(load_part(Path(task.checkpoint), task.start - 1, "trainers", like)["state"])
        self._cache = LrppCache(
            plans, task.sharding, self._weights, step_size=task.step_size, optimizer=task.optimizer,
            timeout_s=task.wait_s, roles=roles, journal=self._journal, state=self._state,
            start=None if is_new else task.start,
        )  # fmt: skip

    def done(self) -> dict[str, Any]:
        """Train all batches that are left."""
        for plan in self._plans[len(self._losses) :]:
            self._train(plan)
            if self._is_due(plan.step.batch):
                self._checkpoint(plan.step.batch)
        self._cache.flush()
        self._cache.close()
        found = {"rows": self._weights, "dense": flat(self._model), "losses": self._losses}
        return {**found, "moved_bytes": self._cache.moved_bytes, "recovery": self._recovery}

    def abandon(self) -> None:
        self._cache.abandon()

    def recover(self, lost: int) -> None:
        """In a new group of all: go back to where all can go on, and let the new trainer have what it needs."""
        is_new, last = self._is_new, self._agree()
        copied_bytes = self._cache.recover(lost)
        del self._losses[max(last, self._task.start - 1) + 1 :]
        state = self._own_state()
        if is_new:
            state = torch.empty(len(flat(self._model)) + max(last, self._task.start - 1) + 1)
        state = copied(state[:, None], self._roles, lost, self._cache.trainers)[:, 0]
        if is_new:
            self._take_over(state)
            self._recovery = {
                "lost": lost,
                "kept": last,
                "copied_bytes": copied_bytes + state.numel() * state.element_size(),
            }

    def _train(self, plan: BatchPlan) -> None:
        own = np.flatnonzero(plan.trainer == self._roles.rank)
        numbers, labels = self._task.data(plan)
        embeddings = self._cache.lookup()
        self._descent.zero_grad()
        inputs = inputs_of(self._task, plan, own, numbers, embeddings.pooled())
        loss = loss_of(self._model(inputs), labels[own], embeddings.batch_examples)
        loss.backward()
        self._die(plan, MOMENTS[0])
        self._cache.update()
        self._die(plan, MOMENTS[1])
        self._loss.grad = loss.detach()[None]
        add_gradients([*self._model.parameters(), self._loss], self._cache.trainers)
        for parameter in self._model.parameters():
            self._journal.record(plan.step.batch, parameter, "data")
        self._descent.step()
        self._losses.append(float(self._loss.grad))

    def _die(self, plan: BatchPlan, moment: str) -> None:
        """At the moment at which this trainer is to be lost."""
        if self._may_be_lost and (self._task.lost_batch, self._task.lost_moment) == (plan.step.batch, moment):
            os.kill(os.getpid(), signal.SIGKILL)

    def _checkpoint(self, batch: int) -> None:
        self._cache.flush()
        if self._roles.rank == 0:
            save_part(Path(self._task.checkpoint), batch, "trainers", {"state": self._own_state()})
        self._save(batch, self._cache.rows)
        if self._roles.rank == 0:
            question = {**self._task.question, "ids": ids_digest(self._plans, batch)}
            publish(Path(self._task.checkpoint), batch, question)

    def _own_state(self) -> torch.Tensor:
        """Dense parameters, and the losses so far."""
        return torch.cat([flat(self._model), torch.tensor(self._losses)])

    def _take_over(self, state: torch.Tensor) -> None:
        parameters = list(self._model.parameters())
        *values, losses = state.split([*(each.numel() for each in parameters), len(state) - len(flat(self._model))])
        with torch.no_grad():
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value.reshape(parameter.shape))
        self._losses = losses.tolist()


class _Server(_Worker):
    def __init__(self, task: Task, plans: Sequence[BatchPlan], roles: Roles, is_new: bool) -> None:
        super().__init__(task, plans, roles, is_new)
        group = Groups.of(roles, task.wait_s).rows
        self._rows = ServedRows(
            self._weights, task.optimizer, task.sharding, roles, group, self._journal, state=self._state
        )
        self._timeline = Timeline(plans, task.sharding, roles.trainers)
        self._written = 0

    def done(self) -> dict[str, Any]:
        """Serve all batches that are left."""
        self._written += serve(self._rows, self._timeline, self._start, self._after)
        self._flush(self._timeline.done)
        moved = {**dict.fromkeys(MOVES, 0), "written": self._written}
        return {"rows": self._weights, "dense": torch.empty(0), "losses": [], "moved_bytes": moved}

    def abandon(self) -> None:
        """It has no background."""

    def recover(self, lost: int) -> None:
        """As a trainer's, for the rows that servers have."""
        if lost >= self._roles.trainers:
            raise RunError(f"rank {lost}: a server was lost; go on from a checkpoint")
        last = self._agree()
        self._rows.recover(Groups.of(self._roles, self._task.wait_s).rows, lost)
        if last > BEFORE_ALL:
            for moves in self._timeline.rewind(last):
                self._rows.fetch(moves.private_of(lost), last)

    def _after(self, batch: int) -> None:
        if self._is_due(batch):
            self._flush(batch)
            self._save(batch, self._rows)

    def _flush(self, batch: int) -> None:
        self._rows.write_back(self._rows.held(), self._rows.no_rows, batch)
