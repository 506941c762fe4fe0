"""Winners: which plans beat the library by more than its noise, and which sizes they serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats

__all__ = ["Contest", "Interval", "beats", "fastest", "intervals", "noise_of"]

_DRAWS = 1000
_QUANTILE = 0.95


@dataclass(frozen=True)
class Contest:
    """What was measured in a cell: seconds by call, of each plan by its number, and of the library in two series.

    A plan without times was given up. `wrong`: plans that ended with wrong numbers.
    """

    plan_s: Mapping[int, tuple[float, ...]]
    library_s: tuple[tuple[float, ...], tuple[float, ...]]
    wrong: tuple[int, ...] = ()

    @property
    def library_median_s(self) -> float:
        """Of both series; 0 where the library has no such collective."""
        return float(np.median(np.concatenate(self.library_s))) if self.library_s[0] else 0.0

    def median_s(self, plan: int) -> float | None:
        """Of a plan's calls, None where it was given up."""
        times_s = self.plan_s.get(plan, ())
        return float(np.median(times_s)) if times_s else None


def noise_of(library_s: tuple[Sequence[float], Sequence[float]], seed: int = 0) -> float:
    """How far the library's time is from itself: |m / n - 1| of two medians of equally many of its calls.

    The calls of both series are dealt anew to two halves, 1,000 times; 95 % of what is found is not more than this.
    """
    calls: Floats = np.concatenate([np.asarray(one, dtype=np.float64) for one in library_s])
    half = len(calls) // 2
    if not half:
        return 0.0
    dealt = np.random.default_rng(seed).permuted(np.tile(calls, (_DRAWS, 1)), axis=1)
    first, second = np.median(dealt[:, :half], axis=1), np.median(dealt[:, half:], axis=1)
    return float(np.quantile(np.abs(first / second - 1), _QUANTILE))


def beats(contest: Contest, plan: int, noise: float) -> bool:
    """Whether a plan's median is below the library's by more than the noise."""
    median_s = contest.median_s(plan)
    is_measured = median_s is not None and bool(contest.library_s[0])
    return is_measured and (median_s or 0.0) < contest.library_median_s * (1 - noise)


def fastest(contest: Contest) -> int | None:
    """The plan with the smallest median, None where there is none."""
    medians = {plan: contest.median_s(plan) for plan in contest.plan_s}
    known = [(median_s, plan) for plan, median_s in medians.items() if median_s is not None]
    return min(known)[1] if known else None


@dataclass(frozen=True)
class Interval:
    """The sizes, in bytes and both included, that a plan serves."""

    min_bytes: int
    max_bytes: int
    plan: int


def intervals(sizes: Sequence[int], ratios: Sequence[Mapping[int, float]]) -> list[Interval]:
    """Which plan serves which sizes of one collective in one group.

    `sizes`: those that were measured, ascending. `ratios`: for each, plan over library of the plans that beat the
    library there. A measured size has the plan with the smallest ratio. Sizes between two neighbours have the plan
    whose ratios at both have the smallest product, of those that beat the library at both. Others have none.
    """
    found: list[Interval] = []
    for place, (size, here) in enumerate(zip(sizes, ratios, strict=True)):
        if here:
            found.append(Interval(size, size, min(here, key=lambda plan: (here[plan], plan))))
        if place + 1 == len(sizes) or sizes[place + 1] - size < 2:
            continue
        after = ratios[place + 1]
        both = {plan: here[plan] * after[plan] for plan in here if plan in after}
        if both:
            found.append(Interval(size + 1, sizes[place + 1] - 1, min(both, key=lambda plan: (both[plan], plan))))
    return _merged(found)


def _merged(found: Sequence[Interval]) -> list[Interval]:
    """Neighbours with the same plan as one."""
    merged: list[Interval] = []
    for one in found:
        if merged and merged[-1].plan == one.plan and merged[-1].max_bytes + 1 == one.min_bytes:
            merged[-1] = Interval(merged[-1].min_bytes, one.max_bytes, one.plan)
        else:
            merged.append(one)
    return merged
