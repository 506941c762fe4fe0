"""Thresholds that are found anew every so many steps. Without torch these tests are skipped."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.errors import InputError
from gapless.profiles.sparsity.estimates import EXACT, GAUSSIAN, GAUSSIAN_ADJUSTED
from gapless.torch.sparse.selection import Threshold, entry_count, estimated_threshold

VALUES = torch.tensor([0.5, -4.0, 3.0, 0.0, 2.0, -1.0])


def test_the_largest_magnitudes_are_chosen() -> None:
    assert Threshold(3).best(VALUES).tolist() == [1, 2, 4]


def test_a_threshold_is_used_until_its_period_is_over() -> None:
    threshold = Threshold(2, period=3)
    assert threshold.best(VALUES).tolist() == [1, 2]
    for values in (VALUES, 1.01 * VALUES):
        threshold.best(values)
        assert threshold.value == 3.0
    assert threshold.best(2 * VALUES).tolist() == [1, 2]
    assert threshold.value == 6.0


def test_a_threshold_that_selects_far_too_many_or_too_few_is_found_anew_at_once() -> None:
    for factor in (10.0, 0.1):
        threshold = Threshold(2, period=100)
        threshold.best(VALUES)
        assert threshold.best(factor * VALUES).tolist() == [1, 2]
        assert threshold.value == pytest.approx(3 * factor)


def test_zeros_are_never_chosen() -> None:
    for values in (torch.zeros(4), torch.zeros(0)):
        assert Threshold(2).best(values).tolist() == []
    assert Threshold(5).best(torch.tensor([0.0, 1.0])).tolist() == [1]


@pytest.mark.parametrize(("density", "length", "count"), [(0.01, 1000, 10), (0.5, 1, 1), (1e-9, 5, 1), (1, 7, 7)])
def test_at_least_one_entry_is_sent(density: float, length: int, count: int) -> None:
    assert entry_count(density, length) == count


@pytest.mark.parametrize("density", [0.0, 1.5, float("nan")])
def test_densities_are_shares(density: float) -> None:
    with pytest.raises(InputError, match="density: must be a fraction above 0, at most 1, got"):
        entry_count(density, 10)


def test_a_period_is_at_least_a_step() -> None:
    with pytest.raises(InputError, match="period: must be at least 1 step, got 0"):
        Threshold(1, 0)


def _counts(values: torch.Tensor, count: int) -> dict[str, int]:
    """Entries at or above each estimate's threshold."""
    found = {}
    for estimate in (EXACT, GAUSSIAN, GAUSSIAN_ADJUSTED):
        found[estimate] = int((values.abs() >= estimated_threshold(values, count, estimate)).sum())
    return found


def test_a_fitted_normal_selects_about_k_of_normal_entries_and_far_fewer_of_bounded_ones() -> None:
    drawn = torch.Generator().manual_seed(1)
    normal = torch.randn(100_000, generator=drawn)
    found = _counts(normal, 1000)
    assert found[EXACT] == 1000
    assert 900 < found[GAUSSIAN] < 1100
    bounded = torch.rand(100_000, generator=drawn) - 0.5
    assert _counts(bounded, 1000)[GAUSSIAN] == 0


def test_an_adjusted_threshold_selects_at_least_three_quarters_of_k() -> None:
    drawn = torch.Generator().manual_seed(2)
    for values in (torch.rand(10_000, generator=drawn), torch.randn(10_000, generator=drawn) ** 3):
        assert _counts(values, 100)[GAUSSIAN_ADJUSTED] >= 75
    few = torch.zeros(1000)
    few[:5] = 1.0
    assert estimated_threshold(few, 100, GAUSSIAN_ADJUSTED) == 0.0
    assert len(Threshold(100, estimate=GAUSSIAN_ADJUSTED).best(few)) == 5


def test_without_slack_a_threshold_is_reused_whatever_it_selects() -> None:
    threshold = Threshold(2, period=3, slack=None)
    assert threshold.best(VALUES).tolist() == [1, 2]
    assert len(threshold.best(100 * VALUES)) == 5
    assert len(threshold.best(0 * VALUES)) == 0
    assert threshold.best(0.1 * VALUES).tolist() == [1, 2]


def test_a_fitted_threshold_is_kept_for_its_period_though_it_selects_few() -> None:
    threshold = Threshold(3, period=2, estimate=GAUSSIAN)
    threshold.best(VALUES)
    first = threshold.value
    threshold.best(VALUES / 100)
    assert threshold.value == first
    threshold.best(VALUES / 100)
    assert threshold.value == pytest.approx(first / 100)


def test_an_unknown_estimate_is_refused() -> None:
    with pytest.raises(InputError, match="estimate: must be one of exact, gaussian, gaussian-adjusted, got 'exakt'"):
        Threshold(1, estimate="exakt")
    with pytest.raises(InputError, match="state: estimate of the threshold must be exact, got gaussian"):
        Threshold(1).load_state_dict(Threshold(1, estimate=GAUSSIAN).state_dict())
