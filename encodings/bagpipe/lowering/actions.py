"""Actions: what the trainers do in one batch, row by row; and groups of rows with one history.

A plan of 50 batches of Criteo's size moves a million rows, most of them once. Rows to which the same happens in every
batch are one tensor of the schedule, so that its replay stays short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gapless.array_types import Ints, Mask
from gapless.encodings.bagpipe.batch_plans import BatchPlan
from gapless.encodings.bagpipe.designs.counts import busiest
from gapless.encodings.bagpipe.ids.distinct import numbered
from gapless.encodings.bagpipe.question import LAYOUTS, PAPERS
from gapless.errors import InputError

__all__ = [
    "BY_ROW",
    "BY_USERS",
    "EVERYWHERE",
    "NOT_FETCHED",
    "SENT_LATER",
    "SENT_NOW",
    "SHARED",
    "SYNC_LATER",
    "SYNC_NOW",
    "Actions",
    "GroupedActions",
    "RowGroups",
]

EVERYWHERE, NOT_FETCHED = -1, -2
"""Of `Actions.fetched_by`: by every trainer, by none."""
BY_USERS, SENT_NOW, SENT_LATER = -3, -4, -5
"""Of `Actions.fetched_by`, for rooted rows: by each trainer that uses the row; by none, as the trainer that holds it
sends it to the others that use it, right after the batch before, or in the background of the batch before that."""
SHARED = -1
"""Of `Actions.private_to`: every trainer has the row, and its update reaches all of them."""
SYNC_NOW, SYNC_LATER = 1, 2
BY_ROW = ("ids", "fetched_by", "private_to", "sync", "evicted")
"""The columns of `Actions`."""
_CHOSEN = (*BY_ROW[1:], "users")
"""What is said of rows and of groups alike."""


@dataclass(frozen=True)
class _InBatch:
    """What happens in one batch to its n rows, or groups of rows; int64 arrays of shape (n,).

    `fetched_by`: a trainer, `EVERYWHERE` or `NOT_FETCHED`. `private_to`: the one trainer
    that holds the row, or `SHARED`. `sync`: `SYNC_NOW`, `SYNC_LATER`, or 0 where that trainer alone uses the row and
    keeps its update for itself. A row that one trainer holds and that is synchronised is *owned*: its users get it from
    there before the forward pass, and return its gradients after the backward pass. A *rooted* row is fetched
    `BY_USERS` or sent; `private_to` is who holds it after the batch, and gathers its gradients. `evicted`: 1 where it
    leaves the cache after this batch. `examples`: of each trainer, shape (p,).
    `prefetch_after`: the batch whose rows must be written back before this one's are fetched, -1 for none.
    `users`: bool, shape (n, p), which trainers use a row.
    """

    fetched_by: Ints
    private_to: Ints
    sync: Ints
    evicted: Ints
    examples: Ints
    prefetch_after: int
    users: Mask

    @property
    def is_owned(self) -> Mask:
        """What one trainer holds whatever others use it."""
        owned: Mask = (self.private_to != SHARED) & (self.sync != 0) & ~self.is_rooted
        return owned

    @property
    def is_rooted(self) -> Mask:
        """What moves to where it is used."""
        rooted: Mask = self.fetched_by <= BY_USERS
        return rooted


@dataclass(frozen=True)
class Actions(_InBatch):
    """What happens to the n distinct rows of one batch. `ids`: int64 (n,), global ids, ascending. `whole`: of all rows
    of the batch, where some are left out here or differences are dropped.
    """

    ids: Ints
    whole: Actions | None = None

    def __post_init__(self) -> None:
        trainers = len(self.examples)
        if not len(self.ids) or self.ids[0] < 0 or (np.diff(self.ids) <= 0).any():
            raise InputError("ids: must be at least one, each >= 0 and larger than the one before")
        limits = {
            "fetched_by": (SENT_LATER, trainers - 1), "private_to": (SHARED, trainers - 1), "sync": (0, SYNC_LATER),
            "evicted": (0, 1),
        }  # fmt: skip
        for title, (low, high) in limits.items():
            column = getattr(self, title)
            if column.shape != self.ids.shape:
                raise InputError(f"{title}: must have one entry for each of {len(self.ids)} ids, got {len(column)}")
            if not (low <= column.min() and column.max() <= high):
                raise InputError(f"{title}: must be between {low} and {high}, got {column.min()}..{column.max()}")
        if ((self.fetched_by <= BY_USERS) & (self.private_to == SHARED)).any():
            raise InputError(f"private_to: must be a trainer where users fetch or send a row, got {SHARED}")

    @classmethod
    def of(cls, plan: BatchPlan, design: str = PAPERS) -> Actions:
        """The actions that a batch's plan asks for, with a cache of this design."""
        trainers, design = plan.users.shape[1], LAYOUTS[design]
        holder, sync = _held(plan, design)
        fetched_by = np.where(plan.step.prefetched, np.where(holder == SHARED, EVERYWHERE, holder), NOT_FETCHED)
        if design == "lrpp-fine-grained":
            fetched_by = np.where(plan.past.is_held, np.where(plan.past.at_once, SENT_NOW, SENT_LATER), BY_USERS)
        return cls(
            ids=plan.step.ids,
            fetched_by=fetched_by,
            private_to=holder,
            sync=sync,
            evicted=plan.step.evicted.astype(np.int64),
            examples=np.bincount(plan.trainer, minlength=trainers),
            prefetch_after=plan.step.prefetch_after,
            users=plan.users,
        )

    @property
    def trainers(self) -> int:
        """p."""
        return len(self.examples)

    def of_rows(self, chosen: Mask) -> Actions:
        """The same of some of its rows, at least one."""
        chosen_rows = {name: getattr(self, name)[chosen] for name in ("ids", *_CHOSEN)}
        return replace(self, **chosen_rows, whole=self.whole or self)

    @cached_property
    def busiest(self) -> tuple[int, int, int]:
        """The rows that the busiest trainer gets or gives as owned ones reach their users, and the messages as
        gradients are gathered at roots, now and later.
        """
        rooted = self.is_rooted
        now, later = (self._busiest(rooted & (self.sync == sync)) for sync in (SYNC_NOW, SYNC_LATER))
        return self._busiest(self.is_owned), now, later

    def _busiest(self, rows: Mask) -> int:
        weight = np.ones(int(rows.sum()), dtype=np.int64)
        return busiest(self.users[rows], self.private_to[rows], weight)[1]

    @cached_property
    def gradient_rows(self) -> Ints:
        """Of how many rows each trainer has gradients: it alone, synchronised now, and later; and of how many others it
        has the sum as they are, now and later. Int64, shape (5, p).

        Sums are had of rows that all trainers have, and by who owns or roots a row.
        """
        sums = (self.private_to == SHARED)[:, None] | (self.private_to[:, None] == np.arange(self.trainers))
        others = sums & ~self.users
        syncs = [self.sync == sync for sync in (0, SYNC_NOW, SYNC_LATER)]
        parts = [*(self.users[rows] for rows in syncs), *(others[rows] for rows in syncs[1:])]
        return np.array([np.count_nonzero(part, axis=0) for part in parts])

    def code(self) -> Ints:
        """One number for all that happens to a row."""
        place = (self.fetched_by - SENT_LATER) * (self.trainers + 1) + self.private_to - SHARED
        code = (place * 3 + self.sync) * 2 + self.evicted
        owned = np.flatnonzero((self.private_to != SHARED) & ((self.sync != 0) | (self.fetched_by <= BY_USERS)))
        if not len(owned):
            return code
        users = np.zeros(len(code), dtype=np.int64)  # matter for owned and rooted rows alone
        users[owned] = 1 + _numbered_rows(self.users[owned])
        return numbered(code * (int(users.max()) + 1) + users)[0]


