"""The search with a link to the host: from the best plan without one on, which it never falls behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.offload.keeper import OffloadKeeper
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.joint import optimise
from gapless.encodings.monet.search.keepset import KeepSet, Move
from gapless.encodings.monet.search.retention import keep_set_of
from gapless.encodings.monet.search.state import Attempt
from gapless.encodings.monet.study.baselines import lean_variants
from gapless.options import Deadline, SolveOptions

__all__ = ["first_offloaded", "optimise_travelling"]

_SHARE = 1 / 3
"""Of the time limit, for the plan without a link."""


def optimise_travelling(
    problem: Problem, options: SolveOptions, parameters: Parameters, others: Sequence[KeepSet] = ()
) -> Attempt:
    """The best plan without a link, then the same search with one, from that plan, from one that keeps all, and from
    `others`.
    """
    assert problem.link is not None
    graph, deadline = problem.graph, Deadline(options)
    alone = replace(problem, link=None)
    stage = replace(deadline.stage(deadline.remaining_s * _SHARE), on_plan=None, on_progress=None)
    without = optimise(alone, stage, parameters)
    keeper = OffloadKeeper(graph, problem.budget_bytes, problem.link)
    starts = [first_offloaded(keeper), *others]
    if without.decisions is not None:
        starts.insert(0, keep_set_of(graph, without.decisions))
    found = optimise(replace(problem, starts=(*problem.starts, *starts)), deadline.stage(), parameters)
    if without.decisions is None:
        return found
    without_s = evaluate(graph, without.decisions).cost_s
    details = {**found.details, "without_offload_s": without_s}
    if found.decisions is None or _cost_s(keeper, found) > without_s:
        return replace(found, decisions=without.decisions, is_infeasible=False, details=details)
    return replace(found, details=details)


def _cost_s(keeper: OffloadKeeper, found: Attempt) -> float:
    assert found.decisions is not None
    if not found.decisions.copies:
        return evaluate(keeper.graph, found.decisions).cost_s
    return keeper.state(keep_set_of(keeper.graph, found.decisions)).outcome.cost_s


def first_offloaded(keeper: OffloadKeeper) -> KeepSet:
    """Keep all, and offload one tensor after the other in the order of their making, until the step fits."""
    graph = keeper.graph
    state = keeper.state(KeepSet.just_in_time(np.ones(len(graph.forward), dtype=np.bool_), lean_variants(graph)))
    for node in keeper.travellers:
        if state.outcome.overflow_bytes <= 0:
            break
        if state.keep.kept[node]:
            state = keeper.moved(state, Move(offloaded=(node,)))
    return state.keep
