"""The solver of ranks: the knapsack exactly, other limits by a MILP from a plan by prices, and the rules beside."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gapless import __version__
from gapless.budget import is_within
from gapless.encodings.ranks.baselines import RULES, all_baselines, best_at, regret
from gapless.encodings.ranks.limits import encode, switched
from gapless.encodings.ranks.lowering import phases_of, to_schedule
from gapless.encodings.ranks.parameters import DEFAULTS, Parameters
from gapless.encodings.ranks.problem import Problem
from gapless.errors import InputError
from gapless.io.record import Record
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.solution import Solution, Status, StopReason, claim_of
from gapless.solvers.proofs import solve_proven
from gapless.system import Plan

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["Found", "choose", "cost", "is_allowed", "solve"]

Ints = NDArray[np.int64]

_ROUNDING = 1e-9
"""Sums in another order differ by less than this share."""
_MARGIN = 1e-6
"""More than the share by which solvers let a row be broken."""
_LOWERING_S = 2e-4
"""What lowering, replaying and writing take for each layer of a phase at most; kept of a time limit."""


@dataclass(frozen=True)
class Found:
    """Modes of shape (E, L) that a method found, what they spoil, and a bound on that of all plans, if it has one."""

    modes: Ints
    error: float
    bound: float | None
    method: str


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """The best modes that the method finds, lowered, beside the rules of others at their data."""
    deadline, parameters = Deadline(options), parameters or DEFAULTS
    deadline.keep(_LOWERING_S * len(problem.starts) * problem.trace.layer_count)
    found, status = choose(problem, options, parameters, deadline)
    if found is None:
        return _nothing(problem, status, options, deadline)
    solution = claim_of(
        found.error, found.bound, options, solver=found.method, version=__version__, wall_s=deadline.elapsed_s,
        unit="error", source=found.method,
        otherwise=StopReason.FINISHED if found.bound is None else StopReason.WORK_LIMIT,
    )  # fmt: skip
    return Plan(solution, to_schedule(problem, found.modes), _details(problem, found, parameters, options.seed))


def choose(
    problem: Problem, options: SolveOptions, parameters: Parameters, deadline: Deadline
) -> tuple[Found | None, Status]:
    """What the problem's method finds; where that is nothing, what is known: infeasible, or no solution in time."""
    if problem.data_bytes is not None and not is_within(float(problem.cost.min(axis=2).sum()), problem.data_bytes):
        return None, Status.INFEASIBLE
    if problem.method in RULES:
        return _by_rule(problem, parameters, options.seed)
    if problem.is_knapsack and problem.method != "milp":
        assert problem.data_bytes is not None
        choice = best_at(problem.items(problem.starts), parameters.most_work)(problem.data_bytes)
        assert choice is not None
        modes = problem.spread(problem.starts, choice.modes)
        return Found(modes, choice.error, choice.bound, "budget"), Status.FEASIBLE
    start = None
    if problem.switches is not None and problem.data_bytes is not None:
        plan = switched(replace(problem, step_time_s=None), parameters.multipliers, parameters.most_work, deadline)
        start = None if plan is None else Found(plan.modes, plan.error, plan.bound, "prices")
    if start is not None and problem.step_time_s is None:
        _report(options, deadline, start)
        if (relative_gap(start.error, start.bound) or 0.0) <= max(options.gap, _ROUNDING):
            return start, Status.FEASIBLE
    return _by_milp(problem, options, deadline, start)


def _by_rule(problem: Problem, parameters: Parameters, seed: int) -> tuple[Found | None, Status]:
    """What somebody's rule makes of it, where that is within the limits."""
    assert problem.data_bytes is not None
    modes = RULES[problem.method](problem, problem.data_bytes, parameters, seed)
    fits = is_allowed(problem, modes)
    return (Found(modes, problem.spoiled(modes), None, problem.method) if fits else None), Status.NO_SOLUTION


def is_allowed(problem: Problem, modes: Ints) -> bool:
    """Whether modes, shape (E, L), keep to the data, the switches and the step time that are allowed."""
    phases = phases_of(modes)
    if problem.data_bytes is not None and problem.sent_bytes(modes) > problem.data_bytes:
        return False
    if len(phases) - 1 > (
        0 if problem.phases == "static" else math.inf if problem.switches is None else problem.switches
    ):
        return False
    return problem.step_time_s is None or all(
        is_within(problem.step.duration_s(modes[first]), problem.step_time_s) for first, _ in phases
    )


