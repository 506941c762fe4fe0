"""The least budget under which a step takes no longer than it may: the inverse of the trade-off's curve."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from gapless.checker import Report, check
from gapless.encodings.monet.decisions import StepDecision
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.keepset import KeepSet
from gapless.encodings.monet.search.retention import keep_set_of
from gapless.encodings.monet.solve import solve
from gapless.errors import InputError
from gapless.ir.schedule import Schedule
from gapless.options import Progress, SolveOptions
from gapless.profiles.training.graph import TrainingGraph
from gapless.solution import Status
from gapless.system import Plan

__all__ = ["LeastBudget", "least_budget"]


@dataclass(frozen=True)
class LeastBudget:
    """Where the least budget lies: no plan that is as fast fits into `bound_bytes`, and `schedule` fits into
    `budget_bytes`, as `report` says, its replay.

    `bound_bytes` is proven, 0 where nothing is; the others are None where no plan was found. `solves`: how many budgets
    were tried.
    """

    cost_s: float
    bound_bytes: int
    budget_bytes: int | None
    schedule: Schedule | None
    report: Report | None
    solves: int


def least_budget(
    graph: TrainingGraph,
    cost_s: float,
    between_bytes: tuple[int, int],
    options: SolveOptions,
    tolerance_bytes: int,
) -> LeastBudget:
    """Bisect the budgets between the two given, until what is found and what is not lie within `tolerance_bytes`.

    `options` hold for each budget by itself; a solve ends as soon as it has a plan that takes at most `cost_s`, or has
    proven that there is none. The search for such a plan starts from those of neighbouring budgets. Where nothing was
    found and nothing proven, a second bisection below, in a quarter of the time each, moves the proof up. Raises
    `InputError` for budgets that are not ascending from 1, and for a tolerance below 1.
    """
    failed, high = between_bytes
    if not 1 <= failed < high or tolerance_bytes < 1:
        wrong = f"got {failed}, {high} and {tolerance_bytes}"
        raise InputError(f"least_budget: budgets must ascend from 1 and the tolerance be >= 1, {wrong}")
    low, bound_bytes, tried, starts = failed, 0, high, tuple[KeepSet, ...]()
    found: tuple[Schedule, Report] | None = None
    solves = 0
    while not options.stop.is_set() and (found is None or high - failed > tolerance_bytes):
        plan = _solve_until(Problem(graph, tried, starts), cost_s, options)
        solves += 1
        if isinstance(plan.decision, StepDecision):
            starts = (*starts[-1:], keep_set_of(graph, plan.decision.on(graph)))
        if _is_ruled_out(plan, cost_s):
            bound_bytes = max(bound_bytes, tried)
        if (fast := _if_as_fast(plan, cost_s)) is not None:
            high, found = tried, fast
        elif found is None:
            break
        else:
            failed = tried
        tried = (failed + high) // 2
    if found is None:
        return LeastBudget(cost_s, bound_bytes, None, None, None, solves)
    proven_bytes, more = _ruled_out(graph, cost_s, (max(low, bound_bytes), failed), options, tolerance_bytes)
    return LeastBudget(cost_s, max(bound_bytes, proven_bytes), high, *found, solves + more)


def _ruled_out(
    graph: TrainingGraph, cost_s: float, between_bytes: tuple[int, int], options: SolveOptions, tolerance_bytes: int
) -> tuple[int, int]:
    """The largest budget between two that is soon proven to be too little, 0 if none is; and how many were tried."""
    proven_bytes, solves = 0, 0
    low, high = between_bytes
    quick = options.within(None if options.time_limit_s is None else options.time_limit_s / 4)
    while high - low > tolerance_bytes and not options.stop.is_set():
        middle = (low + high) // 2
        solves += 1
        if _is_ruled_out(_solve_until(Problem(graph, middle), cost_s, quick), cost_s):
            low = proven_bytes = middle
        else:
            high = middle
    return proven_bytes, solves


def _if_as_fast(plan: Plan, cost_s: float) -> tuple[Schedule, Report] | None:
    """The schedule and its replay, if that is clean and takes no longer."""
    if plan.schedule is None:
        return None
    report = check(plan.schedule)
    return (plan.schedule, report) if report.valid and report.makespan_s <= cost_s else None


def _is_ruled_out(plan: Plan, cost_s: float) -> bool:
    bound_s = plan.solution.bound
    return plan.solution.status is Status.INFEASIBLE or (bound_s is not None and bound_s > cost_s)


def _solve_until(problem: Problem, cost_s: float, options: SolveOptions) -> Plan:
    """Solve until it is known whether a plan can be as fast, or the options say stop."""
    stop = threading.Event()

    def note(progress: Progress) -> None:
        is_found = progress.incumbent is not None and progress.incumbent <= cost_s
        is_ruled_out = progress.bound is not None and progress.bound > cost_s
        if is_found or is_ruled_out or options.stop.is_set():
            stop.set()
        if options.on_progress is not None:
            options.on_progress(progress)

    return solve(problem, replace(options, stop=stop, on_progress=note))
