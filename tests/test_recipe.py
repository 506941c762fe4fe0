"""The recipe: whatever the encoding claims, the replay has the last word."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from pair_exchange import MadeUp, exchange

import gapless
from gapless import SolveOptions, Status, StopReason
from gapless.question import Asked
from gapless.question.entry import solve_options
from gapless.solution import Solution
from gapless.sweeps.question import limits_of
from gapless.system import Plan, System, register


@dataclass(frozen=True)
class Claimed(MadeUp):
    """A problem whose encoding claims that the exchange of two chunks takes `duration_s`."""

    duration_s: float | None


def claimed_plan(problem: Claimed, options: SolveOptions, parameters: object) -> Plan:
    duration_s = problem.duration_s
    claim = Solution(Status.OPTIMAL, StopReason.FINISHED, "test", "0", options.seed, 0.0, objective=duration_s)
    if duration_s is None:
        return Plan(Solution(Status.NO_SOLUTION, StopReason.TIME_LIMIT, "test", "0", 0, 0.0), None)
    return Plan(claim, exchange(duration_s))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.system._REGISTERED", {})
    register(System("test", "a test", Asked, claimed_plan))


def test_true_claim_is_confirmed() -> None:
    result = gapless.solve(Claimed(1.0))
    assert result.valid
    assert result.report is not None
    assert result.report.makespan_s == 1.0


def test_false_claim_is_found_out() -> None:
    result = gapless.solve(Claimed(0.5))
    assert result.status is Status.INVALID
    assert not result.valid


def test_no_plan_is_an_answer() -> None:
    result = gapless.solve(Claimed(None))
    assert result.status is Status.NO_SOLUTION
    assert (result.schedule, result.report, result.valid) == (None, None, False)


@dataclass(frozen=True)
class Loose(MadeUp):
    """A problem of a system that is content within 5 %."""

    @property
    def default_options(self) -> SolveOptions:
        return SolveOptions(gap=0.05, time_limit_s=60.0)


@pytest.mark.parametrize(
    ("options", "gap"),
    [
        (None, 0.05),
        (SolveOptions(time_limit_s=5), 0.05),
        (SolveOptions(time_limit_s=5).within(2), 0.05),
        (pickle.loads(pickle.dumps(SolveOptions().gap)), 0.05),
        (SolveOptions(time_limit_s=5, gap=0.0), 0.0),
        (SolveOptions(gap=0.01), 0.01),
    ],
)
def test_a_gap_that_is_not_stated_is_the_problems_own(
    options: SolveOptions | float | None, gap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr("gapless.system._REGISTERED", {})

    def plan(problem: Loose, options: SolveOptions, parameters: object) -> Plan:
        asked.append(options.gap)
        return Plan(Solution(Status.NO_SOLUTION, StopReason.TIME_LIMIT, "test", "0", 0, 0.0), None)

    register(System("test", "a test", Asked, plan))
    gapless.solve(Loose(), SolveOptions(gap=options) if isinstance(options, float) else options)
    assert asked == [gap]


def test_a_limit_alone_asks_the_question_of_the_command_line() -> None:
    problem = gapless.taccl.problem(topology="ring:4", collective="allgather", size="1MB")
    here, shell = (
        SolveOptions(time_limit_s=5).for_problem(problem.default_options),
        solve_options(problem, {"time_limit": 5}),
    )
    assert limits_of(here) == limits_of(shell)


def test_bit_sets_and_columns_are_plain_numpy() -> None:
    schedule = gapless.solve(Claimed(1.0)).schedule
    assert schedule is not None
    assert schedule.start_s.dtype == np.float64
