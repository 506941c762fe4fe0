"""Alpha and beta of a link from what flows took: a robust line, and how far it can be off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats
from gapless.topologies.measured.experiments import Sample

__all__ = ["Line", "fit_line"]


_BISQUARE = 4.685
"""Tukey's constant: 95 % of the efficiency of least squares where errors are normal; what is beyond counts nothing."""
_ROUNDS = 50
_MAD_OF_NORMAL = 0.6745
_SINGULAR = 1e14
"""The condition of equations that say nothing."""
_SMALLEST_SPREAD = 1e-3
"""Of relative residuals: times that agree better than this are the same."""


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

    Time that begins with an acknowledgement, of a flow's warm part, begins late by what came in with that part's last
    bytes: a constant besides, where there are such flows of several sizes.

    Iterated least squares of relative residuals, with Tukey's weights from their median: what was held up counts
    nothing. Neither cost is below 0. Needs samples in which one of alpha and beta weighs more than in others.
    """
    flows = [each.flow for each in samples]
    columns = np.array([[flow.latencies, flow.sent_bytes, -float(flow.follows)] for flow in flows], dtype=np.float64)
    if len({flow.sent_bytes for flow in flows if flow.follows}) < 2:
        columns = columns[:, :2]
    times_s = np.array([each.time_s for each in samples])
    scale = np.maximum(np.abs(columns).max(axis=0), 1.0)  # all costs are then about as large as times
    scaled = columns / scale
    costs = np.concatenate([_start(scaled[:, :2], times_s), np.zeros(columns.shape[1] - 2)])
    weights, spread = np.ones(len(times_s)), 1.0
    for _ in range(_ROUNDS):
        fitted_s = np.maximum(scaled @ costs, 0.1 * times_s)
        residuals = (times_s - fitted_s) / fitted_s
        spread = max(float(np.median(np.abs(residuals))) / _MAD_OF_NORMAL, _SMALLEST_SPREAD)
        weights = np.clip(1 - (residuals / (_BISQUARE * spread)) ** 2, 0.0, None) ** 2
        before, costs = costs, _not_negative(scaled, times_s, weights / fitted_s**2, costs)
        if np.allclose(before, costs, rtol=1e-9, atol=0.0):
            break
    errors = _errors(scaled, times_s, weights, np.maximum(scaled @ costs, 0.1 * times_s)) / scale
    alpha_s, beta = (costs / scale)[:2].tolist()
    outliers = int((weights == 0).sum())
    return Line(alpha_s, beta, float(errors[0]), float(errors[1]), spread, outliers, len(times_s))


def _start(columns: Floats, times_s: Floats) -> Floats:
    """Medians: of what a byte adds where there are many, and of what is left for latency where there are few."""
    many = columns[:, 1] >= np.quantile(columns[:, 1], 0.75)
    beta = float(np.median(times_s[many] / np.maximum(columns[many, 1], 1e-12)))
    waits = columns[:, 0] > 0
    if not waits.any():
        return np.array([0.0, beta])
    per_wait = columns[waits, 1] / columns[waits, 0]
    few = per_wait <= np.quantile(per_wait, 0.25)
    left_s = times_s[waits] - beta * columns[waits, 1]
    return np.array([max(float(np.median(left_s[few] / columns[waits, 0][few])), 0.0), beta])


def _not_negative(columns: Floats, times_s: Floats, weights: Floats, before: Floats) -> Floats:
    """Weighted least squares; a cost that would be below 0 is 0. Costs that the samples don't separate stay."""
    kept = list(range(columns.shape[1]))
    while True:
        used = columns[:, kept]
        left = used.T @ (used * weights[:, None])
        if np.linalg.cond(left) > _SINGULAR:
            return before
        found = np.linalg.solve(left, used.T @ (times_s * weights))
        below = [column for column, value in zip(kept, found, strict=True) if column < 2 and value < 0]
        if not below or len(kept) == 1:
            break
        kept.remove(below[0])
    costs = np.zeros(columns.shape[1])
    costs[kept] = found
    return np.where(np.arange(len(costs)) < 2, np.maximum(costs, 0.0), costs)


def _errors(columns: Floats, times_s: Floats, weights: Floats, fitted_s: Floats) -> Floats:
    """Half the width of 95 % intervals: of M-estimates (Huber, 1981), wider for few samples, as Student's are."""
    free = float(weights.sum()) - columns.shape[1]
    relative = columns / fitted_s[:, None]
    bread = relative.T @ (relative * weights[:, None])
    if free < 1 or np.linalg.cond(bread) > _SINGULAR:
        return np.full(columns.shape[1], np.inf)
    residuals = (times_s - fitted_s) / fitted_s
    variance = float((weights * residuals**2).sum()) / free
    return np.asarray((1.96 + 2.4 / free) * np.sqrt(variance * np.diag(np.linalg.inv(bread))))
