"""Alpha and beta of a link from what flows took: a robust line, and how far it can be off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.topologies.measured.flows import Sample

__all__ = ["Line", "fit_line"]

Floats = NDArray[np.float64]

_BISQUARE = 4.685
"""Tukey's constant: 95 % of the efficiency of least squares where errors are normal; what is beyond counts nothing."""
_ROUNDS = 50
_MAD_OF_NORMAL = 0.6745
_SMALLEST_SPREAD = 1e-3
"""Of relative residuals: times that agree better than this aren't told apart."""


@dataclass(frozen=True)
class Line:
    """A link's costs, with half the width of their 95 % intervals.

    `spread`: of the residuals, as a share of the times (1.48 times the median). `outliers`: samples that count nothing.
    """

    alpha_s: float
    beta_s_per_byte: float
    alpha_error_s: float
    beta_error_s_per_byte: float
    spread: float
    outliers: int
    samples: int

    def off_by(self, least_bytes: int, most_bytes: int) -> float:
        """The larger of the errors as a share of its cost; alpha's of what the smallest message that was sent takes.

        Where a link has next to no latency, its interval is as wide as the noise of what else such a message takes.
        """
        small_s = self.alpha_s + self.beta_s_per_byte * least_bytes
        large_s = self.alpha_s + self.beta_s_per_byte * most_bytes
        of_beta = self.beta_error_s_per_byte * most_bytes / large_s if large_s else 0.0
        return max(self.alpha_error_s / small_s if small_s else 0.0, of_beta)


def fit_line(samples: Sequence[Sample]) -> Line:
    """Times are latencies * alpha + bytes * beta: n chunks in turn take n (alpha + beta s), n at once alpha + n beta s.

    Iterated least squares of relative residuals, with Tukey's weights from their median: what was held up counts
    nothing. Neither cost is below 0. Needs samples in which one of alpha and beta weighs more than in others.
    """
    columns = np.array([[each.flow.latencies, each.flow.sent_bytes] for each in samples], dtype=np.float64)
    times_s = np.array([each.time_s for each in samples])
    scale = np.maximum(columns.max(axis=0), 1.0)  # both costs are then about as large as times
    scaled = columns / scale
    costs = _start(scaled, times_s)
    weights, spread = np.ones(len(times_s)), 1.0
    for _ in range(_ROUNDS):
        fitted_s = np.maximum(scaled @ costs, 1e-12)
        residuals = (times_s - fitted_s) / fitted_s
        spread = max(float(np.median(np.abs(residuals))) / _MAD_OF_NORMAL, _SMALLEST_SPREAD)
        weights = np.clip(1 - (residuals / (_BISQUARE * spread)) ** 2, 0.0, None) ** 2
        before, costs = costs, _not_negative(scaled, times_s, weights / fitted_s**2, costs)
        if np.allclose(before, costs, rtol=1e-9, atol=0.0):
            break
    errors = _errors(scaled, times_s, weights, np.maximum(scaled @ costs, 1e-12)) / scale
    alpha_s, beta = costs / scale
    return Line(
        float(alpha_s), float(beta), float(errors[0]), float(errors[1]), spread, int((weights == 0).sum()), len(times_s)
    )


def _start(columns: Floats, times_s: Floats) -> Floats:
    """Medians: of what a byte adds between samples of few and of many bytes, and of what is left for latency."""
    per_latency = columns[:, 1] / columns[:, 0]
    few = per_latency <= np.quantile(per_latency, 0.25)
    many = per_latency >= np.quantile(per_latency, 0.75)
    alpha = float(np.median(times_s[few] / columns[few, 0]))
    left_s = times_s[many] - alpha * columns[many, 0]
    bytes_sent = np.maximum(columns[many, 1], 1e-12)
    beta = float(np.median(left_s / bytes_sent))
    if beta <= 0:
        beta = float(np.median(times_s[many] / bytes_sent))
    alpha = float(np.median((times_s[few] - beta * columns[few, 1]) / columns[few, 0]))
    return np.array([max(alpha, 0.0), beta])


def _not_negative(columns: Floats, times_s: Floats, weights: Floats, before: Floats) -> Floats:
    """Weighted least squares; a cost that would be below 0 is 0. Costs that the samples don't tell apart stay."""
    left = columns.T @ (columns * weights[:, None])
    right = columns.T @ (times_s * weights)
    if np.linalg.cond(left) > 1e14:
        return before
    found = np.linalg.solve(left, right)
    if found.min() >= 0:
        return np.asarray(found)
    kept = int(found.argmax())
    only = np.zeros(2)
    only[kept] = max(right[kept] / left[kept, kept], 0.0)
    return only


def _errors(columns: Floats, times_s: Floats, weights: Floats, fitted_s: Floats) -> Floats:
    """Half the width of 95 % intervals: of M-estimates (Huber, 1981), with Student's t for few samples."""
    count = len(times_s)
    if count < 4:
        return np.full(2, np.inf)
    relative = columns / fitted_s[:, None]
    residuals = (times_s - fitted_s) / fitted_s
    bread = relative.T @ (relative * weights[:, None])
    if np.linalg.cond(bread) > 1e14:
        return np.full(2, np.inf)
    free = max(float(weights.sum()) - 2, 1.0)
    variance = float((weights * residuals**2).sum()) / free
    t = 1.96 + 2.4 / free  # close to Student's for four and more degrees of freedom, above it for fewer than ten
    return np.asarray(t * np.sqrt(variance * np.diag(np.linalg.inv(bread))))
