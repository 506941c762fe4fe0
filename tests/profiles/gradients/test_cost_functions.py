"""Cost functions: straight lines and measured points, their values, what is derived from them, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.profiles.gradients.cost_functions import FREE, AffineCost, CostFunction, PointsCost

MEASURED = PointsCost(((1000.0, 2.0), (2000.0, 2.5), (4000.0, 4.5)))

seconds = st.floats(0, 10, allow_subnormal=False)
affine = st.builds(AffineCost, seconds, seconds)


@st.composite
def measured(draw: st.DrawFn) -> PointsCost:
    sizes = sorted(draw(st.lists(st.integers(0, 10**9), min_size=1, max_size=5, unique=True)))
    durations_s = sorted(draw(st.lists(seconds, min_size=len(sizes), max_size=len(sizes))))
    return PointsCost(tuple(zip(map(float, sizes), durations_s, strict=True)))


costs = st.one_of(affine, measured())


def test_affine_cost_is_latency_plus_bytes_over_bandwidth() -> None:
    np.testing.assert_allclose(AffineCost(0.5, 0.25)(np.array([0, 2, 4])), [0.5, 1.0, 1.5])


@pytest.mark.parametrize(
    ("size_bytes", "duration_s"),
    [(0, 2.0), (999, 2.0), (1000, 2.0), (1500, 2.25), (3000, 3.5), (4000, 4.5), (6000, 6.5)],
)
def test_points_are_flat_below_linear_between_and_keep_the_last_slope(size_bytes: float, duration_s: float) -> None:
    assert MEASURED(size_bytes) == pytest.approx(duration_s)


def test_one_point_is_a_constant() -> None:
    np.testing.assert_array_equal(PointsCost(((5.0, 3.0),))(np.array([0.0, 5.0, 1e12])), [3.0, 3.0, 3.0])


def test_values_keep_the_shape_of_the_sizes() -> None:
    for cost in (FREE, MEASURED):
        assert cost(np.zeros((2, 3), dtype=np.int64)).shape == (2, 3)
        assert cost(7).shape == ()


@given(costs, st.floats(0, 1e10), st.floats(0, 100))
def test_scaled_cost_is_a_multiple(cost: CostFunction, size_bytes: float, factor: float) -> None:
    assert cost.scaled(factor)(size_bytes) == pytest.approx(factor * cost(size_bytes), rel=1e-9, abs=1e-12)


@given(costs, st.floats(0, 1e10), st.floats(0.5, 1000))
def test_cost_at_a_ratio_is_that_of_so_many_fewer_bytes(cost: CostFunction, size_bytes: float, ratio: float) -> None:
    assert cost.at_ratio(ratio)(size_bytes) == pytest.approx(cost(size_bytes / ratio), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("field", ["alpha_s", "beta_s_per_byte"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_affine_cost_refuses_what_is_negative_or_not_finite(field: str, value: float) -> None:
    numbers = {"alpha_s": 0.0, "beta_s_per_byte": 0.0, field: value}
    with pytest.raises(InputError, match=rf"^{field}: must be a finite number >= 0, got {value}$"):
        AffineCost(**numbers)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ((), r"^points: must hold at least one \[bytes, seconds\], got none$"),
        (((-1, 1),), r"^points\[0\]: must be two finite numbers >= 0, got \[-1, 1\]$"),
        (((1, 1), (2, -1)), r"^points\[1\]: must be two finite numbers >= 0, got \[2, -1\]$"),
        (((1, math.nan),), r"^points\[0\]: must be two finite numbers >= 0, got \[1, nan\]$"),
        (((math.inf, 1),), r"^points\[0\]: must be two finite numbers >= 0, got \[inf, 1\]$"),
        (((2, 1), (1, 2)), r"^points\[1\]: bytes must rise from point to point, got 1 after 2$"),
        (((2, 1), (2, 2)), r"^points\[1\]: bytes must rise from point to point, got 2 after 2$"),
        (((1, 2), (2, 1)), r"^points: the last two must not fall, since their slope goes on, got"),
        (((0, 0), (5e-324, 1)), r"^points: the last two must be further apart, since their slope goes on, got"),
    ],
)
def test_points_refuse_by_number_what_makes_no_sense(points: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PointsCost(points)


def test_points_may_fall_before_the_end() -> None:
    assert PointsCost(((1, 3), (2, 1), (3, 1)))(1.5) == pytest.approx(2.0)


@pytest.mark.parametrize("cost", [FREE, MEASURED])
@pytest.mark.parametrize("ratio", [0, -2, math.nan, math.inf])
def test_ratio_must_be_positive(cost: CostFunction, ratio: float) -> None:
    with pytest.raises(InputError, match=f"^ratio: must be a finite number > 0, got {ratio}$"):
        cost.at_ratio(ratio)
