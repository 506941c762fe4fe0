"""Messages: costs passed from node to node, prices of memory by subgradients, and plans decoded from both.

At given prices, sequential message passing says how much dearer each choice makes everything else. A plan is decoded in
the same pass: each node against those before it, with messages for those after it. Prices then move towards what the
plan uses beyond the room, by Polyak's step to a target that comes nearer when the bound stops rising.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.methods import Found, ShardingSearch
from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.search.arrays import Arrays, arrays_of, ranges
from gapless.encodings.sharding.search.kernels import message_starts, sweep
from gapless.encodings.sharding.search.moves import Fitted, Moves

__all__ = ["LAST_TARGET", "METHOD", "SHUFFLED", "Pace", "Tuning", "messages", "tuning_of"]

METHOD = "messages"

Floats = NDArray[np.float64]

_FIRST_TARGET = 0.05
"""Above the best bound, as a share of it."""
LAST_TARGET = 1e-6
"""Where rounds stand still."""
_DECODED = 25
"""Rounds from one improved plan to the next."""
SHUFFLED = 1000
"""Nodes below which the order of messages is random; above it is that of the instance, which follows the model."""
_SHUT = 10.0
"""Times the most open cost, for forbidden pairs: with more, messages lose digits."""
_PASSES = 2
"""Eliminations of the whole graph that improve a decoded plan, before memory is looked at."""


@dataclass(frozen=True)
class Pace:
    """How prices move. After `patience` rounds without a bound that is better by `worth` of it, the target's distance
    is multiplied by `nearer`; `smoothing` of the direction of the round before is added to each. With `is_averaged`,
    prices step towards what the plans of both passes use, on average: nearer to a subgradient, as the bound is of both.
    """

    patience: int = 15
    nearer: float = 0.6
    smoothing: float = 0.15
    worth: float = 1e-6
    is_averaged: bool = False


@dataclass
class Tuning:
    """Prices, messages, and the best of both so far, with the order of the nodes that it was found in. `bound` leaves
    the offset out; `tables` are finite.
    """

    arrays: Arrays
    order: Ints
    tables: Floats
    starts: Ints
    messages: Floats
    prices: Floats
    choices: Ints
    target: float = _FIRST_TARGET
    bound: float = -math.inf
    kept: tuple[Floats, Floats] | None = None
    kept_order: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    waited: int = 0
    pace: Pace = Pace()

    def plans(self, moves: Moves, rounds: int, best: float = math.inf) -> Iterator[Fitted]:
        """Plans that cost less than `best`, each less than the one before, from so many rounds at most."""
        direction = np.zeros(len(self.prices))
        for number in range(rounds):
            if moves.is_over() or self.target < LAST_TARGET:
                return
            direction = self.round(direction)
            if number % _DECODED == _DECODED - 1:
                choices = self.choices
                for _ in range(_PASSES):
                    choices = moves.cheapest(moves.whole(), self.prices, choices)
                found = moves.fitted(moves.whole(), self.prices, choices, best)
                if found is not None and found.cost < best:
                    best = found.cost
                    yield found

    @property
    def best_prices(self) -> Floats:
        """Those of the best bound."""
        return self.prices if self.kept is None else self.kept[0]

    @property
    def dearness(self) -> Floats:
        """By how much each choice of a node is above its cheapest, float, shape (choices,), as far as messages say."""
        arrays, messages = self.arrays, self.messages if self.kept is None else self.kept[1]
        total = arrays.priced(self.best_prices)
        owner = np.repeat(np.arange(arrays.node_count), np.diff(arrays.slot_starts))
        counts = arrays.sizes[owner]
        np.add.at(total, np.repeat(arrays.starts[owner], counts) + ranges(counts), messages)
        above: Floats = total - np.repeat(np.minimum.reduceat(total, arrays.starts[:-1]), arrays.sizes)
        return above

    def round(self, direction: Floats) -> Floats:
        """A sweep there and back, and a step of the prices. Returns the direction of the step."""
        costs, room = self.arrays.priced(self.prices), self.arrays.room
        sweep(self.arrays, self.order, costs, self.tables, self.starts, self.messages, self.choices)
        back = self.choices.copy()
        bound = sweep(self.arrays, self.order[::-1].copy(), costs, self.tables, self.starts, self.messages, back)
        bound -= float((self.prices * room).sum())
        self.waited += 1
        if self.kept is None or bound > self.bound + self.pace.worth * abs(self.bound):
            self.waited = 0
        if self.kept is None or bound > self.bound + 1e-6 * abs(self.bound):
            self.bound, self.kept = bound, (self.prices.copy(), self.messages.copy())
            self.kept_order = self.order
        if self.waited >= self.pace.patience:
            self.waited, self.target = 0, self.target * self.pace.nearer
            self.prices, self.messages = self.kept[0].copy(), self.kept[1].copy()
        slack = self.arrays.slack(self.choices).astype(np.float64)
        if self.pace.is_averaged:
            slack = 0.5 * (slack + self.arrays.slack(back))
        direction = self.pace.smoothing * direction - slack
        moved = np.where((self.prices <= 0) & (direction < 0), 0.0, direction)
        length = float((moved * moved).sum())
        if length > 0:
            step = (self.bound + self.target * max(abs(self.bound), 1.0) - bound) / length
            self.prices = np.maximum(self.prices + step * moved, 0.0)
        return direction


def tuning_of(moves: Moves, choices: Ints, prices: Floats) -> Tuning:
    """Messages at nil, and prices to begin with."""
    arrays = moves.arrays
    starts = message_starts(arrays)
    open_costs = (row[row < arrays.shut] for row in (arrays.costs, arrays.tables))
    most = _SHUT * max(float(row.max(initial=1.0)) for row in open_costs)
    count, tables = arrays.node_count, np.minimum(arrays.tables, most)
    order = moves.random.permutation(count) if count < SHUFFLED else np.arange(count)
    return Tuning(arrays, order, tables, starts, np.zeros(int(starts[-1])), prices.copy(), choices.copy())


def messages(search: ShardingSearch) -> Iterator[Found]:
    """Plans, `search.prices` and `search.dearness`."""
    arrays = arrays_of(search.left)
    random = np.random.default_rng(search.options.seed)
    moves = Moves(arrays, search.parameters.elimination_entries, random, lambda: search.is_over)
    choices = np.zeros(arrays.node_count, dtype=np.int64) if search.choices is None else search.choices
    tuning = tuning_of(moves, choices, np.zeros(len(arrays.room)) if search.prices is None else search.prices)
    best = math.inf if search.cost is None else float(search.cost - search.left.offset)
    for found in tuning.plans(moves, search.parameters.message_rounds, best):
        yield Found(METHOD, found.choices)
    search.prices, search.dearness, search.tuning = tuning.best_prices, tuning.dearness, tuning
