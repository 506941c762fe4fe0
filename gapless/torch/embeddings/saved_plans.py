"""Plans in a file, for processes that follow them and need not know who made them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.traces.bags import Bags, Lookups
from gapless.torch.embeddings.plans import BatchPlan, CacheStep, Ints, Mask
from gapless.torch.library import torch

__all__ = ["SavedPlan", "SavedStep", "load_plans", "save_plans"]


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
