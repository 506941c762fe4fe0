"""The solver of ranks: the knapsack exactly, other limits by a MILP from a plan by prices, and the rules beside."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless import __version__
from gapless.encodings.ranks.baselines import baseline_rows
from gapless.encodings.ranks.decision import ModeDecision
from gapless.encodings.ranks.lowering import to_schedule
from gapless.encodings.ranks.methods import Found, ModeSearch, asked_methods, is_allowed
from gapless.encodings.ranks.parameters import DEFAULTS, Parameters
from gapless.encodings.ranks.problem import Problem
from gapless.errors import InputError
from gapless.io.typed import data_of
from gapless.methods import run_methods
from gapless.model.knapsack import is_within
from gapless.options import Deadline, SolveOptions
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.solution import Solution, Status, StopReason, claim_of
from gapless.system import Plan

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["cost", "solve"]

Ints = NDArray[np.int64]

_LOWERING_S = 2e-4
"""What lowering, replaying and writing take for each layer of a phase at most; kept of a time limit."""


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """The best modes that the methods find, lowered, beside the rules of others at their data."""
    deadline, parameters = Deadline(options), parameters or DEFAULTS
    deadline.keep(_LOWERING_S * len(problem.starts) * problem.trace.layer_count)
    methods = asked_methods(problem, parameters.methods)
    if problem.data_bytes is not None and not is_within(float(problem.cost.min(axis=2).sum()), problem.data_bytes):
        return _nothing(problem, Status.INFEASIBLE, options, deadline)
    search = ModeSearch(problem, options, parameters, deadline)
    run_methods(methods, problem, search)
    found = search.best
    if found is None:
        return _nothing(problem, search.status, options, deadline)
    solution = claim_of(
        found.error, found.bound, options, solver=found.method, version=__version__, wall_s=deadline.elapsed_s,
        unit="error", source=found.method,
        otherwise=StopReason.FINISHED if found.bound is None else StopReason.WORK_LIMIT,
    )  # fmt: skip
    decision = ModeDecision.made_of(found.modes, problem.trace.modes)
    details = _details(problem, found, decision, parameters, options.seed)
    return Plan(solution, to_schedule(problem, found.modes), details, decision=decision)


def _nothing(problem: Problem, status: Status, options: SolveOptions, deadline: Deadline) -> Plan:
    """No plan, and the least that any would send."""
    reason = StopReason.FINISHED if status is Status.INFEASIBLE else StopReason.OTHER_LIMIT
    solution = Solution(status, reason, problem.method, __version__, options.seed, deadline.elapsed_s, unit="error")
    least = int(problem.cost.min(axis=2).sum())
    cheapest = problem.trace.sent_bytes.argmin(axis=1)
    return Plan(solution, None, {
        "least_floats": least / FLOAT_BYTES, "cheapest_step_s": problem.step.duration_s(cheapest),
    })  # fmt: skip


def _details(
    problem: Problem, found: Found, decision: ModeDecision, parameters: Parameters, seed: int
) -> dict[str, object]:
    phases, sent = decision.phases, problem.sent_bytes(found.modes)
    data_bytes = sent if problem.data_bytes is None else problem.data_bytes
    return {
        "method": found.method,
        "sent_floats": sent / FLOAT_BYTES,
        "error": found.error,
        "switch_count": len(phases) - 1,
        "step_times_s": [problem.step.duration_s(found.modes[phase.first_epoch]) for phase in phases],
        **data_of(decision),
        "baselines": baseline_rows(problem, data_bytes, parameters, seed),
    }


def cost(problem: Problem, plan: SavedPlan, report: Report) -> float:
    """The error of the plan's modes, inf where they break a limit. Raises `InputError` for modes that aren't there."""
    trace = problem.trace
    number = {mode: place for place, mode in enumerate(trace.modes)}
    rows = ModeDecision.of(plan).by_epoch
    if any(len(row) != trace.layer_count or not set(row) <= set(number) for row in rows):
        raise InputError("plan: phases must have a mode of the trace for each layer")
    if len(rows) != trace.epoch_count:
        raise InputError(f"plan: phases must have {trace.epoch_count} epochs, got {len(rows)}")
    modes = np.array([[number[mode] for mode in row] for row in rows], dtype=np.int64)
    return problem.spoiled(modes) if is_allowed(problem, modes) else math.inf
