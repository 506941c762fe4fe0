"""Counts: how many rows of each kind the plans of a run move, and which of them a cache design moves, batch by batch.

A few numbers a batch: an epoch's plans are counted in one pass, and none is kept. `RootedCounts` are what the design
`lrpp-fine-grained` moves (`cuts.py`): a message carries one row, or its gradients, from one trainer to another. An
exchange takes as long as its busiest trainer, which sends or receives the most messages.

The designs (Bagpipe, section 5.2.3), for the same plan:

- `replicated`: every trainer prefetches all rows that the batch misses; all rows of the batch are all-reduced after it.
- `partitioned`: a row lies with its owner alone, who prefetches it. Before the forward pass trainers get what they use
  from the owners, after the backward pass they return the gradients.
- `lrpp`: as replicated, but what one trainer alone uses, and no later batch, it fetches and writes back by itself.
- `lrpp-delayed`: of the rows that LRPP synchronises, those that the next batch doesn't use come in the background.
- `lrpp-fine-grained`: a row lies where it is used. Each of its users fetches it; from batch to batch the trainer that
  holds it, its root, sends it to the next users, and one of these gathers the gradients (`cuts.py`): on the critical
  path from one batch to the very next, in the background otherwise. What one trainer alone uses twice stays there.

The same rows are evicted in all five, each written back once. In a sixth layout tables lie on the trainers, nothing is
cached, fetched or written back, and `peer_rows` are pooled vectors (`sharding.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from gapless.array_types import Ints, Mask
from gapless.encodings.bagpipe.batch_plans import BatchPlan
from gapless.encodings.bagpipe.designs.sharding import pooled_vectors
from gapless.encodings.bagpipe.partition.batch import Traffic
from gapless.encodings.bagpipe.partition.cuts import Past
from gapless.encodings.bagpipe.question import LAYOUTS, PAPERS, SHARDED
from gapless.errors import InputError
from gapless.io.record import check_known

__all__ = [
    "PLACES",
    "Counts",
    "DesignRows",
    "RootedCounts",
    "busiest",
    "counted",
    "design_rows",
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
    users, past, step = plan.users, plan.past, plan.step
    fetched = [int(np.count_nonzero(uses & step.prefetched)) for uses in users.T]
    later = past.is_held & ~past.at_once
    gathered_later = ~plan.is_alone & ~step.in_next
    kept = past.kept(users)
    # A row that was gathered in the background after its last use is counted there.
    moved_later = np.count_nonzero(later & past.alone & ~kept) + np.count_nonzero(gathered_later)
    exchanges = (
        busiest(users, past.root, past.at_once), busiest(users, past.root, later),
        busiest(users, plan.root, ~plan.is_alone & step.in_next), busiest(users, plan.root, gathered_later),
    )  # fmt: skip
    return (
        int(np.count_nonzero(past.at_once & ~kept)), int(moved_later), sum(fetched), max(fetched),
        *(count for exchange in exchanges for count in exchange),
        *evicted_parts(step.evicted, plan.is_alone, plan.root, users.shape[1]),
        *_relayed(users, past),
    )  # fmt: skip


def _relayed(users: Mask, past: Past) -> tuple[int, int]:
    """Rows that the batch before used and that others than their roots use, and those of the root with most."""
    once = np.flatnonzero(past.at_once)
    users, root = users[once], past.root[once]
    own = users[np.arange(len(once)), root]
    by_root = np.bincount(root[users.sum(axis=1) > own], minlength=users.shape[1])
    return int(by_root.sum()), int(by_root.max())


def busiest(users: Mask, root: Ints, rows: Mask | None = None, weight: Ints | None = None) -> tuple[int, int]:
    """Messages between the roots and the other users of some rows, and those of the busiest trainer.

    `users`: bool (n, p); `root`: int64 (n,). `rows`: bool (n,), all if None. `weight`: int64 (n,), 1 each if None.
    """
    chosen = np.flatnonzero(np.ones(len(users), dtype=np.bool_) if rows is None else rows)
    users, root = users[chosen], root[chosen]
    if weight is None:
        traffic = Traffic.of_users(users, root)
        return traffic.fetches, max(int(traffic.fetched.max()), int(traffic.sent.max()))
    others = users & (np.arange(users.shape[1]) != root[:, None])
    times = weight[chosen]
    received = times @ others
    sent = np.bincount(root, weights=times * others.sum(axis=1), minlength=users.shape[1])
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


# -- what a design moves -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DesignRows:
    """Rows that a design moves in each batch, int64, shape (batches,).

    `fetched`: leave the servers, a row as often as trainers fetch it; `fetched_most`: of them, the busiest trainer's.
    `peer_most`: what the busiest trainer gets from or gives to others before the forward pass, and the other way round
    after the backward pass. `peer_rows`: reach any trainer so. Both 0 unless partitioned, or sharded: pooled vectors.
    `sync_now`, `sync_later`: synchronised on the critical path and in the background: all-reduced, unless rooted.
    `exchanges`: of rooted rows, what the busiest trainer sends or receives when gradients are gathered and when rows
    are sent, on the critical path and in the background, shape (4, batches); zeros in the other designs. `relayed`,
    `relayed_most`: rows that are sent on the critical path, each once, and those of the root with most;
    `relayed_copies`: as often as trainers get them.
    `written_early`: written back right after the backward pass; `written_late`: after all synchronisation;
    `written_early_most`, `written_late_most`: of them, the busiest trainer's.
    """

    design: str
    fetched: Ints
    fetched_most: Ints
    peer_rows: Ints
    peer_most: Ints
    sync_now: Ints
    sync_later: Ints
    exchanges: Ints
    relayed: Ints
    relayed_most: Ints
    relayed_copies: Ints
    written_early: Ints
    written_early_most: Ints
    written_late: Ints
    written_late_most: Ints

    @property
    def layout(self) -> str:
        """The design by which rows lie on trainers: of a baseline another than its name."""
        return LAYOUTS[self.design]

    @property
    def evicted(self) -> Ints:
        """All rows that are written back."""
        return self.written_early + self.written_late


def design_rows(counts: Counts, design: str) -> DesignRows:
    """What a design moves, or a baseline that the counts are of. Raises `InputError` for an unknown one."""
    check_known("design", design, LAYOUTS)
    columns = _COLUMNS[LAYOUTS[design]](counts)
    none = np.zeros_like(counts.distinct)
    nothing = {field.name: none for field in fields(DesignRows) if field.name != "design"}
    nothing["exchanges"] = np.zeros((4, counts.batches), dtype=np.int64)
    return DesignRows(design, **nothing | columns)


def _replicated(counts: Counts) -> dict[str, Ints]:
    return {
        "fetched": counts.prefetched * counts.trainers, "fetched_most": counts.prefetched,
        "sync_now": counts.distinct,
        "written_late": counts.evicted, "written_late_most": _shared_out(counts.evicted, counts.trainers),
    }  # fmt: skip


def _partitioned(counts: Counts) -> dict[str, Ints]:
    return {
        "fetched": counts.prefetched, "fetched_most": counts.prefetched_most,
        "peer_rows": counts.peer_rows, "peer_most": counts.peer_most,
        "written_late": counts.evicted, "written_late_most": counts.evicted_most,
    }  # fmt: skip


def _sharded(counts: Counts) -> dict[str, Ints]:
    return {"peer_rows": counts.peer_rows, "peer_most": counts.peer_most}


def _lrpp_delayed(counts: Counts) -> dict[str, Ints]:
    shared, late = counts.prefetched - counts.prefetched_private, counts.evicted - counts.private
    return {
        "fetched": shared * counts.trainers + counts.prefetched_private,
        "fetched_most": shared + counts.prefetched_private_most,
        "sync_now": counts.sync_now, "sync_later": counts.sync_later,
        "written_early": counts.private, "written_early_most": counts.private_most,
        "written_late": late, "written_late_most": _shared_out(late, counts.trainers),
    }  # fmt: skip


def _lrpp(counts: Counts) -> dict[str, Ints]:
    at_once = {"sync_now": counts.sync_now + counts.sync_later, "sync_later": np.zeros_like(counts.distinct)}
    return _lrpp_delayed(counts) | at_once


def _fine_grained(counts: Counts) -> dict[str, Ints]:
    """Rows are counted for the batch after which they are synchronised: those sent at once, to the next batch's users,
    for the batch before that one, and those sent in the background for the one before that."""
    rooted = counts.rooted
    return {
        "fetched": rooted.fetched, "fetched_most": rooted.fetched_most,
        "peer_rows": _ahead(rooted.sent_now, 1) + rooted.gathered_now,
        "sync_now": _ahead(rooted.moved_now, 1), "sync_later": rooted.moved_later,
        "exchanges": np.stack([
            rooted.gathered_now_most, _ahead(rooted.sent_now_most, 1),
            rooted.gathered_later_most, _ahead(rooted.sent_later_most, 2),
        ]),
        "relayed": _ahead(rooted.relayed, 1), "relayed_most": _ahead(rooted.relayed_most, 1),
        "relayed_copies": _ahead(rooted.sent_now, 1),
        "written_early": rooted.evicted_alone, "written_early_most": rooted.evicted_alone_most,
        "written_late": counts.evicted - rooted.evicted_alone, "written_late_most": rooted.evicted_rest_most,
    }  # fmt: skip


_COLUMNS: dict[str, Callable[[Counts], dict[str, Ints]]] = {
    "replicated": _replicated,
    "partitioned": _partitioned,
    "sharded": _sharded,
    "lrpp": _lrpp,
    "lrpp-delayed": _lrpp_delayed,
    "lrpp-fine-grained": _fine_grained,
}
"""What each design moves; the columns that one leaves out are zeros."""


def _ahead(rows: Ints, batches: int) -> Ints:
    """What so many batches later has, 0 at the end."""
    later = np.zeros_like(rows)
    later[:-batches] = rows[batches:]
    return later


def _shared_out(rows: Ints, trainers: int) -> Ints:
    """The largest part of rows that every trainer holds and that all write back together."""
    return -(-rows // trainers)
