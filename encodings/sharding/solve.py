"""The solver of sharding: presolve, the methods in turn, and the choices of all nodes from what they found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless import __version__
from gapless.encodings.sharding.bounds import chains, closing, exact
from gapless.encodings.sharding.decision import ShardingDecision
from gapless.encodings.sharding.lanes import side_by_side
from gapless.encodings.sharding.lowering import to_schedule
from gapless.encodings.sharding.methods import Found, ShardingMethod, ShardingSearch, least_sum
from gapless.encodings.sharding.model.meshed import Published
from gapless.encodings.sharding.parameters import DEFAULTS, Parameters
from gapless.encodings.sharding.presolve.factors import OutOfTime
from gapless.encodings.sharding.presolve.reduced import Reduced, Step, reduced
from gapless.encodings.sharding.problem import Problem
from gapless.encodings.sharding.question import BEST
from gapless.encodings.sharding.search import descent, messages, windows
from gapless.errors import InputError
from gapless.io.typed import data_of
from gapless.methods import run_methods
from gapless.options import Deadline, SolveOptions
from gapless.solution import Solution, Status, StopReason
from gapless.system import Plan

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan
    from gapless.model import Model

__all__ = ["BEGINNING", "PROVING", "SEARCHING", "cost", "model_of", "solve"]

Ints = NDArray[np.int64]


def _is_searched(left: Reduced, parameters: Parameters) -> bool:
    """Whether plans are searched for: where the exact model isn't tried."""
    return not (exact.is_small(left, parameters) and parameters.methods.allows(exact.METHOD))


BEGINNING = (
    ShardingMethod(descent.METHOD, descent.descent),
    ShardingMethod(messages.METHOD, messages.messages, _is_searched),
    ShardingMethod(messages.METHOD, chains.first_bound, _is_searched),
)
SEARCHING = (ShardingMethod(windows.METHOD, windows.windows, _is_searched),)
PROVING = (
    ShardingMethod(closing.METHOD, closing.relaxation, closing.is_worth),
    ShardingMethod(exact.METHOD, exact.exact, exact.is_small),
    ShardingMethod(chains.METHOD, chains.prices, _is_searched),
)

_PRESOLVE = "presolve"
_LOWERING_S, _REPLAY_S = 4e-5, 3e-5
"""What expanding and lowering, and replaying and writing, take for each node and edge at most; kept of a limit."""


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """The best plan that the methods find, with the best bound; of published ones where presolve takes all the time."""
    deadline, parameters, instance = Deadline(options), parameters or DEFAULTS, problem.instance
    size = len(instance.costs) + len(instance.edges)
    deadline.keep(_REPLAY_S * size)
    steps: list[Step] = []
    try:
        left = reduced(instance, steps, lambda: deadline.over)
    except OutOfTime:
        return _out_of_time(problem, options, deadline)
    if left is None:
        nothing = Solution(
            Status.INFEASIBLE, StopReason.FINISHED, _PRESOLVE, __version__, options.seed, deadline.elapsed_s,
            unit="cost",
        )  # fmt: skip
        return Plan(nothing, None)

    def offer(cost: int, choices: Ints) -> None:
        if options.on_plan is not None:
            options.on_plan(float(cost), lambda: _plan(problem, replace(search, choices=choices, cost=cost)))

    until_s = max(deadline.remaining_s - _LOWERING_S * size, 0.5 * deadline.remaining_s)
    search = ShardingSearch(left, options, parameters, Deadline(deadline.stage(until_s)), offer, steps)
    search.offer(Found(_PRESOLVE, bound=least_sum(left)))
    if not left.node_count:
        search.offer(Found(_PRESOLVE, np.zeros(0, dtype=np.int64)))
    if problem.method == BEST:  # a published layout that is asked for is taken as it is
        for known in problem.published:
            search.offer(Found(known.name, left.nearest(known.choices)))
        run_methods(BEGINNING, (left, parameters), search, parameters.methods)
        if not search.is_over:
            side_by_side(search, SEARCHING, PROVING, parameters.methods)
    return _plan(problem, search)


