"""MONeT's own method: a relaxation bounds the cost from below while a search over keep-sets brings it down from above.

Both go on until they meet within the gap, or the time is over. With two threads or more they run side by side. They
minimise time; least energy is their problem on a graph whose implementations take as many seconds as they use joules.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from gapless.checker import check
from gapless.encodings.monet.attempt import PROVEN, SOLVER, SOLVER_TOLERANCE, Attempt, stopped
from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.ilp import model as ilp
from gapless.encodings.monet.ilp.points import decode, first_point
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.relaxation import model as relaxation
from gapless.encodings.monet.relaxation.cuts import cut_lists, is_small
from gapless.encodings.monet.search.annealing import Annealing
from gapless.encodings.monet.search.keepset import Keeper, KeepSet
from gapless.options import Deadline, Progress, SolveOptions, charge, relative_gap
from gapless.solution import Status, StopReason
from gapless.solvers.registry import solve_model

__all__ = ["optimise"]

_REPORT_S = 0.5
"""The least time between two reports of the search."""


@dataclass
class _State:
    """What is known: the best keep-set, the bound, and where the time went."""

    problem: Problem
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    annealing: Annealing
    bound_s: float = 0.0
    is_infeasible: bool = False
    starts: list[KeepSet] = field(default_factory=list)
    stage_s: dict[str, float] = field(default_factory=dict)
    windows: int = 0
    exact: tuple[Decisions, float] | None = None

    @property
    def solver(self) -> str:
        """The backend of the models."""
        return self.options.solver or SOLVER

    @property
    def is_small(self) -> bool:
        """Whether single stages are windows of their own: in the relaxation's windows, and in the integer program."""
        return is_small(self.problem.graph, self.parameters.bounding.small_cells)

    @property
    def incumbent_s(self) -> float | None:
        """The cost of the best plan that fits."""
        costs_s = [] if self.annealing.best is None else [self.annealing.best.outcome.cost_s]
        return min([*costs_s, *([] if self.exact is None else [self.exact[1]])], default=None)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to do, or no time to do it."""
        return self.is_infeasible or self.deadline.over or self.is_close(self.incumbent_s)

    def is_close(self, cost_s: float | None) -> bool:
        """Whether a cost is within the gap."""
        gap = relative_gap(cost_s, self.bound_s)
        return gap is not None and gap <= max(self.options.gap, PROVEN)

    def prove(self, bound: float | None, unit_s: float) -> None:
        """Take up a bound that a solver has proven, in a model's unit."""
        if bound is not None:
            self.bound_s = max(self.bound_s, bound * unit_s * (1 - SOLVER_TOLERANCE))

    def report(self, phase: str) -> None:
        """Say where the search stands, and offer its best plan."""
        if self.options.on_plan is not None and self.incumbent_s is not None:
            self.options.on_plan(self.incumbent_s, partial(_attempt, self))
        if self.options.on_progress is not None:
            self.options.on_progress(Progress(self.deadline.elapsed_s, self.incumbent_s, self.bound_s or None, phase))


