"""Moves: many nodes set at once under prices of memory, prices raised until the plan fits, and what is left filled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.search.arrays import Arrays, restricted
from gapless.encodings.sharding.search.elimination import Elimination, elimination_of
from gapless.encodings.sharding.search.kernels import eliminate, settle
from gapless.encodings.sharding.search.profiles import Profiles, profiles_of

__all__ = ["Fitted", "Moves"]

Floats = NDArray[np.float64]

_FIRST_RISE = 0.003
"""Of prices where memory is exceeded: the share of the plan's cost that the first rise adds to it."""
_RISES = (1.4, 2.0, 3.0)
"""By how much each rise is more than the one before; one of these at random."""
_TRIES = 16
_HALVINGS = 3
"""Of the last rise, once a plan fits."""
_FAR = 1.5
"""Times the best cost: no plan this far above it is worth more rises."""
_FILLS = 6
_WHOLES = 12
"""Eliminations of the whole graph that are kept, with other hubs fixed in each."""
_MOST_NEIGHBOURS = 40
"""Of a hub, as many are looked at when a window grows over it."""
_FULLEST = 200
"""Time points with the least slack, of which one is where a window begins."""


@dataclass(frozen=True)
class Fitted:
    """A plan that fits, its cost, and the prices at which it did."""

    choices: Ints
    cost: float
    prices: Floats


class Moves:
    """What moves need: the arrays, random numbers, and eliminations with tables of at most so many entries."""

    def __init__(self, arrays: Arrays, entries: int, random: np.random.Generator, is_over: Callable[[], bool]) -> None:
        self.arrays, self.random, self.is_over = arrays, random, is_over
        self._entries = entries
        self._profiles: Profiles = profiles_of(arrays)
        self._wholes: list[Elimination] = []
        self._linked = np.flatnonzero(np.diff(arrays.slot_starts))
        owner = np.repeat(np.arange(arrays.node_count), arrays.sizes)
        self._entry_node = np.repeat(owner, np.diff(arrays.entry_starts))

    def whole(self) -> Elimination:
        """All nodes, but for some hubs."""
        if len(self._wholes) < _WHOLES:
            self._wholes.append(self._steps(range(self.arrays.node_count)))
            return self._wholes[-1]
        return self._wholes[self.random.integers(_WHOLES)]

    def around_node(self, size: int) -> Elimination:
        """So many nodes that are linked."""
        seeds = self._linked if len(self._linked) else np.arange(self.arrays.node_count)
        return self._steps(self._grown([int(seeds[self.random.integers(len(seeds))])], size))

    def around_point(self, size: int, slack: Ints) -> Elimination:
        """So many nodes: some that can use much at a time point with little slack, and some that are linked to them."""
        arrays, count = self.arrays, min(len(slack), _FULLEST)
        if not count:
            return self.around_node(size)
        fullest = np.argpartition(slack, count - 1)[:count]
        point = fullest[self.random.integers(count)]
        is_live = (arrays.first <= point) & (point < arrays.end)
        most = np.zeros(arrays.node_count)
        np.maximum.at(most, self._entry_node[is_live], arrays.used[is_live])
        keys = most * self.random.random(len(most))
        seeds = np.argsort(-keys, kind="stable")[: min(max(size // 3, 1), int((most > 0).sum()))]
        return self._steps(self._grown(seeds.tolist(), size)) if len(seeds) else self.around_node(size)

    def _steps(self, nodes: Sequence[int] | set[int] | range) -> Elimination:
        return elimination_of(self.arrays, nodes, self._entries, self.random)

    def _grown(self, nodes: list[int], size: int) -> set[int]:
        """Nodes, and neighbours of theirs at random, until there are so many."""
        starts, others, draw = self.arrays.slot_starts, self.arrays.other, self.random.integers
        found, edge = set(nodes), list(nodes)
        while edge and len(found) < size:
            place = int(draw(len(edge)))
            edge[place], edge[-1] = edge[-1], edge[place]
            node = edge.pop()
            beside = others[starts[node] : starts[node + 1]]
            if len(beside) > _MOST_NEIGHBOURS:
                beside = beside[draw(len(beside), size=_MOST_NEIGHBOURS)]
            for other in beside.tolist():
                if other not in found and len(found) < size:
                    found.add(other)
                    edge.append(other)
        return found

    def cheapest(self, steps: Elimination, prices: Floats, choices: Ints) -> Ints:
        """The choices that cost least with their bytes at these prices."""
        return eliminate(self.arrays, steps, self.arrays.priced(prices), choices)

    def filled(self, choices: Ints, slack: Ints) -> Ints:
        """A plan that fits, improved node by node by true costs within the slack, which follows."""
        found = choices.copy()
        for _ in range(_FILLS):
            if not settle(self.arrays, self._profiles, self.random.permutation(self.arrays.node_count), slack, found):
                break
        return found

    def fitted(self, steps: Elimination, prices: Floats, choices: Ints, best: float = math.inf) -> Fitted | None:
        """The cheapest plan that fits, found by raising prices where memory is exceeded; `best`: the cost to beat.

        Each rise is larger than the one before. Once a plan fits, the last rise is halved a few times, back and forth.
        """
        found, rise, halvings, size = None, np.zeros(len(prices)), 0, 0.0
        growth = _RISES[self.random.integers(len(_RISES))]
        for attempt in range(_TRIES):
            if self.is_over():
                break
            choices = self.cheapest(steps, prices, choices)
            slack = self.arrays.slack(choices)
            short = np.minimum(slack, 0).astype(np.float64)
            fits = not short.any()
            cost = self.arrays.cost(choices)
            if fits:
                plan = self.filled(choices, slack)
                cost = self.arrays.cost(plan)
                if found is None or cost < found.cost:
                    found = Fitted(plan, cost, prices)
            if fits or halvings:
                halvings += 1
                if halvings > _HALVINGS or not rise.any():
                    break
                rise = rise / 2
                prices = prices - rise if fits else prices + rise
            elif cost > _FAR * best:
                break
            else:
                size = _FIRST_RISE * max(cost, 1.0) if attempt == 0 else size * growth
                rise = -short * (size / float((short * short).sum()))
                prices = prices + rise
        return found

    def fitted_among(self, is_kept: NDArray[np.bool_], prices: Floats, choices: Ints, best: float) -> Fitted | None:
        """The same for the whole graph with some choices, bool, shape (choices,), those of the plan among them."""
        arrays, number = self.arrays, is_kept.cumsum() - 1
        narrow = restricted(arrays, is_kept)
        moves = Moves(narrow, self._entries, self.random, self.is_over)
        steps = moves._steps(np.flatnonzero(narrow.sizes > 1).tolist())
        found = moves.fitted(steps, prices, number[arrays.starts[:-1] + choices] - narrow.starts[:-1], best)
        if found is None:
            return None
        wide = np.flatnonzero(is_kept)[narrow.starts[:-1] + found.choices] - arrays.starts[:-1]
        return Fitted(wide, arrays.cost(wide), found.prices)
