"""The state of the search for the objective `time`: who uses the rows that a partition can still share.

Of a batch's rows most count alike in all partitions. One that a single example uses costs the same beside any others:
a number an example and trainer. One that very many use is on every trainer, unless its examples stand together, which
shows where the batch is cut into runs. What is left, a fifth of the lookups of a click log, is kept by example, with
the counts of each row's uses, so that a block that moves changes what it uses and no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Floats, Ints, Mask
from gapless.encodings.bagpipe.ids.loops import message_loops
from gapless.profiles.traces.bags import Bags, Lookups, lookups

__all__ = ["SharedUses", "State"]

_EVERYWHERE = 8
"""Uses a trainer from which on a row is on every trainer at random: of 8, it misses one of them once in 600 rows."""
_FINER = 16
"""Of what one use costs, so that sums of whole numbers are equal in any order."""

Rows = NDArray[np.int32]


@dataclass(frozen=True)
class SharedUses:
    """The uses of a batch of n examples for p trainers, as far as what they cost depends on the partition.

    `alone`: int32 (n, p), what the rows that an example alone uses cost on a trainer. `starts`: int64 (n + 1,), where
    the examples' other uses start in `shared`, int32, numbers of rows. `weight`: int32, of each of those rows: what one
    more trainer costs; on its `root`, -1 for none, it costs nothing. `contiguous_cost`: what the batch cut into runs
    costs; `contiguous_users`, `contiguous_at_root`: then, of all rows, how many trainers use them, and whether the root
    does.
    """

    alone: Rows
    starts: Ints
    shared: Rows
    weight: Rows
    root: Ints
    contiguous_cost: int
    contiguous_users: Rows
    contiguous_at_root: Mask

    @classmethod
    def of(cls, index: Lookups, places: Ints, weight: Ints, root: Ints) -> SharedUses:
        """`index`: the places of the examples' rows, none twice in an example. `weight`, `root`: int64, by row."""
        most, ends = _EVERYWHERE * len(places), np.cumsum(places)
        compiled = None if isinstance(index, Bags) else message_loops(index.size)
        count = _uses_and_users if compiled is None else compiled.uses_and_users
        uses, users, at_root = count(index, ends, root, len(weight))
        is_kept = (uses > 1) & ((uses < most) | (users < len(places)))
        kept = np.flatnonzero(is_kept)
        number = np.full(len(weight), -1, dtype=np.int32)
        number[kept] = np.arange(len(kept), dtype=np.int32)
        divide, weights = _divided if compiled is None else compiled.divided, weight.astype(np.int32)
        alone, starts, shared = divide(index, uses, number, weights, root, len(places))
        counted = np.flatnonzero(is_kept | (uses == 1))
        cost = int((users - at_root)[counted] @ weight[counted])
        return cls(alone, starts, shared, weights[kept], root[kept], cost, users, at_root)

    @cached_property
    def times(self) -> Rows:
        """How many examples use each row that is shared."""
        return np.bincount(self.shared, minlength=len(self.weight)).astype(np.int32)

    @cached_property
    def share(self) -> Floats:
        """How likely a use among so many of a block is the only one on its trainer, in sixteenths."""
        others = np.maximum(np.arange(int(self.times.max(initial=0)) + 1) - 1, 0)
        share: Floats = _FINER * (1.0 - 1.0 / self.trainers) ** others
        return share

    @property
    def examples(self) -> int:
        """n."""
        return len(self.alone)

    @property
    def trainers(self) -> int:
        """p."""
        return int(self.alone.shape[1])


def _uses_and_users(index: Lookups, ends: Ints, root: Ints, rows: int) -> tuple[Rows, Rows, Mask]:
    """How many uses each row has; how many trainers use it where runs of examples end so, and whether its root does."""
    example, row = lookups(index)
    uses = np.bincount(row, minlength=rows).astype(np.int32)
    trainers = len(ends)
    trainer = np.repeat(np.arange(trainers), np.diff(ends, prepend=0))
    cells = np.bincount(row.astype(np.int64) * trainers + trainer[example], minlength=rows * trainers)
    counts = cells.reshape(rows, trainers)
    at_root = (counts[np.arange(rows), np.maximum(root, 0)] > 0) & (root >= 0)
    return uses, np.count_nonzero(counts, axis=1).astype(np.int32), at_root


