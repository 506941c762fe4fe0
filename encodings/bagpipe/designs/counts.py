"""Counts: how many rows of each kind the plans of a run move, and what of them is moved, batch by batch.

A few numbers a batch: an epoch's plans are counted in one pass, and none is kept. `RootedCounts` are what the design
`lrpp-fine-grained` moves (`cuts.py`): a message carries one row, or its gradients, from one trainer to another. An
exchange takes as long as its busiest trainer, which sends or receives the most messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from gapless.array_types import Ints, Mask
from gapless.encodings.bagpipe.batch_plans import BatchPlan
from gapless.encodings.bagpipe.designs.sharding import pooled_vectors
from gapless.encodings.bagpipe.ids.loops import partition_loops
from gapless.encodings.bagpipe.partition.batch import Traffic
from gapless.encodings.bagpipe.question import PAPERS, SHARDED
from gapless.errors import InputError

__all__ = [
    "PLACES",
    "Counts",
    "RootedCounts",
    "busiest",
    "counted",
    "evicted_parts",
    "row_of",
]


@dataclass(frozen=True)
class RootedCounts:
    """Rows and messages per batch, int64, shape (batches,).

    `moved_now`: rows that the batch before used too and that weren't kept: synchronised at once. `moved_later`: rows
    that are sent in the background before the batch, or gathered in it after the batch, each counted once for both.
    `fetched`, `fetched_most`: copies that leave the servers, and the busiest trainer's. `sent_now`, `sent_later`:
    messages from roots to this batch's users, of rows that the batch before used, and of others; `gathered_now`,
    `gathered_later`: messages to the roots after this batch, of rows that the next one uses, and of others; `..._most`:
    of the busiest trainer. `evicted_alone`, `evicted_alone_most`: rows to write back that one trainer alone uses;
    `evicted_rest_most`: of the others, those of the root with most. `relayed`, `relayed_most`: rows of `sent_now`, each
    once however many get it, and those of the root with most.
    """

    moved_now: Ints
    moved_later: Ints
    fetched: Ints
    fetched_most: Ints
    sent_now: Ints
    sent_now_most: Ints
    sent_later: Ints
    sent_later_most: Ints
    gathered_now: Ints
    gathered_now_most: Ints
    gathered_later: Ints
    gathered_later_most: Ints
    evicted_alone: Ints
    evicted_alone_most: Ints
    evicted_rest_most: Ints
    relayed: Ints
    relayed_most: Ints


def _rooted_row_of(plan: BatchPlan) -> tuple[int, ...]:
    """The numbers of one plan, in the order of `RootedCounts`."""
    past, step = plan.past, plan.step
    kept = past.alone & plan.is_alone & np.equal(plan.only_user, past.root)
    # A row that was gathered in the background after its last use is counted there.
    moved_later = _count(past.is_held & ~past.at_once & past.alone & ~kept) + _count(~plan.is_alone & ~step.in_next)
    fetched, received, sent, relayed = _rooted_messages(plan)
    return (
        _count(past.at_once & ~kept), moved_later, int(fetched.sum()), int(fetched.max()),
        *np.column_stack([received.sum(axis=1), np.maximum(received, sent).max(axis=1)]).reshape(-1).tolist(),
        *evicted_parts(step.evicted, plan.is_alone, plan.root, plan.users.shape[1]),
        int(relayed.sum()), int(relayed.max()),
    )  # fmt: skip


def _rooted_messages(plan: BatchPlan) -> tuple[Ints, Ints, Ints, Ints]:
    """By trainer: copies that servers send it; messages that it receives and sends, in each of the four exchanges of
    `RootedCounts`; and rows that it sends at once, each once.
    """
    users, past, step, alone = plan.users, plan.past, plan.step, plan.is_alone
    if (compiled := partition_loops(users.size)) is not None:
        by_trainer: tuple[Ints, Ints, Ints, Ints] = compiled.rooted_messages(
            users.T, step.prefetched, step.in_next, past.at_once, past.root, alone, plan.root
        )
        return by_trainer
    fetched = np.array([_count(uses & step.prefetched) for uses in users.T])
    exchanges = (
        _between(users, past.root, past.at_once), _between(users, past.root, past.is_held & ~past.at_once),
        _between(users, plan.root, ~alone & step.in_next), _between(users, plan.root, ~alone & ~step.in_next),
    )  # fmt: skip
    once = np.flatnonzero(past.at_once)
    root, few = past.root[once], users[once]
    relayed = np.bincount(root[few.sum(axis=1) > few[np.arange(len(once)), root]], minlength=users.shape[1])
    received, sent = np.array([(each.fetched, each.sent) for each in exchanges]).swapaxes(0, 1)
    return fetched, received, sent, relayed


def _between(users: Mask, root: Ints, rows: Mask) -> Traffic:
    """What moves between roots and the other users of some rows."""
    chosen = np.flatnonzero(rows)
    return Traffic.of_users(users[chosen], root[chosen])


def busiest(users: Mask, root: Ints, weight: Ints) -> tuple[int, int]:
    """Messages between the roots and the other users of some rows, and those of the busiest trainer.

    `users`: bool (n, p); `root`, `weight`: int64 (n,).
    """
    others = users & (np.arange(users.shape[1]) != root[:, None])
    received = weight @ others
    sent = np.bincount(root, weights=weight * others.sum(axis=1), minlength=users.shape[1])
    return int(received.sum()), int(max(received.max(), sent.max()))


def evicted_parts(evicted: Mask, alone: Mask, root: Ints, trainers: int) -> tuple[int, int, int]:
    """Evicted rows that one trainer alone uses, the trainer's with most, and of the others the root's with most."""
    early, late = (np.bincount(root[evicted & part], minlength=trainers) for part in (alone, ~alone))
    return int(early.sum()), int(early.max()), int(late.max())


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
        own = dict(zip(_TITLES, columns[: len(_TITLES)], strict=True))
        return cls(trainers, **own, rooted=RootedCounts(*columns[len(_TITLES) :]))

    @property
    def batches(self) -> int:
        """How many batches are counted."""
        return len(self.lookahead)


_TITLES = tuple(field.name for field in fields(Counts) if field.name not in ("trainers", "rooted"))

PLACES = {title: place for place, title in enumerate((*_TITLES, *(field.name for field in fields(RootedCounts))))}
"""Of each number in what `row_of` gives: those of `Counts`, then those of `RootedCounts`."""

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


def counted(plans: Iterable[BatchPlan], design: str = PAPERS) -> Counts:
    """The counts of a stream of plans, each of which may be forgotten once counted. `design`: as for `row_of`.

    Raises `InputError` for a stream without plans, and one that doesn't begin with batch 0 and go on from there.
    """
    rows: list[tuple[int, ...]] = []
    trainers = 0
    for number, plan in enumerate(plans):
        if plan.step.batch != number:
            raise InputError(f"counts: the plan of batch {number} must be next, got that of batch {plan.step.batch}")
        trainers = plan.users.shape[1]
        rows.append(row_of(plan, design))
    if not rows:
        raise InputError("counts: there must be at least one plan, got none")
    return Counts.of(trainers, rows)


def row_of(plan: BatchPlan, design: str = PAPERS) -> tuple[int, ...]:
    """The numbers of one plan, in the order of `Counts`; what peers exchange is the design's if tables are sharded."""
    step, private, trainers = plan.step, plan.is_private, plan.users.shape[1]
    evicted, fetched_private = step.evicted, private & step.prefetched
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
        *_exchanged(plan, design),
        _most(plan.owner_after[step.prefetched], trainers),
        _most(plan.owner_after[evicted], trainers),
        *_rooted_row_of(plan),
    )


def _exchanged(plan: BatchPlan, design: str) -> tuple[int, int, int]:
    """`peer_rows`, `peer_most` and `max_load`."""
    if design in SHARDED:
        examples = np.bincount(plan.trainer, minlength=plan.users.shape[1])
        return pooled_vectors(examples, len(plan.step.bounds) - 1, design)
    peers = Traffic.of_users(plan.users, plan.owner_after)  # new rows have an owner too
    return peers.fetches, max(int(peers.fetched.max()), int(peers.sent.max())), peers.max_load


def _count(mask: Mask) -> int:
    return int(np.count_nonzero(mask))


def _most(trainer: Ints, trainers: int) -> int:
    """How many rows the trainer with most of them has."""
    return int(np.bincount(trainer, minlength=trainers).max())
