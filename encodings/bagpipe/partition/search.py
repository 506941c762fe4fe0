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

from gapless.encodings.bagpipe.parameters import Search
from gapless.encodings.bagpipe.partition.goals import Goal
from gapless.encodings.bagpipe.partition.sharing import Sharing, Traffic
from gapless.encodings.bagpipe.partition.transport import transport
from gapless.encodings.bagpipe.partition.uses import Uses
from gapless.options import Deadline

__all__ = ["Found", "blocks", "search"]

Ints = NDArray[np.int64]


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
    tried = [(trainer, sharing.traffic(trainer)) for trainer in [_place_all(sharing, capacity, goal), *starts]]
    first, _ = min(tried, key=lambda pair: goal.smooth(pair[1]))
    state = _State(sharing, goal, first.copy())
    best, best_traffic = min(tried, key=lambda pair: goal.value(pair[1]))
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
                yield np.sort(block)  # memory is read in order
                given += 1
        if examples // (2 * parts) >= parameters.smallest_block:
            parts *= 2


def _place_all(sharing: Sharing, capacity: Ints, goal: Goal) -> Ints:
    rates = goal.rates(Traffic(*(np.zeros(sharing.trainers, np.int64) for _ in range(3))))
    return transport(Uses(sharing).costs(np.arange(sharing.examples), rates), capacity).trainer


class _State:
    """A partition with its uses, kept up to date."""

    def __init__(self, sharing: Sharing, goal: Goal, trainer: Ints) -> None:
        self.goal, self.trainer, self.trainers = goal, trainer, sharing.trainers
        self.uses = Uses(sharing, trainer)
        self.traffic = self.uses.traffic
        self.smooth = goal.smooth(self.traffic)

    def place_anew(self, block: Ints) -> bool:
        """Place a block of examples where it costs least; whether that was no worse."""
        before = self.trainer[block]
        self.uses.take(block, before)
        marginal = self.uses.costs(block, self.goal.rates(self.traffic))
        after = transport(marginal, np.bincount(before, minlength=self.trainers)).trainer
        self.uses.put(block, after)
        traffic = self.uses.traffic
        smooth = self.goal.smooth(traffic)
        if smooth > self.smooth:
            self.uses.take(block, after)
            self.uses.put(block, before)
            return False
        self.trainer[block] = after
        self.traffic, self.smooth = traffic, smooth
        return True
