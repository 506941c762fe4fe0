"""Cache designs (Bagpipe, section 5.2.3): which rows move when, per iteration, for the same plan.

- `replicated`: every trainer prefetches all rows that the batch misses; all rows of the batch are all-reduced after it.
- `partitioned`: a row lies with its owner alone, who prefetches it. Before the forward pass trainers get what they use
  from the owners, after the backward pass they return the gradients.
- `lrpp`: as replicated, but a row that one trainer alone uses, and no later batch of the window, is fetched by that
  trainer only and written back by it, unsynchronised.
- `lrpp-delayed`: of the rows that LRPP synchronises, those that the next batch doesn't use are synchronised in the
  background.

The same rows are evicted in all four, each written back once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.counts import Counts
from gapless.encodings.bagpipe.system import DESIGNS
from gapless.io.record import check_known

__all__ = ["DesignRows", "design_rows"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DesignRows:
    """Rows that a design moves in each batch, int64, shape (batches,).

    `fetched`: leave the servers, a row as often as trainers fetch it; `fetched_most`: of them, the busiest trainer's.
    `peer_most`: what the busiest trainer gets from or gives to others before the forward pass, and the other way round
    after the backward pass. `peer_rows`: reach any trainer so. Both 0 unless partitioned.
    `sync_now`, `sync_later`: all-reduced on the critical path and in the background.
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
    written_early: Ints
    written_early_most: Ints
    written_late: Ints
    written_late_most: Ints

    @property
    def evicted(self) -> Ints:
        """All rows that are written back."""
        return self.written_early + self.written_late


def design_rows(counts: Counts, design: str) -> DesignRows:
    """What a design moves. Raises `InputError` for an unknown one."""
    check_known("design", design, DESIGNS)
    if design == "replicated":
        return _replicated(counts)
    if design == "partitioned":
        return _partitioned(counts)
    return _lrpp(counts, is_delayed=design == "lrpp-delayed")


def _replicated(counts: Counts) -> DesignRows:
    none, trainers = np.zeros_like(counts.distinct), counts.trainers
    return DesignRows(
        design="replicated",
        fetched=counts.prefetched * trainers,
        fetched_most=counts.prefetched,
        peer_rows=none,
        peer_most=none,
        sync_now=counts.distinct,
        sync_later=none,
        written_early=none,
        written_early_most=none,
        written_late=counts.evicted,
        written_late_most=_shared_out(counts.evicted, trainers),
    )


def _partitioned(counts: Counts) -> DesignRows:
    none = np.zeros_like(counts.distinct)
    return DesignRows(
        design="partitioned",
        fetched=counts.prefetched,
        fetched_most=counts.prefetched_most,
        peer_rows=counts.peer_rows,
        peer_most=counts.peer_most,
        sync_now=none,
        sync_later=none,
        written_early=none,
        written_early_most=none,
        written_late=counts.evicted,
        written_late_most=counts.evicted_most,
    )


def _lrpp(counts: Counts, is_delayed: bool) -> DesignRows:
    none, trainers = np.zeros_like(counts.distinct), counts.trainers
    shared = counts.prefetched - counts.prefetched_private
    late = counts.evicted - counts.private
    return DesignRows(
        design="lrpp-delayed" if is_delayed else "lrpp",
        fetched=shared * trainers + counts.prefetched_private,
        fetched_most=shared + counts.prefetched_private_most,
        peer_rows=none,
        peer_most=none,
        sync_now=counts.sync_now if is_delayed else counts.sync_now + counts.sync_later,
        sync_later=counts.sync_later if is_delayed else none,
        written_early=counts.private,
        written_early_most=counts.private_most,
        written_late=late,
        written_late_most=_shared_out(late, trainers),
    )


def _shared_out(rows: Ints, trainers: int) -> Ints:
    """The largest part of rows that every trainer holds and that all write back together."""
    return -(-rows // trainers)
