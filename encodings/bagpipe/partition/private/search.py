"""Private rows: a search for the partition in which the fewest evicted rows have several users.

In the LRPP of the paper no partition changes how many rows are synchronised at once; what it changes is which rows one
trainer alone uses, which are then fetched and written back without synchronisation (the objective `synchronised`).
Only examples that use an evicted row which others use too matter: one in fifteen of a click log, so that the search
works on those, and the others stay in the contiguous partition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Floats, Ints, Mask
from gapless.encodings.bagpipe.ids.loops import private_loops
from gapless.encodings.bagpipe.parameters import Search
from gapless.encodings.bagpipe.partition.search import Searched, searched
from gapless.options import Deadline
from gapless.profiles.traces.bags import Bags, Lookups

__all__ = ["EvictedUses", "search_private"]

_UNIT = 128
"""Marginal costs are rounded to 1/128 of a row,"""
_FINER = 16
"""those of a single use to a sixteenth of that: sums of whole numbers are equal in any order."""


@dataclass(frozen=True)
class EvictedUses:
    """The uses of a batch's evicted rows that several examples use.

    `examples`: int64, which examples have some, ascending. `starts`: int64, one more, where each one's start in
    `rows`: int32, numbers of the rows from 0 to `count` - 1.
    """

    examples: Ints
    starts: Ints
    rows: NDArray[np.int32]
    count: int

    @classmethod
    def of(cls, index: Lookups, evicted: Mask) -> EvictedUses:
        """`index`: the places of the examples' rows, none twice in an example."""
        if not isinstance(index, Bags) and (compiled := private_loops(index.size)) is not None:
            return cls(*compiled.evicted_uses(index, evicted))
        flat = index.values if isinstance(index, Bags) else index.reshape(-1)
        uses = np.bincount(flat, minlength=len(evicted))
        is_shared = evicted & (uses > 1)
        number = np.cumsum(is_shared, dtype=np.int32) - np.int32(1)
        kept = np.flatnonzero(is_shared[flat])
        example = index.example[kept] if isinstance(index, Bags) else kept // index.shape[1]
        first = np.flatnonzero(np.diff(example, prepend=-1))
        return cls(
            example[first], np.append(first, len(kept)), number[flat[kept]], int(np.count_nonzero(is_shared))
        )  # fmt: skip


def search_private(
    index: Lookups, evicted: Mask, places: Ints, parameters: Search, seed: int, deadline: Deadline
) -> Searched:
    """What rounds of blocks make of the contiguous partition; never worse. `places`: of each trainer."""
    trainer = np.repeat(np.arange(len(places)), places)
    uses = EvictedUses.of(index, evicted)
    found = searched(_State(uses, len(places), trainer[uses.examples]), parameters, seed, deadline)
    trainer[uses.examples] = found.trainer
    return replace(found, trainer=trainer)


class _State:
    """A partition with the counts of its rows' uses, rows x trainers, kept up to date.

    Examples are numbered among those that have some. `prices`: none, as in `message_state.State`.
    """

    def __init__(self, uses: EvictedUses, trainers: int, trainer: Ints) -> None:
        self.trainer, self._uses, self._trainers = trainer, uses, trainers
        self.prices = np.zeros(trainers, dtype=np.int64)
        self._counts = np.zeros((uses.count, trainers), dtype=np.int32)
        self._compiled, self._cost = private_loops(len(uses.rows)), 0
        others = np.maximum(np.arange(int(np.bincount(uses.rows).max(initial=0)) + 1) - 1, 0)
        share: Floats = _UNIT * _FINER * (1.0 - 1.0 / trainers) ** others
        self._share = np.rint(share).astype(np.int32)
        self.put(np.arange(len(trainer)), trainer)

    @property
    def best(self) -> tuple[Ints, float]:
        """The last: no step is up."""
        return self.trainer, self.cost()

    def take(self, examples: Ints, trainer: Ints) -> None:
        """Take examples off these trainers, one each."""
        self._move(examples, trainer, -1)

    def put(self, examples: Ints, trainer: Ints) -> None:
        """Put all examples that were taken on these trainers, one each."""
        self._move(examples, trainer, 1)

    def costs(self, examples: Ints) -> NDArray[np.int32]:
        """What each of the examples that were taken adds on each trainer: a row is one more with several users where
        one other trainer uses it. Rows that several of them use count as in `search.Uses.costs`.
        """
        uses = self._uses
        if self._compiled is not None:
            costs: NDArray[np.int32] = self._compiled.marginal_costs(
                examples, uses.starts, uses.rows, self._counts, self._share, _FINER
            )
            return costs
        lengths, row = self._rows_of(examples)
        taken = np.bincount(row, minlength=uses.count)
        has = self._counts > 0
        per_row = np.where((has.sum(axis=1) == 1)[:, None] & ~has, self._share[taken][:, None], np.int32(0))
        starts = np.cumsum(lengths) - lengths
        return (np.add.reduceat(per_row[row], starts, axis=0, dtype=np.int32) + np.int32(_FINER // 2)) // _FINER

    def cost(self) -> float:
        """Rows that several trainers use."""
        if self._compiled is None:
            return float(np.count_nonzero(np.count_nonzero(self._counts, axis=1) > 1))
        return float(self._cost)

    def keep(self) -> None:
        """The last step stays."""

    def _rows_of(self, examples: Ints) -> tuple[Ints, NDArray[np.int32]]:
        """How many rows each example uses, at least one, and those."""
        starts = self._uses.starts
        lengths = starts[examples + 1] - starts[examples]
        moved = starts[examples] - (np.cumsum(lengths) - lengths)
        return lengths, self._uses.rows[np.arange(int(lengths.sum())) + np.repeat(moved, lengths)]

    def _move(self, examples: Ints, trainer: Ints, times: int) -> None:
        uses = self._uses
        if self._compiled is not None:
            self._cost += self._compiled.moved(examples, trainer, times, uses.starts, uses.rows, self._counts)
            return
        lengths, row = self._rows_of(examples)
        cells = row * np.int64(self._trainers) + np.repeat(trainer, lengths)
        np.add.at(self._counts.reshape(-1), cells, np.int32(times))
