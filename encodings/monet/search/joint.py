"""MONeT's own method: a relaxation bounds the cost from below while a search over keep-sets brings it down from above.

Both go on until they meet within the gap, or their work is done, or the time is over. With two threads or more they run
side by side. They minimise time; least energy is their problem on a graph whose implementations take as many seconds as
they use joules.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from gapless.encodings.monet.bounds.claims import (
    bounding_strands,
    can_relax,
    confirm,
    first_relaxation,
    least_budget,
    linear_least_bytes,
)
from gapless.encodings.monet.bounds.must_hold import is_refuted, refuted_bytes
from gapless.encodings.monet.bounds.side_work import Beside, alone
from gapless.encodings.monet.bounds.updates import least_bytes
from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.evaluate import evaluate, unlimited_s
from gapless.encodings.monet.offload.keeper import keeper_of
from gapless.encodings.monet.parameters import Nesting, Parameters
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.annealing import STEPS, Annealing
from gapless.encodings.monet.search.keepset import Keeper, KeepSet
from gapless.encodings.monet.search.least_memory import least_nested, least_searched, narrowed, needed_bytes
from gapless.encodings.monet.search.nested import nested_checkpoints, smallest_variants
from gapless.encodings.monet.search.retention import keep_set_of
from gapless.encodings.monet.search.state import Attempt, Found, State
from gapless.encodings.monet.study.baselines import checkpoints_kept, evicted, lean_variants
from gapless.methods import run_methods
from gapless.methods.ledger import charge
from gapless.options import Deadline, SolveOptions
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.solution import StopReason

__all__ = ["first_plans", "nested_plans", "optimise"]

_REPORT_S = 0.5
"""The least time between two reports of the search."""


def optimise(problem: Problem, options: SolveOptions, parameters: Parameters, known_s: float = 0.0) -> Attempt:
    """Bound and search until the gap is reached or all work is done; `problem` is one of least time.

    `known_s`: a bound that the caller has, which ends the search but isn't claimed.
    """
    graph, deadline = problem.graph, Deadline(options)
    keeper = keeper_of(problem)
    unit_s = sum(min(impl.duration_s for impl in node.implementations) for node in graph.forward) or 1.0
    annealing = Annealing(keeper, unit_s, options.seed, parameters.cooling, parameters.moves)
    own_bound_s = unlimited_s(graph, out_of_place=False)
    state = State(problem, options, parameters, deadline, annealing, own_bound_s, known_s)
    state.least_bytes = least_bytes(problem.bound_graph, problem.updates)
    state.is_infeasible = state.least_bytes > problem.budget_bytes
    if not state.is_infeasible:
        with charge("starts"):
            _look_at(state, (*problem.starts, next(first_plans(keeper))))
        run_methods(FIRST, problem, state, parameters.methods)
        state.report("start")
    state.is_limited = True
    run_methods(IN_ORDER, problem, state, parameters.methods)
    with charge("proof"):
        confirm(state)
    return _attempt(state)


def _attempt(state: State) -> Attempt:
    """What it came to."""
    details: dict[str, object] = {"bound_windows": state.windows, **state.details}
    if state.is_infeasible:
        reason, details = StopReason.FINISHED, _least_budget(state)
    elif state.is_close(state.options.gap):
        reason = StopReason.GAP_REACHED
    elif state.options.stop.is_set():
        reason = StopReason.INTERRUPTED
    else:
        reason = StopReason.TIME_LIMIT if state.deadline.over else StopReason.WORK_LIMIT
    decisions = None
    if not state.is_infeasible and state.incumbent_s is None and state.problem.link is None:
        details = _nearest(state)
    elif not state.is_infeasible and state.incumbent_s is not None:
        decisions, details = state.best_plan(state.annealing.keeper)(), {"states": state.annealing.states, **details}
    return Attempt(decisions, reason, state.solver_title, state.bound_s, state.is_infeasible, details=details)


def _nearest(state: State) -> dict[str, object]:
    """Where neither a plan nor a proof was found: what every plan has to have, and the least that one was found for."""
    graph, least, found = state.problem.graph, state.annealing.least, [state.found_bytes]
    if least is not None and least.outcome.overflow_bytes + state.problem.budget_bytes < (
        state.found_bytes or math.inf
    ):
        found.append(needed_bytes(graph, state.annealing.keeper.decide(least.keep)))
    least_found = min((size for size in found if size is not None), default=None)
    return {"least_budget_bound_bytes": state.least_bytes, "least_budget_found_bytes": least_found}


def _least_budget(state: State) -> dict[str, object]:
    """For a budget that nothing fits: what every plan has to have, proven, and the least that a plan was found for."""
    graph, parameters = state.problem.graph, state.parameters
    bound_bytes, starts, nested = max(state.least_bytes, state.problem.budget_bytes + 1), list[KeepSet](), None
    keeps_all_bytes = max(peak_without_saving_bytes(graph), bound_bytes)
    if state.problem.link is not None:  # which nothing but the rows by themselves knows
        return {"least_budget_bound_bytes": bound_bytes, "least_budget_found_bytes": None}
    if state.cells <= parameters.nesting.most_cells:
        bound_bytes = 1 + refuted_bytes(graph, bound_bytes - 1, keeps_all_bytes)
    if can_relax(state):
        proven_bytes, keep = least_budget(state)
        bound_bytes, starts = max(bound_bytes, proven_bytes), [] if keep is None else [keep]
    if parameters.least_budget_steps and state.cells <= parameters.nesting.most_cells:
        between = (bound_bytes, max(keeps_all_bytes, bound_bytes))
        nested = least_nested(graph, between, parameters.nesting, lambda: state.deadline.over)
        starts += [] if nested is None else [keep_set_of(graph, nested[1])]
    found = [] if nested is None else [nested[0]]
    if starts and not state.deadline.over:
        seed, late = state.options.seed, lambda: state.deadline.over
        found += least_searched(graph, bound_bytes, starts, parameters, seed, late)
    least_found = min(found, default=None)
    if nested is not None and least_found is not None and state.cells <= parameters.fitting.most_cells:
        between = bound_bytes, least_found
        bound_bytes, least_found = narrowed(graph, between, parameters.fitting, state.deadline.stage())
    return {"least_budget_bound_bytes": bound_bytes, "least_budget_found_bytes": least_found}


# -- what comes first --------------------------------------------------------------------------------------------------


def _look_at(state: State, starts: Iterable[KeepSet]) -> None:
    """Keep-sets as starts of the search, until one leaves nothing to do."""
    for keep in starts:
        state.starts.append(state.annealing.look_at(keep).keep)
        if state.is_over:
            break


def _follow_rules(state: State) -> Iterator[Found]:
    """Starts by simple rules, beside keeping all, which any search starts from."""
    _look_at(state, islice(first_plans(state.annealing.keeper), 1, None))
    yield from ()


def _refute(state: State) -> Iterator[Found]:
    """Where nothing was found to fit, a proof that nothing does."""
    if _is_hard(state) and state.problem.link is None and is_refuted(state.problem.graph, state.problem.budget_bytes):
        state.least_bytes, state.is_infeasible = state.problem.budget_bytes + 1, True
    yield from ()


def _nest(state: State) -> Iterator[Found]:
    """Where nothing was found to fit, nested checkpoints; what they need at least, where they don't fit either."""
    graph, problem = state.problem.graph, state.problem.at_rest()
    if problem is None or not _is_hard(state):
        return
    for decisions, needed in nested_plans(problem, state.parameters.nesting):
        if needed <= problem.budget_bytes:
            state.plan = decisions, evaluate(graph, decisions).cost_s
            break
        state.found_bytes = min(needed, state.found_bytes or needed)
    yield from ()


