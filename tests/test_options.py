"""Options say what they allow; a deadline shares one time limit among stages."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest

from gapless.errors import InputError
from gapless.options import Deadline, Progress, SolveOptions, relative_gap


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"time_limit_s": 0}, "time_limit_s must be a number > 0, at most 1e[+]06, or None, got 0"),
        ({"time_limit_s": math.inf}, "time_limit_s must be .* got inf"),
        ({"time_limit_s": 1e7}, "time_limit_s must be .* got 10000000.0"),
        ({"time_limit_s": math.nan}, "time_limit_s must be a number"),
        ({"step_limit": 0}, "step_limit must be >= 1 or None, got 0"),
        ({"gap": -0.1}, r"gap must be a number in 0\.\.1, 0.05 for 5 %, got -0.1"),
        ({"gap": 2}, "gap must be a number in .* got 2"),
        ({"gap": math.nan}, "gap must be a number in .* got nan"),
        ({"threads": -1}, r"threads must be in 0\.\.1024 .*, got -1"),
        ({"threads": 10**9}, r"threads must be in .*, got 1000000000"),
        ({"seed": -1}, "seed must be between 0 and 2147483647, got -1"),
        ({"seed": 2**31}, "seed must be between"),
    ],
)
def test_options_out_of_range_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SolveOptions(**given)


def test_no_number_of_threads_means_all_that_may_be_used() -> None:
    assert 1 <= SolveOptions().thread_count <= (os.cpu_count() or 1)
    assert SolveOptions(threads=3).thread_count == 3


def test_options_with_another_limit_share_the_stop_event() -> None:
    options = SolveOptions(time_limit_s=5, seed=4)
    shorter = options.within(1e-9)
    assert shorter.time_limit_s == 1e-3
    assert shorter.seed == 4
    assert shorter.stop is options.stop
    assert options.within(None).time_limit_s is None


def test_a_deadline_hands_out_what_is_left() -> None:
    deadline = Deadline(SolveOptions(time_limit_s=1000))
    stage = deadline.stage()
    assert stage.time_limit_s is not None
    assert 0 < stage.time_limit_s <= 1000
    assert deadline.stage(at_most_s=2).time_limit_s == 2
    assert not deadline.over


def test_without_a_limit_a_stage_has_none_either() -> None:
    deadline = Deadline(SolveOptions())
    assert deadline.remaining_s == math.inf
    assert deadline.stage().time_limit_s is None
    assert deadline.stage(at_most_s=3).time_limit_s == 3


def test_a_deadline_is_over_once_somebody_asked_to_stop() -> None:
    options = SolveOptions(time_limit_s=1000)
    deadline = Deadline(options)
    options.stop.set()
    assert deadline.over
    assert deadline.remaining_s == 0
    assert deadline.stage().time_limit_s == 1e-3


@pytest.mark.parametrize(
    ("incumbent", "bound", "gap"),
    [
        (10.0, 9.0, 0.1),
        (-10.0, -11.0, 0.1),
        (5.0, 5.0, 0.0),
        (0.0, 0.0, 0.0),
        (0.0, -1.0, math.inf),
        (1.0, 1.0 + 1e-12, 0.0),
        (None, 3.0, None),
        (3.0, None, None),
    ],
)
def test_the_gap_is_relative_to_the_incumbent(incumbent: float | None, bound: float | None, gap: float | None) -> None:
    assert relative_gap(incumbent, bound) == (None if gap is None else pytest.approx(gap))
    assert Progress(1.0, incumbent, bound).gap == relative_gap(incumbent, bound)


def test_the_clock_of_a_stage_is_noted_for_the_whole_solve() -> None:
    whole = Deadline(SolveOptions(time_limit_s=1000))
    stage = Deadline(Deadline(whole.stage()).stage(at_most_s=1e-9))
    assert not whole.has_struck
    while not stage.over:
        pass
    assert whole.has_struck
    assert not whole.over


def test_a_stop_is_not_the_clock() -> None:
    options = SolveOptions(time_limit_s=1000)
    deadline = Deadline(options)
    options.stop.set()
    assert deadline.over
    assert not deadline.has_struck


def test_time_is_kept_for_what_follows_but_never_most_of_it() -> None:
    deadline = Deadline(SolveOptions(time_limit_s=900))
    deadline.keep(100)
    assert deadline.remaining_s <= 800
    Deadline(deadline.stage()).keep(10_000)
    assert 590 < deadline.remaining_s <= 600
