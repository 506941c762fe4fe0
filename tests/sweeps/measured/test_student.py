"""Student's quantiles are those of the tables, and intervals hold as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.sweeps.measured.student import estimate, quantile

TABLE = [
    (0.025, 1, 12.7062), (0.025, 2, 4.30265), (0.025, 3, 3.18245), (0.025, 4, 2.77645), (0.005, 5, 4.03214),
    (0.01, 7, 2.99795), (0.025, 10, 2.22814), (0.0005, 30, 3.64596), (0.025, 100, 1.98397), (1e-6, 2, 707.106),
]  # fmt: skip


@pytest.mark.parametrize(("alpha", "degrees", "value"), TABLE)
def test_quantiles_are_those_of_the_tables(alpha: float, degrees: int, value: float) -> None:
    assert quantile(alpha, degrees) == pytest.approx(value, rel=1e-5)


def test_many_degrees_are_counted_as_a_thousand_which_is_on_the_safe_side() -> None:
    assert quantile(0.025, 10**6) == quantile(0.025, 1000) > 1.959964


def test_an_interval_holds_the_true_mean_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        found = estimate(generator.normal(3.0, 2.0, (4, 1)))
        inside += bool(abs(found.mean[0] - 3.0) <= found.half_width(0.05)[0])
    assert abs(inside / 2000 - 0.9) < 0.02


def test_a_difference_exceeds_what_it_says_as_often_as_it_says() -> None:
    """With spreads and repeats that differ; Welch's interval is an approximation."""
    generator = np.random.default_rng(1)
    above = 0
    for _ in range(2000):
        first, second = estimate(generator.normal(5.0, 4.0, (5, 1))), estimate(generator.normal(4.0, 1.0, (20, 1)))
        above += first.exceeds(second, 0, 1, 0.05)[0] > 1.0
    assert 0.03 < above / 2000 < 0.06


def test_without_any_spread_the_interval_is_a_point() -> None:
    first, second = estimate(np.full((2, 1), 3.0)), estimate(np.full((3, 1), 1.0))
    assert first.exceeds(second, 0, 1, 1e-6) == (2.0, 2.0)
    assert first.exceeds(second, 0, -1, 1e-6) == (-2.0, -2.0)
