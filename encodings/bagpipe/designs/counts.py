"""Counts: how many rows of each kind the plans of a run move, batch by batch; all that times depend on.

A few numbers a batch: the plans of a whole epoch are counted in one pass and none of them is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.batch_plans import BatchPlan
from gapless.encodings.bagpipe.designs.rooted_counts import RootedCounts, rooted_row_of
from gapless.encodings.bagpipe.partition.batch import Traffic
from gapless.errors import InputError

__all__ = ["EVICTED", "EVICTED_MOST", "ROOTED", "Counts", "counted", "row_of"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """Rows per batch, int64, shape (batches,). A row counts once however many trainers use it, unless said otherwise.

    `lookahead`, `prefetch_after`, `cache_rows`: of the batch's step. `examples_most`: of one trainer, the most.
    `distinct`: rows that the batch uses.
    `prefetched`: not in the cache before; `prefetched_private`: of them, private ones (one trainer alone uses them, and
    no later batch of the window), and `prefetched_private_most` those of the trainer with most.
    `private`, `private_most`: rows to write back that are private. `sync_now`: the next batch uses them too.
    `sync_later`: neither. `evicted`: to write back after the batch, private or not.
    Had each row one owner (a partitioned cache): `peer_rows` reach a trainer that uses but doesn't own them, counted
    once for each; `peer_most`: the rows that one trainer sends or those that one receives, whichever is most;
    `max_load`: sent and received by the busiest; `prefetched_most`, `evicted_most`: those of the owner with most.
    `rooted`: the same for roots that move.

    Raises `InputError` for arrays that differ in shape, negative counts, parts that are more than the whole, and a
    batch that is prefetched after itself or a later one.
    """

    trainers: int
    lookahead: Ints
    prefetch_after: Ints
    cache_rows: Ints
    examples_most: Ints
    distinct: Ints
    prefetched: Ints
    prefetched_private: Ints
    prefetched_private_most: Ints
    private: Ints
    private_most: Ints
    sync_now: Ints
    sync_later: Ints
    evicted: Ints
    peer_rows: Ints
    peer_most: Ints
    max_load: Ints
    prefetched_most: Ints
    evicted_most: Ints
    rooted: RootedCounts

    def __post_init__(self) -> None:
        if self.trainers < 1:
            raise InputError(f"counts: trainers must be >= 1, got {self.trainers}")
        for title in _TITLES:
            values = getattr(self, title)
            if values.shape != (self.batches,) or values.dtype != np.int64 or not self.batches:
                rule = f"int64, one for each of {max(self.batches, 1)} batches"
                raise InputError(f"counts: {title} must be {rule}, got {values.dtype} of shape {values.shape}")
            if values.min() < (-1 if title == "prefetch_after" else 0):
                raise InputError(f"counts: {title} must be >= 0, got {values.min()} in batch {values.argmin()}")
        for part, whole in _PARTS:
            if (batches := np.flatnonzero(getattr(self, part) > getattr(self, whole))).size:
                raise InputError(f"counts: {part} must be at most {whole}, is more in batch {batches[0]}")
        if (early := np.flatnonzero(self.prefetch_after >= np.arange(self.batches))).size:
            raise InputError(f"counts: prefetch_after must be an earlier batch, isn't in batch {early[0]}")
        if (others := np.flatnonzero(self.private + self.sync_now + self.sync_later != self.distinct)).size:
            raise InputError(
                f"counts: private, sync_now and sync_later must add up to distinct, not in batch {others[0]}"
            )

    @classmethod
    def of(cls, trainers: int, rows: Sequence[tuple[int, ...]] | Ints) -> Counts:
        """The counts of batches, from what `row_of` gives of each."""
        columns = np.array(rows, dtype=np.int64).T
        own = dict(zip(_TITLES, columns[:ROOTED], strict=True))
        return cls(trainers, **own, rooted=RootedCounts(*columns[ROOTED:]))

    @property
    def batches(self) -> int:
        """How many batches are counted."""
        return len(self.lookahead)


_TITLES = tuple(field.name for field in fields(Counts) if field.name not in ("trainers", "rooted"))

LOOKAHEAD, EVICTED, EVICTED_MOST = (_TITLES.index(title) for title in ("lookahead", "evicted", "evicted_most"))
ROOTED = len(_TITLES)
"""Their places in what `row_of` gives; what `rooted_row_of` gives begins at the last."""

_PARTS = (
    ("prefetched", "distinct"),
    ("evicted", "distinct"),
    ("private", "evicted"),
    ("prefetched_private", "prefetched"),
    ("prefetched_private", "private"),
    ("prefetched_private_most", "prefetched_private"),
    ("private_most", "private"),
    ("peer_most", "peer_rows"),
    ("peer_most", "max_load"),
    ("prefetched_most", "prefetched"),
    ("evicted_most", "evicted"),
)


def counted(plans: Iterable[BatchPlan]) -> Counts:
    """The counts of a stream of plans, each of which may be forgotten once counted.

    Raises `InputError` for a stream without plans, and one that doesn't begin with batch 0 and go on from there.
    """
    rows: list[tuple[int, ...]] = []
    trainers = 0
    for number, plan in enumerate(plans):
        if plan.step.batch != number:
            raise InputError(f"counts: the plan of batch {number} must be next, got that of batch {plan.step.batch}")
        trainers = plan.users.shape[1]
        rows.append(row_of(plan))
    if not rows:
        raise InputError("counts: there must be at least one plan, got none")
    return Counts.of(trainers, rows)


def row_of(plan: BatchPlan) -> tuple[int, ...]:
    """The numbers of one plan, in the order of `Counts`."""
    step, private, trainers = plan.step, plan.is_private, plan.users.shape[1]
    evicted, fetched_private = step.evicted, private & step.prefetched
    peers = Traffic.of_users(plan.users, plan.owner_after)  # new rows have an owner too
    return (
        step.lookahead,
        step.prefetch_after,
        step.cache_rows,
        _most(plan.trainer, trainers),
        len(step.ids),
        _count(step.prefetched),
        _count(fetched_private),
        _most(plan.only_user[fetched_private], trainers),
        _count(private),
        _most(plan.only_user[private], trainers),
        _count(plan.sync_now),
        _count(plan.sync_later),
        _count(evicted),
        peers.fetches,
        max(int(peers.fetched.max()), int(peers.sent.max())),
        peers.max_load,
        _most(plan.owner_after[step.prefetched], trainers),
        _most(plan.owner_after[evicted], trainers),
        *rooted_row_of(plan),
    )


def _count(mask: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(mask))


def _most(trainer: Ints, trainers: int) -> int:
    """How many rows the trainer with most of them has."""
    return int(np.bincount(trainer, minlength=trainers).max())
