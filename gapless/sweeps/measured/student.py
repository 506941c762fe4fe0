"""Means of repeated measurements: their Student t intervals, and of differences Welch's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["Estimate", "estimate", "quantile"]

_MOST_DEGREES = 1000
"""More degrees of freedom are counted as these: the quantile is larger then, by less than 0.1 %."""
_STEPS = 100


@dataclass(frozen=True)
class Estimate:
    """Of one configuration: mean and standard error by metric, from `repeats` measurements of at least two."""

    mean: NDArray[np.float64]
    error: NDArray[np.float64]
    repeats: int

    def half_width(self, alpha: float) -> NDArray[np.float64]:
        """By metric, what the true mean exceeds the mean by with a probability of at most `alpha`."""
        return self.error * quantile(alpha, self.repeats - 1)

    def exceeds(self, other: Estimate, metric: int, sign: int, alpha: float) -> tuple[float, float]:
        """By how much `sign` times the metric's mean is above the other's: at least and at most, each with a
        probability of error of at most `alpha` (Welch's interval, with its degrees of freedom rounded down).
        """
        difference = sign * float(self.mean[metric] - other.mean[metric])
        own, others = float(self.error[metric]) ** 2, float(other.error[metric]) ** 2
        if own + others == 0:
            return difference, difference
        degrees = (own + others) ** 2 / (own**2 / (self.repeats - 1) + others**2 / (other.repeats - 1))
        half = math.sqrt(own + others) * quantile(alpha, max(int(degrees), 1))
        return difference - half, difference + half


def estimate(samples: NDArray[np.float64]) -> Estimate:
    """Of measurements, of shape (repeats, metrics)."""
    repeats = len(samples)
    return Estimate(samples.mean(axis=0), samples.std(axis=0, ddof=1) / math.sqrt(repeats), repeats)


@cache
def quantile(alpha: float, degrees: int) -> float:
    """What Student's t with so many degrees of freedom exceeds with probability `alpha` < 0.5, rounded up."""
    degrees = min(degrees, _MOST_DEGREES)
    low, high = 0.0, 1.0
    while _tail(high, degrees) > alpha:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if _tail(middle, degrees) <= alpha else (middle, high)
    return high


def _tail(t: float, degrees: int) -> float:
    """P(T > t) for t >= 0: the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    count = np.arange(1, degrees // 2)
    ratios = 2 * count / (2 * count + 1) if degrees % 2 else (2 * count - 1) / (2 * count)
    series = 1 + float(np.cumprod(ratios * cosine**2).sum())
    if degrees % 2 == 0:
        return (1 - sine * series) / 2
    return (1 - 2 / math.pi * (angle + (sine * cosine * series if degrees > 1 else 0))) / 2
