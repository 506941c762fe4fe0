"""The decode step: what is cached, what it takes, and what the checker finds where a map is not what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gapless.checker import Rule, check
from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.lowering import step_s, to_schedule
from gapless.encodings.chai.problem import problem

ASKED = problem("synthetic:layers=3,heads=6,key_heads=3,dimension=8", 1 / 6, context=100, batch=2)
KEPT = [[0, 1, 2], [1], [0, 2]]
MAP = HeadMap.of(KEPT, ASKED.profile, "output")


def test_the_cache_is_of_kept_keys_and_all_values() -> None:
    report = check(to_schedule(ASKED, MAP))
    assert report.valid
    assert ASKED.head_bytes == 2 * 100 * 8 * 2
    assert ASKED.cache_bytes(6) == (6 + 9) * ASKED.head_bytes == report.spent[0]
    weights = 3 * 2 * -(-ASKED.profile.parameters // 3)
    token = 2 * 6 * 8 * 2
    assert report.peak_bytes[0] == ASKED.cache_bytes(6) + weights + 4 * token
    assert report.makespan_s == pytest.approx(step_s(ASKED, MAP))


def test_less_is_read_where_less_is_cached() -> None:
    everything = HeadMap.of([[0, 1, 2]] * 3, ASKED.profile, "output")
    one = HeadMap.of([[0]] * 3, ASKED.profile, "output")
    assert step_s(ASKED, one) < step_s(ASKED, MAP) < step_s(ASKED, everything)


def test_a_dropped_key_that_is_read_is_missing() -> None:
    wrong = MAP.representative.copy()
    wrong[1, 0] = 5
    found = check(to_schedule(ASKED, replace(MAP, representative=wrong))).violations
    assert [(each.rule, each.tensor) for each in found] == [(Rule.INPUT_MISSING, 1 * 7 + 4 + 2)]


def test_more_keys_than_the_budget_exceed_it() -> None:
    more = HeadMap.of([[0, 1, 2], [1, 2], [0, 2]], ASKED.profile, "output")
    assert {each.rule for each in check(to_schedule(ASKED, more)).violations} == {Rule.BUDGET_EXCEEDED}


def test_a_step_in_haste_is_found() -> None:
    schedule = to_schedule(ASKED, MAP)
    hasty = replace(schedule, start_s=0.5 * schedule.start_s, end_s=0.5 * schedule.end_s)
    assert {each.rule for each in check(hasty).violations} == {Rule.DURATION_TOO_SHORT}


def test_tensors_have_names() -> None:
    graph = to_schedule(ASKED, MAP).graph
    assert [graph.tensor_name(k) for k in range(8)] == [
        "input 0", "token 0", "weights 0", "values 0", "keys 0.0", "keys 0.1", "keys 0.2", "input 1",
    ]  # fmt: skip
    assert np.isin([graph.tensor_name(len(graph.size_bytes) - 1)], ["output"]).all()
