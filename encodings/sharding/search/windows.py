"""Windows: parts of the best plan set anew, and the whole of it, each under prices that make memory suffice.

A window is exact but for memory and for the hubs that its elimination fixes. It begins at random: at a node, or at a
time point with little slack, with the nodes that use much there. Prices come from the messages, from the last plan that
was better, or are nil to begin with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.methods import Found, ShardingSearch
from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.search.arrays import arrays_of
from gapless.encodings.sharding.search.elimination import Elimination
from gapless.encodings.sharding.search.moves import Moves

__all__ = ["METHOD", "windows"]

METHOD = "windows"

Floats = NDArray[np.float64]

_AROUND_NODE = (40, 150, 600, 1500)
_AROUND_POINT = (60, 200, 600)
"""How many nodes windows have."""
_SHARES = (0.0, 0.3, 0.7, 1.0, 1.1)
"""Of the prices, with which a window begins."""


def windows(search: ShardingSearch) -> Iterator[Found]:
    """Plans, each cheaper than the one before."""
    arrays = arrays_of(search.left)
    random = np.random.default_rng([search.options.seed, 1])
    moves = Moves(arrays, search.parameters.elimination_entries, random, lambda: search.is_over)
    known = np.zeros(len(arrays.room)) if search.prices is None else search.prices
    choices = np.zeros(arrays.node_count, dtype=np.int64) if search.choices is None else search.choices
    slack, learned = arrays.slack(choices), known
    cost = math.inf if search.choices is None else arrays.cost(choices)
    for _ in range(search.parameters.windows_per_node * arrays.node_count):
        if search.is_over:
            return
        share = _SHARES[random.integers(len(_SHARES))]
        prices = (known if random.integers(2) else learned) * share
        found = moves.fitted(_window(moves, slack, math.isinf(cost)), prices, choices, cost)
        if found is None or found.cost > cost:
            continue
        if found.cost < cost:
            yield Found(METHOD, found.choices)
            if share > 0:
                learned = found.prices
        choices, cost, slack = found.choices, found.cost, arrays.slack(found.choices)


def _window(moves: Moves, slack: Ints, is_first: bool) -> Elimination:
    """One of the kinds of windows, by chance; the whole graph as long as no plan is known."""
    kind = int(moves.random.integers(1 + len(_AROUND_NODE) + len(_AROUND_POINT)))
    if kind == 0 or is_first:
        return moves.whole()
    if kind <= len(_AROUND_NODE):
        return moves.around_node(_AROUND_NODE[kind - 1])
    return moves.around_point(_AROUND_POINT[kind - 1 - len(_AROUND_NODE)], slack)
