"""What each of the processes does that carry out runs, one after the other, on emulated links."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gapless.encodings.bagpipe.execution.order import POOLING
from gapless.encodings.bagpipe.question import LAYOUTS
from gapless.encodings.bagpipe.rows.descent import Descent
from gapless.encodings.bagpipe.rows.network import Emulation, Network
from gapless.encodings.bagpipe.rows.served import Served
from gapless.encodings.bagpipe.training.carrier import Carrier, Networks
from gapless.encodings.bagpipe.training.kept import train_kept
from gapless.encodings.bagpipe.training.pooled import PooledCarrier
from gapless.encodings.bagpipe.training.records import RunsTask, roles_of, stream_of
from gapless.encodings.bagpipe.training.trainer import Trainer
from gapless.torch.embeddings.optimizers import with_state
from gapless.torch.embeddings.roles import Roles
from gapless.torch.embeddings.task import flat
from gapless.torch.library import torch
from gapless.torch.processes import Program, read_task

__all__ = ["prepared"]

_AHEAD_S = 0.05
"""How long before the first batch rank 0 says when it begins."""


def prepared(folder: Path) -> Program:
    """What all processes do, by what is in a folder."""
    task = read_task(folder, RunsTask)
    return Program(task.training.ranks, task.training.wait_s, lambda rank: _work(task, rank, folder))


def _work(task: RunsTask, rank: int, folder: Path) -> dict[str, Any]:
    records = {name: torch.load(folder / f"{name}.pt", weights_only=True) for name in task.names}
    if task.training.is_kept:
        return {name: train_kept(task, rank, record, folder) for name, record in records.items()}
    roles = roles_of(task.training, rank)
    groups = [torch.distributed.new_group(list(range(task.training.trainers)))]
    groups += [torch.distributed.new_group() for _ in range(2)]
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
    trainer, count = Trainer(task.training, task.cluster, roles.rank), carrier.stream.count
    if roles.is_trainer:
        for _ in range(count):
            trainer.train(carrier)
    else:
        carrier.skip(count)
    carrier.finish()
    at_s, seen_s = carrier.happened.at_s(), carrier.happened.wall_s
    first_s = begin_s if task.sleeps else wall_s
    after = [carrier.after(batch) for batch in range(count)] if roles.is_trainer else []
    return {
        "rows": carrier.rows_left(), "dense": flat(trainer.model), "losses": trainer.losses, "recovery": None,
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
    _, table = training.started()
    server, descent = roles.server(rank), Descent(training.optimizer, training.step_size, training.dimension)
    is_pooled = LAYOUTS[design] == POOLING
    served = None
    if server is not None and not is_pooled:
        served = Served(table[training.sharding.rows_of(server)].clone(), training.optimizer, training.sharding)
    rate = emulation.rate(is_server_alone=not roles.is_trainer)
    peers, up, down = (
        Network(group, rank, ranks, emulation, rate)
        for group, ranks in zip(groups, (roles.trainers, roles.ranks, roles.ranks), strict=True)
    )
    own = (
        stream_of(task, record), record["lanes"], record["relayed"].numpy(), roles, Networks(peers, up, down), served,
        descent, training.wait_s, emulation,
    )  # fmt: skip
    if not is_pooled:
        return Carrier(*own, begin_s=begin_s)
    carrier = PooledCarrier(*own, begin_s=begin_s, design=design)
    if roles.is_trainer:
        rows = np.flatnonzero(record["shard"].numpy() == rank)
        carrier.store.add(training.sharding.ids(rows), with_state(training.optimizer, table[rows]))
    return carrier