class _Enough(threading.Event):
    """Stands for the event that stops a solve, and counts as set once a model has given all that it can."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self._stop = stop
        self.reached = False

    def is_set(self) -> bool:
        """Whether to stop."""
        return self.reached or self._stop.is_set()

    def set(self) -> None:
        """Stop the whole solve."""
        self._stop.set()


def optimise(problem: Problem, options: SolveOptions, parameters: Parameters) -> Attempt:
    """Bound and search until the gap is reached or the time is over; `problem` is one of least time."""
    graph, deadline = problem.graph, Deadline(options)
    unit_s = sum(min(impl.duration_s for impl in node.implementations) for node in graph.forward) or 1.0
    keeper = Keeper(graph, problem.budget_bytes)
    annealing = Annealing(keeper, unit_s, options.seed, parameters.cooling, parameters.moves)
    state = _State(problem, options, parameters, deadline, annealing)
    state.starts.extend(annealing.look_at(start).keep for start in problem.starts)
    with charge(state.stage_s, "first bound"):
        _relax(state, 1.0, (1,), parameters.bounding.start_s, gap=parameters.bounding.start_gap)
    state.report("bound")
    if not state.is_over:
        with charge(state.stage_s, "search"):
            _search_and_bound(state)
    return _attempt(state)


def _attempt(state: _State) -> Attempt:
    """What it came to."""
    reason, details = stopped(state.options), dict[str, object]()
    if state.is_infeasible:
        reason, details = StopReason.FINISHED, _least_budget(state)
    elif state.is_close(state.incumbent_s):
        reason = StopReason.GAP_REACHED
    decisions = None if state.is_infeasible or state.incumbent_s is None else _best_decisions(state)
    if decisions is not None:
        details = {"states": state.annealing.states, "bound_windows": state.windows}
    solver = f"{state.solver}+annealing"
    return Attempt(
        decisions, reason, solver, state.bound_s, state.is_infeasible, details=details, timings=state.stage_s
    )


def _best_decisions(state: _State) -> Decisions:
    best = state.annealing.best
    if best is None or (state.exact is not None and state.exact[1] < best.outcome.cost_s):
        assert state.exact is not None
        return state.exact[0]
    return Keeper(state.problem.graph, state.problem.budget_bytes).decide(best.keep)


# -- the bound ---------------------------------------------------------------------------------------------------------


def _relax(
    state: _State,
    share: float,
    cuts: tuple[int, ...],
    limit_s: float,
    gap: float,
    stop: threading.Event | None = None,
) -> None:
    """Solve one relaxation; at the full budget it bounds the problem, at any it suggests a start."""
    model = relaxation.encode(state.problem.graph, int(state.problem.budget_bytes * share), cuts)
    enough = _Enough(state.options.stop if stop is None else stop)

    def note(progress: Progress) -> None:
        state.prove(progress.bound, model.unit_s)
        is_useless = progress.incumbent is not None and progress.incumbent * model.unit_s <= state.bound_s
        enough.reached = is_useless or state.is_over

    noted = note if share == 1.0 and gap == 0.0 else None
    stage = replace(state.deadline.stage(limit_s), gap=gap, threads=1, on_progress=noted, stop=enough)
    solution = solve_model(model.milp, stage, state.solver)
    if share == 1.0:
        state.is_infeasible |= solution.status is Status.INFEASIBLE
        if solution.bound is not None:
            state.prove(solution.bound, model.unit_s)
            state.windows = max(state.windows, len(cuts))
    if solution.values is not None:
        state.starts.append(relaxation.decode(model, solution.values))


def _solve_exactly(state: _State, stop: threading.Event, limit_s: float) -> None:
    """On a graph that is small enough, the integer program, from the best plan so far."""
    graph, budget_bytes, best = state.problem.graph, state.problem.budget_bytes, state.annealing.best
    if state.is_over or stop.is_set() or limit_s <= 0 or not state.is_small:
        return
    model = ilp.encode(graph, budget_bytes)
    enough = _Enough(stop)

    def note(progress: Progress) -> None:
        state.prove(progress.bound, model.unit)
        cost_s = None if progress.incumbent is None else progress.incumbent * model.unit
        enough.reached = state.is_over or state.is_close(cost_s)

    start = None if best is None else first_point(model, Keeper(graph, budget_bytes).decide(best.keep))
    stage = replace(state.deadline.stage(limit_s), gap=state.options.gap, threads=1, on_progress=note, stop=enough)
    solution = solve_model(model.milp, stage, state.solver, start)
    state.is_infeasible |= solution.status is Status.INFEASIBLE
    state.prove(solution.bound, model.unit)
    if solution.values is not None:
        decisions = decode(model, solution.values)
        # The paper's rows charge an intermediate that is made in place too little: the replay has the last word.
        cost_s = evaluate(graph, decisions).cost_s
        is_better = state.exact is None or cost_s < state.exact[1]
        if is_better and check(to_schedule(graph, decisions, budget_bytes)).valid:
            state.exact = (decisions, cost_s)
    state.report("exact")


def _improve_bound(state: _State, stop: threading.Event, upto_s: float = math.inf) -> None:
    """Relaxations with several windows, then the integer program on a small graph.

    `stop` ends what is running; `upto_s`: when it has to be over, in seconds of the solve.
    """
    bounding = state.parameters.bounding
    most_s = bounding.small_relaxation_s if state.is_small else bounding.relaxation_s
    for number, cuts in enumerate(cut_lists(state.problem.graph, state.is_small)):
        if number == bounding.lists_before_exact:
            _solve_exactly(state, stop, min(bounding.exact_s, upto_s - state.deadline.elapsed_s))
        limit_s = min(most_s, upto_s - state.deadline.elapsed_s)
        if state.is_over or stop.is_set() or limit_s <= 0:
            return
        _relax(state, 1.0, cuts, limit_s, gap=0.0, stop=stop)
        state.report("bound")
    _solve_exactly(state, stop, max(upto_s - state.deadline.elapsed_s, 0.0))


def _least_budget(state: _State) -> dict[str, object]:
    """For a budget that nothing fits: what every plan has to have, proven, and the least that a plan was found for."""
    graph, parameters = state.problem.graph, state.parameters
    model = relaxation.encode(graph, None)
    stage = replace(state.deadline.stage(parameters.bounding.start_s), gap=0.0, threads=1, on_progress=None)
    solution = solve_model(model.milp, stage, state.solver)
    bound_bytes = 0
    if solution.bound is not None:
        bound_bytes = int(solution.bound * (1 - SOLVER_TOLERANCE) * model.unit_bytes)
    details: dict[str, object] = {"least_budget_bound_bytes": bound_bytes, "least_budget_found_bytes": None}
    if solution.values is not None and not state.deadline.over:
        keeper, unit_s = Keeper(graph, max(bound_bytes, 1)), 1e-6 * model.unit_s
        annealing = Annealing(keeper, unit_s, state.options.seed, parameters.cooling, parameters.moves)
        keep, limit_s = relaxation.decode(model, solution.values), state.deadline.remaining_s
        annealing.round(keep, min(parameters.least_budget_s, limit_s), lambda: state.deadline.over)
        details["least_budget_found_bytes"] = bound_bytes + int(np.ceil(annealing.least_overflow_bytes))
    return details


# -- the search --------------------------------------------------------------------------------------------------------


def _search_and_bound(state: _State) -> None:
    """Both at once where there are two threads, else one after the other."""
    if state.options.thread_count > 1:
        stop = threading.Event()
        with ThreadPoolExecutor(1, "gapless-bound") as beside:
            bound = beside.submit(_improve_bound, state, stop)
            try:
                _look_at_starts(state)
                _anneal(state)
            finally:
                stop.set()  # a solver must not outlive the solve
        bound.result()
        return
    _look_at_starts(state)  # an interrupt of the bound is to find a plan
    bounding = state.parameters.bounding
    share_s = min(bounding.share * state.deadline.remaining_s, bounding.most_s)
    _improve_bound(state, state.options.stop, state.deadline.elapsed_s + share_s)
    _anneal(state)


def _look_at_starts(state: _State) -> None:
    """More starts, from relaxations of a tighter budget: often plans that fit, before any search."""
    bounding = state.parameters.bounding
    for share in bounding.tighter_budgets:
        if not state.is_over:
            _relax(state, share, (1,), bounding.start_s, bounding.start_gap)
    for start in tuple(state.starts):
        state.annealing.look_at(start)
    state.report("start")


def _anneal(state: _State) -> None:
    """Rounds from one start after the other, the best first, each followed by a cooler one from the best plan."""
    annealing, cooling = state.annealing, state.parameters.cooling
    if not state.starts:
        graph = state.problem.graph
        kept, variant = np.ones(len(graph.forward), dtype=np.bool_), np.zeros(len(graph.backward), dtype=np.int64)
        state.starts.append(KeepSet.just_in_time(kept, variant))
    watch = _watch(state)
    for number, duration_s in enumerate(_rounds(state)):
        if state.is_over:
            return
        ranked = sorted(state.starts, key=lambda keep: annealing.price_s(annealing.look_at(keep)))
        start, hot = ranked[number // 2 % len(ranked)], cooling.hot
        if number % 2 and annealing.best is not None:
            start, hot = annealing.best.keep, cooling.warm
        annealing.round(start, min(duration_s, state.deadline.remaining_s), watch, hot)
        state.report("search")


def _watch(state: _State) -> Callable[[], bool]:
    """Says whether to stop, and reports better plans, but not every one that a hot search comes upon."""
    reported_s, reported_at_s = state.incumbent_s, state.deadline.elapsed_s

    def watch() -> bool:
        nonlocal reported_s, reported_at_s
        if state.incumbent_s != reported_s and state.deadline.elapsed_s - reported_at_s >= _REPORT_S:
            reported_s, reported_at_s = state.incumbent_s, state.deadline.elapsed_s
            state.report("search")
        return state.is_over

    return watch


def _rounds(state: _State) -> Iterator[float]:
    """How long each round lasts, in seconds."""
    graph, cooling = state.problem.graph, state.parameters.cooling
    cells = len(graph.forward) * len(graph.backward)
    duration_s = max(cells / cooling.cells_per_s, cooling.least_round_s)
    while True:
        yield duration_s
        yield duration_s
        duration_s *= cooling.growth
