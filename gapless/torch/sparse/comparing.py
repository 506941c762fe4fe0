"""Training of one model with its gradients dense, by TopkA, and by a plan, from the same start on the same batches."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.leaving import temporary_folder
from gapless.torch.ddp.buckets import trainable
from gapless.torch.library import rank_count, torch
from gapless.torch.processes import Program, be_rank
from gapless.torch.ranks import run_ranks
from gapless.torch.run.workload import load_named
from gapless.torch.sparse.allgather import TopkAllgather
from gapless.torch.sparse.attaching import attach
from gapless.torch.sparse.hook import attach_exchange
from gapless.torch.sparse.plan import SparsePlan
from gapless.torch.sparse.training import TrainingTask, read_task, trained, write_task

if TYPE_CHECKING:
    from gapless.torch.ranks import Ranks

__all__ = ["STRATEGIES", "Trained", "compare_training", "prepared"]

STRATEGIES = ("dense", "TopkA", "plan")


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
    with temporary_folder("gapless-ranks-") as name:
        write_task(Path(name), task, plan=plan.data())
        found = run_ranks("gapless.torch.sparse.comparing", Path(name), task.ranks, task.wait_s, stop, among)
    return tuple(
        Trained(
            name,
            tuple(np.mean([rank[name]["losses"] for rank in found], axis=0).tolist()),
            max(rank[name]["received_words"] for rank in found) / task.steps,
        )
        for name in STRATEGIES
    )


def prepared(folder: Path) -> Program:
    """What the rank does, by what is in the folder."""
    task, more = read_task(folder)
    plan = SparsePlan.read(more["plan"])

    def work(rank: int) -> dict[str, Any]:
        return {name: _trained(name, task, plan, rank) for name in STRATEGIES}

    return Program(task.ranks, task.wait_s, work)


def _trained(name: str, task: TrainingTask, plan: SparsePlan, rank: int) -> dict[str, Any]:
    ddp = torch.nn.parallel.DistributedDataParallel(load_named(task.model, task.seed).model, broadcast_buffers=False)
    if name == "dense":
        losses, ranks = trained(ddp, task, rank), rank_count()
        words = 2 * plan.regions.length * (ranks - 1) / ranks * task.steps  # of a ring, as gloo's
        return {"losses": losses, "received_words": words}
    state = attach(ddp, plan) if name == "plan" else attach_exchange(ddp, plan.density, TopkAllgather())
    return {"losses": trained(ddp, task, rank), "received_words": float(state.exchange.received_words)}


if __name__ == "__main__":
    be_rank(prepared)
