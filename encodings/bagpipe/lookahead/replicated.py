"""Rows of replicated tables in the steps of a run: fetched when they are first used, evicted never.

The lookahead decides for the other tables; its steps and these are put together. Rows of the cache have even numbers,
those of replicated tables odd ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.ids.distinct import unique_ids
from gapless.encodings.bagpipe.ids.row_map import RowMap
from gapless.encodings.bagpipe.lookahead.steps import Step
from gapless.profiles.traces.bags import of_tables
from gapless.profiles.traces.trace import TABLE_SHIFT, Block

__all__ = ["NEVER", "bare_steps", "with_replicated"]

Ints = NDArray[np.int64]

NEVER = np.iinfo(np.int32).max
"""As the batch of a row's last use: none of those that are looked at."""


def bare_steps(batches: Iterable[Block], lookahead: int) -> Iterator[Step]:
    """The steps of tables that are all replicated, without their rows: when a batch's first uses are fetched."""
    none, nothing = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.bool_)
    bounds = np.zeros(1, dtype=np.int64)
    for number, batch in enumerate(batches):
        after = max(number - lookahead, -1)
        yield Step(
            number, len(batch), lookahead, np.empty(0, dtype=np.int64), bounds, none, nothing, none, nothing, after, 0
        )


def with_replicated(
    steps: Iterator[Step], batches: Iterable[Block], replicated: tuple[int, ...], tables: int
) -> Iterator[Step]:
    """The steps of whole batches, from those of the tables that aren't replicated.

    `steps` number their tables from 0; `batches` are whole, at least as many as there are steps.
    """
    others = np.setdiff1d(np.arange(tables), replicated)
    rows, own = RowMap(), np.array(replicated, dtype=np.int64)
    ids_of = (_renumbered(unique_ids(of_tables(batch, own))[0], own) for batch in batches)
    for step, (ids, following) in zip(steps, pairwise(chain(ids_of, [np.empty(0, dtype=np.int64)])), strict=False):
        yield _joined(step, _renumbered(step.ids, others), ids, following, rows, tables)


def _renumbered(ids: Ints, tables: Ints) -> Ints:
    """Global ids of tables that are numbered from 0, with their numbers among all."""
    whole: Ints = (tables[ids >> TABLE_SHIFT] << TABLE_SHIFT) | (ids & ((1 << TABLE_SHIFT) - 1))
    return whole


def _joined(step: Step, cached: Ints, ids: Ints, following: Ints, rows: RowMap, tables: int) -> Step:
    """A step with the replicated rows of its batch; `following`: those of the next batch."""
    found = rows.find(ids)
    is_new = found < 0
    found[is_new] = rows.add(ids[is_new])
    whole = np.concatenate([cached, ids])
    order = np.argsort(whole, kind="stable")
    whole = whole[order]
    never = np.full(len(ids), NEVER, dtype=np.int32)
    return replace(
        step,
        ids=whole,
        bounds=np.searchsorted(whole, np.arange(tables + 1, dtype=np.int64) << TABLE_SHIFT),
        rows=np.concatenate([2 * step.rows, 2 * found + 1])[order],
        prefetched=np.concatenate([step.prefetched, is_new])[order],
        last_use=np.concatenate([step.last_use, never])[order],
        in_next=np.concatenate([step.in_next, np.isin(ids, following, assume_unique=True)])[order],
    )
