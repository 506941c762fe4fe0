"""The power law's sampler: drawn frequencies against the law, in the head, in the tail, and at its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.profiles.traces.power_law import HEAD, PowerLaw

LAWS = [
    PowerLaw(1, 1.5),
    PowerLaw(1, 1.5, atom=0.4),
    PowerLaw(2, 1.5, atom=0.4),
    PowerLaw(3, 2.28, atom=0.81),
    PowerLaw(HEAD, 1.1),
    PowerLaw(HEAD + 1, 0.3),
    PowerLaw(HEAD, 0.5, atom=0.2),
    PowerLaw(HEAD + 1, 0.5, atom=0.2),
    PowerLaw(100_000, 1.0),
    PowerLaw(100_000, 1.0 + 1e-13, shift=5.0),
    PowerLaw(100_000, 0.0),
    PowerLaw(50_000, 1.62, shift=228.8, atom=0.36),
    PowerLaw(1000, 1.0, atom=1.0),
]


def probabilities(law: PowerLaw) -> NDArray[np.float64]:
    """Of every id, by the definition."""
    if law.rows == 1:
        return np.ones(1)
    ranks = np.arange(1, law.rows + (0 if law.atom else 1))
    weights = (ranks + law.shift) ** -law.exponent
    shares: NDArray[np.float64] = weights / weights.sum() * (1 - law.atom)
    return np.concatenate([[law.atom], shares]) if law.atom else shares


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_frequencies_are_the_law_s(law: PowerLaw) -> None:
    """Pearson's statistic over groups of ids of about equal probability lies within six standard deviations."""
    draws = 400_000
    ids = law.sampler().draw(draws, np.random.default_rng(7))
    assert ids.dtype == np.int64
    assert 0 <= ids.min() <= ids.max() < law.rows
    shares = probabilities(law)
    assert shares.sum() == pytest.approx(1)
    group = np.minimum((np.cumsum(shares) * 200).astype(np.int64), 199)
    expected = np.bincount(group, shares, minlength=200) * draws
    observed = np.bincount(group[ids], minlength=200)
    used = expected > 5
    assert observed[expected == 0].sum() == 0
    statistic = float(((observed - expected)[used] ** 2 / expected[used]).sum())
    freedom = int(used.sum())
    assert statistic < freedom + 6 * math.sqrt(2 * freedom)


def test_probabilities_fall_with_the_rank() -> None:
    law = probabilities(PowerLaw(1000, 2.0, shift=1.0))
    assert law[0] / law[1] == pytest.approx((3 / 2) ** 2)
    assert (np.diff(law) < 0).all()


def test_the_last_rows_of_a_large_table_are_reached() -> None:
    ids = PowerLaw(10_131_227, 0.0).sampler().draw(1_000_000, np.random.default_rng(0))
    assert ids.max() > 10_131_000
    assert ids.mean() == pytest.approx(10_131_226 / 2, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1.0), "power law: rows must be >= 1, got 0"),
        ((5, -1.0), "power law: exponent must be in 0..20, got -1.0"),
        ((5, float("nan")), "power law: exponent must be in 0..20, got nan"),
        ((5, 1.0, -2.0), "power law: shift must be in 0..1e[+]09, got -2.0"),
        ((5, 1.0, 0.0, 1.5), "power law: atom must be in 0..1, got 1.5"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments: tuple[float, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PowerLaw(*arguments)  # type: ignore[arg-type]