def _divided(
    index: Lookups, uses: Rows, number: Rows, weight: Rows, root: Ints, trainers: int
) -> tuple[Rows, Ints, Rows]:  # fmt: skip
    """`alone`, `starts` and `shared`. `number`: of the rows that are shared, -1 for the others."""
    example, row = lookups(index)
    examples = len(index)
    single = np.flatnonzero(uses[row] == 1)
    who, what = example[single], row[single]
    total = np.bincount(who, weight[what], examples)
    held = np.flatnonzero(root[what] >= 0)
    own = np.bincount(who[held] * trainers + root[what[held]], weight[what[held]], examples * trainers)
    shared = number[row]
    is_shared = np.flatnonzero(shared >= 0)
    starts = np.zeros(examples + 1, dtype=np.int64)
    np.cumsum(np.bincount(example[is_shared], minlength=examples), out=starts[1:])
    return (total[:, None] - own.reshape(examples, trainers)).astype(np.int32), starts, shared[is_shared]


class State:
    """A partition with the counts of its rows' uses, kept up to date; None for no example on any trainer.

    A row is used once more on its root, so that it costs nothing there. `prices`: none, since the places of a block are
    where its examples cost little already: a fifth of the steps that prices of a sample lead to.
    """

    def __init__(self, uses: SharedUses, trainer: Ints | None = None) -> None:
        self._uses, rows = uses, len(uses.weight)
        self._compiled = message_loops(len(uses.shared))
        order: Literal["C", "F"] = "C" if self._compiled else "F"
        self._counts = np.zeros((rows, uses.trainers), dtype=np.int32, order=order)
        held = np.flatnonzero(uses.root >= 0)
        self._counts[held, uses.root[held]] = 1
        self._share = uses.share
        self._cost = self._cost_alone = 0
        self.trainer, self.prices = np.empty(0, dtype=np.int64), np.zeros(uses.trainers, dtype=np.int64)
        if trainer is not None:
            self.put(np.arange(uses.examples), trainer)
            self.trainer = trainer.copy()

    @property
    def best(self) -> tuple[Ints, float]:
        """The last: no step is up."""
        return self.trainer, self._cost

    def take(self, examples: Ints, trainer: Ints) -> None:
        """Take examples off these trainers, one each."""
        self._move(examples, trainer, -1)

    def put(self, examples: Ints, trainer: Ints) -> None:
        """Put all examples that were taken on these trainers, one each."""
        self._move(examples, trainer, 1)

    def costs(self, examples: Ints) -> Rows:
        """What each of the examples that were taken adds on each trainer: examples x trainers. Rows that several of
        them use count as in `search.Uses.costs`.
        """
        uses = self._uses
        if self._compiled is not None:
            costs: Rows = self._compiled.marginal_costs(
                examples, uses.alone, uses.starts, uses.shared, self._counts, uses.weight, self._share, _FINER
            )
            return costs
        counts, row = self._shared(examples)
        taken = np.bincount(row, minlength=len(uses.weight))
        per_row = np.rint(uses.weight * self._share[taken]).astype(np.int32)
        some = np.flatnonzero(counts)
        first = (np.cumsum(counts) - counts)[some]
        added = np.full((uses.trainers, len(examples)), _FINER // 2, dtype=np.int32)
        for trainer, times in enumerate(self._counts.T if len(row) else ()):
            added[trainer, some] += np.add.reduceat(np.where(times > 0, np.int32(0), per_row)[row], first)
        added //= _FINER
        return uses.alone[examples] + added.T

    def cost(self) -> float:
        """What the search descends along, with all examples put, but for what is the same in all partitions."""
        return float(self._cost)

    def keep(self) -> None:
        """The last step stays."""

    def _shared(self, examples: Ints) -> tuple[Ints, Rows]:
        """How many shared rows each example uses, and those."""
        starts = self._uses.starts
        counts = starts[examples + 1] - starts[examples]
        before = np.cumsum(counts) - counts
        places = np.arange(counts.sum()) + np.repeat(starts[examples] - before, counts)
        return counts, self._uses.shared[places]

    def _move(self, examples: Ints, trainer: Ints, times: int) -> None:
        uses = self._uses
        if self._compiled is not None:
            self._cost += self._compiled.moved(
                examples, trainer, times, uses.alone, uses.starts, uses.shared, uses.weight, self._counts
            )
            return
        counts, row = self._shared(examples)
        flat = self._counts.T.reshape(-1)  # a view: trainer by trainer
        np.add.at(flat, np.repeat(trainer * len(uses.weight), counts) + row, np.int32(times))
        self._cost_alone += times * int(uses.alone[examples, trainer].sum())
        users = sum((times > 0 for times in self._counts.T), np.zeros(len(uses.weight), np.int64)) - (uses.root >= 0)
        self._cost = self._cost_alone + int(uses.weight @ users)
