"""Plans in PyTorch's training: what the sampler and the cache need of them and of the embedding servers, whoever made
them; plans in a file, for processes that follow them; and the examples that each of p processes loads.

In every process of a training run (`cache` has the other half, the embeddings)::

    plans = shared_plans(batch_plans(trace, planning) if rank == 0 else None)
    for_loader, for_cache = itertools.tee(plans)
    loader = DataLoader(dataset, batch_sampler=PlannedBatchSampler(for_loader, rank))
    cache = LrppCache(for_cache, sharding, weights, step_size=0.1)

Plans are made once, in process 0, ahead of training, and sent to the others. Where planning is cheap each process may
make them itself, since the same trace and planning give the same plans as long as no time limit cuts a search short:
`plans = batch_plans(trace, planning)`. Needs the extra `torch`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints, Mask
from gapless.errors import GaplessError, InputError
from gapless.profiles.traces.bags import Bags, Lookups
from gapless.profiles.traces.trace import TABLE_SHIFT, split_global_ids
from gapless.torch.library import rank_count, torch

__all__ = [
    "BatchIds",
    "BatchPlan",
    "BatchToTrain",
    "CacheStep",
    "Group",
    "PlannedBatchSampler",
    "SavedPlan",
    "SavedStep",
    "Sharding",
    "load_plans",
    "save_plans",
    "shared_plans",
]

Group: TypeAlias = "torch.distributed.ProcessGroup | None"
"""The processes that exchange something; None for all."""


class BatchIds(Protocol):
    """The number of a batch, its count of examples, and its distinct global ids, increasing."""

    @property
    def batch(self) -> int: ...
    @property
    def examples(self) -> int: ...
    @property
    def ids(self) -> Ints: ...


class BatchToTrain(Protocol):
    """What a batch's examples look up: `index`, int32, places in `step.ids`, (examples, tables) or bags."""

    @property
    def step(self) -> BatchIds: ...
    @property
    def index(self) -> Lookups: ...


class CacheStep(BatchIds, Protocol):
    """What the cache does around one batch with n distinct ids; masks are bool, shape (n,), in the order of `ids`.

    `batch`, `examples`: its number and its count of examples. `ids`: global ids, increasing. `rows`: int32 (n,), where
    each is in the cache. `prefetched`: fetched ahead of the batch, once batch `prefetch_after` is written back (-1: at
    once). `evicted`: leaves the cache after it.
    """

    @property
    def rows(self) -> NDArray[np.int32]: ...
    @property
    def prefetched(self) -> Mask: ...
    @property
    def evicted(self) -> Mask: ...
    @property
    def prefetch_after(self) -> int: ...


class BatchPlan(Protocol):
    """The plan of one batch for p trainers; masks as in `step`.

    `index`: int32, shape (examples, tables) or bags, the place of each lookup in `step.ids`. `trainer`: int64, of each
    example. `users`: bool (n, p), which trainers use an id. `is_private`: rows of one user that are written back from
    there. `sync_now`, `sync_later`: rows whose gradients the trainers add up before the next batch, or beside it.
    """

    @property
    def step(self) -> CacheStep: ...
    @property
    def index(self) -> Lookups: ...
    @property
    def trainer(self) -> Ints: ...
    @property
    def users(self) -> Mask: ...
    @property
    def is_private(self) -> Mask: ...
    @property
    def sync_now(self) -> Mask: ...
    @property
    def sync_later(self) -> Mask: ...


@dataclass(frozen=True)
class SavedStep:
    """A `CacheStep`."""

    batch: int
    examples: int
    ids: Ints
    rows: NDArray[np.int32]
    prefetched: Mask
    evicted: Mask
    prefetch_after: int


@dataclass(frozen=True)
class SavedPlan:
    """A `BatchPlan`."""

    step: CacheStep
    index: Lookups
    trainer: Ints
    users: Mask
    is_private: Mask
    sync_now: Mask
    sync_later: Mask


_NUMBERS = ("batch", "examples", "prefetch_after")
_OF_STEP = ("ids", "rows", "prefetched", "evicted")
_OF_PLAN = ("trainer", "users", "is_private", "sync_now", "sync_later")


def save_plans(path: Path, plans: Iterable[BatchPlan]) -> None:
    """Write what the cache and the sampler need of the plans."""
    torch.save([_record(plan) for plan in plans], path)


def load_plans(path: Path) -> list[SavedPlan]:
    """The plans that `save_plans` wrote."""
    return [_plan(record) for record in torch.load(path, weights_only=True)]


def _record(plan: BatchPlan) -> dict[str, Any]:
    bags = plan.index if isinstance(plan.index, Bags) else None
    columns = {name: getattr(plan.step, name) for name in _OF_STEP} | {name: getattr(plan, name) for name in _OF_PLAN}
    columns |= {"index": plan.index} if bags is None else {"index": bags.values, "lengths": bags.lengths}
    numbers = {name: int(getattr(plan.step, name)) for name in _NUMBERS}
    return {**numbers, **{name: torch.from_numpy(np.ascontiguousarray(column)) for name, column in columns.items()}}


