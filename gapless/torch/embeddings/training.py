"""A small model trained by plans, one process a trainer, and without them in one.

Numbers and labels are drawn; ids are the plans'. In one process the tables are `torch.nn.EmbeddingBag`s and their
optimisers PyTorch's own (of row-wise Adagrad it has none), so that little is shared with what is compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gapless.array_types import Ints
from gapless.errors import RunError
from gapless.profiles.traces.bags import Bags, by_table, chosen
from gapless.profiles.traces.trace import split_global_ids
from gapless.torch.embeddings.cache import MOVES, LrppCache, add_gradients
from gapless.torch.embeddings.models import Inputs, Shape, dense_part
from gapless.torch.embeddings.plans import BatchPlan, Sharding, load_plans, save_plans
from gapless.torch.library import torch
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks

__all__ = ["Task", "Trained", "compared", "train", "train_rank"]

_NUMBERS = 4
"""Of an example, beside its ids."""
_EPSILON = 1e-10


@dataclass(frozen=True)
class Task:
    """What to train: `table_rows` of each table, `optimizer` and `step_size` of rows; dense layers descend plainly.

    `wait_s`: the longest that a process waits for another. `model`: the dense part, by its name.
    """

    trainers: int
    table_rows: tuple[int, ...]
    dimension: int
    optimizer: str
    step_size: float
    seed: int
    wait_s: float
    model: str = "dlrm"

    def start(self) -> tuple[torch.nn.Module, torch.Tensor]:
        """The dense part and the rows of all tables, the same in every process."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            rows = sum(self.table_rows)
            model = dense_part(self.model, Shape(_NUMBERS, len(self.table_rows), self.dimension, rows))
            return model, 0.1 * torch.randn(rows, self.dimension)

    def data(self, plans: Sequence[BatchPlan]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Numbers and labels of each batch."""
        for plan in plans:
            chance = torch.Generator().manual_seed(self.seed + 1 + plan.step.batch)
            labels = torch.randint(2, (plan.step.examples,), generator=chance)
            yield torch.randn(plan.step.examples, _NUMBERS, generator=chance), labels.float()


@dataclass(frozen=True)
class Trained:
    """How training by plans differs from one process, and what it moved.

    `row_error`, `dense_error`: the distance of all values from those of one process, by how far those have come; what
    float32 rounds in each batch is no distance.
    `loss_error`: the largest difference of a batch's loss, by that loss. `moved_bytes`: of all processes, by kind.
    """

    row_error: float
    dense_error: float
    loss_error: float
    losses: tuple[float, ...]
    moved_bytes: dict[str, int]


def train(task: Task, plans: Sequence[BatchPlan], stop: threading.Event | None = None) -> Trained:
    """Train in a process for each trainer, and in this one.

    Raises `RunError` where a process fails, or `stop` is set.
    """

    def leave(folder: Path) -> None:
        save_plans(folder / "plans.pt", plans)

    of_ranks = run_ranks(prepared, task, task.trainers, task.wait_s, stop, leave=leave)
    return compared(task, plans, of_ranks, stop)


def compared(
    task: Task, plans: Sequence[BatchPlan], of_ranks: Sequence[dict[str, Any]], stop: threading.Event | None = None
) -> Trained:
    """What the ranks found (see `train_rank`), beside training on whole batches in this process."""
    model, table = task.start()
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        expected, losses = _train_alone(task, plans, model, table, stop)
    sharding, rows = Sharding(task.table_rows, task.trainers), torch.empty_like(table)
    for rank, each in enumerate(of_ranks):
        rows[sharding.rows_of(rank)] = each["rows"]
    seen = np.sum([each["losses"] for each in of_ranks], axis=0)
    first, last = _flat(task.start()[0]), _flat(model)
    return Trained(
        row_error=_distance(rows, expected, table, len(plans)),
        dense_error=max(_distance(each["dense"], last, first, len(plans)) for each in of_ranks),
        loss_error=float(np.abs(seen / losses - 1).max()),
        losses=tuple(seen.tolist()),
        moved_bytes={kind: sum(each["moved_bytes"][kind] for each in of_ranks) for kind in MOVES},
    )


def train_rank(rank: int, task: Task, plans: Sequence[BatchPlan]) -> dict[str, Any]:
    """One trainer's part: the rows of its server, its dense parameters, its losses and what has reached it."""
    model, table = task.start()
    sharding = Sharding(task.table_rows, task.trainers)
    weights = table[sharding.rows_of(rank)].clone()
    cache = LrppCache(
        plans, sharding, weights, step_size=task.step_size, optimizer=task.optimizer, timeout_s=task.wait_s
    )
    descent = torch.optim.SGD(model.parameters(), lr=task.step_size)
    losses = []
    for plan, (numbers, labels) in zip(plans, task.data(plans), strict=True):
        own = np.flatnonzero(plan.trainer == rank)
        embeddings = cache.lookup()
        descent.zero_grad()
        inputs = _inputs(task, plan, own, numbers, embeddings.pooled())
        loss = _loss(model(inputs), labels[own], embeddings.batch_examples)
        loss.backward()
        cache.update()
        add_gradients(model.parameters())
        descent.step()
        losses.append(float(loss.detach()))
    cache.flush()
    cache.close()
    return {"rows": weights, "dense": _flat(model), "losses": losses, "moved_bytes": cache.moved_bytes}


def _train_alone(
    task: Task, plans: Sequence[BatchPlan], model: torch.nn.Module, table: torch.Tensor, stop: threading.Event | None
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
    for plan, (numbers, labels) in zip(plans, task.data(plans), strict=True):
        if stop is not None and stop.is_set():
            raise RunError("the training was stopped before it was done")
        descent.zero_grad()
        for weight in weights:
            weight.grad = None
        pooled = [bag(*lookup) for bag, lookup in zip(bags, _lookups(plan), strict=True)]
        inputs = _inputs(task, plan, np.arange(plan.step.examples), numbers, torch.stack(pooled, dim=1))
        loss = _loss(model(inputs), labels, plan.step.examples)
        loss.backward()
        step_rows()
        descent.step()
        losses.append(float(loss.detach()))
    return torch.cat([weight.detach() for weight in weights]), losses


def _inputs(task: Task, plan: BatchPlan, own: Ints, numbers: torch.Tensor, pooled: torch.Tensor) -> Inputs:
    """What the model takes of some examples of a batch, whose embeddings are `pooled`."""
    index = chosen(plan.index, own)
    rows = Sharding(task.table_rows, task.trainers).rows(plan.step.ids)
    if isinstance(index, Bags):
        places, examples = index.values, index.example
    else:
        places, examples = index.reshape(-1), np.repeat(np.arange(len(own)), index.shape[1])
    return Inputs(numbers[own], pooled, torch.from_numpy(rows[places]), torch.from_numpy(examples))


def _lookups(plan: BatchPlan) -> list[tuple[torch.Tensor, torch.Tensor]]:
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


def _loss(scores: torch.Tensor, labels: torch.Tensor, examples: int) -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, labels, reduction="sum") / examples


def _flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def _distance(values: torch.Tensor, expected: torch.Tensor, start: torch.Tensor, updates: int) -> float:
    """How far values are apart by how far they have come, but for what each update of a value may be rounded by."""
    rounding = updates * torch.finfo(expected.dtype).eps * expected.abs()
    apart = ((values - expected).abs() - rounding).clamp(min=0)
    return float(apart.norm() / (expected - start).norm())


def prepared(folder: Path) -> Program:
    """What all trainers do, by what is in a folder."""
    task, plans = read_task(folder, Task), load_plans(folder / "plans.pt")
    return Program(task.trainers, task.wait_s, lambda rank: train_rank(rank, task, plans))
