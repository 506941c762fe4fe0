"""Runs of several designs, carried out one after the other by the same processes, on emulated links.

Every process trains the small model of `task.Task`; what its passes and its dense gradients take is the cluster's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.pipeline import Times
from gapless.encodings.bagpipe.execution.order import POOLING, lanes_of
from gapless.encodings.bagpipe.execution.stream import BatchStream, BatchToRun
from gapless.encodings.bagpipe.lowering.actions import Actions
from gapless.encodings.bagpipe.question import LAYOUTS
from gapless.encodings.bagpipe.training.carrier import Carrier, Descent, Networks
from gapless.encodings.bagpipe.training.network import Emulation, Network
from gapless.encodings.bagpipe.training.pooled import PooledCarrier
from gapless.encodings.bagpipe.training.served import Served
from gapless.profiles.traces.bags import Bags
from gapless.torch.embeddings.optimizers import with_state
from gapless.torch.embeddings.servers import Roles
from gapless.torch.embeddings.task import Task, flat, inputs_of, loss_of
from gapless.torch.library import torch
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks

__all__ = ["Carried", "RunToCarry", "RunsTask", "carry", "prepared"]

_AHEAD_S = 0.05
"""How long before the first batch rank 0 says when it begins."""


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


@dataclass(frozen=True)
class Carried:
    """What came of a run; times in seconds of the cluster, since the first batch began.

    `emulated_s`, `measured_s`: when each batch was through, all that the next one needs with it: by messages and passes
    as emulated, and by the machine's clock. `emulated_end_s`, `measured_end_s`: when all was written back. `late_s`:
    how far any message was behind the emulation. `moved_rows`: by activity, of all processes. `of_ranks`: rows of
    servers, dense parameters, losses.
    """

    name: str
    emulated_s: tuple[float, ...]
    measured_s: tuple[float, ...]
    emulated_end_s: float
    measured_end_s: float
    late_s: float
    moved_rows: dict[str, int]
    of_ranks: list[dict[str, Any]]


def carry(task: RunsTask, runs: Sequence[RunToCarry], stop: threading.Event | None = None) -> list[Carried]:
    """Carry out runs in as many processes as the cluster has. Raises `RunError` where a process fails."""

    def leave(folder: Path) -> None:
        for run in runs:
            torch.save(_record(run, task.cluster.placement), folder / f"{run.name}.pt")

    found = run_ranks(prepared, task, task.training.ranks, task.training.wait_s, stop, leave=leave)
    return [_together(task, run, [rank[run.name] for rank in found]) for run in runs]


def _together(task: RunsTask, run: RunToCarry, found: list[dict[str, Any]]) -> Carried:
    trainers = found[: task.training.trainers]
    moved: dict[str, int] = {}
    for each in found:
        for activity, rows in each["moved_rows"].items():
            moved[activity] = moved.get(activity, 0) + rows
    of_ranks = found if LAYOUTS[run.design] != POOLING else _as_served(task, run, found)
    emulated_s, measured_s = (
        tuple(np.max([each[name] for each in trainers], axis=0).tolist()) for name in ("emulated_s", "measured_s")
    )
    end_s, wall_s, late_s = (
        max(float(each[name]) for each in found) for name in ("emulated_end_s", "measured_end_s", "late_s")
    )
    return Carried(run.name, emulated_s, measured_s, end_s, wall_s, late_s, moved, of_ranks)


def _as_served(task: RunsTask, run: RunToCarry, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the rows of shards where servers would have them."""
    training = task.training
    table = torch.empty(sum(training.table_rows), training.dimension)
    for trainer in range(training.trainers):
        table[np.flatnonzero(run.shard == trainer)] = found[trainer]["rows"]
    first = training.ranks - training.sharding.servers
    return [
        {**each, "rows": table[training.sharding.rows_of(rank - first)] if rank >= first else table[:0]}
        for rank, each in enumerate(found)
    ]


# -- in the processes --------------------------------------------------------------------------------------------------


def prepared(folder: Path) -> Program:
    """What all processes do, by what is in a folder."""
    task = read_task(folder, RunsTask)
    return Program(task.training.ranks, task.training.wait_s, lambda rank: _work(task, rank, folder))


def _work(task: RunsTask, rank: int, folder: Path) -> dict[str, Any]:
    training = task.training
    roles = Roles(rank, training.trainers, training.sharding.servers, training.servers > 0)
    groups = [torch.distributed.new_group(list(range(training.trainers)))]
    groups += [torch.distributed.new_group() for _ in range(2)]
    records = {name: torch.load(folder / f"{name}.pt", weights_only=True) for name in task.names}
    if task.sleeps:  # what loads or compiles on first use is none of the plan's
        _carried(replace(task, sleeps=False), roles, groups, next(iter(records.values())))
    return {name: _carried(task, roles, groups, record) for name, record in records.items()}


