"""What is to be carried out: a task for all processes, and runs in files that they read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.pipeline import Times
from gapless.encodings.bagpipe.execution.order import lanes_of
from gapless.encodings.bagpipe.execution.stream import BatchStream, BatchToRun
from gapless.encodings.bagpipe.lowering.actions import Actions
from gapless.profiles.traces.bags import Bags
from gapless.torch.embeddings.roles import Roles
from gapless.torch.embeddings.task import Task
from gapless.torch.library import torch

__all__ = ["RunToCarry", "RunsTask", "batches_of", "record_of", "roles_of", "stream_of"]


@dataclass(frozen=True)
class RunToCarry:
    """A run of a design, and its batches. `shard`: which trainer has each row, of tables that lie on trainers."""

    name: str
    design: str
    times: Times
    batches: tuple[BatchToRun, ...]
    shard: Ints


@dataclass(frozen=True)
class RunsTask:
    """What to train, on which cluster, `dilation` times as slow; `sleeps`: whether anyone waits for an instant."""

    training: Task
    cluster: Cluster
    names: tuple[str, ...]
    dilation: float
    sleeps: bool


def roles_of(training: Task, rank: int) -> Roles:
    """Who a process of a task is among all."""
    return Roles(rank, training.trainers, training.sharding.servers, training.servers > 0)


def stream_of(task: RunsTask, record: dict[str, Any]) -> BatchStream:
    """The moves of a record's batches."""
    sharding, first = task.training.sharding, task.training.trainers if task.training.servers else 0
    return BatchStream(
        batches_of(record), len(record["batches"]), record["design"], task.cluster.placement,
        lambda ids: first + sharding.rows(ids) % sharding.servers,
    )  # fmt: skip


# -- files for the processes -------------------------------------------------------------------------------------------

_COLUMNS = ("ids", "fetched_by", "private_to", "sync", "evicted", "users", "examples")


def record_of(run: RunToCarry, placement: str) -> dict[str, Any]:
    """A run in plain values and tensors."""
    lanes = lanes_of(run.times, run.design, placement)
    batches = []
    for batch in run.batches:
        bags = batch.index if isinstance(batch.index, Bags) else None
        columns = {name: getattr(batch.actions, name) for name in _COLUMNS} | {"trainer": batch.trainer}
        columns |= {"index": batch.index} if bags is None else {"index": bags.values, "lengths": bags.lengths}
        tensors = {name: torch.from_numpy(np.ascontiguousarray(column)) for name, column in columns.items()}
        batches.append({"prefetch_after": batch.actions.prefetch_after, **tensors})
    relayed, shard = (torch.from_numpy(np.ascontiguousarray(each)) for each in (run.times.is_relayed, run.shard))
    return {"design": run.design, "lanes": lanes, "relayed": relayed, "shard": shard, "batches": batches}


def batches_of(record: dict[str, Any]) -> Iterator[BatchToRun]:
    """The batches of a record."""
    for number, batch in enumerate(record["batches"]):
        columns = {name: value.numpy() for name, value in batch.items() if name != "prefetch_after"}
        index = Bags(columns["index"], columns["lengths"]) if "lengths" in columns else columns["index"]
        actions = Actions(**{name: columns[name] for name in _COLUMNS}, prefetch_after=batch["prefetch_after"])
        yield BatchToRun(number, actions, columns["trainer"], index)