def _plan(record: dict[str, Any]) -> SavedPlan:
    columns = {name: value.numpy() for name, value in record.items() if name not in _NUMBERS}
    step = SavedStep(**{name: record[name] for name in _NUMBERS}, **{name: columns[name] for name in _OF_STEP})
    index = Bags(columns["index"], columns["lengths"]) if "lengths" in columns else columns["index"]
    return SavedPlan(step, index, **{name: columns[name] for name in _OF_PLAN})


@dataclass(frozen=True)
class Sharding:
    """Which server has which row. All tables' rows are numbered in a line; row r is number r // p of server r % p.

    `table_rows`: rows of each table; `servers`: p. Raises `InputError` unless all are >= 1.
    """

    table_rows: tuple[int, ...]
    servers: int

    def __post_init__(self) -> None:
        for title, least in (("table_rows", min(self.table_rows, default=0)), ("servers", self.servers)):
            if least < 1:
                raise InputError(f"{title}: must be >= 1, got {least}")

    def rows(self, ids: Ints) -> Ints:
        """The rows of global ids. Raises `InputError` for an id that its table doesn't have."""
        table, id_ = split_global_ids(ids)
        sizes = np.array(self.table_rows, dtype=np.int64)
        if len(ids) and int(table.max()) >= len(sizes):
            raise InputError(f"table_rows: must have one entry for each table, got {len(sizes)}, table {table.max()}")
        is_outside = id_ >= sizes[table]
        if is_outside.any():
            where = int(is_outside.argmax())
            rule = f"ids must be below its {sizes[table[where]]} rows"
            raise InputError(f"table {table[where]}: {rule}, got {id_[where]}")
        rows: Ints = (np.cumsum(sizes) - sizes)[table] + id_
        return rows

    def ids(self, rows: Ints) -> Ints:
        """The global ids of rows."""
        firsts = np.cumsum([0, *self.table_rows])
        table = np.searchsorted(firsts, rows, side="right") - 1
        ids: Ints = (table << TABLE_SHIFT) + rows - firsts[table]
        return ids

    def rows_of(self, server: int) -> Ints:
        """The rows that a server has, in its order."""
        return np.arange(server, sum(self.table_rows), self.servers)


# -- in training processes ---------------------------------------------------------------------------------------------

_Answer: TypeAlias = "BatchPlan | GaplessError | None"
"""A plan, None at the end, or what went wrong in process 0, which the others would wait for."""


class PlannedBatchSampler:
    """The numbers of one trainer's examples, batch after batch; for `DataLoader(dataset, batch_sampler=...)`.

    Examples are numbered as in the trace, from 0, and ascend within a batch. Where a trainer gets no example of a batch
    (a short last one) the list is empty, and the loader's `collate_fn` must be able to take that.
    Raises `InputError` for a rank that the plan has no trainer for.
    """

    def __init__(self, plans: Iterable[BatchPlan], rank: int) -> None:
        self._plans, self._rank = plans, rank

    def __iter__(self) -> Iterator[list[int]]:
        first = 0
        for plan in self._plans:
            trainers = plan.users.shape[1]
            if not 0 <= self._rank < trainers:
                raise InputError(f"rank: must be a trainer of the plan, 0..{trainers - 1}, got {self._rank}")
            yield (first + np.flatnonzero(plan.trainer == self._rank)).tolist()
            first += plan.step.examples


def shared_plans(plans: Iterable[BatchPlan] | None, ahead: int = 2, timeout_s: float = 300.0) -> Iterator[BatchPlan]:
    """Process 0's plans in every process of the default group; made and sent by a thread, `ahead` of who asks for them.

    `plans`: None in the other processes. All must ask for the same number of plans. `timeout_s`: the longest that a
    process waits for a plan. Raises, in every process, the `GaplessError` that stops the planning in process 0.
    """
    rank = torch.distributed.get_rank() if rank_count() > 1 else 0
    if (plans is None) != (rank > 0):
        raise InputError("plans: must be given in process 0, and there only")
    if ahead < 1:
        raise InputError(f"ahead: must be >= 1, got {ahead}")
    # Its own group: collectives of two threads in one group could meet in another order in another process.
    group = torch.distributed.new_group(timeout=timedelta(seconds=timeout_s)) if rank_count() > 1 else None
    return _received(iter(plans) if plans is not None else None, group, ahead)


def _received(plans: Iterator[BatchPlan] | None, group: Group, ahead: int) -> Iterator[BatchPlan]:
    with ThreadPoolExecutor(1, "plans") as thread:
        coming: deque[Future[_Answer]] = deque(thread.submit(_next_plan, plans, group) for _ in range(ahead))
        while True:
            coming.append(thread.submit(_next_plan, plans, group))
            plan = coming.popleft().result()
            if isinstance(plan, GaplessError):
                raise plan
            if plan is None:
                return
            yield plan


def _next_plan(plans: Iterator[BatchPlan] | None, group: Group) -> _Answer:
    """What process 0 has next, in all processes."""
    box: list[_Answer] = [None]
    if plans is not None:
        try:
            box[0] = next(plans, None)
        except GaplessError as error:
            box[0] = error
    if group is not None:
        torch.distributed.broadcast_object_list(box, src=0, group=group)
    return box[0]
