"""Cuts: what a partition of a batch costs the cache of an LRPP design.

The rows of a batch are the edges of a hypergraph on its examples. A row is *cut* where several trainers use it; with
rooted rows (`roots.py`) it is cut too where its users aren't the one trainer that used it in the batch before, its
terminal, or will alone use it in the batch after. So with u(e) the trainers that use row e, a partition costs

    sum over e of  away(e) [u(e) is not {terminal(e)}]  for each of the two terminals
                 + split(e) [|u(e)| > 1]
                 + copy(e) |u(e) without the root of e|

In the field's terms, cut-net with fixed vertices, and connectivity. `away` counts rows that are synchronised at once;
`split` is what it is worth to the next batch that a row has one user now; `copy` counts messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.partition.sharing import uses_by_trainer
from gapless.profiles.traces.bags import Lookups, cells, chosen, lookups, sums

__all__ = ["Cuts", "Floats", "Ints", "Mask", "Terminal"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_UNIT = 128
"""Marginal costs are rounded to 1/128 of a row."""

_MOST_AT_ONCE = 2**22
"""Costs of uses that are gathered at a time, so that memory doesn't grow with examples times tables times trainers."""


@dataclass(frozen=True)
class Terminal:
    """For n rows the one trainer that used or will use them, int64, -1 for none; and what a row costs that is cut."""

    trainer: Ints
    away: float

    def cut(self, has: Mask, users: NDArray[np.integer]) -> Mask:
        """Rows that are cut. `has`: bool (n, p), who uses them; `users`: how many those are."""
        at_terminal = has[np.arange(len(has)), np.maximum(self.trainer, 0)]
        found: Mask = (self.trainer >= 0) & ~((users == 1) & at_terminal)
        return found


@dataclass(frozen=True)
class Cuts:
    """A batch of n rows and what its partitions cost.

    `index`: the places of the examples' rows, no row twice in an example. `terminals`: in the batches before and after,
    where they count. `split`, `copy`: float64 (n,). `root`: int64 (n,), who needs no copy, -1 for nobody.
    """

    index: Lookups
    trainers: int
    terminals: tuple[Terminal, ...]
    split: Floats
    copy: Floats
    root: Ints

    @property
    def examples(self) -> int:
        """The number of examples."""
        return len(self.index)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.root)

    def counts(self, trainer: Ints) -> NDArray[np.int32]:
        """How often each trainer's examples use each row, (n, p)."""
        return np.ascontiguousarray(uses_by_trainer(self.index, trainer, self.rows, self.trainers).T)

    def add_uses(self, counts: NDArray[np.int32], examples: Ints, trainer: Ints, times: int) -> None:
        """Add `times` the uses of the examples, on these trainers, to the counts."""
        np.add.at(counts.reshape(-1), cells(chosen(self.index, examples), trainer, self.trainers), np.int32(times))

    def cost(self, counts: NDArray[np.int32]) -> float:
        """What a partition with these counts costs."""
        has = counts > 0
        users = has.sum(axis=1)
        others = users - (has[np.arange(self.rows), np.maximum(self.root, 0)] & (self.root >= 0))
        cut = sum(terminal.away * np.count_nonzero(terminal.cut(has, users)) for terminal in self.terminals)
        return float(cut + self.split[users > 1].sum() + (self.copy * others).sum())

    def marginal_costs(self, block: Ints, others: NDArray[np.int32]) -> NDArray[np.int32]:
        """What each example of a block adds on each trainer, in 1/128 of a row: block x trainers.

        `others`: the counts without the block's. An id that n examples of the block use is charged to each of them by
        what it costs alone, with weight (1 - 1/p)^(n - 1), as in `search.py`.
        """
        own = np.bincount(lookups(chosen(self.index, block))[1], minlength=self.rows)
        per_row = self._marginal_rows(others)
        per_row *= (_UNIT * (1.0 - 1.0 / self.trainers) ** np.maximum(own - 1, 0)).astype(np.float32)[:, None]
        marginal = np.empty((len(block), self.trainers), np.int32)
        at_once = max(1, _MOST_AT_ONCE * self.examples // max(1, self.index.size * self.trainers))
        for first in range(0, len(block), at_once):
            part = chosen(self.index, block[first : first + at_once])
            marginal[first : first + at_once] = np.rint(sums(per_row, part))
        return marginal

    def _marginal_rows(self, others: NDArray[np.int32]) -> NDArray[np.float32]:
        """What it costs that one more trainer uses a row, (n, p)."""
        has, every = others > 0, np.arange(self.rows)
        users = has.sum(axis=1)
        cost = np.empty(has.shape, np.float32)
        cost[:] = (np.where(users == 1, self.split, 0.0) + self.copy)[:, None]
        rooted = np.flatnonzero(self.root >= 0)
        cost[rooted, self.root[rooted]] -= self.copy[rooted].astype(np.float32)
        for terminal in self.terminals:
            at_terminal = has[every, np.maximum(terminal.trainer, 0)]
            whole = np.flatnonzero((terminal.trainer >= 0) & ((users == 0) | ((users == 1) & at_terminal)))
            cost[whole] += np.float32(terminal.away)
            cost[whole, terminal.trainer[whole]] -= np.float32(terminal.away)
        cost[has] = 0.0
        return cost
