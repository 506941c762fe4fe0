"""Dispatch: no clock is held twice, parents come first, and grouping saves latencies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.encodings.taccl.list_scheduling import Rule, Table, dispatch

RULES = [Rule(most, back, far) for most in (1, 2, 9) for back in (False, True) for far in (False, True)]


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


@settings(max_examples=60, deadline=None)
@given(table=tables(), rule=st.sampled_from(RULES))
def test_a_dispatch_breaks_no_rule(table: Table, rule: Rule) -> None:
    timing = dispatch(table, np.zeros(len(table)), rule)
    for row, needs in enumerate(table.needs):
        assert all(timing.start_s[row] >= timing.end_s[first] - 1e-9 for first in needs)
    held: dict[int, set[tuple[float, float]]] = {}
    for row, clocks in enumerate(table.clocks):
        for clock in clocks:
            held.setdefault(clock, set()).add((timing.start_s[row], timing.end_s[row]))
    for spans in held.values():
        ordered = sorted(spans)
        assert all(one[1] <= other[0] + 1e-9 for one, other in itertools.pairwise(ordered))
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
    ends = [dispatch(table, np.zeros(4), Rule(most, backwards, True)).makespan_s for most in (1, 2, 4)]
    assert ends == [24.0, 14.0, 9.0]
