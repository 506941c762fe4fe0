"""Messages: costs passed from node to node, prices of memory by subgradients, and plans decoded from both.

At given prices, sequential message passing says how much dearer each choice makes everything else. A plan is decoded in
the same pass: each node against those before it, with messages for those after it. Prices then move towards what the
plan uses beyond the room, by Polyak's step to a target that comes nearer when the bound stops rising.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.methods import Found, ShardingSearch
from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.search.arrays import Arrays, arrays_of
from gapless.encodings.sharding.search.kernels import message_starts, sweep
from gapless.encodings.sharding.search.moves import Moves

__all__ = ["METHOD", "messages"]

METHOD = "messages"

Floats = NDArray[np.float64]

_FIRST_TARGET = 0.05
"""Above the best bound, as a share of the scale of costs."""
_LAST_TARGET = 1e-6
_NEARER = 0.6
"""What the target's distance is multiplied by."""
_PATIENCE = 15
"""Rounds without a better bound, until the target comes nearer."""
_SMOOTHING = 0.15
"""Of the direction of the round before, what is added."""
_DECODED = 25
"""Rounds from one improved plan to the next."""
_SHUFFLED = 1000
"""Nodes below which the order of messages is random; above it is that of the instance, which follows the model."""
_PASSES = 2
"""Eliminations of the whole graph that improve a decoded plan, before memory is looked at."""


@dataclass
class _Tuning:
    """Prices, messages, and the best of both so far. `bound` leaves the offset out."""

    arrays: Arrays
    order: Ints
    tables: Floats
    starts: Ints
    messages: Floats
    prices: Floats
    choices: Ints
    scale: float
    target: float
    bound: float = -math.inf
    kept: tuple[Floats, Floats] | None = None
    waited: int = 0

    def round(self, direction: Floats) -> Floats:
        """A sweep there and back, and a step of the prices. Returns the direction of the step."""
        costs, room = self.arrays.priced(self.prices), self.arrays.room
        sweep(self.arrays, self.order, costs, self.tables, self.starts, self.messages, self.choices)
        back = self.choices.copy()
        bound = sweep(self.arrays, self.order[::-1].copy(), costs, self.tables, self.starts, self.messages, back)
        bound -= float((self.prices * room).sum())
        if bound > self.bound + 1e-6 * abs(self.bound) or self.kept is None:
            self.bound, self.kept, self.waited = bound, (self.prices.copy(), self.messages.copy()), 0
        else:
            self.waited += 1
        if self.waited >= _PATIENCE:
            self.waited, self.target = 0, self.target * _NEARER
            self.prices, self.messages = self.kept[0].copy(), self.kept[1].copy()
        direction = _SMOOTHING * direction - self.arrays.slack(self.choices)
        moved = np.where((self.prices <= 0) & (direction < 0), 0.0, direction)
        length = float((moved * moved).sum())
        if length > 0:
            step = (self.bound + self.target * self.scale - bound) / length
            self.prices = np.maximum(self.prices + step * moved, 0.0)
        return direction


def messages(search: ShardingSearch) -> Iterator[Found]:
    """Plans, and `search.prices`."""
    arrays = arrays_of(search.left)
    random = np.random.default_rng(search.options.seed)
    moves = Moves(arrays, search.parameters.elimination_entries, random, lambda: search.is_over)
    tuning, direction = _start(search, arrays, random), np.zeros(len(arrays.room))
    for number in range(search.parameters.message_rounds):
        if search.is_over or tuning.target < _LAST_TARGET:
            break
        direction = tuning.round(direction)
        if number % _DECODED == _DECODED - 1:
            choices = tuning.choices
            for _ in range(_PASSES):
                choices = moves.cheapest(moves.whole(), tuning.prices, choices)
            best = math.inf if search.cost is None else float(search.cost - search.left.offset)
            found = moves.fitted(moves.whole(), tuning.prices, choices, best)
            if found is not None and found.cost < best:
                tuning.scale = max(found.cost, 1.0)
                yield Found(METHOD, found.choices)
    if tuning.kept is not None:
        search.prices = tuning.kept[0]


def _start(search: ShardingSearch, arrays: Arrays, random: np.random.Generator) -> _Tuning:
    starts = message_starts(arrays)
    finite = arrays.tables[np.isfinite(arrays.tables)]
    most = 10.0 * max(float(finite.max(initial=1.0)), float(arrays.costs.max(initial=1.0)))
    choices = np.zeros(arrays.node_count, dtype=np.int64) if search.choices is None else search.choices.copy()
    prices = np.zeros(len(arrays.room)) if search.prices is None else search.prices.copy()
    order = random.permutation(arrays.node_count) if arrays.node_count < _SHUFFLED else np.arange(arrays.node_count)
    return _Tuning(
        arrays, order, np.minimum(arrays.tables, most), starts, np.zeros(int(starts[-1])), prices, choices,
        max(arrays.cost(choices), 1.0), _FIRST_TARGET,
    )  # fmt: skip
