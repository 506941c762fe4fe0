"""The search with a link to the host: from the best plan without one on, which it never falls behind.

Where an optimiser's states may travel, it begins with as many on the host as the step's end has no room for and the
others there in between, and with all on the device; what travels for no use is then left where it is, one after the
other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from gapless.encodings.monet.bounds.updates import travelling_s
from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.evaluate import evaluate, unlimited_s
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.offload.keeper import OffloadKeeper, keeper_of
from gapless.encodings.monet.offload.trips import HOST, RESIDENT, VISITS, Trips
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.joint import optimise
from gapless.encodings.monet.search.keepset import KeepSet, Move
from gapless.encodings.monet.search.retention import keep_set_of
from gapless.encodings.monet.search.state import Attempt, is_within
from gapless.encodings.monet.study.baselines import lean_variants
from gapless.options import Deadline, Progress, SolveOptions
from gapless.solution import StopReason

__all__ = ["first_offloaded", "first_trips", "optimise_travelling", "settled"]

_SHARE = 1 / 3
"""Of the time limit, for the plan without a link."""
_LOOKS = 300
"""At other places for an optimiser's states, once the rest is decided."""


def optimise_travelling(
    problem: Problem, options: SolveOptions, parameters: Parameters, others: Sequence[KeepSet] = ()
) -> Attempt:
    """The best plan without a link, then the same search with one, from that plan, from one that keeps all, and from
    `others`.
    """
    graph, deadline, alone, without = problem.graph, Deadline(options), problem.at_rest(), None
    if alone is not None:
        stage = replace(deadline.stage(deadline.remaining_s * _SHARE), on_plan=None, on_progress=None)
        without = optimise(replace(alone, link=None), stage, parameters).decisions
    best = () if without is None else (keep_set_of(graph, without),)
    problem = replace(problem, starts=(*problem.starts, *best, first_offloaded(_keeper(problem)), *others))
    found = _with_link(problem, deadline, parameters)
    if without is None:
        return found
    without_s = evaluate(graph, without).cost_s
    details = {**found.details, "without_offload_s": without_s}
    if found.decisions is None or _cost_s(problem, found.decisions) > without_s:
        return replace(found, decisions=without, is_infeasible=False, details=details)
    return replace(found, details=details)


def _with_link(problem: Problem, deadline: Deadline, parameters: Parameters) -> Attempt:
    """The search with a link, for one choice of an optimiser's places after the other where there is one, until a plan
    is within the gap.
    """
    if problem.updates is None:
        return optimise(problem, deadline.stage(), parameters)
    graph, methods, link = problem.bound_graph, parameters, problem.link
    assert link is not None
    best, best_s, choices, states = None, math.inf, first_trips(problem), 0
    for number, trips in enumerate(choices):
        step_s = unlimited_s(graph, out_of_place=False) if best is None else best.bound_s
        known_s = travelling_s(graph, problem.updates, problem.budget_bytes, link, step_s)
        asked, stage = replace(problem, trips=trips), deadline.stage(deadline.remaining_s / (len(choices) - number))
        if best is not None and best.decisions is not None and is_within(best_s, known_s, stage.gap):
            best = replace(best, stop_reason=StopReason.GAP_REACHED)
            break
        found = optimise(asked, _never_worse(stage, best, best_s), methods, known_s)
        states += int(str(found.details.get("states", 0)))
        if found.decisions is not None:
            found = replace(found, decisions=settled(asked, found.decisions))
        cost_s = math.inf if found.decisions is None else _cost_s(asked, found.decisions)
        bound_s = found.bound_s if best is None else best.bound_s
        best, best_s = replace(found if cost_s < best_s or best is None else best, bound_s=bound_s), min(cost_s, best_s)
        if best.is_infeasible:
            break
        if stage.on_progress is not None and best.decisions is not None:
            stage.on_progress(Progress(deadline.elapsed_s, best_s, best.bound_s or None, "states"))
        methods = _unbounded(parameters)
    assert best is not None
    bound_s = travelling_s(graph, problem.updates, problem.budget_bytes, link, best.bound_s)
    return replace(best, bound_s=bound_s, details={**best.details, "states": states})


