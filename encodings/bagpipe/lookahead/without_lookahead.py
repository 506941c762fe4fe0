"""Rows on which no lookahead decides: those of caches that fetch on demand, and those of tables that stay.

**Caches that don't look ahead** are baselines: a row that isn't cached is fetched when its batch comes, while it waits.

- `static-hot`: the rows that most batches use are cached from their first use on, for ever, and every trainer has them;
  the others come and go with their batch (as FAE, section 5.4.1, with the order of examples as it is).
- `lfu`: the cache drops the rows that the fewest batches have used so far, the longest unused of them first; each row
  lies with its owner (as the caches of TorchRec's tables in host memory).

Either cache has as many rows as are given, those of the current batch among them. What is fetched for batch x waits for
the updates of x - 1, as with a lookahead of one. A row that leaves is written back after its last use, as early as it
may be. All distinct ids of the run are held in memory, to know the hot ones.

**Tables that lie on the trainers** need no cache: nothing is fetched, nothing evicted, and a row is held for its batch.

**Rows of replicated tables** are fetched when they are first used, and evicted never. The lookahead decides for the
other tables; its steps and these are put together. Rows of the cache have even numbers, those of replicated tables odd
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np

from gapless.array_types import Ints, Mask
from gapless.encodings.bagpipe.ids.distinct import distinct, unique_ids
from gapless.encodings.bagpipe.ids.row_map import RowMap
from gapless.encodings.bagpipe.lookahead.steps import Step
from gapless.errors import InputError
from gapless.profiles.traces.bags import of_tables
from gapless.profiles.traces.trace import TABLE_SHIFT, Block

__all__ = ["NEVER", "bare_steps", "cacheless_steps", "demand_steps", "with_replicated"]


def demand_steps(batches: Iterable[Block], cache_rows: int, design: str) -> Iterator[Step]:
    """The steps of a stream of batches, `static-hot` or `lfu`; each says L = 1, and that no row is in the next batch.

    `last_use` of a row that stays is the largest number there is. Raises `InputError` for a cache smaller than a batch,
    and for a stream without batches.
    """
    examples, ids_of_batches = [], []
    for batch in batches:
        examples.append(len(batch))
        ids_of_batches.append(unique_ids(batch))
    if not ids_of_batches:
        raise InputError("lookahead: the trace must hold at least one batch, got none")
    most = max(len(ids) for ids, _ in ids_of_batches)
    if most > cache_rows:
        raise InputError(f"cache_rows: must hold the distinct ids of a batch, {most}, got {cache_rows}")
    all_ids = distinct(np.concatenate([ids for ids, _ in ids_of_batches]))
    rows = [np.searchsorted(all_ids, ids) for ids, _ in ids_of_batches]
    evicted = (_cold if design == "static-hot" else _least_frequent)(rows, len(all_ids), cache_rows)
    is_cached, held = np.zeros(len(all_ids), dtype=np.bool_), 0
    for number, ((ids, bounds), row, leaves) in enumerate(zip(ids_of_batches, rows, evicted, strict=True)):
        fetched = ~is_cached[row]
        is_cached[row] = ~leaves
        held += int(fetched.sum())
        yield Step(
            batch=number, examples=examples[number], lookahead=1, ids=ids, bounds=bounds, rows=row.astype(np.int32),
            prefetched=fetched, last_use=np.where(leaves, number, NEVER).astype(np.int32),
            in_next=np.zeros(len(ids), dtype=np.bool_), prefetch_after=number - 1, cache_rows=held,
        )  # fmt: skip
        held -= int(leaves.sum())


def _cold(rows: list[Ints], ids: int, cache_rows: int) -> list[Mask]:
    """Which rows leave after each batch: those that aren't hot, and hot ones at the end of the run."""
    uses, last = np.zeros(ids, dtype=np.int64), np.zeros(ids, dtype=np.int64)
    for number, row in enumerate(rows):
        uses[row] += 1
        last[row] = number
    room = cache_rows - max(map(len, rows))
    is_hot = np.zeros(ids, dtype=np.bool_)
    is_hot[np.lexsort((np.arange(ids), -uses))[:room]] = True
    return [~is_hot[row] | (last[row] == number) for number, row in enumerate(rows)]


def _least_frequent(rows: list[Ints], ids: int, cache_rows: int) -> list[Mask]:
    """Which rows leave after each batch, being dropped before they are used again, or at the end of the run."""
    uses, last = np.zeros(ids, dtype=np.int64), np.full(ids, -1)
    is_cached = np.zeros(ids, dtype=np.bool_)
    leaves = [np.zeros(len(row), dtype=np.bool_) for row in rows]

    def drop(gone: Ints) -> None:
        for number in np.unique(last[gone]).tolist():
            leaves[number][np.searchsorted(rows[number], gone[last[gone] == number])] = True
        is_cached[gone] = False

    for number, row in enumerate(rows):
        is_cached[row] = False
        others = np.flatnonzero(is_cached)
        if (surplus := len(others) + len(row) - cache_rows) > 0:
            drop(others[np.lexsort((others, last[others], uses[others]))[:surplus]])
        is_cached[row] = True
        uses[row] += 1
        last[row] = number
    drop(np.flatnonzero(is_cached))
    return leaves


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


def cacheless_steps(batches: Iterable[Block]) -> Iterator[Step]:
    """The steps of tables that lie on the trainers: `cache_rows` are those that a batch's exchange holds."""
    for number, batch in enumerate(batches):
        ids, bounds = unique_ids(batch)
        none = np.zeros(len(ids), dtype=np.bool_)
        places, never = np.arange(len(ids), dtype=np.int32), np.full(len(ids), NEVER, dtype=np.int32)
        yield Step(number, len(batch), 1, ids, bounds, places, none, never, none, number - 1, len(ids))


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
    places = rows.find(ids)
    is_new = places < 0
    places[is_new] = rows.add(ids[is_new])
    whole = np.concatenate([cached, ids])
    order = np.argsort(whole, kind="stable")
    whole = whole[order]
    never = np.full(len(ids), NEVER, dtype=np.int32)
    return replace(
        step,
        ids=whole,
        bounds=np.searchsorted(whole, np.arange(tables + 1, dtype=np.int64) << TABLE_SHIFT),
        rows=np.concatenate([2 * step.rows, 2 * places + 1])[order],
        prefetched=np.concatenate([step.prefetched, is_new])[order],
        last_use=np.concatenate([step.last_use, never])[order],
        in_next=np.concatenate([step.in_next, np.isin(ids, following, assume_unique=True)])[order],
    )
