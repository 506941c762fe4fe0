"""Runs of Bagpipe carried out in processes of this machine, on emulated links for which nobody waits. Imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.execution.compact import compact_batches, shard_of_rows, used_rows
from gapless.encodings.bagpipe.execution.order import POOLING
from gapless.encodings.bagpipe.execution.stream import batches_to_run
from gapless.encodings.bagpipe.problem import Planning, Problem
from gapless.encodings.bagpipe.question import BASELINES, LAYOUTS, SHARDED
from gapless.encodings.bagpipe.run.file import RunPlan
from gapless.encodings.bagpipe.solve import solve
from gapless.encodings.bagpipe.training.records import RunsTask, RunToCarry
from gapless.encodings.bagpipe.training.runs import Carried, carry
from gapless.options import SolveOptions
from gapless.profiles.traces.generators import zipf_trace
from gapless.profiles.traces.trace_question import state_values
from gapless.torch.embeddings.task import Task

TABLE_ROWS, BATCH_SIZE, BATCHES, DIMENSION = (300, 9, 2000), 64, 7, 16
TRACE = zipf_trace(TABLE_ROWS, 1.1, BATCH_SIZE * (BATCHES - 1) + 5, seed=5, pooling=[1, 3, 2])
"""Its last batch is short."""


def cluster(trainers: int, optimizer: str = "sgd", **given: Any) -> Cluster:
    """One on which rows take longer than all else."""
    state_bytes = 4 * state_values(optimizer, DIMENSION)
    times = {"latency_s": 1e-5, "forward_s": 2e-4, "backward_s": 3e-4, "pass_examples": BATCH_SIZE // trainers}
    rates = {"trainer_bytes_per_s": 5e7, "server_bytes_per_s": 1e8, "dense_bytes": 20_000}
    sizes = {"row_bytes": 4 * DIMENSION + state_bytes, "state_bytes": state_bytes}
    return Cluster(trainers, **{**times, **rates, **sizes, **given})


def run_of(design: str, on: Cluster, **given: Any) -> RunPlan:
    """A run of a design."""
    asked: dict[str, Any] = {"lookahead": 3}
    if design in BASELINES:
        asked = {"cache_rows": 700}
    elif design in SHARDED:
        asked = {}
    planning = Planning(on.trainers, BATCH_SIZE, batches=BATCHES, design=design, objective="auto", **{**asked, **given})
    plan = solve(Problem(TRACE, planning, on), SolveOptions()).windows
    assert isinstance(plan, RunPlan)
    assert plan.replay().valid
    return plan


def carried(
    runs: Mapping[str, tuple[RunPlan, str]], on: Cluster, optimizer: str = "sgd", **given: Any
) -> tuple[Task, dict[str, RunToCarry], dict[str, Carried]]:
    """What came of runs, each with its design. `given`: of the task."""
    batches = {name: list(batches_to_run(run, TRACE, BATCH_SIZE)) for name, (run, _) in runs.items()}
    ids, table_rows = used_rows(next(iter(batches.values())), len(TABLE_ROWS))
    compact = {name: compact_batches(each, ids) for name, each in batches.items()}
    servers = 0 if on.placement == "colocated" else on.servers
    task = Task(on.trainers, table_rows, DIMENSION, optimizer, 0.5, seed=3, wait_s=120.0, servers=servers, **given)
    to_carry = {
        name: RunToCarry(
            name, design, run.times, compact[name],
            shard_of_rows(compact[name], table_rows) if LAYOUTS[design] == POOLING else np.empty(0, dtype=np.int64),
        )
        for name, (run, design) in runs.items()
    }  # fmt: skip
    found = carry(RunsTask(task, on, tuple(runs), 1.0, sleeps=False), list(to_carry.values()))
    return task, to_carry, {each.name: each for each in found}


def on_placement(on: Cluster, placement: str) -> Cluster:
    """The cluster with its servers elsewhere."""
    return replace(on, placement=placement, servers=on.trainers if placement == "colocated" else on.servers)
