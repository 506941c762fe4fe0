"""What is trained by plans: the model, its data, and who takes part. Needs the extra `torch`.

Numbers and labels are drawn; ids are the plans'.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.array_types import Ints
from gapless.profiles.traces.bags import Bags, chosen
from gapless.torch.embeddings.models import Inputs, Shape, dense_part
from gapless.torch.embeddings.sharding import BatchToTrain, Sharding
from gapless.torch.library import torch

__all__ = ["MOMENTS", "Task", "flat", "inputs_of", "loss_of"]

MOMENTS = ("backward", "update")
"""After what of a batch a trainer may be lost: its gradients are there, or the rows have been updated."""
_NUMBERS = 4
"""Of an example, beside its ids."""


@dataclass(frozen=True)
class Task:
    """What to train: `table_rows` of each table, `optimizer` and `step_size` of rows; dense layers descend plainly.

    `wait_s`: the longest that a process waits for another. `model`: the dense part, by its name. `servers`: processes
    of their own, by which training survives the loss of a trainer; 0 for one in each trainer. `lost_trainer`: the one
    that kills itself in `lost_batch`, at one of `MOMENTS`; -1 for none. `checkpoint`: folder for a checkpoint after
    every so many batches, `checkpoint_every`. `start`: the first batch, where that folder's checkpoint is gone on with.
    """

    trainers: int
    table_rows: tuple[int, ...]
    dimension: int
    optimizer: str
    step_size: float
    seed: int
    wait_s: float
    model: str = "dlrm"
    servers: int = 0
    lost_trainer: int = -1
    lost_batch: int = 0
    lost_moment: str = MOMENTS[0]
    checkpoint: str = ""
    checkpoint_every: int = 0
    start: int = 0

    @property
    def is_kept(self) -> bool:
        """Whether it survives the loss of a trainer, or leaves or takes up a checkpoint."""
        return self.lost_trainer >= 0 or bool(self.checkpoint)

    @property
    def ranks(self) -> int:
        """All processes."""
        return self.trainers + self.servers

    @property
    def sharding(self) -> Sharding:
        """Where rows are."""
        return Sharding(self.table_rows, self.servers or self.trainers)

    @property
    def question(self) -> dict[str, object]:
        """What is trained, as far as a checkpoint must be of the same."""
        names = ("dimension", "optimizer", "step_size", "seed", "model")
        own = {name: getattr(self, name) for name in names}
        return {"table_rows": list(self.table_rows), "servers": self.sharding.servers, **own}

    def started(self) -> tuple[torch.nn.Module, torch.Tensor]:
        """The dense part and the rows of all tables, the same in every process."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            rows = sum(self.table_rows)
            model = dense_part(self.model, Shape(_NUMBERS, len(self.table_rows), self.dimension, rows))
            return model, 0.1 * torch.randn(rows, self.dimension)

    def data(self, plan: BatchToTrain) -> tuple[torch.Tensor, torch.Tensor]:
        """Numbers and labels of a batch."""
        chance = torch.Generator().manual_seed(self.seed + 1 + plan.step.batch)
        labels = torch.randint(2, (plan.step.examples,), generator=chance)
        return torch.randn(plan.step.examples, _NUMBERS, generator=chance), labels.float()


def inputs_of(task: Task, plan: BatchToTrain, own: Ints, numbers: torch.Tensor, pooled: torch.Tensor) -> Inputs:
    """What the model takes of some examples of a batch, whose embeddings are `pooled`."""
    index = chosen(plan.index, own)
    rows = task.sharding.rows(plan.step.ids)
    if isinstance(index, Bags):
        places, examples = index.values, index.example
    else:
        places, examples = index.reshape(-1), np.repeat(np.arange(len(own)), index.shape[1])
    return Inputs(numbers[own], pooled, torch.from_numpy(rows[places]), torch.from_numpy(examples))


def loss_of(scores: torch.Tensor, labels: torch.Tensor, examples: int) -> torch.Tensor:
    """Of some examples, their part of the mean of so many."""
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, labels, reduction="sum") / examples


def flat(model: torch.nn.Module) -> torch.Tensor:
    """All parameters, in a row."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
