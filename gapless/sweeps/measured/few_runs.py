"""Choosing from few runs: where the budget doesn't measure each configuration, a model says which are worth a run.

Some runs are spread over the settings. Then, batch by batch, each run goes where a world that the model thinks possible
has its best configuration that keeps the limits (Thompson's sampling): where the model knows little, worlds differ, and
runs spread. The last part of the budget measures the few best again, so that what is chosen has runs of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from gapless.sweeps.measured.measure_file import Runs
from gapless.sweeps.measured.model import Posterior, fitted
from gapless.sweeps.measured.question import Question
from gapless.sweeps.measured.race import BUDGET, FAILED, INFEASIBLE, INTERRUPTED, WORSE, Measure, Race

__all__ = ["FewRuns", "few_runs"]

_SPREAD, _BATCH, _AGAIN = 1 / 4, 1 / 10, 1 / 3
"""Shares of the budget: runs that are spread over the settings, a batch, and the runs of the few best."""
_BEST = 4
"""How many are measured again."""


@dataclass
class FewRuns(Race):
    """A course whose configurations are judged by a model, also those without a run. `points`: their settings."""

    points: NDArray[np.float64] = field(kw_only=True)
    seed: int = field(kw_only=True)
    posteriors: tuple[Posterior, ...] = ()

    def left(self) -> list[int]:
        """The configurations that are not out, measured or not."""
        return [place for place in range(len(self.points)) if place not in self.out] if self.posteriors else []

    def mean(self, place: int) -> NDArray[np.float64]:
        """By metric, what the model expects."""
        return np.array([posterior.mean[place] for posterior in self.posteriors])

    def half_width(self, place: int, alpha: float) -> NDArray[np.float64]:
        """By metric, what the true mean exceeds it by with a probability of at most `alpha`, if the model is right."""
        return _quantile(alpha) * np.array([posterior.deviation[place] for posterior in self.posteriors])

    def exceeds(self, place: int, other: int) -> tuple[float, float]:
        """By how much at least, and at most, the one is better than the other."""
        mean, deviation = self.posteriors[self.question.metric].exceeds(place, other)
        half = _quantile(self.alpha) * deviation
        return self.question.sign * mean - half, self.question.sign * mean + half

    def worlds(self, places: Sequence[int], count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """True means that may be, of shape (count, places, metrics)."""
        if not self.posteriors:
            return np.empty((count, 0, 0))
        drawn = [posterior.drawn(count, generator) for posterior in self.posteriors]
        return np.stack(drawn, axis=2)[:, list(places)]

    def judge(self) -> None:
        """Fit the model anew; all but failures are judged anew, too."""
        self.estimate_again()
        if not self.measured:
            return
        places = [place for place, _ in self.measured]
        values = np.array(list(self.measured.values()))
        self.posteriors = tuple(fitted(self.points, places, column, self.seed) for column in values.T)
        self.out = dict.fromkeys(self.errors, FAILED)
        self.out |= {place: INFEASIBLE for place in self.left() if self.breaks(place)}
        best = next((place for place in self.ranked() if place in self.estimates and self.keeps(place)), None)
        if best is not None:
            self.out |= {place: WORSE for place in self.left() if self.exceeds(best, place)[0] > 0}

    def promising(self, places: Sequence[int], count: int, generator: np.random.Generator) -> list[int]:
        """In each of so many worlds, the best of `places` that keeps the limits; without one, who most often does."""
        if not self.posteriors:  # all that ran failed
            return [int(place) for place in generator.choice(places, count)]
        values = self.question.values(self.worlds(places, count, generator))
        likeliest = int(np.isfinite(values).sum(axis=0).argmax())
        best = np.where(np.isfinite(values).any(axis=1), values.argmax(axis=1), likeliest)
        return [places[number] for number in best]


def few_runs(
    points: NDArray[np.float64], runs: Runs, question: Question, confidence: float, measure: Measure, seed: int
) -> FewRuns:
    """Measure some of the configurations, and the most promising more often, until the budget is used up."""
    intervals = len(points) * (1 + len(question.limits))
    course = FewRuns(question, (1 - confidence) / intervals, points=points, seed=seed)
    generator, done = np.random.default_rng(seed), Counter[int]()
    asked = _spread(points, int(_SPREAD * runs.budget), generator)
    while asked:
        order = []
        for place in asked:
            order.append((place, done[place]))
            done[place] += 1
        heard = course.hear(measure(order))
        course.judge()
        if heard < len(order):
            course.stop_reason = INTERRUPTED
            return course
        asked = _next(course, done, runs, generator)
    if done.total() >= runs.budget:
        course.stop_reason = BUDGET
    return course


def _next(course: FewRuns, done: Counter[int], runs: Runs, generator: np.random.Generator) -> list[int]:
    """The runs of the next batch: promising ones, at the end the few best in turns."""
    left = runs.budget - done.total()
    places = [place for place in range(len(course.points)) if place not in course.errors and done[place] < runs.most]
    if not places or not left:
        return []
    batch = min(left, max(1, int(_BATCH * runs.budget)))
    if left > _AGAIN * runs.budget:
        wanted = course.promising(places, batch, generator)
    else:
        best = [place for place in course.ranked() if place in places][:_BEST] or places
        wanted = [best[turn % len(best)] for turn in range(batch)]
    asked: list[int] = []
    for place in wanted:
        if done[place] + asked.count(place) < runs.most:
            asked.append(place)
    return asked


def _spread(points: NDArray[np.float64], count: int, generator: np.random.Generator) -> list[int]:
    """So many places, each as far from those before it as one can be."""
    found = [int(generator.integers(len(points)))]
    nearest = np.full(len(points), np.inf)
    chance = 1e-9 * generator.random(len(points))  # between equals
    while len(found) < min(count, len(points)):
        nearest = np.minimum(nearest, ((points - points[found[-1]]) ** 2).sum(axis=1))
        nearest[found[-1]] = -1.0
        found.append(int((nearest + chance).argmax()))
    return found


def _quantile(alpha: float) -> float:
    return NormalDist().inv_cdf(1 - alpha)