def _is_hard(state: State) -> bool:
    return state.incumbent_s is None and state.cells <= state.parameters.nesting.most_cells


def _relax(state: State) -> Iterator[Found]:
    """Whether anything fits at all, where nothing was found; then the relaxation with one window."""
    if not can_relax(state):
        return
    if state.incumbent_s is None:
        state.least_bytes = max(state.least_bytes, linear_least_bytes(state) if state.problem.link is None else 0)
        state.is_infeasible = state.least_bytes > state.problem.budget_bytes
        if not state.is_infeasible:
            start = min(state.starts, key=lambda keep: state.annealing.look_at(keep).outcome.overflow_bytes)
            state.annealing.round(start, next(_rounds(state)), lambda: state.incumbent_s is not None or state.is_over)
            state.report("start")
    if not state.is_over and state.problem.link is None:  # whose relaxations suggest no travellers
        yield first_relaxation(state)


# -- the search --------------------------------------------------------------------------------------------------------


def _search_and_bound(state: State) -> None:
    """Both at once where there are two threads, else one step of either after the other."""
    strands = bounding_strands(state) if can_relax(state) else []
    is_parallel, slice_weight = state.options.thread_count > 1, state.parameters.bounding.slice_steps
    beside = Beside(strands, state.deadline, is_parallel, slice_weight)
    try:
        _anneal(state, beside)
        for found in beside.results(math.inf):
            state.offer(found)
            if state.is_over:
                break
    finally:
        unseen = beside.close()
    for found in unseen if state.deadline.over else ():
        state.offer(found)


