"""Training with sparse gradients in processes, recorded: which entries each rank selects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.profiles.sparsity.estimates import EXACT, GAUSSIAN_ADJUSTED
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.torch.ddp.buckets import trainable
from gapless.torch.library import Tensor, torch
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks
from gapless.torch.run.workload import Workload, load_named
from gapless.torch.sparse.allreduce import Entries, TopkAllgather
from gapless.torch.sparse.hook import attach_exchange
from gapless.torch.sparse.selection import Threshold, entry_count, estimated_threshold

if TYPE_CHECKING:
    from gapless.torch.ranks import Ranks

__all__ = [
    "OPTIMISERS", "KeptSums", "Recording", "TrainingTask", "prepared_recording", "recorded", "trained",
]  # fmt: skip


@dataclass(frozen=True)
class TrainingTask:
    """A model as `load_named` takes it, trained by an optimiser of `OPTIMISERS`. `wait_s`: the longest that a rank
    waits for another. `period`: steps between two thresholds, found by `estimate`.
    """

    model: str
    seed: int
    steps: int
    ranks: int
    learning_rate: float
    wait_s: float
    optimizer: str = "sgd"
    weight_decay: float = 0.0
    period: int = 32
    estimate: str = EXACT


OPTIMISERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
}  # fmt: skip
"""By name; each takes parameters, `lr` and `weight_decay`. Moments are of the summed gradients, on every rank."""


def trained(
    ddp: torch.nn.parallel.DistributedDataParallel, task: TrainingTask, rank: int,
    after: Callable[[], None] = lambda: None, before: Callable[[], None] = lambda: None,
) -> list[float]:  # fmt: skip
    """This rank's loss before each step. A step's batch is what the model's factory makes under a seed of its own, so
    that it differs by rank and step, and is the same in each training under the same task. `before` is called when a
    step begins, `after` when its gradients are there.
    """
    made_by = OPTIMISERS[task.optimizer]
    optimizer = made_by(ddp.parameters(), lr=task.learning_rate, weight_decay=task.weight_decay)
    losses = []
    for step in range(task.steps):
        made = load_named(task.model, task.seed + 1 + step * task.ranks + rank)
        batch = Workload(ddp.module, made.inputs, made.loss, made.targets)
        optimizer.zero_grad()
        before()
        loss = batch.loss_of(ddp)
        loss.backward()
        after()
        optimizer.step()
        losses.append(float(loss))
    return losses


class KeptSums:
    """Exact sums of what all ranks send, of which those at or above a threshold of `count` sums are kept.

    The threshold is found every `period` steps, whatever it selects in between.
    """

    def __init__(self, count: int, period: int = 1) -> None:
        self._all, self._global = TopkAllgather(), Threshold(count, period, slack=None)

    @property
    def group(self) -> torch.distributed.ProcessGroup | None:
        return self._all.group

    @property
    def received_words(self) -> int:
        return self._all.received_words

    def __call__(self, given: Entries, length: int, step: int) -> Entries:
        sums = self._all(given, length, step)
        return sums.where(self._global.best(sums.values))

    def state_dict(self) -> dict[str, object]:
        """What was received, and the threshold."""
        return {**self._all.state_dict(), **self._global.state_dict()}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        self._all.load_state_dict(data)
        self._global.load_state_dict(data)


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
        fitted=np.array([rank["fitted"][step] for step in range(task.steps) for rank in answers], dtype=np.float32),
    )
    return Recording(sets, tuple(np.mean([rank["losses"] for rank in answers], axis=0).tolist()))


class _Sent:
    """Called in each step: what this rank sends in each of them, and the threshold that Gaussiank would take."""

    def __init__(self, count: int) -> None:
        self.count, self.fitted = count, list[float]()
        self.places: list[Tensor] = []
        self.values: list[Tensor] = []

    def __call__(self, accumulated: Tensor, gradient: Tensor, given: Entries, sums: Entries) -> None:
        self.places.append(given.places.to(torch.int32))
        self.values.append(given.values)
        self.fitted.append(estimated_threshold(accumulated, self.count, GAUSSIAN_ADJUSTED))


def prepared_recording(folder: Path) -> Program:
    """What the rank does, by what is in the folder."""
    whole = read_task(folder, _RecordingTask)
    return Program(whole.task.ranks, whole.task.wait_s, lambda rank: _record(whole.task, whole.density, rank))


def _record(task: TrainingTask, density: float, rank: int) -> dict[str, object]:
    model = load_named(task.model, task.seed).model
    ddp = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    count = entry_count(density, sum(each.numel() for each in trainable(model).values()))
    state = attach_exchange(ddp, density, KeptSums(count), period=1, estimate=task.estimate)
    state.observer = sent = _Sent(count)
    losses = trained(ddp, task, rank)
    return {"places": sent.places, "values": sent.values, "fitted": sent.fitted, "losses": losses}
