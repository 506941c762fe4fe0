"""Windows: parts of the best plan set anew, and the whole of it, each under prices that make memory suffice.

A window is exact but for memory and for the hubs that its elimination fixes. It begins at random: at a node, or at a
time point with little slack, with the nodes that use much there. Or it is the whole graph with the likely choices only,
of which elimination can take far more nodes at once. Prices come from the messages, or from the last plan that was
better. Where windows no longer help, messages in another order make another plan, windows improve that, and then
choices of both plans are set together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.methods import Found, ShardingSearch
from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.search.arrays import arrays_of
from gapless.encodings.sharding.search.elimination import Elimination
from gapless.encodings.sharding.search.messages import SHUFFLED, tuning_of
from gapless.encodings.sharding.search.moves import Fitted, Moves

__all__ = ["METHOD", "windows"]

METHOD = "windows"

Floats = NDArray[np.float64]

_AROUND_NODE = (40, 150, 600, 1500)
_AROUND_POINT = (60, 200, 600)
"""How many nodes windows have."""
_SHARES = (0.0, 0.3, 0.7, 1.0, 1.1)
"""Of the prices, with which a window begins."""
_LIKELY = (1e-4, 3e-4, 1e-3, 3e-3)
"""What likely choices make everything dearer by, at most, as a share of the cost."""
_MOST_WINDOWS = 20_000
_STALE = 150
"""Windows without much gain, until another plan is made."""
_MUCH = 1e-5
"""As a share of the cost."""


@dataclass
class _Walk:
    """A plan that windows improve. `learned`: the prices of the last better plan; `bound`: what `prices` prove."""

    moves: Moves
    prices: Floats
    dearness: Floats
    choices: Ints
    cost: float
    slack: Ints
    learned: Floats
    bound: float = -math.inf

    def step(self) -> bool:
        """Set one window anew. Returns whether the plan is cheaper."""
        random, arrays = self.moves.random, self.moves.arrays
        share = _SHARES[random.integers(len(_SHARES))]
        prices = (self.prices if random.integers(2) else self.learned) * share
        kind = int(random.integers(2 + len(_AROUND_NODE) + len(_AROUND_POINT)))
        if kind == 1 and self.cost < arrays.shut:
            dearness = _LIKELY[random.integers(len(_LIKELY))] * max(self.cost, 1.0)
            found = self._among(self.dearness <= dearness, prices)
        else:
            found = self.moves.fitted(self._window(kind), prices, self.choices, self.cost)
        if found is None or found.cost > self.cost:
            return False
        is_cheaper = found.cost < self.cost
        if is_cheaper and share > 0:
            self.learned = found.prices
        self.choices, self.cost, self.slack = found.choices, found.cost, arrays.slack(found.choices)
        return is_cheaper

    def _window(self, kind: int) -> Elimination:
        if kind < 2 or self.cost >= self.moves.arrays.shut:
            return self.moves.whole()
        if kind < 2 + len(_AROUND_NODE):
            return self.moves.around_node(_AROUND_NODE[kind - 2])
        return self.moves.around_point(_AROUND_POINT[kind - 2 - len(_AROUND_NODE)], self.slack)

    def _among(self, is_kept: NDArray[np.bool_], prices: Floats) -> Fitted | None:
        """The whole graph with these choices, and those that the plan has."""
        is_kept[self.moves.arrays.starts[:-1] + self.choices] = True
        return self.moves.fitted_among(is_kept, prices, self.choices, self.cost)

    def mix(self, other: _Walk) -> None:
        """Take the cheaper of two plans and the better prices, and set the choices of both plans together."""
        beside = other.choices
        if other.cost < self.cost:
            beside = self.choices
            self.choices, self.cost, self.slack, self.learned = other.choices, other.cost, other.slack, other.learned
        if other.bound > self.bound:
            self.prices, self.dearness, self.bound = other.prices, other.dearness, other.bound
        for share in _SHARES[1:-1]:
            is_kept = self.dearness <= _LIKELY[0] * max(self.cost, 1.0)
            is_kept[self.moves.arrays.starts[:-1] + beside] = True
            found = self._among(is_kept, self.prices * share)
            if found is not None and found.cost < self.cost:
                self.choices, self.cost = found.choices, found.cost
                self.slack = self.moves.arrays.slack(found.choices)


def windows(search: ShardingSearch) -> Iterator[Found]:
    """Plans, each cheaper than the one before."""
    arrays = arrays_of(search.left)
    random = np.random.default_rng([search.options.seed, 1])
    moves = Moves(arrays, search.parameters.elimination_entries, random, lambda: search.is_over)
    prices = np.zeros(len(arrays.room)) if search.prices is None else search.prices
    dearness = np.zeros(len(arrays.costs)) if search.dearness is None else search.dearness
    choices = np.zeros(arrays.node_count, dtype=np.int64) if search.choices is None else search.choices
    best = walk = _walk(moves, choices, prices, dearness)
    waited, mark = 0, best.cost
    for _ in range(min(search.parameters.windows_per_node * arrays.node_count, _MOST_WINDOWS)):
        if search.is_over:
            return
        if walk.step() and walk.cost <= best.cost:
            yield Found(METHOD, walk.choices)
        waited += 1
        if walk.cost < mark * (1 - _MUCH):
            waited, mark = 0, walk.cost
        if waited == _STALE:
            if walk is best:
                walk = _another(moves, best.prices, search.parameters.message_rounds)
            else:
                best.mix(walk)
                yield Found(METHOD, best.choices)
                walk = best
            waited, mark = 0, walk.cost


def _walk(moves: Moves, choices: Ints, prices: Floats, dearness: Floats) -> _Walk:
    slack = moves.arrays.slack(choices)
    cost = moves.arrays.cost(choices) if not (slack < 0).any() else math.inf
    return _Walk(moves, prices, dearness, choices, cost, slack, prices)


def _another(moves: Moves, prices: Floats, rounds: int) -> _Walk:
    """A plan of messages in another order, from prices of nil; of a large instance, from the known ones."""
    arrays, random = moves.arrays, moves.random
    start = prices if arrays.node_count >= SHUFFLED else np.zeros(len(prices))
    tuning = tuning_of(moves, random.integers(0, arrays.sizes), start)
    choices = tuning.choices
    for found in tuning.plans(moves, rounds):
        choices = found.choices
    walk = _walk(moves, choices, tuning.best_prices, tuning.dearness)
    walk.bound = tuning.bound
    return walk
