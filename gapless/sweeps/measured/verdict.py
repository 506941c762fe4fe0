"""The verdict of a race: what is chosen, how likely it is the best, what isn't ruled out, and the Pareto front.

Likelihoods are shares of worlds that are drawn as the measurements leave them possible. They say how the evidence lies;
what is out of the race is so with the confidence that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.sweeps.measured.question import Question
from gapless.sweeps.measured.race import INFEASIBLE, INTERRUPTED, Race

__all__ = ["Verdict", "verdict"]

DECIDED, OPEN, NONE, UNKNOWN = "decided", "open", "infeasible", "no_solution"
"""All others are out; some aren't ruled out; all break a limit; none is known to keep them."""

_WORLDS = 2000


@dataclass(frozen=True)
class Verdict:
    """`chosen`: by place. `likelihood`: that it keeps the limits and none that does is better. `others`: the places of
    others that aren't ruled out. `gap`: by how much of its value the best of these may be better, at most.
    `front`: by place, how likely it is on the Pareto front. `on_front`: who is there by the means.
    """

    status: str
    chosen: int | None
    is_kept: bool
    likelihood: float | None
    others: tuple[int, ...]
    gap: float | None
    front: Mapping[int, float]
    on_front: frozenset[int]


def verdict(race: Race, seed: int) -> Verdict:
    """What a race has found."""
    ranked = [place for place in race.ranked() if place in race.estimates and race.seems_to_keep(place)]
    places = race.judged()
    worlds = race.worlds(places, _WORLDS, np.random.default_rng(seed))
    front, on_front = _front(race, places, worlds)
    if not ranked:
        is_proven = bool(race.out) and set(race.out.values()) == {INFEASIBLE} and not race.left()
        known = race.stop_reason != INTERRUPTED and is_proven
        return Verdict(NONE if known else UNKNOWN, None, False, None, tuple(race.left()), None, front, on_front)
    chosen = ranked[0]
    others = tuple(place for place in race.ranked() if place != chosen)
    is_kept = race.keeps(chosen)
    ends_early = race.stop_reason == INTERRUPTED
    status = DECIDED if is_kept and not others and not ends_early else OPEN
    value = abs(float(race.mean(chosen)[race.question.metric]))
    most = max((race.exceeds(place, chosen)[1] for place in others), default=0.0)
    gap = max(most, 0.0) / value if value else None
    likelihood = _likelihood(race.question, worlds, places.index(chosen))
    return Verdict(status, chosen, is_kept, likelihood, others, gap, front, on_front)


def _likelihood(question: Question, worlds: NDArray[np.float64], chosen: int) -> float:
    """The share of worlds in which the chosen one keeps the limits, and is as good as any that does."""
    values = question.values(worlds)
    return float((np.isfinite(values[:, chosen]) & (values[:, chosen] >= values.max(axis=1))).mean())


def _front(race: Race, places: list[int], worlds: NDArray[np.float64]) -> tuple[dict[int, float], frozenset[int]]:
    """How likely each is on the front of the metrics that are asked about, and who is there by the means."""
    if not places:
        return {}, frozenset()
    metrics, signs = (np.array(part) for part in zip(*race.question.axes, strict=True))
    means = np.array([race.mean(place) for place in places])[None]
    shares = _undominated(worlds[:, :, metrics] * signs).mean(axis=0)
    now = _undominated(means[:, :, metrics] * signs)[0]
    front = {place: float(share) for place, share in zip(places, shares, strict=True)}
    return front, frozenset(place for place, is_there in zip(places, now, strict=True) if is_there)


def _undominated(worlds: NDArray[np.float64]) -> NDArray[np.bool_]:
    """By world and configuration: no other is as good in all metrics and better in one; more is better."""
    found = np.empty(worlds.shape[:2], dtype=bool)
    for place in range(worlds.shape[1]):
        own = worlds[:, place : place + 1]
        is_dominated = np.all(worlds >= own, axis=2) & np.any(worlds > own, axis=2)
        found[:, place] = ~np.any(is_dominated, axis=1)
    return found
