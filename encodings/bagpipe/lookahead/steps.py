"""Lookahead (Bagpipe, section 5.2.2): what to prefetch, how long to keep it, what to evict, batch after batch.

Batches are numbered 0, 1, 2, ... With lookahead L, batch b sees batches b..b + L. An id of batch b whose last use in
this window is later than b stays in the cache until then (its time to live); the others are evicted after batch b. An
id that isn't in the cache is prefetched. So an id that batch x prefetches was used by no batch in x - L..x - 1, and
a prefetch that starts after the updates of batch x - L are written back reads no stale row.

**When rows are held.** Prefetches start as early as this rule allows: those of batch b + L after batch b. While batch b
trains, the cache then holds the distinct ids of the L batches b..b + L - 1.

**Cache size.** Given a number of rows, L is found at start-up: batches are prefetched until the next one doesn't fit; L
is how many did. Later, where evicting after batch b and prefetching batch b + L would overflow the cache, L shrinks by
one instead, and batch b's evictions are those of the shorter window. One step is always enough, since the distinct ids
of b + 1..b + L - 1 are among those of b..b + L - 1. L never grows again.

The paper's Figure 5.5 counts the current batch into its lookahead of 2, its definition doesn't; L = 1 gives the figure.

**Time and memory.** Each batch enters and leaves the window once, each time in a constant number of array operations on
its distinct ids: the time doesn't depend on L. Memory grows with the distinct ids of the window's batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.ids.distinct import unique_ids
from gapless.encodings.bagpipe.ids.row_map import RowMap
from gapless.errors import InputError
from gapless.profiles.traces.trace import Block

__all__ = ["MOST_LOOKAHEAD", "Step", "lookahead_steps"]

MOST_LOOKAHEAD = 1000
"""The largest lookahead that is chosen for a cache, however large; the paper sees no gain beyond 200."""


@dataclass(frozen=True)
class Step:
    """What the lookahead decides for one batch. Arrays of shape (n,) speak of its n distinct ids.

    `batch`: its number, from 0. `examples`: in it. `lookahead`: L, after it shrank if it had to.
    `ids`: int64 (n,), global ids, ascending. `bounds`: int64 (tables + 1,), where each table's ids start and end.
    `rows`: int32 (n,), the cache row in which an id lies from its prefetch to its eviction; always below the most rows
    held at a time. `prefetched`: bool (n,), not in the cache before. `last_use`: int32 (n,), the last batch in
    b..b + L that uses the id. `in_next`: bool (n,), batch b + 1 uses the id.
    `prefetch_after`: the batch whose updates must be written back before the prefetches of this one start; -1 for none.
    `cache_rows`: rows held while the batch trains.
    """

    batch: int
    examples: int
    lookahead: int
    ids: NDArray[np.int64]
    bounds: NDArray[np.int64]
    rows: NDArray[np.int32]
    prefetched: NDArray[np.bool_]
    last_use: NDArray[np.int32]
    in_next: NDArray[np.bool_]
    prefetch_after: int
    cache_rows: int

    @property
    def evicted(self) -> NDArray[np.bool_]:
        """bool (n,): no later use in the window; the id leaves the cache after this batch."""
        return np.equal(self.last_use, self.batch)

    @property
    def prefetch_ids(self) -> NDArray[np.int64]:
        """The ids to fetch from the embedding servers."""
        return self.ids[self.prefetched]


def lookahead_steps(
    batches: Iterable[Block], lookahead: int | None = None, cache_rows: int | None = None
) -> Iterator[Step]:
    """The steps of a stream of batches (ids private to their table, shape (examples, tables)), in order.

    Runs ahead of its caller by L batches, no more. `lookahead`: L. `cache_rows`: how many rows the cache has; L is then
    what fits, at most `lookahead` or `MOST_LOOKAHEAD`. At least one of the two must be given.
    Raises `InputError` for a cache smaller than one batch, and for batches that are empty or differ in tables.
    """
    if lookahead is None and cache_rows is None:
        raise InputError("lookahead: needs a lookahead or a cache size in rows, got neither")
    for title, value in (("lookahead", lookahead), ("cache_rows", cache_rows)):
        if value is not None and value < 1:
            raise InputError(f"lookahead: {title} must be >= 1, got {value}")
    return _Window(batches, lookahead, cache_rows).steps()


@dataclass(frozen=True)
class _Batch:
    """A batch that has been looked at, but isn't in the window yet."""

    number: int
    examples: int
    ids: NDArray[np.int64]
    bounds: NDArray[np.int64]


@dataclass(frozen=True)
class _Held:
    """A batch in the window. Its ids aren't kept: they are what lies in its rows."""

    number: int
    examples: int
    bounds: NDArray[np.int64]
    rows: NDArray[np.int32]
    prefetched: NDArray[np.bool_]
    prefetch_after: int


