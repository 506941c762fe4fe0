"""One rank that trains with sparse gradients and records which entries it sends. The folder holds `task.json`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.leaving import temporary_folder
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.torch.ddp.buckets import trainable
from gapless.torch.library import torch
from gapless.torch.processes import Program, be_rank
from gapless.torch.ranks import run_ranks
from gapless.torch.run.workload import load_named
from gapless.torch.sparse.allgather import TopkAllgather
from gapless.torch.sparse.entries import Entries
from gapless.torch.sparse.hook import attach_exchange
from gapless.torch.sparse.selection import Threshold, entry_count
from gapless.torch.sparse.training import TrainingTask, read_task, trained, write_task

if TYPE_CHECKING:
    from gapless.torch.ranks import Ranks

__all__ = ["Recording", "prepared", "recorded"]


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
    with temporary_folder("gapless-ranks-") as name:
        write_task(Path(name), task, density=density)
        found = run_ranks("gapless.torch.sparse.recording", Path(name), task.ranks, task.wait_s, stop, among)
    held = [rank["places"][step] for step in range(task.steps) for rank in found]
    values = [rank["values"][step] for step in range(task.steps) for rank in found]
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
    return Recording(sets, tuple(np.mean([rank["losses"] for rank in found], axis=0).tolist()))


class _Recorded:
    """Exact sums of what all ranks send, of which the k largest are kept, and what this rank sent in each step."""

    def __init__(self, count: int) -> None:
        self._all, self._global = TopkAllgather(), Threshold(count)
        self.places: list[Any] = []
        self.values: list[Any] = []

    @property
    def group(self) -> Any:
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

    def state_dict(self) -> dict[str, Any]:
        """The global threshold."""
        return self._global.state_dict()

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        self._global.load_state_dict(data)


def prepared(folder: Path) -> Program:
    """What the rank does, by what is in the folder."""
    task, more = read_task(folder)
    return Program(task.ranks, task.wait_s, lambda rank: _work(task, more["density"], rank))


def _work(task: TrainingTask, density: float, rank: int) -> dict[str, Any]:
    model = load_named(task.model, task.seed).model
    ddp = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    exchange = _Recorded(entry_count(density, sum(each.numel() for each in trainable(model).values())))
    attach_exchange(ddp, density, exchange, period=1)
    losses = trained(ddp, task, rank)
    return {"places": exchange.places, "values": exchange.values, "losses": losses}


if __name__ == "__main__":
    be_rank(prepared)
