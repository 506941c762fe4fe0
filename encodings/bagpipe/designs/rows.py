"""Rows: which of the rows that are counted a cache design moves, batch by batch.

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

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.designs.counts import Counts
from gapless.encodings.bagpipe.question import LAYOUTS
from gapless.io.record import check_known

__all__ = ["DesignRows", "design_rows"]


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