class _Window:
    """The batches b..b + L - 1 and the rows of their ids; `last_use` of a row is its last batch in the window."""

    def __init__(self, batches: Iterable[Block], lookahead: int | None, cache_rows: int | None) -> None:
        self._coming = _looked_at(batches)
        self._chosen = lookahead is None
        self._lookahead = lookahead or MOST_LOOKAHEAD
        self._cache_rows = cache_rows
        self._map = RowMap()
        self._held: deque[_Held] = deque()
        self._next: _Batch | None = None

    def steps(self) -> Iterator[Step]:
        """Start up, then one step for each batch."""
        self._fill()
        if not self._held:
            raise InputError("lookahead: the trace must hold at least one batch, got none")
        while self._held:
            yield self._step()

    def _fill(self) -> None:
        """Prefetch until the cache is full or the window is as long as it may get."""
        while len(self._held) < self._lookahead and (batch := self._peek()) is not None:
            rows = self._map.find(batch.ids)
            if not self._fits(self._map.count + int(np.count_nonzero(rows < 0))):
                self._shrink(batch, len(self._held))
            else:
                self._map.last_use[rows[rows >= 0]] = batch.number
                self._enter(batch, rows, prefetch_after=-1)
        if self._chosen:
            self._lookahead = len(self._held)

    def _peek(self) -> _Batch | None:
        """The batch that comes into the window next; None at the end."""
        if self._next is None:
            self._next = next(self._coming, None)
        return self._next

    def _step(self) -> Step:
        head = self._held.popleft()
        number, rows, held_rows = head.number, head.rows, self._map.count
        coming = self._peek()
        coming_rows = None if coming is None else self._renewed(rows, number, coming)
        ids, last_use, in_next = self._map.leave(rows, number, self._following(coming_rows))
        if coming is not None and coming_rows is not None:
            self._enter(coming, coming_rows, number)
        return Step(
            batch=number, examples=head.examples, lookahead=self._lookahead, ids=ids, bounds=head.bounds, rows=rows,
            prefetched=head.prefetched, last_use=last_use, in_next=in_next, prefetch_after=head.prefetch_after,
            cache_rows=held_rows,
        )  # fmt: skip

    def _renewed(self, rows: NDArray[np.int32], number: int, coming: _Batch) -> NDArray[np.int32] | None:
        """Extend the life of rows that the coming batch uses; its rows, or None where it has to wait.

        It waits where the cache would overflow even once batch `number`, with these rows, is evicted: L shrinks then.
        """
        rows_of_coming = self._map.find(coming.ids)
        known = rows_of_coming[rows_of_coming >= 0]
        last_use = self._map.last_use
        if self._cache_rows is not None:
            expired = int(np.count_nonzero(last_use.take(rows) == number))
            revived = int(np.count_nonzero(last_use.take(known) == number))
            if not self._fits(self._map.count - expired + revived + len(rows_of_coming) - len(known)):
                self._shrink(coming, self._lookahead - 1)
                return None
        last_use[known] = coming.number
        return rows_of_coming

    def _following(self, coming_rows: NDArray[np.int32] | None) -> NDArray[np.int32]:
        """The rows that the batch after the head uses and that are held. `coming_rows`: of the next one to enter."""
        if self._held:
            return self._held[0].rows
        return np.empty(0, dtype=np.int32) if coming_rows is None else coming_rows[coming_rows >= 0]

    def _enter(self, batch: _Batch, rows: NDArray[np.int32], prefetch_after: int) -> None:
        """Take a batch into the window; `rows` are those that its ids have already, -1 for ids to prefetch."""
        prefetched = rows < 0
        rows[prefetched] = self._map.add(batch.ids[prefetched], batch.number)
        self._held.append(_Held(batch.number, batch.examples, batch.bounds, rows, prefetched, prefetch_after))
        self._next = None

    def _fits(self, rows: int) -> bool:
        return self._cache_rows is None or rows <= self._cache_rows

    def _shrink(self, batch: _Batch, lookahead: int) -> None:
        if lookahead < 1:
            raise InputError(
                f"lookahead: cache_rows must hold the distinct ids of a batch; batch {batch.number} has"
                f" {len(batch.ids)}, got {self._cache_rows}"
            )
        self._lookahead = lookahead


def _looked_at(batches: Iterable[Block]) -> Iterator[_Batch]:
    """Number the batches and find their distinct ids. Raises `InputError` for a batch of another shape."""
    tables = None
    for number, batch in enumerate(batches):
        if len(batch.shape) != 2 or 0 in batch.shape or batch.shape[1] != (tables or batch.shape[1]):
            rule = f"examples x {tables or 'tables'}, at least one of each"
            raise InputError(f"lookahead: batch {number} must be {rule}, got shape {batch.shape}")
        if not batch.size:
            raise InputError(f"lookahead: batch {number} must look up at least one id, all its bags are empty")
        tables = batch.shape[1]
        yield _Batch(number, len(batch), *unique_ids(batch))
