"""A solve that goes on hands over its best plan now and then: replayed, never a worse one, and whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from pair_exchange import MadeUp, exchange

import gapless
from gapless import SolveOptions, Status, StopReason, question
from gapless.anytime.incumbents import Incumbents
from gapless.checker import Report, check
from gapless.errors import InputError
from gapless.ir.schedule import Schedule
from gapless.solution import Solution
from gapless.system import Plan, System, register

PATIENCE_S = 600.0


def plan_of(duration_s: float) -> Plan:
    """The exchange of two chunks, in so many seconds; it takes at least one."""
    claim = Solution(Status.FEASIBLE, StopReason.TIME_LIMIT, "test", "0", 0, 0.0, objective=duration_s)
    return Plan(claim, exchange(duration_s))


@dataclass(frozen=True)
class Asked(MadeUp):
    """A problem whose system offers plans of these durations, waits for `wait`, and ends with 9 s or with `trouble`."""

    durations_s: tuple[float, ...]
    wait: Callable[[], object] = lambda: None
    trouble: type[BaseException] | None = None


def offering(problem: Asked, options: SolveOptions, parameters: object) -> Plan:
    assert options.on_plan is not None
    for duration_s in problem.durations_s:
        options.on_plan(duration_s, lambda duration_s=duration_s: plan_of(duration_s))  # type: ignore[misc]
    problem.wait()
    if problem.trouble is not None:
        raise problem.trouble
    return plan_of(9.0)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.system._REGISTERED", {})
    monkeypatch.setattr("gapless.recipe.INTERVAL_S", 0.0)
    register(System("test", "a test", question.Asked, offering))


def test_the_best_plan_is_in_its_file_while_the_solve_goes_on(tmp_path: Path) -> None:
    path, is_written = tmp_path / "plan.json", threading.Event()
    seen: list[gapless.Result] = []

    def save(result: gapless.Result) -> None:
        result.save(path)
        if result.solution.objective == 2.0:
            is_written.set()

    def wait() -> None:
        assert is_written.wait(PATIENCE_S)
        seen.append(gapless.load(path))

    assert gapless.solve(Asked((3.0, 2.0, 4.0), wait), on_result=save).solution.objective == 9.0
    assert seen[0].valid
    assert seen[0].report is not None
    assert seen[0].report.makespan_s == 2.0
    assert seen[0].solution.stop_reason is StopReason.INTERRUPTED


def test_no_plan_is_handed_over_that_does_not_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[object] = []
    is_replayed = threading.Event()

    def replay(schedule: Schedule) -> Report:
        report = check(schedule)
        if not report.valid:
            is_replayed.set()
        return report

    monkeypatch.setattr("gapless.io.plan.check", replay)
    gapless.solve(Asked((0.5,), lambda: is_replayed.wait(PATIENCE_S)), on_result=handed.append)
    assert is_replayed.is_set()
    assert handed == []


def test_worse_plans_are_never_made_and_nothing_is_kept_after_the_end() -> None:
    kept: list[float | None] = []
    news = threading.Semaphore(0)

    def keep(plan: Plan) -> None:
        kept.append(plan.solution.objective)
        news.release()

    with closing(Incumbents(keep, 0.0)) as incumbents:
        for cost in (5.0, 4.0):
            incumbents.offer(cost, lambda cost=cost: plan_of(cost))  # type: ignore[misc]
            assert news.acquire(timeout=PATIENCE_S)
        incumbents.offer(4.5, lambda: pytest.fail("worse than what is kept"))
        incumbents.offer(4.0, lambda: pytest.fail("no better than what is kept"))
    incumbents.offer(1.0, lambda: plan_of(1.0))
    assert kept == [5.0, 4.0]
    best = incumbents.best()
    assert best is not None
    assert best.solution.objective == 1.0


def test_a_file_that_cannot_be_written_is_tried_again() -> None:
    tries: list[float | None] = []
    is_kept = threading.Event()

    def keep(plan: Plan) -> None:
        tries.append(plan.solution.objective)
        if len(tries) < 3:
            raise InputError("cannot write plan.json: No space left on device; choose another path")
        is_kept.set()

    with closing(Incumbents(keep, 0.0)) as incumbents:
        incumbents.offer(5.0, lambda: plan_of(5.0))
        assert is_kept.wait(PATIENCE_S)
    assert tries == [5.0, 5.0, 5.0]


def test_nothing_is_kept_before_it_is_time() -> None:
    made: list[float] = []
    with closing(Incumbents(lambda plan: made.append(1.0), 3600.0)) as incumbents:
        incumbents.offer(5.0, lambda: pytest.fail("it is not time"))
    assert made == []


def test_out_of_memory_ends_with_the_best_plan_that_was_offered() -> None:
    result = gapless.solve(Asked((3.0, 2.0), trouble=MemoryError))
    assert result.valid
    assert result.report is not None
    assert (result.report.makespan_s, result.solution.stop_reason) == (2.0, StopReason.OUT_OF_MEMORY)
    nothing = gapless.solve(Asked((), trouble=MemoryError))
    assert (nothing.status, nothing.solution.stop_reason) == (Status.NO_SOLUTION, StopReason.OUT_OF_MEMORY)


def test_ctrl_c_in_a_notebook_ends_with_the_best_plan_that_was_offered() -> None:
    result = gapless.solve(Asked((3.0, 2.0), trouble=KeyboardInterrupt))
    assert result.valid
    assert (result.solution.objective, result.solution.stop_reason) == (2.0, StopReason.INTERRUPTED)
    with pytest.raises(KeyboardInterrupt):
        gapless.solve(Asked((), trouble=KeyboardInterrupt))
    second = SolveOptions()
    second.stop.set()
    with pytest.raises(KeyboardInterrupt):
        gapless.solve(Asked((3.0,), trouble=KeyboardInterrupt), second)