def _never_worse(options: SolveOptions, best: Attempt | None, best_s: float) -> SolveOptions:
    """These options, whose reports know of the best attempt so far, None for none, and of what its plan costs."""
    report = options.on_progress
    if report is None or best is None or math.isinf(best_s):
        return options
    known_s = best.bound_s

    def reported(news: Progress) -> None:
        incumbent_s, bound_s = min(best_s, news.incumbent or best_s), max(known_s, news.bound or 0.0)
        report(replace(news, incumbent=incumbent_s, bound=bound_s or None))

    return replace(options, on_progress=reported)


def _unbounded(parameters: Parameters) -> Parameters:
    """The same without what bounds the question, which it has done."""
    return replace(parameters, methods=replace(parameters.methods, without=(*parameters.methods.without, "relaxation")))


def _keeper(problem: Problem) -> OffloadKeeper:
    keeper = keeper_of(problem)
    assert isinstance(keeper, OffloadKeeper)
    return keeper


def _cost_s(problem: Problem, decisions: Decisions) -> float:
    if not decisions.copies:
        return evaluate(problem.graph, decisions).cost_s
    return float(to_schedule(problem.graph, decisions, None, problem.link, problem.updates).end_s.max())


def first_trips(problem: Problem) -> list[Trips]:
    """Places of an optimiser's states to begin with: what has no room on the device when the step ends lives on the
    host, what is updated first before the rest, which visits it; then all live on the host; then all stay.

    Where gradients may travel, all these are tried with them away, too.
    """
    updates, graph = problem.updates, problem.graph
    assert updates is not None
    found, count = list[Trips](), len(updates.states_bytes)
    for is_gone in (False, True) if updates.gradients == "offloaded" else (False,):
        last_bytes = graph.fixed_bytes if is_gone else max(node.fixed_bytes for node in graph.backward)
        beside_bytes = max(s + g * is_gone for s, g in zip(updates.states_bytes, updates.gradients_bytes, strict=True))
        room_bytes, states = problem.budget_bytes - last_bytes - beside_bytes, list[int]()
        for size_bytes in reversed(updates.states_bytes):
            states.append(VISITS if room_bytes >= size_bytes else HOST)
            room_bytes -= size_bytes
        places = [tuple(reversed(states)), (HOST,) * count] if updates.total_bytes else []
        found += [Trips(updates, each, (is_gone,) * count) for each in (*places, (RESIDENT,) * count)]
    return list(dict.fromkeys(found))


def settled(problem: Problem, decisions: Decisions) -> Decisions:
    """The plan with one state or gradient after the other at the place that makes it quickest, of those that are as
    quick the one with less to carry.
    """
    trips = problem.trips
    if trips is None or not decisions.copies:
        return decisions
    keep, count, looks = keep_set_of(problem.graph, decisions), len(trips.states), 0
    best = _carried(problem, keep, trips)
    for b in range(count):
        others = [replace(trips, states=_with(trips.states, b, place)) for place in (RESIDENT, VISITS, HOST)]
        if trips.updates.gradients == "offloaded":
            others.append(replace(trips, gradients=_with(trips.gradients, b, not trips.gradients[b])))
        for other in others if trips.updates.gradients_bytes[b] and looks < _LOOKS else ():
            looks += 1
            value = _carried(problem, keep, other)
            if value < best:
                best, trips = value, other
    return _keeper(replace(problem, trips=trips)).decide(keep)


def _carried(problem: Problem, keep: KeepSet, trips: Trips) -> tuple[float, float, int]:
    """What is too much, the time, and the bytes that travel."""
    outcome = _keeper(replace(problem, trips=trips)).state(keep).outcome
    return outcome.overflow_bytes, outcome.cost_s, sum(trip.size_bytes for trip in trips.trips(0))


_Value = TypeVar("_Value")


def _with(values: tuple[_Value, ...], place: int, value: _Value) -> tuple[_Value, ...]:
    return (*values[:place], value, *values[place + 1 :])


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
