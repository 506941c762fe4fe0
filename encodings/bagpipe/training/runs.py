"""Runs of several designs, carried out one after the other by the same processes, on emulated links.

Every process trains the small model of `task.Task`; what its passes and its dense gradients take is the cluster's.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gapless.encodings.bagpipe.execution.order import POOLING
from gapless.encodings.bagpipe.question import LAYOUTS
from gapless.encodings.bagpipe.training.ranks import prepared
from gapless.encodings.bagpipe.training.records import RunsTask, RunToCarry, record_of
from gapless.torch.library import torch
from gapless.torch.ranks import run_ranks

__all__ = ["Carried", "carry"]


@dataclass(frozen=True)
class Carried:
    """What came of a run; times in seconds of the cluster, since the first batch began.

    `emulated_s`, `measured_s`: when each batch was through, all that the next one needs with it: by messages and passes
    as emulated, and by the machine's clock. `emulated_end_s`, `measured_end_s`: when all was written back. `late_s`:
    how far any message was behind the emulation. Where a trainer may be lost, or a checkpoint is kept, nothing is
    emulated. `moved_rows`: by activity, of all processes. `of_ranks`: rows of servers, dense parameters, losses.
    `recovery`: after trainer `lost` was lost, the last batch that was `kept`, and the bytes that the new one got of the
    others, `copied_bytes`.
    """

    name: str
    moved_rows: dict[str, int]
    of_ranks: list[dict[str, Any]]
    emulated_s: tuple[float, ...] = ()
    measured_s: tuple[float, ...] = ()
    emulated_end_s: float = 0.0
    measured_end_s: float = 0.0
    late_s: float = 0.0
    recovery: dict[str, int] | None = None


def carry(task: RunsTask, runs: Sequence[RunToCarry], stop: threading.Event | None = None) -> list[Carried]:
    """Carry out runs in as many processes as the cluster has. Raises `RunError` where a process fails."""

    def leave(folder: Path) -> None:
        for run in runs:
            torch.save(record_of(run, task.cluster.placement), folder / f"{run.name}.pt")

    training = task.training
    replaceable = training.trainers if training.lost_trainer >= 0 else 0
    found = run_ranks(prepared, task, training.ranks, training.wait_s, stop, leave=leave, replaceable=replaceable)
    return [_together(task, run, [rank[run.name] for rank in found]) for run in runs]


def _together(task: RunsTask, run: RunToCarry, found: list[dict[str, Any]]) -> Carried:
    trainers = found[: task.training.trainers]
    moved: dict[str, int] = {}
    for each in found:
        for activity, rows in each["moved_rows"].items():
            moved[activity] = moved.get(activity, 0) + rows
    of_ranks = found if LAYOUTS[run.design] != POOLING else _as_served(task, run, found)
    if task.training.is_kept:
        recovery = next((each["recovery"] for each in trainers if each["recovery"]), None)
        return Carried(run.name, moved, of_ranks, recovery=recovery)
    emulated_s, measured_s = (
        tuple(np.max([each[name] for each in trainers], axis=0).tolist()) for name in ("emulated_s", "measured_s")
    )
    end_s, wall_s, late_s = (
        max(float(each[name]) for each in found) for name in ("emulated_end_s", "measured_end_s", "late_s")
    )
    return Carried(run.name, moved, of_ranks, emulated_s, measured_s, end_s, wall_s, late_s)


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
