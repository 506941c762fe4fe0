"""The race rules out what it should as often as it says, within its budget; the verdict says what isn't known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from noisy_configurations import METRICS, trial
from numpy.typing import NDArray

from gapless.sweeps.measured.measure_file import Runs
from gapless.sweeps.measured.question import read_question
from gapless.sweeps.measured.race import BUDGET, FAILED, FINISHED, INFEASIBLE, INTERRUPTED, WORSE, Run, race
from gapless.sweeps.measured.verdict import verdict

TRIALS = 200
MEANS = [(100, 700), (97, 700), (96, 300), (95, 500), (90, 400), (85, 300), (80, 200), (120, 1100)]
"""Throughput and memory; with at most 1000 of memory, the first is the best."""
LIMIT = ["memory<=1000"]


def test_the_chosen_one_is_right_in_95_percent_of_the_trials_and_the_likelihood_says_so() -> None:
    right, decided, wrong, likelihood = 0, 0, 0, 0.0
    for seed in range(TRIALS):
        course = trial(seed, MEANS, Runs(4, 64, 512), LIMIT)
        found = verdict(course, seed)
        right += found.chosen == 0
        decided += found.status == "decided"
        wrong += found.status == "decided" and found.chosen != 0
        likelihood += (found.likelihood or 0.0) / TRIALS
        assert len(course.measured) <= 512
    assert right >= 0.95 * TRIALS
    assert wrong <= 0.05 * TRIALS
    assert decided >= 0.5 * TRIALS
    assert abs(likelihood - right / TRIALS) < 0.05


def test_with_few_runs_the_likelihood_does_not_promise_more_than_comes_true() -> None:
    right, likelihood, trials = 0, 0.0, TRIALS // 2
    for seed in range(trials):
        course = trial(seed, MEANS, Runs(4, 64, 40), LIMIT)
        found = verdict(course, seed)
        right += found.chosen == 0
        likelihood += (found.likelihood or 0.0) / trials
        assert (course.stop_reason, len(course.measured)) == (BUDGET, 40)
    assert 0.5 < right / trials < 0.9
    assert 0.5 < likelihood < right / trials + 0.02


def test_equal_ones_are_not_ruled_out_in_95_percent_of_the_trials() -> None:
    decided = 0
    for seed in range(TRIALS):
        found = verdict(trial(seed, [(100, 1), (100, 1), (60, 1)], Runs(4, 32, 96)), seed)
        decided += found.status == "decided"
        assert found.chosen in (0, 1)
        assert 2 not in found.others
    assert decided <= 0.05 * TRIALS
    assert found.others == (1 - (found.chosen or 0),)
    assert found.gap is not None
    assert 0 < found.gap < 0.1


def test_what_breaks_a_limit_is_infeasible_and_what_is_worse_is_out() -> None:
    course = trial(0, [(100, 500), (50, 100), (200, 2000)], Runs(4, 32, 96), LIMIT)
    assert course.out == {1: WORSE, 2: INFEASIBLE}
    assert course.stop_reason == FINISHED
    assert len(course.measured) == 12
    found = verdict(course, 0)
    assert (found.status, found.chosen, found.is_kept, found.others, found.gap) == ("decided", 0, True, (), 0.0)
    assert found.on_front == {0, 1, 2}


def test_what_the_budget_does_not_pay_for_all_goes_to_the_better_half_and_again() -> None:
    course = trial(0, [(100 - place, 1) for place in range(9)], Runs(2, 64, 40))
    repeats = [sum(of == place for of, _ in course.measured) for place in range(9)]
    assert sorted(repeats) == [4] * 7 + [6] * 2  # 9 x 2, 9 x 2 more, and what is left goes to the best two
    assert {place for place in range(9) if repeats[place] == 6} <= set(range(5))
    assert course.stop_reason == BUDGET
    assert set(course.out) <= set(range(5, 9))


def test_what_is_ruled_out_gets_no_more_runs() -> None:
    course = trial(0, [(100, 1), (99, 1), (10, 1)], Runs(4, 16, 48))
    assert course.out == {2: WORSE}
    assert [sum(of == place for of, _ in course.measured) for place in range(3)] == [16, 16, 4]


def test_a_limit_that_none_keeps_is_infeasible_and_one_at_the_border_stays_open() -> None:
    over = verdict(trial(0, [(100, 5000), (90, 6000)], Runs(4, 32, 64), LIMIT), 0)
    assert (over.status, over.chosen, over.likelihood) == ("infeasible", None, None)
    border = verdict(trial(0, [(100, 1000)], Runs(4, 8, 8), ["memory<=1001"]), 0)
    assert (border.status, border.chosen, border.is_kept) == ("open", 0, False)
    assert 0.5 < (border.likelihood or 0) < 0.95


def test_min_is_max_of_the_negative() -> None:
    def measure(order: Sequence[Run]) -> Iterator[tuple[Run, NDArray[np.float64] | str]]:
        yield from ((run, np.array([[3.0, 1.0, 2.0][run[0]] + 0.01 * run[1], 1.0])) for run in order)

    question = read_question(METRICS, "min:throughput")
    assert verdict(race(3, Runs(3, 6, 18), question, 0.95, measure, 0), 0).chosen == 1


def test_a_configuration_that_fails_once_is_out_and_the_others_go_on() -> None:
    def measure(order: Sequence[Run]) -> Iterator[tuple[Run, NDArray[np.float64] | str]]:
        for place, repeat in order:
            yield (place, repeat), "it broke" if place == 1 else np.array([place + repeat / 100, 1.0])

    course = race(3, Runs(2, 8, 24), read_question(METRICS, "max:throughput"), 0.95, measure, 0)
    assert (course.out[1], course.errors) == (FAILED, {1: "it broke"})
    assert verdict(course, 0).chosen == 2
    assert all(place != 1 for place, _ in course.measured)


def test_all_that_fail_are_no_answer() -> None:
    def measure(order: Sequence[Run]) -> Iterator[tuple[Run, NDArray[np.float64] | str]]:
        yield from ((run, "it broke") for run in order)

    found = verdict(race(2, Runs(2, 4, 8), read_question(METRICS, "max:throughput"), 0.95, measure, 0), 0)
    assert (found.status, found.chosen, found.others) == ("no_solution", None, ())


@pytest.mark.parametrize("heard", [0, 1, 5, 7])
def test_what_is_cut_short_answers_from_what_is_measured(heard: int) -> None:
    def measure(order: Sequence[Run]) -> Iterator[tuple[Run, NDArray[np.float64] | str]]:
        yield from ((run, np.array([10.0 * run[0] + run[1] / 100, 1.0])) for run in order[:heard])

    course = race(4, Runs(2, 4, 16), read_question(METRICS, "max:throughput"), 0.95, measure, 0)
    assert (course.stop_reason, len(course.measured)) == (INTERRUPTED, heard)
    assert (verdict(course, 0).chosen is not None) == (heard >= 5)


def test_the_same_seed_asks_for_the_same_runs_and_another_for_another_order() -> None:
    orders = [list(trial(0, MEANS, Runs(4, 8, 64), LIMIT).measured) for _ in range(2)]
    assert orders[0] == orders[1]
    assert orders[0] != list(trial(1, MEANS, Runs(4, 8, 64), LIMIT).measured)
    assert sorted(place for place, _ in orders[0][:8]) == list(range(8))
