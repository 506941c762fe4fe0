"""Thresholds that are found anew every so many steps. Without torch these tests are skipped."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.errors import InputError
from gapless.torch.sparse.selection import Threshold, entry_count

VALUES = torch.tensor([0.5, -4.0, 3.0, 0.0, 2.0, -1.0])


def test_the_largest_magnitudes_are_chosen() -> None:
    assert Threshold(3).best(VALUES).tolist() == [1, 2, 4]


def test_a_threshold_is_used_until_its_period_is_over() -> None:
    threshold = Threshold(2, period=3)
    assert threshold.best(VALUES).tolist() == [1, 2]
    for values in (VALUES, VALUES.flip(0)):
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