def _anneal(state: State, beside: Beside[Found]) -> None:
    """Rounds from one start after the other, the best first, each followed by a cooler one from the best plan."""
    annealing, cooling = state.annealing, state.parameters.cooling
    watch, patience = _watch(state, beside), cooling.patience
    best = _progress(state)
    for number, steps in enumerate(_rounds(state)):
        ranked = sorted(state.starts, key=lambda keep: annealing.price_s(annealing.look_at(keep)))
        start, hot = ranked[number // 2 % len(ranked)], cooling.hot
        if number % 2 and annealing.best is not None:
            start, hot = annealing.best.keep, cooling.warm
        annealing.round(start, steps, watch, hot)
        state.report("search")
        patience, best = (cooling.patience if _progress(state) < best else patience - 1), _progress(state)
        if state.is_over or not patience:
            return


def _progress(state: State) -> tuple[float, float]:
    """What gets less as the search gets on: the cost, or as long as nothing fits, what is too much."""
    best_s = math.inf if state.incumbent_s is None else state.incumbent_s
    return best_s, state.annealing.least_overflow_bytes


def _watch(state: State, beside: Beside[Found]) -> Callable[[], bool]:
    """Says whether to stop, takes up what was found beside, and reports better plans, but not every one."""
    reported_s, reported_at_s, moment = state.incumbent_s, state.deadline.elapsed_s, 0

    def watch() -> bool:
        nonlocal reported_s, reported_at_s, moment
        moment += STEPS
        for found in beside.results(moment):
            state.offer(found)
        if state.incumbent_s != reported_s and state.deadline.elapsed_s - reported_at_s >= _REPORT_S:
            reported_s, reported_at_s = state.incumbent_s, state.deadline.elapsed_s
            state.report("search")
        return state.is_over

    return watch


def _rounds(state: State) -> Iterator[int]:
    """How many steps each round has."""
    cooling, number = state.parameters.cooling, 0
    while True:
        steps = cooling.steps_per_node * math.sqrt(state.cells) / cooling.excess(state.cells) ** 2
        steps *= cooling.growth ** (number // 2)
        steps /= 1.0 if state.problem.link is None else cooling.travelling
        yield max(STEPS, int(steps if state.incumbent_s is not None else steps / cooling.urgency))
        number += 1


def first_plans(keeper: Keeper) -> Iterator[KeepSet]:
    """Keep all; greedy eviction; Chen's checkpoints with eviction; keep nothing. Mostly, the later the less memory."""
    graph = keeper.graph
    variants = [lean_variants(graph), np.zeros(len(graph.backward), dtype=np.int64)]
    everything = np.ones(len(graph.forward), dtype=np.bool_)
    for variant in variants:
        yield KeepSet.just_in_time(everything, variant)
    for kept in (everything, checkpoints_kept(graph)):
        for variant in variants:
            yield evicted(keeper, KeepSet.just_in_time(kept, variant))
    yield KeepSet.just_in_time(~everything, variants[0])


def nested_plans(problem: Problem, nesting: Nesting) -> Iterator[tuple[Decisions, int]]:
    """Plans of nested checkpoints with the bytes that they need, which may be more than the budget."""
    graph, budget_bytes = problem.graph, problem.budget_bytes
    variants = smallest_variants(graph)
    for share in nesting.excess:
        decisions = nested_checkpoints(graph, budget_bytes, variants, int(share * budget_bytes), nesting)
        if decisions is not None and (needed := needed_bytes(graph, decisions)) is not None:
            yield decisions, needed


# -- the parts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A part of the search by name."""

    name: str
    found: Callable[[State], Iterator[Found]]

    def supports(self, problem: Problem) -> bool:
        """Every part can plan every question."""
        return True

    def run(self, search: State) -> Iterator[Found]:
        """What it finds; plans of keep-sets are noted by the annealing."""
        return self.found(search)


def _search(state: State) -> Iterator[Found]:
    _search_and_bound(state)
    yield from ()


def _solve_alone(state: State) -> Iterator[Found]:
    """The integer program, where there is no search that it goes on beside."""
    if state.allows("annealing") or not can_relax(state):
        return
    for work in (work for strand in bounding_strands(state) for work in strand.works):
        if state.is_over:
            return
        yield work(alone, threading.Event())[0]


FIRST = (
    _Part("rules", _follow_rules),
    _Part("refutation", _refute),
    _Part("nested", _nest),
)
"""What is tried for a first plan, in no time to speak of."""
IN_ORDER = (
    _Part("relaxation", _relax),
    _Part("annealing", _search),
    _Part("exact", _solve_alone),
)
"""What is tried then."""
