"""What the sampler and the cache need of plans and of the embedding servers, whoever made them; plans in a file, for
processes that follow them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints, Mask
from gapless.errors import InputError
from gapless.profiles.traces.bags import Bags, Lookups
from gapless.profiles.traces.trace import split_global_ids
from gapless.torch.library import torch

__all__ = ["BatchPlan", "CacheStep", "Group", "SavedPlan", "SavedStep", "Sharding", "load_plans", "save_plans"]

Group: TypeAlias = "torch.distributed.ProcessGroup | None"
"""The processes that exchange something; None for all."""


class CacheStep(Protocol):
    """What the cache does around one batch with n distinct ids; masks are bool, shape (n,), in the order of `ids`.

    `batch`, `examples`: its number and its count of examples. `ids`: global ids, increasing. `rows`: int32 (n,), where
    each is in the cache. `prefetched`: fetched ahead of the batch, once batch `prefetch_after` is written back (-1: at
    once). `evicted`: leaves the cache after it.
    """

    @property
    def batch(self) -> int: ...
    @property
    def examples(self) -> int: ...
    @property
    def ids(self) -> Ints: ...
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

    def rows_of(self, server: int) -> Ints:
        """The rows that a server has, in its order."""
        return np.arange(server, sum(self.table_rows), self.servers)
