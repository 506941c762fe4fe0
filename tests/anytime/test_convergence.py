"""What is kept of a solve's progress."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gapless.anytime.convergence import MOST_POINTS, Convergence, ProgressLog, convergence_of
from gapless.errors import InputError
from gapless.options import Progress


def test_only_news_are_kept_and_all_reports_are_passed_on() -> None:
    passed: list[Progress] = []
    log = ProgressLog(passed.append)
    reports = [(0.1, None, None), (0.2, None, 5.0), (0.3, None, 5.0), (0.4, 8.0, 5.0), (0.5, 8.0, 6.0)]
    for wall_s, incumbent, bound in reports:
        log(Progress(wall_s, incumbent, bound, "phase"))
    assert len(passed) == 5
    assert log.convergence == Convergence((0.2, 0.4, 0.5), (None, 8.0, 8.0), (5.0, 5.0, 6.0))


def test_reports_of_stages_are_given_the_time_of_the_whole_solve() -> None:
    passed: list[Progress] = []
    log = ProgressLog(passed.append, iter((1.0, 2.5)).__next__)
    log(Progress(0.9, 9.0, None))
    log(Progress(0.1, 8.0, None))
    assert [report.wall_s for report in passed] == [1.0, 2.5]
    assert log.convergence == Convergence((1.0, 2.5), (9.0, 8.0), (None, None))


def test_a_solve_that_knew_nothing_leaves_nothing() -> None:
    log = ProgressLog()
    log(Progress(1.0, None, None))
    assert log.convergence is None


def test_a_long_solve_keeps_few_points_and_the_latest() -> None:
    log = ProgressLog()
    for number in range(10_000):
        log(Progress(float(number), 10_000.0 - number, None))
    convergence = log.convergence
    assert convergence is not None
    assert len(convergence.wall_s) <= MOST_POINTS
    assert convergence.incumbent[-1] == 1.0
    assert list(convergence.wall_s) == sorted(convergence.wall_s)


def test_data_come_back_from_json_as_they_were() -> None:
    convergence = Convergence((0.5, 1.0), (None, 2.0), (1.0, 1.5), "j")
    assert convergence_of(json.loads(json.dumps(convergence.data)), "plan") == convergence


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "plan: must be an object, got list"),
        ({"unit": "kg"}, "plan: unit must be one of s, span_s, j, error, cost, got 'kg'"),
        ({"unit": "s", "wall_s": [None]}, "plan: wall_s must be a list of numbers"),
        ({"unit": "s", "wall_s": [1], "incumbent": ["a"], "bound": [1]}, "plan: incumbent must be a list of numbers"),
        ({"unit": "s", "wall_s": [1], "incumbent": [1, 2], "bound": [1]}, "must have one length"),
    ],
)
def test_data_of_another_shape_are_refused(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        convergence_of(data, "plan")
