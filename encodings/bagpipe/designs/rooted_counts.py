"""Rooted counts: how many rows the design `lrpp-fine-grained` moves, batch by batch (`cuts.py`).

A message carries one row, or its gradients, from one trainer to another. The busiest trainer of an exchange is the one
that sends or receives the most messages; the exchange takes as long as that one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.batch_plans import BatchPlan
from gapless.encodings.bagpipe.partition.batch import Traffic

__all__ = ["EVICTED_ALONE", "RootedCounts", "busiest", "evicted_parts", "rooted_row_of"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RootedCounts:
    """Rows and messages per batch, int64, shape (batches,).

    `moved_now`: rows that the batch before used too and that weren't kept: synchronised at once. `moved_later`: rows
    that are sent in the background before the batch, or gathered in it after the batch, each counted once for both.
    `fetched`, `fetched_most`: copies that leave the servers, and the busiest trainer's. `sent_now`, `sent_later`:
    messages from roots to this batch's users, of rows that the batch before used, and of others; `gathered_now`,
    `gathered_later`: messages to the roots after this batch, of rows that the next one uses, and of others; `..._most`:
    of the busiest trainer. `evicted_alone`, `evicted_alone_most`: rows to write back that one trainer alone uses;
    `evicted_rest_most`: of the others, those of the root with most.
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


EVICTED_ALONE = [field.name for field in fields(RootedCounts)].index("evicted_alone")
"""Where what `evicted_parts` gives begins in what `rooted_row_of` gives."""


def rooted_row_of(plan: BatchPlan) -> tuple[int, ...]:
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
    )  # fmt: skip


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
