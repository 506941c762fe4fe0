"""The recipe: whatever the encoding claims, the replay has the last word."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from pair_exchange import MadeUp, exchange

import gapless
from gapless import SolveOptions, Status, StopReason
from gapless.solution import Solution
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
    register(System("test", "a test", (), Claimed, claimed_plan))


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


def test_bit_sets_and_columns_are_plain_numpy() -> None:
    schedule = gapless.solve(Claimed(1.0)).schedule
    assert schedule is not None
    assert schedule.start_s.dtype == np.float64
