"""The normal distribution's part in thresholds: how far out k of n entries begin."""

from __future__ import annotations

import math

import pytest

from gapless.profiles.sparsity.estimates import deviations_above


@pytest.mark.parametrize(("count", "length"), [(1, 1000), (10, 1000), (500, 1000), (999, 1000)])
def test_so_many_normal_entries_lie_beyond(count: int, length: int) -> None:
    beyond = math.erfc(deviations_above(count, length) / math.sqrt(2))
    assert beyond * length == pytest.approx(count)


@pytest.mark.parametrize("count", [5, 6])
def test_all_entries_lie_beyond_the_mean(count: int) -> None:
    assert deviations_above(count, 5) == 0.0