def _by_milp(
    problem: Problem, options: SolveOptions, deadline: Deadline, start: Found | None
) -> tuple[Found | None, Status]:
    """The MILP, from the start where that is allowed; again with a margin where the solver's point breaks a limit."""
    solver, bound = options.solver or "highs", None
    allowed = start if start is not None and is_allowed(problem, start.modes) else None
    for margin in (0.0, _MARGIN):
        encoding = encode(problem, margin)
        point = None if allowed is None else encoding.point(allowed.modes)
        solution = solve_proven(encoding.model, replace(deadline.stage(), on_plan=None), solver, point)
        if not margin:
            if solution.status is Status.INFEASIBLE:
                return None, Status.INFEASIBLE
            bound = None if solution.bound is None else encoding.unit * solution.bound
        modes = None if solution.values is None else problem.canonical(encoding.modes(solution.values))
        if modes is not None and is_allowed(problem, modes):
            break
    else:
        modes = None
    if modes is None or (allowed is not None and allowed.error < problem.spoiled(modes)):
        modes = None if allowed is None else allowed.modes
    if modes is None:
        return None, Status.NO_SOLUTION
    error = problem.spoiled(modes)
    proven = [each for each in (bound, None if start is None else start.bound) if each is not None]
    return Found(modes, error, max(proven, default=None), f"milp+{solver}"), Status.FEASIBLE


def _report(options: SolveOptions, deadline: Deadline, found: Found) -> None:
    if options.on_progress is not None:
        options.on_progress(Progress(deadline.elapsed_s, found.error, found.bound, found.method, unit="error"))


def _nothing(problem: Problem, status: Status, options: SolveOptions, deadline: Deadline) -> Plan:
    """No plan, and the least that any would send."""
    reason = StopReason.FINISHED if status is Status.INFEASIBLE else StopReason.OTHER_LIMIT
    solution = Solution(status, reason, problem.method, __version__, options.seed, deadline.elapsed_s, unit="error")
    least = int(problem.cost.min(axis=2).sum())
    cheapest = problem.trace.sent_bytes.argmin(axis=1)
    return Plan(solution, None, {
        "least_floats": least / FLOAT_BYTES, "cheapest_step_s": problem.step.duration_s(cheapest),
    })  # fmt: skip


def _details(problem: Problem, found: Found, parameters: Parameters, seed: int) -> dict[str, Any]:
    trace, phases, sent = problem.trace, phases_of(found.modes), problem.sent_bytes(found.modes)
    data_bytes = sent if problem.data_bytes is None else problem.data_bytes
    rules = all_baselines(problem, data_bytes, parameters, seed)
    lost = regret(problem, rules, parameters.regret_work)
    return {
        "method": found.method,
        "sent_floats": sent / FLOAT_BYTES,
        "error": found.error,
        "switch_count": len(phases) - 1,
        "step_times_s": [problem.step.duration_s(found.modes[first]) for first, _ in phases],
        "phases": [
            {"first_epoch": first, "epochs": end - first, "modes": [trace.modes[mode] for mode in found.modes[first]]}
            for first, end in phases
        ],
        "baselines": [
            {"name": each.name, "sent_floats": each.sent_bytes / FLOAT_BYTES, "error": each.error,
             "regret": None if math.isinf(lost[each.name]) else lost[each.name]}
            for each in rules
        ],
    }  # fmt: skip


def cost(problem: Problem, plan: SavedPlan, report: Report) -> float:
    """The error of the plan's modes, inf where they break a limit. Raises `InputError` for modes that aren't there."""
    trace = problem.trace
    number = {mode: place for place, mode in enumerate(trace.modes)}
    rows: list[list[int]] = []
    for phase in Record(dict(plan.details), "details").records("phases"):
        row = phase.array("modes")
        if len(row) != trace.layer_count or not set(map(str, row)) <= set(number):
            raise InputError("details: phases must have a mode of the trace for each layer")
        rows += [[number[str(mode)] for mode in row]] * phase.integer("epochs", 1)
    if len(rows) != trace.epoch_count:
        raise InputError(f"details: phases must have {trace.epoch_count} epochs, got {len(rows)}")
    modes = np.array(rows, dtype=np.int64)
    return problem.spoiled(modes) if is_allowed(problem, modes) else math.inf
