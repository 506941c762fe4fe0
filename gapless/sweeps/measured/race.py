"""The race: rounds that double the repeats of the configurations that are left, as in successive halving.

After each round, a configuration is out whose interval breaks a limit, or that is worse, by the interval of the
difference, than the best one that keeps all limits. The intervals are widened (Bonferroni's correction) so that all of
them together hold, over all rounds and configurations, with the confidence that was asked for. Where the budget doesn't
pay for a round of all that are left, the better half of them goes on, and again; the others wait, and are not out.

Within a round, repeats go round the configurations in a random order, so that a machine that slows down slows down
all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.sweeps.measured.measure_file import Runs
from gapless.sweeps.measured.question import Question
from gapless.sweeps.measured.student import Estimate, estimate

__all__ = ["BUDGET", "FAILED", "FINISHED", "INFEASIBLE", "INTERRUPTED", "WORSE", "Measure", "Race", "Run", "race"]

Run = tuple[int, int]
"""A configuration by its place, and which repeat of it."""

Measure = Callable[[Sequence[Run]], Iterator[tuple[Run, NDArray[np.float64] | str]]]
"""Measures runs; yields each with its metrics, or what went wrong. Once it is stopped, the rest is left out."""

INFEASIBLE, WORSE, FAILED = "infeasible", "worse", "failed"
"""Why a configuration is out."""

FINISHED, BUDGET, INTERRUPTED = "finished", "budget", "interrupted"
"""Why the race ended: nothing is left to find out (or each that is left has `most` repeats), or that."""


@dataclass
class Race:
    """The course so far. `alpha`: the probability of error of each single interval. `out`: why, by place."""

    question: Question
    alpha: float
    measured: dict[Run, NDArray[np.float64]] = field(default_factory=dict)
    out: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    estimates: dict[int, Estimate] = field(default_factory=dict)
    stop_reason: str = FINISHED

    def left(self) -> list[int]:
        """The configurations with an estimate that are not out."""
        return [place for place in sorted(self.estimates) if place not in self.out]

    def judged(self) -> list[int]:
        """The configurations that something is known of, out or not; such as failed are not."""
        return sorted({*self.left(), *self.out} - set(self.errors))

    def mean(self, place: int) -> NDArray[np.float64]:
        """By metric, the mean of what was measured."""
        return self.estimates[place].mean

    def half_width(self, place: int, alpha: float) -> NDArray[np.float64]:
        """By metric, what the true mean exceeds the mean by with a probability of at most `alpha`."""
        return self.estimates[place].half_width(alpha)

    def keeps(self, place: int) -> bool:
        """Whether the intervals of a configuration keep all limits."""
        mean, half = self.mean(place), self.half_width(place, self.alpha)
        return all(
            limit.sign * mean[limit.metric] + half[limit.metric] <= limit.sign * limit.value
            for limit in self.question.limits
        )

    def breaks(self, place: int) -> bool:
        """Whether the interval of a configuration breaks a limit."""
        mean, half = self.mean(place), self.half_width(place, self.alpha)
        return any(
            limit.sign * mean[limit.metric] - half[limit.metric] > limit.sign * limit.value
            for limit in self.question.limits
        )

    def seems_to_keep(self, place: int) -> bool:
        """Whether the means of a configuration keep all limits."""
        mean = self.mean(place)
        return all(limit.sign * mean[limit.metric] <= limit.sign * limit.value for limit in self.question.limits)

    def ranked(self) -> list[int]:
        """Those left, the best first: such as keep all limits, such as seem to, others; each by the mean."""
        sign, metric = self.question.sign, self.question.metric

        def rank(place: int) -> tuple[bool, bool, float, int]:
            keeps, seems = self.keeps(place), self.seems_to_keep(place)
            return not keeps, not seems, -sign * float(self.mean(place)[metric]), place

        return sorted(self.left(), key=rank)

    def exceeds(self, place: int, other: int) -> tuple[float, float]:
        """By how much at least, and at most, the one is better than the other."""
        first, second = self.estimates[place], self.estimates[other]
        return first.exceeds(second, self.question.metric, self.question.sign, self.alpha)

    def worlds(self, places: Sequence[int], count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """True means that may be, of shape (count, places, metrics): means and a Student t times their errors."""
        found = [self.estimates[place] for place in places]
        drawn = [one.mean + one.error * generator.standard_t(one.repeats - 1, (count, len(one.mean))) for one in found]
        return np.stack(drawn, axis=1) if drawn else np.empty((count, 0, 0))

    def hear(self, news: Iterable[tuple[Run, NDArray[np.float64] | str]]) -> int:
        """Keep what was measured; a configuration is out once it has failed. Returns how many runs there were."""
        count = 0
        for (place, repeat), found in news:
            count += 1
            if isinstance(found, str):
                self.out[place], self.errors[place] = FAILED, self.errors.get(place, found)
            else:
                self.measured[place, repeat] = found
        return count

    def estimate_again(self) -> None:
        """Means and errors of all that was measured twice."""
        samples: dict[int, list[NDArray[np.float64]]] = {}
        for place, repeat in sorted(self.measured):
            samples.setdefault(place, []).append(self.measured[place, repeat])
        self.estimates = {place: estimate(np.array(rows)) for place, rows in samples.items() if len(rows) > 1}

    def judge(self) -> None:
        """Estimate anew, and put out what is ruled out."""
        self.estimate_again()
        for place in self.left():
            if self.breaks(place):
                self.out[place] = INFEASIBLE
        ranked = self.ranked()
        if ranked and self.keeps(ranked[0]):
            for place in ranked[1:]:
                if self.exceeds(ranked[0], place)[0] > 0:
                    self.out[place] = WORSE

    @property
    def is_decided(self) -> bool:
        """Whether nothing is left to find out: none is left, or one that keeps the limits and that none can beat."""
        ranked = self.ranked()
        if not ranked:
            return True
        return self.keeps(ranked[0]) and all(self.exceeds(place, ranked[0])[1] <= 0 for place in ranked[1:])


def race(count: int, runs: Runs, question: Question, confidence: float, measure: Measure, seed: int) -> Race:
    """Measure so many configurations in rounds, until the question is decided or the runs are used up."""
    intervals = runs.rounds * count * (1 + len(question.limits))
    course = Race(question, (1 - confidence) / intervals)
    generator = np.random.default_rng(seed)
    done, remaining = dict.fromkeys(range(count), 0), runs.budget
    for number in range(runs.rounds):
        standing = course.ranked() if number else range(count)
        wanted = _wanted(standing, done, runs.repeats(number), remaining)
        if not any(wanted.values()):
            break
        order = _in_turns(wanted, done, generator)
        is_whole = course.hear(measure(order)) == len(order)
        remaining -= len(order)
        for place, more in wanted.items():
            done[place] += more
        course.judge()
        if not is_whole:
            course.stop_reason = INTERRUPTED
        if course.is_decided or not is_whole:
            return course
    if any(done[place] < runs.most for place in course.left()):
        course.stop_reason = BUDGET
    return course


def _wanted(standing: Sequence[int], done: dict[int, int], repeats: int, remaining: int) -> dict[int, int]:
    """How many runs each gets: up to `repeats`, for the better halves that the rest of the budget pays for."""
    kept = list(standing)
    while len(kept) > 2 and sum(repeats - done[place] for place in kept) > remaining:
        kept = kept[: -(-len(kept) // 2)]
    if sum(repeats - done[place] for place in kept) <= remaining:
        return {place: repeats - done[place] for place in kept}
    return {place: min(repeats - done[place], remaining // len(kept)) for place in kept}


def _in_turns(wanted: dict[int, int], done: dict[int, int], generator: np.random.Generator) -> list[Run]:
    """The runs, a repeat of each in turn, in a new random order each time."""
    places = np.array(list(wanted))
    return [
        (int(place), done[int(place)] + turn)
        for turn in range(max(wanted.values()))
        for place in generator.permutation(places)
        if turn < wanted[int(place)]
    ]
