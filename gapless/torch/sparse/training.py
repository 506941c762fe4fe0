"""Training with sparse gradients in processes: recorded, or by strategies from one start on the same batches."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.torch.ddp.buckets import trainable
from gapless.torch.library import Tensor, rank_count, torch
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks
from gapless.torch.run.workload import Workload, load_named
from gapless.torch.sparse.allreduce import Entries, TopkAllgather
from gapless.torch.sparse.hook import attach, attach_exchange
from gapless.torch.sparse.plan import SparsePlan
from gapless.torch.sparse.selection import Threshold, entry_count

if TYPE_CHECKING:
    from gapless.torch.ranks import Ranks

__all__ = [
    "STRATEGIES", "Recording", "Trained", "TrainingTask", "compare_training", "prepared_comparison",
    "prepared_recording", "recorded", "trained",
]  # fmt: skip


@dataclass(frozen=True)
class TrainingTask:
    """A model as `load_named` takes it, trained by SGD. `wait_s`: the longest that a rank waits for another."""

    model: str
    seed: int
    steps: int
    ranks: int
    learning_rate: float
    wait_s: float


def trained(ddp: torch.nn.parallel.DistributedDataParallel, task: TrainingTask, rank: int) -> list[float]:
    """This rank's loss before each step. A step's batch is what the model's factory makes under a seed of its own, so
    that it differs by rank and step, and is the same in each training under the same task.
    """
    optimizer = torch.optim.SGD(ddp.parameters(), task.learning_rate)
    losses = []
    for step in range(task.steps):
        made = load_named(task.model, task.seed + 1 + step * task.ranks + rank)
        batch = Workload(ddp.module, made.inputs, made.loss, made.targets)
        optimizer.zero_grad()
        loss = batch.loss_of(ddp)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


# -- recorded ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RecordingTask:
    task: TrainingTask
    density: float


@dataclass(frozen=True)
class Recording:
    """What the ranks selected, and the mean loss over ranks before each step."""

    sets: IndexSets
    losses: tuple[float, ...]


def recorded(
    task: TrainingTask, density: float, stop: threading.Event | None = None, among: Ranks | None = None
) -> Recording:
    """Train in as many processes. Raises `InputError` for a model that can't be, and `RunError`."""
    parameters = trainable(load_named(task.model, task.seed).model)
    lengths = [parameter.numel() for parameter in parameters.values()]
    entry_count(density, sum(lengths))
    whole = _RecordingTask(task, density)
    answers = run_ranks(prepared_recording, whole, task.ranks, task.wait_s, stop, among)
    held = [rank["places"][step] for step in range(task.steps) for rank in answers]
    values = [rank["values"][step] for step in range(task.steps) for rank in answers]
    sets = IndexSets(
        name=task.model,
        elements=sum(lengths),
        steps=task.steps,
        ranks=task.ranks,
        start=np.append(0, np.cumsum([len(each) for each in held])).astype(np.int64),
        indices=torch.cat(held).numpy(),
        values=torch.cat(values).numpy(),
        parameter_start=np.append(0, np.cumsum(lengths)[:-1]).astype(np.int64),
        parameter_names=tuple(parameters),
    )
    return Recording(sets, tuple(np.mean([rank["losses"] for rank in answers], axis=0).tolist()))


class _Recorded:
    """Exact sums of what all ranks send, of which the k largest are kept, and what this rank sent in each step."""

    def __init__(self, count: int) -> None:
        self._all, self._global = TopkAllgather(), Threshold(count)
        self.places: list[Tensor] = []
        self.values: list[Tensor] = []

    @property
    def group(self) -> torch.distributed.ProcessGroup | None:
        return self._all.group

    @property
    def received_words(self) -> int:
        return self._all.received_words

    def __call__(self, given: Entries, length: int, step: int) -> Entries:
        self.places.append(given.places.to(torch.int32))
        self.values.append(given.values)
        sums = self._all(given, length, step)
        self._global.find(sums.values)
        return sums.where(self._global.places(sums.values))

    def state_dict(self) -> dict[str, float]:
        """The global threshold."""
        return self._global.state_dict()

    def load_state_dict(self, data: Mapping[str, float]) -> None:
        """What `state_dict` gave."""
        self._global.load_state_dict(data)


def prepared_recording(folder: Path) -> Program:
    """What the rank does, by what is in the folder."""
    whole = read_task(folder, _RecordingTask)
    return Program(whole.task.ranks, whole.task.wait_s, lambda rank: _record(whole.task, whole.density, rank))


def _record(task: TrainingTask, density: float, rank: int) -> dict[str, object]:
    model = load_named(task.model, task.seed).model
    ddp = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    exchange = _Recorded(entry_count(density, sum(each.numel() for each in trainable(model).values())))
    attach_exchange(ddp, density, exchange, period=1)
    losses = trained(ddp, task, rank)
    return {"places": exchange.places, "values": exchange.values, "losses": losses}


# -- compared ----------------------------------------------------------------------------------------------------------

STRATEGIES = ("dense", "TopkA", "plan")


@dataclass(frozen=True)
class _ComparisonTask:
    task: TrainingTask
    plan: SparsePlan


@dataclass(frozen=True)
class Trained:
    """`losses[t]`: in step t, before the update, the mean over ranks. `received_words`: in a step, the mean over steps,
    by the rank that receives most; of what was sent to agree on thresholds and regions too.
    """

    name: str
    losses: tuple[float, ...]
    received_words: float


def compare_training(
    task: TrainingTask, plan: SparsePlan, stop: threading.Event | None = None, among: Ranks | None = None
) -> tuple[Trained, ...]:
    """Train by each strategy, in a process a rank. Raises `InputError` where the plan is for another model or number of
    ranks, and `RunError`.
    """
    plan.check(sum(each.numel() for each in trainable(load_named(task.model, task.seed).model).values()), task.ranks)
    whole = _ComparisonTask(task, plan)
    answers = run_ranks(prepared_comparison, whole, task.ranks, task.wait_s, stop, among)
    runs = ([Trained(**run) for run in rank["runs"]] for rank in answers)
    return tuple(_together(rows) for rows in zip(*runs, strict=True))


def _together(rows: Sequence[Trained]) -> Trained:
    """Of all ranks."""
    losses = tuple(np.mean([row.losses for row in rows], axis=0).tolist())
    return Trained(rows[0].name, losses, max(row.received_words for row in rows))


def prepared_comparison(folder: Path) -> Program:
    """What the rank does, by what is in the folder."""
    whole = read_task(folder, _ComparisonTask)

    def work(rank: int) -> dict[str, object]:
        return {"runs": [asdict(_trained(name, whole.task, whole.plan, rank)) for name in STRATEGIES]}

    return Program(whole.task.ranks, whole.task.wait_s, work)


def _trained(name: str, task: TrainingTask, plan: SparsePlan, rank: int) -> Trained:
    ddp = torch.nn.parallel.DistributedDataParallel(load_named(task.model, task.seed).model, broadcast_buffers=False)
    if name == "dense":
        losses, ranks = trained(ddp, task, rank), rank_count()
        words = 2 * plan.regions.length * (ranks - 1) / ranks * task.steps  # of a ring, as gloo's
        return Trained(name, tuple(losses), words / task.steps)
    state = attach(ddp, plan) if name == "plan" else attach_exchange(ddp, plan.density, TopkAllgather())
    losses = trained(ddp, task, rank)
    return Trained(name, tuple(losses), float(state.exchange.received_words) / task.steps)
