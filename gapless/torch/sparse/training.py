"""Training of a model on batches that differ by rank and step, for a number of steps."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gapless.torch.library import torch
from gapless.torch.run.workload import Workload, load_named

__all__ = ["TrainingTask", "read_task", "trained", "write_task"]


@dataclass(frozen=True)
class TrainingTask:
    """A model as `load_named` takes it, trained by SGD. `wait_s`: the longest that a rank waits for another."""

    model: str
    seed: int
    steps: int
    ranks: int
    learning_rate: float
    wait_s: float


def write_task(folder: Path, task: TrainingTask, **more: Any) -> None:
    """Leave the task for the ranks, with plain values beside it."""
    (folder / "task.json").write_text(json.dumps({"task": asdict(task), **more}), "utf-8")


def read_task(folder: Path) -> tuple[TrainingTask, dict[str, Any]]:
    """What `write_task` left."""
    data = json.loads((folder / "task.json").read_text("utf-8"))
    return TrainingTask(**data.pop("task")), data


def trained(ddp: Any, task: TrainingTask, rank: int) -> list[float]:
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
