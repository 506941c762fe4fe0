"""Local search for the objectives beyond the paper's: a block of examples at a time is placed anew, exactly.

Take a random block of examples off their trainers. With the others where they are, the marginal cost of an example on
a trainer is the cost of those of its ids that nobody else there uses; the block goes where a transportation problem
with these costs and the freed places puts it. So every step moves many examples and none upsets the balance. The
examples of a block share ids too: an id that n of them use is fetched for example i alone where none of the other
n - 1 is, which at random has probability (1 - 1/p)^(n - 1), its weight. A step that makes things worse is taken back.

The start is the same step with all examples in the block. `search` is for fetches and the largest load, `search_cuts`
for what LRPP caches synchronise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Floats, Ints
from gapless.encodings.bagpipe.ids.loops import partition_loops
from gapless.encodings.bagpipe.parameters import Search
from gapless.encodings.bagpipe.partition.batch import Sharing, Traffic, add_uses, pair_costs, summed
from gapless.encodings.bagpipe.partition.cuts import Cuts
from gapless.encodings.bagpipe.partition.transport import placed, transport
from gapless.options import Deadline
from gapless.profiles.traces.bags import Bags, chosen, lookups

__all__ = [
    "Fetches",
    "MaxLoad",
    "Rates",
    "SearchState",
    "Searched",
    "Uses",
    "blocks",
    "place_all",
    "search",
    "search_cuts",
    "searched",
]

_UNIT_BITS = 6
"""Marginal costs are rounded to 1/64 of a row,"""
_FINER_BITS = 4
"""those of a single use to a sixteenth of that: sums of whole numbers are equal in any order."""


# -- the loop ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Searched:
    """The best partition found, what it costs, and how many rounds of how many were steps down or sideways.

    `is_cut`: whether the deadline came before the last round.
    """

    trainer: Ints
    cost: float
    rounds: int
    accepted: int
    is_cut: bool


class SearchState(Protocol):
    """A partition, as `trainer` says, out of which examples are taken and into which they are put, one trainer each."""

    trainer: Ints

    @property
    def prices(self) -> Ints | None:
        """Of trainers' places, from which blocks are placed; None for those of a sample."""

    @property
    def best(self) -> tuple[Ints, float]:
        """The best partition so far, and what it costs."""

    def take(self, examples: Ints, trainer: Ints) -> None: ...
    def put(self, examples: Ints, trainer: Ints) -> None: ...

    def costs(self, examples: Ints) -> NDArray[np.integer]:
        """What each of the examples that were taken adds on each trainer, in a small unit: examples x trainers."""

    def cost(self) -> float:
        """What the search descends along, with all examples put."""

    def keep(self) -> None:
        """The last step stays."""


def searched(state: SearchState, parameters: Search, seed: int, deadline: Deadline) -> Searched:
    """What rounds of blocks make of a partition, or what they have when time is up."""
    cost, done, accepted, is_cut = state.cost(), 0, 0, False
    for block in blocks(len(state.trainer), np.random.default_rng(seed), parameters):
        if deadline.over:
            is_cut = True
            break
        done += 1
        before = state.trainer[block]
        state.take(block, before)
        marginal = state.costs(block)
        after = placed(marginal, np.bincount(before, minlength=marginal.shape[1]), state.prices)
        state.put(block, after)
        if (now := state.cost()) > cost:
            state.take(block, after)
            state.put(block, before)
            continue
        state.trainer[block], cost = after, now
        state.keep()
        accepted += 1
    return Searched(*state.best, done, accepted, is_cut)


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


# -- fetches and the largest load --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """What a row costs its receiver and its sender, one rate per trainer each; a server sends for nothing."""

    receive: Floats
    send: Floats


class Fetches:
    """Fewest rows that reach a trainer, each id once per trainer and batch."""

    def value(self, traffic: Traffic) -> int:
        """All fetches."""
        return traffic.fetches

    def smooth(self, traffic: Traffic) -> float:
        """The same."""
        return float(traffic.fetches)

    def rates(self, traffic: Traffic) -> Rates:
        """1 a row for its receiver."""
        trainers = len(traffic.sent)
        return Rates(np.ones(trainers), np.zeros(trainers))


@dataclass(frozen=True)
class MaxLoad:
    """Fewest rows that the busiest trainer receives and sends. `power`: as `Search.load_power`."""

    power: int

    def value(self, traffic: Traffic) -> int:
        """The largest load."""
        return traffic.max_load

    def smooth(self, traffic: Traffic) -> float:
        """The norm of the loads to a high power."""
        largest = max(traffic.max_load, 1)
        return float(largest * ((traffic.load / largest) ** self.power).sum() ** (1 / self.power))

    def rates(self, traffic: Traffic) -> Rates:
        """Rows of busy trainers count most; the mean rate is 1."""
        share = (traffic.load / max(traffic.max_load, 1)) ** (self.power - 1) + 1e-3
        rate = share / share.mean()
        return Rates(rate, rate)


