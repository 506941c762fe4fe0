"""List scheduling: no clock is held twice, parents come first, grouping saves latencies, chance helps with ties."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.taccl.ordering.list_scheduling import Order, Rule, Table, list_schedule, orders_near

FIRSTS = ("longest from now", "shortest until now", "most left to do")
RULES = [Rule(first, back, most) for most in (1, 2, 9) for back in (False, True) for first in FIRSTS]  # type: ignore[arg-type]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    count = draw(st.integers(1, 12))
    rows = [st.lists(st.integers(0, row - 1), max_size=3 if row else 0, unique=True) for row in range(1, count)]
    needs = [(), *(tuple(draw(its)) for its in rows)]
    link = [draw(st.integers(0, 3)) for _ in range(count)]
    alpha_s = np.array([1.0, 2.0, 0.0, 3.0])[link]
    beta_s = np.array([1.0, 0.5, 2.0, 1.0])[link]
    clocks = [(4 + its % 2, its) if its < 3 else (its,) for its in link]
    return Table(needs, link, clocks, alpha_s, beta_s, np.array([its < 2 for its in link]))


@examples(60)
@given(table=tables(), rule=st.sampled_from(RULES))
def test_a_list_schedule_breaks_no_rule(table: Table, rule: Rule) -> None:
    timing = list_schedule(table, rule)
    for row, needs in enumerate(table.needs):
        assert all(timing.start_s[row] >= timing.end_s[first] - 1e-9 for first in needs)
    held: dict[int, set[tuple[float, float]]] = {}
    for row, clocks in enumerate(table.clocks):
        for clock in clocks:
            held.setdefault(clock, set()).add((timing.start_s[row], timing.end_s[row]))
    for spans in held.values():
        ordered = sorted(spans)
        assert all(one[1] <= other[0] + 1e-9 for one, other in pairwise(ordered))
    size = dict.fromkeys(zip(timing.start_s, table.link, strict=True), 0)
    for start_s, link in zip(timing.start_s, table.link, strict=True):
        size[start_s, link] += 1
    assert max(size.values()) <= rule.most
    for row, (start_s, link) in enumerate(zip(timing.start_s, table.link, strict=True)):
        taken_s = table.alpha_s[row] + table.beta_s[row] * size[start_s, link]
        assert timing.end_s[row] - start_s == pytest.approx(taken_s)


@pytest.mark.parametrize("backwards", [False, True])
def test_rows_on_one_link_share_a_latency(backwards: bool) -> None:
    table = Table([()] * 4, [0] * 4, [(0,)] * 4, np.full(4, 5.0), np.ones(4), np.ones(4, dtype=np.bool_))
    ends = [list_schedule(table, Rule("longest from now", backwards, most)).makespan_s for most in (1, 2, 4)]
    assert ends == [24.0, 14.0, 9.0]


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


def _by_rule(table: Table) -> Order:
    return list_schedule(table, Rule("longest from now"))


def _check(table: Table, timing: Order) -> None:
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
    _check(table, list_schedule(table, Rule("most left to do")))
    for timing in islice(orders_near(_by_rule(table), seed=0), 20):
        _check(table, timing)


def test_chance_spreads_what_ties_by_number_send_to_one_place() -> None:
    table = _star(7)
    best_s = min(timing.makespan_s for timing in islice(orders_near(_by_rule(table), seed=0), 100))
    assert _by_rule(table).makespan_s >= 9
    assert best_s <= 8  # six chunks into a leaf, the first of them after one hop: 7


def test_the_same_seed_gives_the_same_orders() -> None:
    table = _star(4)
    orders = [
        [timing.start_s.tolist() for timing in islice(orders_near(_by_rule(table), seed), 8)] for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]


def test_what_holds_the_busiest_clock_goes_first() -> None:
    """Clock 0 has three sends, one of them with clock 1, which has two: the one that holds both starts."""
    clocks = [(0,), (0,), (1,), (0, 1)]
    table = Table([()] * 4, [0, 0, 1, 2], clocks, np.zeros(4), np.ones(4), np.zeros(4, dtype=np.bool_))
    timing = list_schedule(table, Rule("most left to do"))
    assert timing.start_s[3] == 0.0
    assert timing.makespan_s == 3.0
