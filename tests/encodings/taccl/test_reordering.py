"""Other orders: every one keeps the rules, and chance finds what ties by number hide."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from gapless.encodings.taccl.list_scheduling import Rule, Table, Timing, dispatch
from gapless.encodings.taccl.reordering import order_by_load, reorderings

Floats = NDArray[np.float64]


def _star(leaves: int) -> Table:
    """A chunk from each leaf to each other one by way of the middle; clock k: out of leaf k, leaves + k: into it."""
    pairs = [(s, t) for s in range(leaves) for t in range(leaves) if s != t]
    needs: list[tuple[int, ...]] = []
    link, clocks = [], []
    for s, t in pairs:
        needs += [(), (len(needs),)]
        link += [s, leaves + t]
        clocks += [(s,), (leaves + t,)]
    ones = np.ones(len(needs))
    return Table(needs, link, clocks, 0.0 * ones, ones, np.zeros(len(needs), dtype=np.bool_))


def _orders(table: Table, seed: int) -> Iterator[Timing]:
    def forwards(given_s: Floats) -> Timing:
        return dispatch(table, given_s, Rule(1, backwards=False, longest_first=False))

    def backwards(given_s: Floats) -> Timing:
        return dispatch(table, given_s, Rule(1, backwards=True, longest_first=False))

    return reorderings(forwards, backwards, _by_rule(table), seed)


def _by_rule(table: Table) -> Timing:
    return dispatch(table, np.zeros(len(table)), Rule(1, backwards=False, longest_first=True))


def _check(table: Table, timing: Timing) -> None:
    start, end = timing.start_s, timing.end_s
    assert np.allclose(end - start, table.duration_s)
    for row, needs in enumerate(table.needs):
        assert all(end[first] <= start[row] + 1e-9 for first in needs)
    for clock in {clock for its in table.clocks for clock in its}:
        rows = sorted((row for row, its in enumerate(table.clocks) if clock in its), key=lambda row: start[row])
        assert all(end[one] <= start[other] + 1e-9 for one, other in pairwise(rows))


@pytest.mark.parametrize("leaves", [3, 5])
def test_every_order_keeps_the_rules(leaves: int) -> None:
    table = _star(leaves)
    _check(table, order_by_load(table))
    for timing in islice(_orders(table, seed=0), 20):
        _check(table, timing)


def test_chance_spreads_what_ties_by_number_send_to_one_place() -> None:
    table = _star(7)
    best_s = min(timing.makespan_s for timing in islice(_orders(table, seed=0), 100))
    assert _by_rule(table).makespan_s >= 9
    assert best_s <= 8  # six chunks into a leaf, the first of them after one hop: 7


def test_the_same_seed_gives_the_same_orders() -> None:
    table = _star(4)
    orders = [[timing.start_s.tolist() for timing in islice(_orders(table, seed), 8)] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_what_holds_the_busiest_clock_goes_first() -> None:
    """Clock 0 has three sends, one of them with clock 1, which has two: the one that holds both starts."""
    clocks = [(0,), (0,), (1,), (0, 1)]
    table = Table([()] * 4, [0, 0, 1, 2], clocks, np.zeros(4), np.ones(4), np.zeros(4, dtype=np.bool_))
    timing = order_by_load(table)
    assert timing.start_s[3] == 0.0
    assert timing.makespan_s == 3.0