def _out_of_time(problem: Problem, options: SolveOptions, deadline: Deadline) -> Plan:
    """The cheapest published layout, which needs no presolve, or nothing."""
    best = min(problem.published, key=lambda each: each.cost, default=None)
    claim = Solution(
        Status.NO_SOLUTION if best is None else Status.FEASIBLE, _reason(deadline), best.name if best else "none",
        __version__, options.seed, deadline.elapsed_s, objective=best.cost if best else None, unit="cost",
    )  # fmt: skip
    return _answer(problem, best, claim, {})


def _plan(problem: Problem, search: ShardingSearch) -> Plan:
    best = _best(problem, search)
    claim = _claim(search if best is None else replace(search, cost=best.cost, found_by=best.name))
    details = {"left_nodes": search.left.node_count, "presolve": list(map(data_of, search.steps))}
    return _answer(problem, best, claim, details)


def _answer(problem: Problem, best: Published | None, claim: Solution, details: Mapping[str, object]) -> Plan:
    if best is None:
        return Plan(claim, None, dict(details))
    choices, model = best.choices, problem.model
    known = problem.instance.evaluate(choices)
    assert not known.forbidden, f"{best.name} made a plan with a forbidden choice: {known.forbidden}"
    assert known.peak <= problem.instance.usage_limit, f"{best.name} made a plan above the limit"
    assert known.cost == best.cost, "presolve keeps costs"
    decision = ShardingDecision(tuple(choices.tolist()))
    if model is not None:
        decision = replace(decision, layouts=model.laid_out(choices), costs=model.costs)
    known_of = {"method": best.name, **details, **problem.remarks(best.cost)}
    return Plan(claim, to_schedule(problem.instance, choices), known_of, decision=decision)


def _best(problem: Problem, search: ShardingSearch) -> Published | None:
    """What the search has found, or a published layout that costs less or is asked for."""
    found = list(problem.published)
    if search.choices is not None and search.cost is not None and problem.method == BEST:
        found.insert(0, Published(search.found_by, search.left.expand(search.choices), search.cost))
    return min(found, key=lambda each: each.cost, default=None)


def _reason(deadline: Deadline) -> StopReason:
    return StopReason.TIME_LIMIT if deadline.has_struck else StopReason.WORK_LIMIT


def _claim(search: ShardingSearch) -> Solution:
    """What is claimed, in whole numbers: optimal where cost and bound are equal. A bound above the cost is false."""
    cost, bound, options = search.cost, search.bound, search.options
    reason = _reason(search.deadline)
    status = Status.NO_SOLUTION if cost is None else Status.FEASIBLE
    if search.is_infeasible and cost is None:
        status, reason, bound = Status.INFEASIBLE, StopReason.FINISHED, None
    elif cost is not None and bound is not None:
        if bound > cost:
            reason, bound = StopReason.CONTRADICTED, None
        elif bound == cost:
            status, reason = Status.OPTIMAL, StopReason.FINISHED
        elif search.is_proven:
            reason = StopReason.GAP_REACHED
    return Solution(
        status, reason, search.found_by or "none", __version__, options.seed, search.elapsed_s,
        objective=cost, bound=bound, unit="cost", bound_source="" if bound is None else search.bound_by,
    )  # fmt: skip


def model_of(problem: Problem) -> Model:
    """The exact model of what presolve leaves, for writing to a file. Raises `InputError` where it leaves nothing."""
    left = reduced(problem.instance)
    if left is None:
        raise InputError("instance: has no plan, as presolve proves, and so no model")
    return exact.encode(left).model


def cost(problem: Problem, plan: SavedPlan, report: Report) -> float:
    """What the plan's choices cost, inf where they are forbidden or above the limit. Raises `InputError` for choices
    that aren't there.
    """
    try:
        choices = ShardingDecision.of(plan).of_instance(problem.instance)
    except InputError as error:
        raise InputError(f"plan: {error}") from None
    known = problem.instance.evaluate(choices)
    is_allowed = not known.forbidden and known.peak <= problem.instance.usage_limit
    return known.cost if is_allowed else math.inf
