"""Winners: what beats the library by more than its noise, and which sizes a plan serves."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.taccl.tuning.winners import Contest, Interval, beats, fastest, intervals, noise_of


def contest(library: float, noise: float, **plans: float) -> Contest:
    """Calls that differ by `noise` from their median, evenly."""
    spread = np.linspace(1 - noise, 1 + noise, 9)
    series = tuple((library * spread).tolist())
    return Contest(
        {int(name[1:]): tuple((median * spread).tolist()) for name, median in plans.items()}, (series, series)
    )


def test_a_library_that_always_takes_the_same_has_no_noise() -> None:
    assert noise_of(((1.0,) * 5, (1.0,) * 5)) == 0.0
    assert noise_of(((), ())) == 0.0


def test_noise_grows_with_the_spread_of_calls_and_is_the_same_twice() -> None:
    found = [noise_of(contest(1.0, spread).library_s) for spread in (0.01, 0.1, 0.5)]
    assert found == sorted(found)
    assert 0 < found[0] < 0.02
    assert noise_of(contest(1.0, 0.1).library_s) == found[1]


def test_noise_is_what_two_medians_of_one_distribution_differ_by_in_19_of_20_cases() -> None:
    drawn = np.random.default_rng(1)
    calls = drawn.lognormal(0, 0.2, size=(400, 2, 9))
    inside = 0
    for first, second in calls:
        difference = abs(np.median(first) / np.median(second) - 1)
        inside += difference <= noise_of((first.tolist(), second.tolist()))
    assert inside >= 0.9 * len(calls)


def test_a_plan_wins_only_beyond_the_noise() -> None:
    found = contest(1.0, 0.2, p0=0.5, p1=0.97, p2=1.5)
    noise = noise_of(found.library_s)
    assert 0.03 < noise < 0.5
    assert [beats(found, plan, noise) for plan in (0, 1, 2, 3)] == [True, False, False, False]
    assert fastest(found) == 0


def test_nothing_wins_where_the_library_has_no_such_collective() -> None:
    found = Contest({0: (1.0,)}, ((), ()))
    assert not beats(found, 0, 0.0)
    assert found.library_median_s == 0.0


def test_sizes_between_two_measured_ones_need_a_plan_that_wins_at_both() -> None:
    assert intervals([10, 20, 40], [{0: 0.5}, {0: 0.9, 1: 0.4}, {1: 0.8}]) == [
        Interval(10, 19, 0), Interval(20, 40, 1),
    ]  # fmt: skip
    assert intervals([10, 20, 40], [{0: 0.5}, {1: 0.4}, {}]) == [Interval(10, 10, 0), Interval(20, 20, 1)]
    assert intervals([10, 11], [{0: 0.5}, {0: 0.4}]) == [Interval(10, 11, 0)]
    assert intervals([10], [{}]) == []


@given(st.lists(st.dictionaries(st.integers(0, 3), st.floats(0.1, 0.99), max_size=3), min_size=1, max_size=6))
def test_intervals_never_overlap_and_serve_measured_sizes_by_their_best(ratios: list[dict[int, float]]) -> None:
    sizes = [100 * (place + 1) for place in range(len(ratios))]
    found = intervals(sizes, ratios)
    for before, after in pairwise(found):
        assert before.max_bytes < after.min_bytes
    for size, here in zip(sizes, ratios, strict=True):
        serving = [one.plan for one in found if one.min_bytes <= size <= one.max_bytes]
        if not here:
            assert serving == []
        else:
            assert here[serving[0]] == pytest.approx(min(here.values()))
    for one in found:
        at = [place for place, size in enumerate(sizes) if one.min_bytes - 100 < size < one.max_bytes + 100]
        assert all(one.plan in ratios[place] for place in at if one.min_bytes <= sizes[place] <= one.max_bytes)
