"""How a rank finds the threshold above which it sends: exactly, or by a normal distribution fitted to its gradient.

Gaussiank (Shi et al., 2019) takes the magnitude above which k of n entries lie if they were normal with the gradient's
mean and deviation. Gradients have another shape: the threshold is too large, and selects too few entries, or too small.
Adjusted, it is lowered until at least three quarters of k are above it, as Ok-Topk's paper does in its comparisons.
"""

from __future__ import annotations

from statistics import NormalDist

__all__ = ["ADJUSTED_SHARE", "ADJUSTMENT", "ESTIMATES", "EXACT", "GAUSSIAN", "GAUSSIAN_ADJUSTED", "deviations_above"]

EXACT, GAUSSIAN, GAUSSIAN_ADJUSTED = ESTIMATES = ("exact", "gaussian", "gaussian-adjusted")

ADJUSTED_SHARE = 0.75
"""Of k: an adjusted threshold is lowered until it selects so many."""

ADJUSTMENT = 0.95
"""The factor by which it is lowered at a time: more than a few percent would overshoot k in the tail."""


def deviations_above(count: int, length: int) -> float:
    """How many standard deviations from the mean the `count` farthest of `length` normal entries begin.

    >>> round(deviations_above(10, 1000), 3)
    2.576
    """
    return 0.0 if count >= length else NormalDist().inv_cdf(1 - count / (2 * length))
