"""Local search for the goals beyond the paper's: a block of examples at a time is placed anew, exactly.

Take a random block of examples off their trainers. With the others where they are, the marginal cost of an example on
a trainer is the cost of those of its ids that nobody else there uses; the block goes where a transportation problem
with these costs and the freed places puts it. So every step moves many examples and none upsets the balance. The
examples of a block share ids too: an id that n of them use is fetched for example i alone where none of the other
n - 1 is, which at random has probability (1 - 1/p)^(n - 1), its weight. A step that makes things worse is taken back.

The start is the same step with all examples in the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.goals import Goal, Rates
from gapless.encodings.bagpipe.parameters import Search
from gapless.encodings.bagpipe.sharing import Sharing, Traffic
from gapless.encodings.bagpipe.transport import transport
from gapless.options import Deadline
from gapless.profiles.traces.bags import chosen, lookups, sums

__all__ = ["Found", "blocks", "search"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_UNIT = 64
"""Marginal costs are rounded to 1/64 of a row."""

_MOST_AT_ONCE = 2**22
"""Costs of uses that are gathered at a time, so that memory doesn't grow with examples times tables times trainers."""


@dataclass(frozen=True)
class Found:
    """The best partition found, what moves in it, and how many rounds of how many were steps down or sideways.

    `is_cut`: whether the deadline came before the last round.
    """

    trainer: Ints
    traffic: Traffic
    rounds: int
    accepted: int
    is_cut: bool


def search(
    sharing: Sharing, capacity: Ints, goal: Goal, starts: list[Ints], parameters: Search, seed: int, deadline: Deadline
) -> Found:
    """The best partition after all rounds, or when time is up; none of `starts` is better."""
    all_at_once = _place_all(sharing, capacity, goal)
    first = min([all_at_once, *starts], key=lambda trainer: goal.smooth(sharing.traffic(trainer)))
    state = _State(sharing, goal, first.copy())
    best, best_traffic = min(
        ((trainer, sharing.traffic(trainer)) for trainer in [first, *starts]), key=lambda pair: goal.value(pair[1])
    )
    done = accepted = 0
    is_cut = False
    for block in blocks(sharing.examples, np.random.default_rng(seed), parameters):
        if deadline.over:
            is_cut = True
            break
        done += 1
        if not state.place_anew(block):
            continue
        accepted += 1
        if goal.value(state.traffic) < goal.value(best_traffic):
            best, best_traffic = state.trainer.copy(), state.traffic
    return Found(best, best_traffic, done, accepted, is_cut)


def blocks(examples: int, rng: np.random.Generator, parameters: Search) -> Iterator[Ints]:
    """Random disjoint blocks that cover the batch, twice over, then smaller ones."""
    parts, given = parameters.first_blocks, 0
    while given < parameters.rounds and examples > 1:
        for _ in range(2):
            for block in np.array_split(rng.permutation(examples), parts):
                if given == parameters.rounds:
                    return
                yield block
                given += 1
        if examples // (2 * parts) >= parameters.smallest_block:
            parts *= 2


def _place_all(sharing: Sharing, capacity: Ints, goal: Goal) -> Ints:
    nobody = np.zeros((sharing.ids, sharing.trainers), np.int32)
    idle = Traffic(*(np.zeros(sharing.trainers, np.int64) for _ in range(3)))
    rates = goal.rates(idle)
    marginal = _marginal_costs(sharing, np.arange(sharing.examples), nobody, sharing.uses, rates.of_pairs(sharing))
    return transport(marginal, capacity).trainer


def _marginal_costs(
    sharing: Sharing, block: Ints, others: NDArray[np.int32], uses: NDArray[np.integer], pairs: Floats
) -> NDArray[np.int32]:
    """What each example of the block adds on each trainer, in 1/64: block x trainers.

    `others`: the uses of each id on each trainer without the block's; `uses`: the block's own of each id.
    """
    alone = (1.0 - 1.0 / sharing.trainers) ** np.maximum(uses - 1, 0)
    per_id = np.where(others == 0, pairs * (_UNIT * alone)[:, None], 0.0).astype(np.float32)
    marginal = np.empty((len(block), sharing.trainers), np.int32)
    at_once = max(1, _MOST_AT_ONCE * sharing.examples // max(1, sharing.index.size * sharing.trainers))
    for first in range(0, len(block), at_once):
        uses_of = chosen(sharing.index, block[first : first + at_once])
        marginal[first : first + at_once] = np.rint(sums(per_id, uses_of))
    return marginal


class _State:
    """A partition with the counts of its uses, kept up to date."""

    def __init__(self, sharing: Sharing, goal: Goal, trainer: Ints) -> None:
        self.sharing, self.goal, self.trainer = sharing, goal, trainer
        self.counts = sharing.counts(trainer)
        self.traffic = sharing.traffic_of(sharing.is_fetched(self.counts))
        self.smooth = goal.smooth(self.traffic)
        self._rates: Rates | None = None
        self._pairs = np.empty((0, 0))

    def place_anew(self, block: Ints) -> bool:
        """Place a block of examples where it costs least; whether that was no worse."""
        sharing, counts, before = self.sharing, self.counts, self.trainer[block]
        sharing.add_uses(counts, block, before, -1)
        own = np.bincount(lookups(chosen(sharing.index, block))[1], minlength=sharing.ids)
        marginal = _marginal_costs(sharing, block, counts, own, self._pair_costs())
        after = transport(marginal, np.bincount(before, minlength=sharing.trainers)).trainer
        sharing.add_uses(counts, block, after, 1)
        traffic = sharing.traffic_of(sharing.is_fetched(counts))
        smooth = self.goal.smooth(traffic)
        if smooth > self.smooth:
            sharing.add_uses(counts, block, after, -1)
            sharing.add_uses(counts, block, before, 1)
            return False
        self.trainer[block] = after
        self.traffic, self.smooth = traffic, smooth
        return True

    def _pair_costs(self) -> Floats:
        """The cost of each id on each trainer at the current rates, computed again only when they change."""
        rates = self.goal.rates(self.traffic)
        if self._rates is None or not (
            np.array_equal(rates.receive, self._rates.receive) and np.array_equal(rates.send, self._rates.send)
        ):
            self._rates, self._pairs = rates, rates.of_pairs(self.sharing)
        return self._pairs
