"""Uses: how often each trainer uses each id in a partition that changes, block by block, and what moves then."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.ids.loops import partition_loops
from gapless.encodings.bagpipe.partition.goals import Rates
from gapless.encodings.bagpipe.partition.sharing import Sharing, Traffic
from gapless.profiles.traces.bags import Bags, chosen, lookups, sums

__all__ = ["Uses"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_UNIT_BITS = 6
"""Marginal costs are rounded to 1/64 of a row,"""
_FINER_BITS = 4
"""those of a single use to a sixteenth of that: sums of whole numbers are equal in any order."""

_MOST_AT_ONCE = 2**22
"""Costs of uses that are gathered at a time, so that memory doesn't grow with examples times tables times trainers."""


class Uses:
    """The counts of the uses, ids x trainers, of all examples but those that were taken off their trainers.

    `trainer`: of each example; None for no example on any trainer.
    """

    def __init__(self, sharing: Sharing, trainer: Ints | None = None) -> None:
        self._sharing = sharing
        if trainer is None:
            self._counts = np.zeros((sharing.ids, sharing.trainers), np.int32)
            self._taken = sharing.uses.astype(np.int32)
        else:
            self._counts = sharing.counts(trainer)
            self._taken = np.zeros(sharing.ids, np.int32)
        self._compiled = None if isinstance(sharing.index, Bags) else partition_loops(sharing.index.size)
        if self._compiled is not None:
            self._index, self._owner = np.asfortranarray(sharing.index), sharing.owner.astype(np.int32)
            self._per_id = np.empty_like(self._counts)
        self._moved = sharing.moved(sharing.is_fetched(self._counts))
        self._rates: Rates | None = None
        self._pairs = np.empty((0, 0))

    @property
    def traffic(self) -> Traffic:
        """What moves."""
        if self._compiled is None:
            self._moved = self._sharing.moved(self._sharing.is_fetched(self._counts))
        return Traffic.of_moved(self._moved)

    def take(self, examples: Ints, trainer: Ints) -> None:
        """Take examples off these trainers, one each."""
        self._move(examples, trainer, -1)
        if self._compiled is not None:
            self._compiled.count_uses(self._index, examples, self._taken)
        else:
            ids = lookups(chosen(self._sharing.index, examples))[1]
            self._taken += np.bincount(ids, minlength=self._sharing.ids).astype(np.int32)

    def put(self, examples: Ints, trainer: Ints) -> None:
        """Put all examples that were taken on these trainers, one each."""
        self._move(examples, trainer, 1)
        self._taken[:] = 0

    def costs(self, examples: Ints, rates: Rates) -> NDArray[np.integer]:
        """What each of the examples that were taken adds on each trainer at these rates, in 1/64: examples x trainers.

        An id that n of them use is fetched for one alone where none of the other n - 1 is, which at random has the
        probability (1 - 1/p)^(n - 1), its weight.
        """
        sharing = self._sharing
        others = np.maximum(np.arange(int(self._taken.max(initial=0)) + 1) - 1, 0)
        weight = 2.0 ** (_UNIT_BITS + _FINER_BITS) * (1.0 - 1.0 / sharing.trainers) ** others
        if self._compiled is not None:
            found: NDArray[np.integer] = self._compiled.added_costs(
                self._index, examples, self._counts, self._taken, self._owner, rates.receive, rates.send, weight,
                self._per_id,
            )  # fmt: skip
        else:
            per_id = np.rint(self._pair_costs(rates) * weight[self._taken][:, None])
            per_id[self._counts > 0] = 0.0
            found = self._added_up(per_id.astype(np.int32), examples)
        return (found + (1 << (_FINER_BITS - 1))) >> _FINER_BITS

    def _added_up(self, per_id: NDArray[np.int32], examples: Ints) -> NDArray[np.int32]:
        sharing = self._sharing
        found = np.empty((len(examples), sharing.trainers), np.int32)
        at_once = max(1, _MOST_AT_ONCE * sharing.examples // max(1, sharing.index.size * sharing.trainers))
        for first in range(0, len(examples), at_once):
            found[first : first + at_once] = sums(per_id, chosen(sharing.index, examples[first : first + at_once]))
        return found

    def _pair_costs(self, rates: Rates) -> Floats:
        """The cost of each id on each trainer at these rates, computed again only when they change."""
        if self._rates is None or not (
            np.array_equal(rates.receive, self._rates.receive) and np.array_equal(rates.send, self._rates.send)
        ):
            self._rates, self._pairs = rates, rates.of_pairs(self._sharing)
        return self._pairs

    def _move(self, examples: Ints, trainer: Ints, times: int) -> None:
        if self._compiled is not None:
            self._compiled.move_uses(self._index, examples, trainer, times, self._owner, self._counts, self._moved)
        else:
            self._sharing.add_uses(self._counts, examples, trainer, times)
