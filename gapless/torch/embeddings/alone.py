"""A small model trained on whole batches in one process, and how far processes by plans end from there.

Its tables are `torch.nn.EmbeddingBag`s and their optimisers PyTorch's own (of row-wise Adagrad it has none), so that
little is shared with what is compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gapless.errors import RunError
from gapless.profiles.traces.bags import Bags, by_table
from gapless.profiles.traces.trace import split_global_ids
from gapless.torch.embeddings.sharding import BatchToTrain
from gapless.torch.embeddings.task import Task, flat, inputs_of, loss_of
from gapless.torch.library import torch

__all__ = ["Alone", "distances", "trained_alone"]

_EPSILON = 1e-10


@dataclass(frozen=True)
class Alone:
    """What training on whole batches in this process ended with: rows of all tables, dense parameters, losses."""

    rows: torch.Tensor
    dense: torch.Tensor
    losses: tuple[float, ...]


def trained_alone(task: Task, plans: Sequence[BatchToTrain], stop: threading.Event | None = None) -> Alone:
    """Train on whole batches in this process. Raises `RunError` where `stop` is set."""
    model, table = task.started()
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        rows, losses = _train_alone(task, plans, model, table, stop)
    return Alone(rows, flat(model), tuple(losses))


def distances(task: Task, alone: Alone, of_ranks: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How far ranks ended from one process.

    `row_error`, `dense_error`: the distance of all values, by how far they have come; what float32 rounds in each batch
    is no distance. `loss_error`: the largest difference of a batch's loss, by that loss.
    """
    model, table = task.started()
    rows, trainers = torch.empty_like(table), of_ranks[: task.trainers]
    for server, each in enumerate(of_ranks[-task.sharding.servers :]):
        rows[task.sharding.rows_of(server)] = each["rows"]
    first, updates = flat(model), len(alone.losses)
    return {
        "row_error": _distance(rows, alone.rows, table, updates),
        "dense_error": max(_distance(each["dense"], alone.dense, first, updates) for each in trainers),
        "loss_error": float(np.abs(np.array(trainers[0]["losses"]) / np.array(alone.losses) - 1).max()),
    }


def _train_alone(
    task: Task, plans: Sequence[BatchToTrain], model: torch.nn.Module, table: torch.Tensor, stop: threading.Event | None
) -> tuple[torch.Tensor, list[float]]:
    """The rows and the losses of training on whole batches; `model` is trained in place."""
    bags = [
        torch.nn.EmbeddingBag.from_pretrained(rows.clone(), freeze=False, mode="sum", sparse=True)
        for rows in table.split(task.table_rows)
    ]
    weights = [bag.weight for bag in bags]
    step_rows = _row_optimizer(task, weights)
    descent = torch.optim.SGD(model.parameters(), lr=task.step_size)
    losses = []
    for plan in plans:
        numbers, labels = task.data(plan)
        if stop is not None and stop.is_set():
            raise RunError("the training was stopped before it was done")
        descent.zero_grad()
        for weight in weights:
            weight.grad = None
        pooled = [bag(*lookup) for bag, lookup in zip(bags, _lookups(plan), strict=True)]
        inputs = inputs_of(task, plan, np.arange(plan.step.examples), numbers, torch.stack(pooled, dim=1))
        loss = loss_of(model(inputs), labels, plan.step.examples)
        loss.backward()
        step_rows()
        descent.step()
        losses.append(float(loss.detach()))
    return torch.cat([weight.detach() for weight in weights]), losses


def _lookups(plan: BatchToTrain) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Ids and offsets of each table's bags."""
    _, ids = split_global_ids(plan.step.ids)
    columns, _ = by_table(plan.index)
    examples, tables = plan.index.shape
    lengths = plan.index.lengths if isinstance(plan.index, Bags) else np.ones((examples, tables), dtype=np.int64)
    offsets = np.cumsum(lengths, axis=0) - lengths
    return [
        (torch.from_numpy(ids[column]), torch.from_numpy(np.ascontiguousarray(first)))
        for column, first in zip(columns, offsets.T, strict=True)
    ]


def _row_optimizer(task: Task, weights: list[torch.Tensor]) -> Callable[[], object]:
    """A function that changes the tables by their sparse gradients."""
    of_name = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.SparseAdam}
    if task.optimizer in of_name:
        optimizer: Any = of_name[task.optimizer](weights, lr=task.step_size)
        return lambda: optimizer.step()
    totals = [torch.zeros(len(weight)) for weight in weights]

    def step() -> None:
        with torch.no_grad():
            for weight, total in zip(weights, totals, strict=True):
                assert weight.grad is not None
                gradient = weight.grad.coalesce()
                (rows,), values = gradient.indices(), gradient.values()
                total.index_add_(0, rows, values.square().mean(dim=1))
                weight.index_add_(0, rows, values / (total[rows, None].sqrt() + _EPSILON), alpha=-task.step_size)

    return step


def _distance(values: torch.Tensor, expected: torch.Tensor, start: torch.Tensor, updates: int) -> float:
    """How far values are apart by how far they have come, but for what each update of a value may be rounded by."""
    rounding = updates * torch.finfo(expected.dtype).eps * expected.abs()
    apart = ((values - expected).abs() - rounding).clamp(min=0)
    return float(apart.norm() / (expected - start).norm())
