"""Descent: each node in turn takes its cheapest choice, with forbidden pairs and memory at prices that rise.

A plan to begin with. Where a round ends with forbidden pairs, their price rises; where it ends with too little room,
the price of a byte does at those time points. A plan that fits is then improved node by node, within the room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.methods import Found, ShardingSearch
from gapless.encodings.sharding.presolve.reduced import Reduced

__all__ = ["METHOD", "descent"]

METHOD = "descent"

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SWEEPS = 5
"""Of all nodes in a round, at most."""
_RISE = 1.6
"""Of the prices of forbidden pairs and of memory, from round to round."""


@dataclass
class _State:
    """Choices, with what presolve left in floating-point numbers. `shut_price`: of a forbidden pair."""

    left: Reduced
    choices: Ints
    prices: Floats
    shut_price: float
    tables: list[list[tuple[int, Floats, NDArray[np.bool_]]]] = field(default_factory=list)
    entries: list[slice] = field(default_factory=list)

    def __post_init__(self) -> None:
        left = self.left
        self.tables = [[] for _ in range(left.node_count)]
        for number, (first, second) in enumerate(left.ends.tolist()):
            table = left.factors.floats(left.table(number))
            shut = np.isinf(table)
            table = np.where(shut, 0.0, table)
            self.tables[first].append((second, table, shut))
            self.tables[second].append((first, table.T, shut.T))
        owner = np.searchsorted(left.starts, left.points.choice, side="right") - 1
        bounds = np.searchsorted(owner, np.arange(left.node_count + 1))
        self.entries = [slice(*pair) for pair in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]

    def costs(self, node: int) -> Floats:
        """What each choice of a node costs beside its neighbours' choices, with forbidden pairs at their price."""
        left = self.left
        total: Floats = left.float_costs[left.starts[node] : left.starts[node + 1]].copy()
        for other, table, shut in self.tables[node]:
            column = self.choices[other]
            total += table[:, column] + self.shut_price * shut[:, column]
        return total

    def memory_costs(self, node: int, summed: Floats) -> Floats:
        """What each choice's bytes cost; `summed`: prices of the points before each, float, shape (points + 1,)."""
        left, points, span = self.left, self.left.points, self.entries[node]
        priced = points.used[span] * (summed[points.end[span]] - summed[points.first[span]])
        local = points.choice[span] - left.starts[node]
        return np.bincount(local, weights=priced, minlength=int(left.sizes[node])).astype(np.float64)

    def sweep(self, order: Ints) -> bool:
        """Choose each node anew, in this order. Returns whether any choice has changed."""
        summed = np.concatenate([[0.0], np.cumsum(self.prices)])
        has_prices, has_changed = bool(summed[-1] > 0), False
        for node in order.tolist():
            total = self.costs(node)
            if has_prices:
                total += self.memory_costs(node, summed)
            best = int(total.argmin())
            if total[best] < total[self.choices[node]]:
                self.choices[node], has_changed = best, True
        return has_changed

    @property
    def slack(self) -> Ints:
        """Of each time point."""
        return self.left.points.slack(self.left.starts[:-1] + self.choices)

    @property
    def shut_count(self) -> int:
        """How many pairs are forbidden."""
        ends, sizes = self.left.ends, self.left.sizes
        first, second = self.choices[ends[:, 0]], self.choices[ends[:, 1]]
        place = self.left.table_starts[:-1] + first * sizes[ends[:, 1]] + second
        return int(np.isinf(self.left.float_tables[place]).sum())


def descent(search: ShardingSearch) -> Iterator[Found]:
    """Plans, from the first that fits to one that no single node improves."""
    left = search.left
    random = np.random.default_rng(search.options.seed)
    unit = _unit(left)
    start = np.zeros(left.node_count, dtype=np.int64) if search.choices is None else search.choices.copy()
    prices = np.zeros(len(left.points.room))
    if search.prices is not None:
        prices = search.prices.copy()
    state = _State(left, start, prices, 4 * unit)
    byte_price = unit / max(float(left.points.room.max(initial=1)), 1.0)
    for _ in range(search.parameters.descent_rounds):
        for _ in range(_SWEEPS):
            if search.is_over or not state.sweep(random.permutation(left.node_count)):
                break
        if search.is_over:
            return
        slack = state.slack
        is_short = slack < 0
        if state.shut_count:
            state.shut_price *= _RISE
        elif not is_short.any():
            yield Found(METHOD, state.choices)
            break
        if is_short.any():
            share = np.minimum(-slack[is_short] / np.maximum(left.points.room[is_short], 1), 1.0)
            state.prices[is_short] = _RISE * state.prices[is_short] + byte_price * (0.1 + share)
    else:
        return
    _tighten(state, search)
    yield Found(METHOD, state.choices)


def _unit(left: Reduced) -> float:
    """What a choice matters: the mean of what nodes and tables differ by."""
    nodes = [np.ptp(left.float_costs[start:end]) for start, end in zip(left.starts[:-1], left.starts[1:], strict=True)]
    open_costs = left.float_tables[np.isfinite(left.float_tables)]
    spread = float(open_costs.std()) if len(open_costs) else 0.0
    return max(float(np.mean(nodes)) if nodes else 0.0, spread, 1.0)


def _tighten(state: _State, search: ShardingSearch) -> None:
    """Improve a plan that fits by true costs, node by node, as long as it gets better, within the room."""
    left, points = state.left, state.left.points
    slack = state.slack
    state.shut_price = np.inf
    with np.errstate(invalid="ignore"):  # inf times False
        for _ in range(_SWEEPS):
            has_changed = False
            for node in range(left.node_count):
                if node % 256 == 0 and search.is_over:
                    return
                total = np.nan_to_num(state.costs(node), nan=0.0, posinf=np.inf)
                has_changed |= _moved(state, node, total, slack, points.used)
            if not has_changed:
                return


def _moved(state: _State, node: int, total: Floats, slack: Ints, used: Ints) -> bool:
    """Take the cheapest choice that fits, if it is cheaper; the slack follows."""
    now = int(state.choices[node])
    for choice in np.argsort(total, kind="stable").tolist():
        if not total[choice] < total[now]:
            return False
        change = _profile(state, node, choice) - _profile(state, node, now)
        if (slack >= change).all():
            slack -= change
            state.choices[node] = choice
            return True
    return False


def _profile(state: _State, node: int, choice: int) -> Ints:
    """What a choice uses at each time point, int64, shape (points,)."""
    points, span = state.left.points, state.entries[node]
    kept = points.choice[span] == state.left.starts[node] + choice
    change = np.zeros(len(points.room) + 1, dtype=np.int64)
    np.add.at(change, points.first[span][kept], points.used[span][kept])
    np.subtract.at(change, points.end[span][kept], points.used[span][kept])
    return np.asarray(change.cumsum()[:-1])
