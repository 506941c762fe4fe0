"""Actions: what the trainers do in one batch, row by row; and groups of rows with one history.

A plan of 50 batches of Criteo's size moves a million rows, most of them once. Rows to which the same happens in every
batch are one tensor of the schedule, so that its replay stays short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.batch_plans import BatchPlan
from gapless.encodings.bagpipe.unique_ids import distinct
from gapless.errors import InputError

__all__ = [
    "BY_ROW",
    "EVERYWHERE",
    "NOT_FETCHED",
    "SHARED",
    "SYNC_LATER",
    "SYNC_NOW",
    "Actions",
    "GroupedActions",
    "RowGroups",
]

Ints = NDArray[np.int64]

EVERYWHERE, NOT_FETCHED = -1, -2
"""Of `Actions.fetched_by`: by every trainer, by none."""
SHARED = -1
"""Of `Actions.private_to`: every trainer has the row, and its update reaches all of them."""
SYNC_NOW, SYNC_LATER = 1, 2
BY_ROW = ("ids", "fetched_by", "private_to", "sync", "evicted")
"""The columns of `Actions`."""


@dataclass(frozen=True)
class Actions:
    """What happens to the n distinct rows of one batch; int64 arrays of shape (n,).

    `ids`: global ids, ascending. `fetched_by`: a trainer, `EVERYWHERE` or `NOT_FETCHED`. `private_to`: the one trainer
    that uses the row and keeps its update for itself, or `SHARED`. `sync`: 0 for none, `SYNC_NOW`, `SYNC_LATER`.
    `evicted`: 1 where it leaves the cache after this batch. `examples`: of each trainer, shape (p,).
    `prefetch_after`: the batch whose rows must be written back before this one's are fetched, -1 for none.
    """

    ids: Ints
    fetched_by: Ints
    private_to: Ints
    sync: Ints
    evicted: Ints
    examples: Ints
    prefetch_after: int

    def __post_init__(self) -> None:
        trainers = len(self.examples)
        if not len(self.ids) or self.ids[0] < 0 or (np.diff(self.ids) <= 0).any():
            raise InputError("ids: must be at least one, each >= 0 and larger than the one before")
        limits = {
            "fetched_by": (NOT_FETCHED, trainers - 1), "private_to": (SHARED, trainers - 1), "sync": (0, SYNC_LATER),
            "evicted": (0, 1),
        }  # fmt: skip
        for title, (low, high) in limits.items():
            column = getattr(self, title)
            if column.shape != self.ids.shape:
                raise InputError(f"{title}: must have one entry for each of {len(self.ids)} ids, got {len(column)}")
            if not (low <= column.min() and column.max() <= high):
                raise InputError(f"{title}: must be between {low} and {high}, got {column.min()}..{column.max()}")

    @classmethod
    def of(cls, plan: BatchPlan) -> Actions:
        """The actions that a batch's plan asks for."""
        trainers = plan.users.shape[1]
        user = np.where(plan.is_private, plan.only_user, SHARED)
        return cls(
            ids=plan.step.ids,
            fetched_by=np.where(plan.step.prefetched, np.where(plan.is_private, user, EVERYWHERE), NOT_FETCHED),
            private_to=user,
            sync=np.where(plan.sync_now, SYNC_NOW, np.where(plan.sync_later, SYNC_LATER, 0)),
            evicted=plan.step.evicted.astype(np.int64),
            examples=np.bincount(plan.trainer, minlength=trainers),
            prefetch_after=plan.step.prefetch_after,
        )

    @property
    def trainers(self) -> int:
        """p."""
        return len(self.examples)

    def code(self) -> Ints:
        """One number for all that happens to a row."""
        place = (self.fetched_by - NOT_FETCHED) * (self.trainers + 1) + self.private_to - SHARED
        return (place * 3 + self.sync) * 2 + self.evicted


@dataclass(frozen=True)
class GroupedActions:
    """The actions of one batch on groups: columns as in `Actions`, shape (m,); `group`: their numbers, ascending."""

    group: Ints
    fetched_by: Ints
    private_to: Ints
    sync: Ints
    evicted: Ints
    examples: Ints
    prefetch_after: int

    def where(self, **columns: int) -> Ints:
        """The groups whose columns have these values."""
        chosen = np.ones(len(self.group), dtype=np.bool_)
        for title, value in columns.items():
            chosen &= getattr(self, title) == value
        return self.group[chosen]


@dataclass(frozen=True)
class RowGroups:
    """`rows[g]`: int64, how many rows group g has. `batches`: what happens to the groups, batch by batch."""

    rows: Ints
    batches: tuple[GroupedActions, ...]

    @classmethod
    def of(cls, actions: Sequence[Actions]) -> RowGroups:
        """Rows are in one group where the same happens to them in every batch."""
        all_ids = distinct(np.concatenate([batch.ids for batch in actions]))
        places = [np.searchsorted(all_ids, batch.ids) for batch in actions]
        label, labels = np.zeros(len(all_ids), dtype=np.int64), 1
        for batch, place in zip(actions, places, strict=True):
            code = batch.code()
            # Rows with one label have one past: with one code, they go on to have one.
            past, same = np.unique(label[place] * (int(code.max()) + 1) + code, return_inverse=True)
            label[place] = labels + same
            labels += len(past)
        _, group_of, rows = np.unique(label, return_inverse=True, return_counts=True)
        grouped = [_grouped(batch, group_of[place]) for batch, place in zip(actions, places, strict=True)]
        return cls(rows, tuple(grouped))

    @classmethod
    def finest(cls, batch: Actions) -> RowGroups:
        """Every row of one batch in a group of its own."""
        numbers = np.arange(len(batch.ids))
        return cls(np.ones_like(numbers), (_grouped(batch, numbers),))


def _grouped(batch: Actions, group: Ints) -> GroupedActions:
    numbers, first = np.unique(group, return_index=True)
    columns = {title: getattr(batch, title)[first] for title in ("fetched_by", "private_to", "sync", "evicted")}
    return GroupedActions(numbers, **columns, examples=batch.examples, prefetch_after=batch.prefetch_after)
