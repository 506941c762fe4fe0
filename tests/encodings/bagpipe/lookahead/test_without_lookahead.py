"""Caches without lookahead: what they hold is what a simulation row by row holds, and their runs replay clean."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

import gapless
from gapless.encodings.bagpipe.advice.advise import advise
from gapless.encodings.bagpipe.lookahead.without_lookahead import demand_steps
from gapless.encodings.bagpipe.problem import Planning, problem
from gapless.encodings.bagpipe.question import BASELINES
from gapless.errors import InputError
from gapless.profiles.traces.generators import zipf_trace
from gapless.profiles.traces.trace import global_ids

TABLES = (30, 200, 5)


def batches_of(seed: int, count: int = 12) -> list[np.ndarray]:
    return [np.asarray(batch) for batch in zipf_trace(TABLES, 1.1, 16 * count, seed).batches(16)]


def rows_of(batches: list[np.ndarray]) -> list[set[int]]:
    return [set(global_ids(batch).reshape(-1).tolist()) for batch in batches]


def fetched_by_lfu(batches: list[set[int]], capacity: int) -> list[set[int]]:
    cached: set[int] = set()
    uses: Counter[int] = Counter()
    last: dict[int, int] = {}
    fetched = []
    for number, batch in enumerate(batches):
        fetched.append(batch - cached)
        others = sorted(cached - batch, key=lambda row: (uses[row], last[row], row))
        surplus = max(0, len(others) + len(batch) - capacity)
        cached = batch | set(others[surplus:])
        uses.update(batch)
        last |= dict.fromkeys(batch, number)
    return fetched


def fetched_by_static(batches: list[set[int]], capacity: int) -> list[set[int]]:
    uses = Counter(row for batch in batches for row in batch)
    room = capacity - max(map(len, batches))
    hot = set(sorted(uses, key=lambda row: (-uses[row], row))[:room])
    seen: set[int] = set()
    fetched = []
    for batch in batches:
        fetched.append(batch - (seen & hot))
        seen |= batch
    return fetched


@given(seed=st.integers(0, 2**32 - 1), spare=st.integers(0, 150))
@examples(40)
def test_what_is_fetched_is_what_a_simulation_row_by_row_misses(seed: int, spare: int) -> None:
    batches = batches_of(seed)
    rows = rows_of(batches)
    capacity = max(map(len, rows)) + spare
    for design, misses in (("lfu", fetched_by_lfu), ("static-hot", fetched_by_static)):
        steps = list(demand_steps(batches, capacity, design))
        assert [set(step.prefetch_ids.tolist()) for step in steps] == misses(rows, capacity)
        held: set[int] = set()
        for step in steps:
            assert not held & set(step.prefetch_ids.tolist())
            held |= set(step.prefetch_ids.tolist())
            assert set(step.ids.tolist()) <= held
            assert len(held) == step.cache_rows <= capacity
            held -= set(step.ids[step.evicted].tolist())
        assert not held


def test_a_larger_cache_fetches_less() -> None:
    batches = batches_of(3, 30)
    for design in BASELINES:
        fetched = [
            sum(len(step.prefetch_ids) for step in demand_steps(batches, capacity, design))
            for capacity in (60, 90, 400)
        ]
        assert fetched[0] > fetched[1] > fetched[2] == len(set.union(*rows_of(batches)))


@pytest.mark.parametrize("design", list(BASELINES))
@pytest.mark.parametrize("ownership", ["first-touch", "hash"])
def test_a_run_replays_clean_and_is_no_quicker_than_with_lookahead(design: str, ownership: str) -> None:
    asked = {"table_rows": TABLES, "examples": 320, "trainers": 3, "batch_size": 16, "ownership": ownership}
    result = gapless.solve(problem("zipf", **asked, cache_rows=70, design=design, server_bandwidth=1e6))
    assert result.valid
    assert result.details["cache_rows_peak"] <= 70
    ahead = gapless.solve(problem("zipf", **asked, cache_rows=70, design=BASELINES[design], server_bandwidth=1e6))
    assert ahead.valid
    assert result.report is not None
    assert ahead.report is not None
    assert result.report.makespan_s >= ahead.report.makespan_s


def test_advice_has_baselines_of_the_cache_that_the_lookahead_fills() -> None:
    asked = {"trainers": 2, "batch_size": 16, "lookahead": 5, "table_rows": (3000, 3000), "examples": 1600}
    found = {row["design"]: row for row in advise("zipf", **asked, baselines=True).data["designs"]}
    assert set(BASELINES) < set(found)
    assert found["lfu"]["iteration_s"] == pytest.approx(found["partitioned"]["iteration_s"], rel=0.01)
    assert found["static-hot"]["iteration_s"] > found["lrpp"]["iteration_s"]
    assert "lfu" in advise("zipf", **asked, baselines=True).text


def test_what_a_baseline_needs_is_named() -> None:
    with pytest.raises(InputError, match="cache_rows: must be given, and no lookahead, with design lfu, got none"):
        Planning(2, 16, design="lfu")
    with pytest.raises(InputError, match="with design static-hot, got lookahead 3 too"):
        Planning(2, 16, lookahead=3, cache_rows=90, design="static-hot")
    with pytest.raises(InputError, match="cache_rows: must hold the distinct ids of a batch, 3, got 2"):
        list(demand_steps([np.array([[1, 2, 3]])], 2, "lfu"))
    with pytest.raises(InputError, match="at least one batch"):
        list(demand_steps([], 2, "lfu"))