def _numbered_rows(bits: Mask) -> Ints:
    """A number for each row of bits, in their lexicographic order."""
    number = np.zeros(len(bits), dtype=np.int64)
    for byte in np.packbits(bits, axis=1).T:
        number, _ = numbered(number * 256 + byte)
    return number


def _held(plan: BatchPlan, design: str) -> tuple[Ints, Ints]:
    """`private_to` and `sync` of each row."""
    if design == "replicated":
        return np.full(len(plan.step.ids), SHARED), np.full(len(plan.step.ids), SYNC_NOW)
    if design == "lrpp-fine-grained":
        return plan.root, np.where(plan.is_alone, 0, np.where(plan.step.in_next, SYNC_NOW, SYNC_LATER))
    if design in ("partitioned", "sharded"):
        return plan.owner_after, np.full(len(plan.step.ids), SYNC_NOW)
    later = SYNC_LATER if design == "lrpp-delayed" else SYNC_NOW
    sync = np.where(plan.sync_now, SYNC_NOW, np.where(plan.sync_later, later, 0))
    return np.where(plan.is_private, plan.only_user, SHARED), sync


@dataclass(frozen=True)
class GroupedActions(_InBatch):
    """The actions of one batch on groups. `group`: their numbers, ascending.

    `users`: they are those of every row of a group where that is owned or rooted. `whole`: of all rows of the batch.
    """

    group: Ints
    whole: Actions

    @cached_property
    def is_kept(self) -> Mask:
        """Groups that one trainer alone uses and holds: it updates them where they are."""
        alone = self.users.sum(axis=1) == 1
        own = self.users[np.arange(len(self.group)), self.private_to]
        kept: Mask = (self.private_to != SHARED) & (self.sync == 0) & (~self.is_rooted | alone & own)
        return kept

    def where(self, **columns: int) -> Ints:
        """The groups whose columns have these values."""
        chosen = np.ones(len(self.group), dtype=np.bool_)
        for title, value in columns.items():
            chosen &= getattr(self, title) == value
        return self.group[chosen]