def _carried(task: RunsTask, roles: Roles, groups: Sequence[Any], record: dict[str, Any]) -> dict[str, Any]:
    """One process's part of a run."""
    emulation = Emulation(task.cluster, task.dilation, task.sleeps)
    begin_s = _begin_s() if task.sleeps else 0.0
    carrier = _carrier(task, roles, groups, record, emulation, begin_s)
    wall_s = time.monotonic()
    carrier.begin()
    model, _ = task.training.started()
    losses = _train(task, carrier, model, roles.rank) if roles.is_trainer else []
    carrier.finish()
    count, at_s, seen_s = carrier.stream.count, carrier.happened.at_s(), carrier.happened.wall_s
    first_s = begin_s if task.sleeps else wall_s
    after = [carrier.after(batch) for batch in range(count)] if roles.is_trainer else []
    return {
        "rows": carrier.rows_left(), "dense": flat(model), "losses": losses, "recovery": None,
        "emulated_s": [(max(at_s[each] for each in tasks) - begin_s) / task.dilation for tasks in after],
        "measured_s": [(max(seen_s[each] for each in tasks) - first_s) / task.dilation for tasks in after],
        "emulated_end_s": (max(at_s.values()) - begin_s) / task.dilation,
        "measured_end_s": (max(seen_s.values()) - first_s) / task.dilation,
        "late_s": emulation.late_s / task.dilation, "moved_rows": carrier.moved_rows,
    }  # fmt: skip


def _begin_s() -> float:
    """When all begin, by the clock that they share."""
    latest = torch.tensor(time.monotonic() + _AHEAD_S, dtype=torch.float64)
    torch.distributed.all_reduce(latest, torch.distributed.ReduceOp.MAX)
    return float(latest)


def _carrier(
    task: RunsTask, roles: Roles, groups: Sequence[Any], record: dict[str, Any], emulation: Emulation, begin_s: float
) -> Carrier:  # fmt: skip
    training, design, rank = task.training, record["design"], roles.rank
    sharding = training.sharding
    first = 0 if not roles.apart else training.trainers
    stream = BatchStream(
        _batches(record), len(record["batches"]), design, task.cluster.placement,
        lambda ids: first + sharding.rows(ids) % sharding.servers,
    )  # fmt: skip
    _, table = training.started()
    server, descent = roles.server(rank), Descent(training.optimizer, training.step_size, training.dimension)
    is_pooled = LAYOUTS[design] == POOLING
    served = None
    if server is not None and not is_pooled:
        served = Served(table[sharding.rows_of(server)].clone(), training.optimizer, sharding)
    rate = emulation.rate(is_server_alone=not roles.is_trainer)
    peers, up, down = (
        Network(group, rank, ranks, emulation, rate)
        for group, ranks in zip(groups, (roles.trainers, roles.ranks, roles.ranks), strict=True)
    )
    own = (
        stream, record["lanes"], record["relayed"].numpy(), roles, Networks(peers, up, down), served, descent,
        training.wait_s, emulation,
    )  # fmt: skip
    if not is_pooled:
        return Carrier(*own, begin_s=begin_s)
    carrier = PooledCarrier(*own, begin_s=begin_s, design=design)
    if roles.is_trainer:
        rows = np.flatnonzero(record["shard"].numpy() == rank)
        carrier.store.add(training.sharding.ids(rows), with_state(training.optimizer, table[rows]))
    return carrier


def _train(task: RunsTask, carrier: Carrier, model: torch.nn.Module, rank: int) -> list[float]:
    """All batches; the loss of each."""
    training, losses = task.training, list[float]()
    descent = torch.optim.SGD(model.parameters(), lr=training.step_size)
    loss_sum = torch.nn.Parameter(torch.zeros(1))  # its gradient is a loss, added up as gradients are
    for batch in range(carrier.stream.count):
        embeddings = carrier.lookup()
        moves = carrier.stream.of(batch)
        own = np.flatnonzero(moves.trainer == rank)
        numbers, labels = training.data(moves)
        descent.zero_grad()
        inputs = inputs_of(training, moves, own, numbers, embeddings.pooled())
        loss = loss_of(model(inputs), labels[own], embeddings.batch_examples)
        loss.backward()
        carrier.spend(sum(task.cluster.pass_s(float(len(own)))))
        loss_sum.grad = loss.detach()[None]
        carrier.update([*model.parameters(), loss_sum])
        descent.step()
        losses.append(float(loss_sum.grad))
    return losses


# -- files for the processes -------------------------------------------------------------------------------------------

_COLUMNS = ("ids", "fetched_by", "private_to", "sync", "evicted", "users", "examples")


def _record(run: RunToCarry, placement: str) -> dict[str, Any]:
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


def _batches(record: dict[str, Any]) -> Iterator[BatchToRun]:
    for number, batch in enumerate(record["batches"]):
        columns = {name: value.numpy() for name, value in batch.items() if name != "prefetch_after"}
        index = Bags(columns["index"], columns["lengths"]) if "lengths" in columns else columns["index"]
        actions = Actions(**{name: columns[name] for name in _COLUMNS}, prefetch_after=batch["prefetch_after"])
        yield BatchToRun(number, actions, columns["trainer"], index)
