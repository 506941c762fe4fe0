"""Cost functions: what an operation on so many bytes takes, as a straight line or through measured points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from gapless.array_types import Floats
from gapless.errors import InputError
from gapless.io.typed import Stored

__all__ = ["COSTS", "FREE", "AffineCost", "CostFunction", "PointsCost", "least_cost"]


@dataclass(frozen=True)
class AffineCost:
    """`alpha_s + beta_s_per_byte * size`. Raises `InputError` for numbers that are negative or not finite."""

    alpha_s: float
    beta_s_per_byte: float

    def __post_init__(self) -> None:
        for title in ("alpha_s", "beta_s_per_byte"):
            value = getattr(self, title)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{title}: must be a finite number >= 0, got {value}")

    def __call__(self, size_bytes: ArrayLike) -> Floats:
        """Seconds, in the shape of the sizes."""
        return self.alpha_s + self.beta_s_per_byte * np.asarray(size_bytes, dtype=np.float64)

    def highest_s(self, most_bytes: float) -> float:
        """The most that any size up to `most_bytes` costs."""
        return self.alpha_s + self.beta_s_per_byte * most_bytes

    def scaled(self, factor: float) -> AffineCost:
        """The same cost, `factor` times as high."""
        return AffineCost(factor * self.alpha_s, factor * self.beta_s_per_byte)

    def at_ratio(self, ratio: float) -> AffineCost:
        """The cost of `size / ratio` bytes as a function of `size`."""
        _check_ratio(ratio)
        return AffineCost(self.alpha_s, self.beta_s_per_byte / ratio)

    def plus(self, other: AffineCost) -> AffineCost:
        """Both, one after the other."""
        return AffineCost(self.alpha_s + other.alpha_s, self.beta_s_per_byte + other.beta_s_per_byte)


@dataclass(frozen=True)
class PointsCost:
    """Straight lines between measured points (bytes, seconds); constant below the first, the last slope goes on above.

    Raises `InputError` unless there is a point, sizes rise, nothing is negative and the last slope doesn't fall, since
    it would lead below zero.
    """

    points: Annotated[tuple[tuple[float, float], ...], Stored(each="[bytes, seconds]")]

    def __post_init__(self) -> None:
        if not self.points:
            raise InputError("points: must hold at least one [bytes, seconds], got none")
        for number, (size, duration_s) in enumerate(self.points):
            if not (math.isfinite(size) and math.isfinite(duration_s) and size >= 0 and duration_s >= 0):
                raise InputError(f"points[{number}]: must be two finite numbers >= 0, got [{size:g}, {duration_s:g}]")
            if number and size <= self.points[number - 1][0]:
                before = self.points[number - 1][0]
                raise InputError(
                    f"points[{number}]: bytes must rise from point to point, got {size:g} after {before:g}"
                )
        if not 0 <= self._last_slope < math.inf:
            rule = "not fall" if self._last_slope < 0 else "be further apart"
            first, second = self.points[-2:]
            raise InputError(f"points: the last two must {rule}, since their slope goes on, got {first} and {second}")

    @property
    def _last_slope(self) -> float:
        if len(self.points) < 2:
            return 0.0
        (size, duration_s), (next_size, next_duration_s) = self.points[-2:]
        return (next_duration_s - duration_s) / (next_size - size)

    def __call__(self, size_bytes: ArrayLike) -> Floats:
        """Seconds, in the shape of the sizes."""
        size = np.asarray(size_bytes, dtype=np.float64)
        at, duration_s = np.array(self.points).T
        beyond = self._last_slope * np.maximum(size - at[-1], 0.0)
        return np.asarray(np.interp(size, at, duration_s) + beyond)

    def highest_s(self, most_bytes: float) -> float:
        """The most that any size up to `most_bytes` costs, or any size that was measured."""
        beyond = self._last_slope * max(most_bytes - self.points[-1][0], 0.0)
        return max(duration_s for _, duration_s in self.points) + beyond

    def scaled(self, factor: float) -> PointsCost:
        """The same cost, `factor` times as high."""
        return PointsCost(tuple((size, factor * duration_s) for size, duration_s in self.points))

    def at_ratio(self, ratio: float) -> PointsCost:
        """The cost of `size / ratio` bytes as a function of `size`."""
        _check_ratio(ratio)
        return PointsCost(tuple((ratio * size, duration_s) for size, duration_s in self.points))

    def plus(self, other: AffineCost) -> PointsCost:
        """Both, one after the other."""
        if other == FREE:
            return self
        first_s = self.points[0][1]
        points = self.points if self.points[0][0] == 0 else ((0.0, first_s), *self.points)
        sums = [(size, duration_s + float(other(size))) for size, duration_s in points]
        beyond = 2 * points[-1][0] or 1.0  # one point alone would stay constant
        return PointsCost((*sums, (beyond, float(self(beyond) + other(beyond)))))


def _check_ratio(ratio: float) -> None:
    if not (math.isfinite(ratio) and ratio > 0):
        raise InputError(f"ratio: must be a finite number > 0, got {ratio}")


def least_cost(first: AffineCost, second: AffineCost) -> CostFunction:
    """The cheaper of two at each size."""
    low, high = sorted((first, second), key=lambda cost: (cost.alpha_s, cost.beta_s_per_byte))
    if low.beta_s_per_byte <= high.beta_s_per_byte:
        return low
    meet = (high.alpha_s - low.alpha_s) / (low.beta_s_per_byte - high.beta_s_per_byte)
    beyond = max(2 * meet, 1.0)
    return PointsCost(((0.0, low.alpha_s), (meet, float(high(meet))), (beyond, float(high(beyond)))))


CostFunction: TypeAlias = AffineCost | PointsCost

COSTS = {"affine": AffineCost, "points": PointsCost}
"""By their kinds in files."""

FREE = AffineCost(0.0, 0.0)
"""What costs nothing at all."""