@dataclass(frozen=True)
class RowGroups:
    """`rows[g]`: int64, how many rows group g has. `batches`: what happens to the groups, batch by batch. Row `ids[k]`,
    ascending, is in group `part[k]`.
    """

    rows: Ints
    batches: tuple[GroupedActions, ...]
    ids: Ints
    part: Ints

    @classmethod
    def of(cls, actions: Sequence[Actions], ids: Ints, label: Ints) -> RowGroups:
        """Rows are in one group where they have one label, and the same happens to them in every batch.

        `ids`: all rows, ascending; there may be some to which nothing happens. `label`: int64, of each, >= 0.
        """
        places = [np.searchsorted(ids, batch.ids) for batch in actions]
        label, labels = label.copy(), int(label.max(initial=0)) + 1
        for batch, place in zip(actions, places, strict=True):
            code = batch.code()
            # Rows with one label have one past: with one code, they go on to have one.
            past, _ = numbered(label[place])
            code, codes = numbered(code)
            same, new = numbered(past * codes + code)
            label[place] = labels + same
            labels += new
        group_of, groups = numbered(label)
        rows = np.bincount(group_of, minlength=groups)
        grouped = [_grouped(batch, group_of[place]) for batch, place in zip(actions, places, strict=True)]
        return cls(rows, tuple(grouped), ids, group_of)

    @classmethod
    def finest(cls, batch: Actions) -> RowGroups:
        """Every row of one batch in a group of its own."""
        numbers = np.arange(len(batch.ids))
        return cls(np.ones_like(numbers), (_grouped(batch, numbers),), batch.ids, numbers)


def _grouped(batch: Actions, group: Ints) -> GroupedActions:
    place, count = numbered(group)
    first = np.empty(count, dtype=np.int64)
    first[place[::-1]] = np.arange(len(group))[::-1]  # of several assignments the last one counts
    numbers = group[first]
    columns = {title: getattr(batch, title)[first] for title in _CHOSEN}
    return GroupedActions(
        group=numbers, **columns, examples=batch.examples, prefetch_after=batch.prefetch_after,
        whole=batch.whole or batch,
    )  # fmt: skip
