"""Synchronous training without a cache in one process, on the same examples as the trainers had.

Each trainer's examples go through the model by themselves, and gradients are added in the order of trainers: what
processes end with must have these bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gapless.encodings.bagpipe.execution.stream import BatchToRun
from gapless.profiles.traces.bags import Bags, chosen
from gapless.torch.embeddings.lookup import Lookup
from gapless.torch.embeddings.optimizers import stepped, with_state
from gapless.torch.embeddings.task import Task, flat, inputs_of, loss_of
from gapless.torch.library import Tensor, torch

__all__ = ["trained_in_parts"]


def trained_in_parts(task: Task, batches: Sequence[BatchToRun]) -> tuple[Tensor, Tensor]:
    """The rows of all tables, and the dense parameters, at the end."""
    model, table = task.started()
    rows = with_state(task.optimizer, table)
    descent = torch.optim.SGD(model.parameters(), lr=task.step_size)
    for batch in batches:
        places = task.sharding.rows(batch.step.ids)
        total = torch.zeros(len(places), task.dimension)
        dense = [torch.zeros_like(each) for each in model.parameters()]
        for trainer in range(task.trainers):
            descent.zero_grad()
            used, gradient = _gradient(task, model, batch, rows[places, : task.dimension], trainer)
            total[used] += gradient
            for each, parameter in zip(dense, model.parameters(), strict=True):
                each += torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for each, parameter in zip(dense, model.parameters(), strict=True):
            parameter.grad = each
        rows[places] = stepped(task.optimizer, rows[places], total, task.step_size, batch.number + 1)
        descent.step()
    return rows[:, : task.dimension], flat(model)


def _gradient(
    task: Task, model: torch.nn.Module, batch: BatchToRun, rows: Tensor, trainer: int
) -> tuple[np.ndarray, Tensor]:
    """Of a trainer's part of a batch: the rows that it uses, and their gradients; the model's are left in it."""
    used = batch.actions.users[:, trainer]
    own = np.flatnonzero(batch.trainer == trainer)
    place = np.cumsum(used) - 1
    leaf = rows[used].contiguous().requires_grad_()
    index = chosen(batch.index, own)
    if isinstance(index, Bags):
        found = Lookup(leaf, torch.from_numpy(place[index.values]), len(batch.trainer), torch.from_numpy(index.lengths))
    else:
        found = Lookup(leaf, torch.from_numpy(place[index]), len(batch.trainer))
    numbers, labels = task.data(batch)
    inputs = inputs_of(task, batch, own, numbers, found.pooled())
    loss_of(model(inputs), labels[own], len(batch.trainer)).backward()
    return used, torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