Objective: TypeAlias = Fetches | MaxLoad
"""What to make small: `value` counts in the end, the search descends along `smooth`, `rates` says how that grows."""


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
            added: NDArray[np.integer] = self._compiled.added_costs(
                self._index, examples, self._counts, self._taken, self._owner, rates.receive, rates.send, weight,
                self._per_id,
            )  # fmt: skip
        else:
            per_id = np.rint(self._pair_costs(rates) * weight[self._taken][:, None])
            per_id[self._counts > 0] = 0.0
            added = summed(per_id.astype(np.int32), sharing.index, examples)
        return (added + (1 << (_FINER_BITS - 1))) >> _FINER_BITS

    def _pair_costs(self, rates: Rates) -> Floats:
        """The cost of each id on each trainer at these rates, computed again only when they change."""
        if self._rates is None or not (
            np.array_equal(rates.receive, self._rates.receive) and np.array_equal(rates.send, self._rates.send)
        ):
            self._rates, self._pairs = rates, pair_costs(self._sharing.owner, rates.receive, rates.send)
        return self._pairs

    def _move(self, examples: Ints, trainer: Ints, times: int) -> None:
        if self._compiled is not None:
            self._compiled.move_uses(self._index, examples, trainer, times, self._owner, self._counts, self._moved)
        else:
            add_uses(self._sharing.index, self._counts, examples, trainer, times)


def search(
    sharing: Sharing, capacity: Ints, objective: Objective, starts: list[Ints], parameters: Search, seed: int,
    deadline: Deadline,
) -> Searched:  # fmt: skip
    """The best partition after all rounds, or when time is up; none of `starts` is better."""
    rates = objective.rates(Traffic(*(np.zeros(sharing.trainers, np.int64) for _ in range(3))))
    start = transport(Uses(sharing).costs(np.arange(sharing.examples), rates), capacity).trainer
    tried = [(trainer, sharing.traffic(trainer)) for trainer in [start, *starts]]
    first, _ = min(tried, key=lambda pair: objective.smooth(pair[1]))
    best, traffic = min(tried, key=lambda pair: objective.value(pair[1]))
    state = _FetchState(sharing, objective, first.copy(), (best, objective.value(traffic)))
    return searched(state, parameters, seed, deadline)


class _FetchState:
    """A partition with its uses, kept up to date."""

    prices = None

    def __init__(self, sharing: Sharing, objective: Objective, trainer: Ints, best: tuple[Ints, float]) -> None:
        self.trainer, self.best, self._objective = trainer, best, objective
        self._uses = Uses(sharing, trainer)
        self.take, self.put = self._uses.take, self._uses.put
        self._kept = self._now = self._uses.traffic

    def costs(self, examples: Ints) -> NDArray[np.integer]:
        return self._uses.costs(examples, self._objective.rates(self._kept))

    def cost(self) -> float:
        self._now = self._uses.traffic
        return self._objective.smooth(self._now)

    def keep(self) -> None:
        self._kept = self._now
        if (value := self._objective.value(self._now)) < self.best[1]:
            self.best = self.trainer.copy(), value


# -- what LRPP caches synchronise --------------------------------------------------------------------------------------


def place_all(cuts: Cuts, capacity: Ints) -> Ints:
    """All examples at once, each where its rows cost least if nobody shared them."""
    nobody = np.zeros((cuts.rows, cuts.trainers), np.int32)
    return transport(cuts.marginal_costs(np.arange(cuts.examples), nobody), capacity).trainer


def search_cuts(cuts: Cuts, start: Ints, parameters: Search, seed: int, deadline: Deadline) -> Searched:
    """What rounds of blocks make of a partition, or what they have when time is up; never worse."""
    return searched(_CutState(cuts, start.copy()), parameters, seed, deadline)


class _CutState:
    """A partition with the counts of its rows' uses, kept up to date."""

    prices = None

    def __init__(self, cuts: Cuts, trainer: Ints) -> None:
        self.trainer, self._cuts, self._counts = trainer, cuts, cuts.counts(trainer)

    @property
    def best(self) -> tuple[Ints, float]:
        """The last: no step is up."""
        return self.trainer, self.cost()

    def take(self, examples: Ints, trainer: Ints) -> None:
        add_uses(self._cuts.index, self._counts, examples, trainer, -1)

    def put(self, examples: Ints, trainer: Ints) -> None:
        add_uses(self._cuts.index, self._counts, examples, trainer, 1)

    def costs(self, examples: Ints) -> NDArray[np.integer]:
        return self._cuts.marginal_costs(examples, self._counts)

    def cost(self) -> float:
        return self._cuts.cost(self._counts)

    def keep(self) -> None: ...
