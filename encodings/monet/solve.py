"""The solver: a relaxation bounds the cost from below while a search over keep-sets brings it down from above.

Both go on until they meet within the gap, or the time is over. With two threads or more they run side by side. They
minimise time; least energy is their problem on a graph whose implementations take as many seconds as they use joules.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from gapless.checker import check
from gapless.encodings.monet import ilp, relaxation
from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.evaluate import Evaluation, evaluate
from gapless.encodings.monet.keepset import Keeper, KeepSet
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.relaxation_cuts import cut_lists, is_small
from gapless.encodings.monet.search import HOT, WARM, Annealing
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.profiles.training.graph import TrainingGraph
from gapless.solution import Solution, Status, StopReason
from gapless.solvers.registry import load_backend, solve_model
from gapless.system import Plan

__all__ = ["solve"]

SOLVER = "highs"
_SOLVER_TOLERANCE = 5e-7
"""A MILP solver keeps rows to about 1e-6: its bound is lowered by what that can be worth, so that it stays a bound."""
_PROVEN = 1e-6
"""The gap at which a plan counts as optimal: a bound can't come closer by more than its tolerance."""
_TIGHTER = (1.0, 0.9, 0.8)
"""Starts come from relaxations at these shares of the budget too, as the relaxation holds less than a plan has to."""
_START_S, _START_GAP = 3.0, 0.003
_TELL_S = 0.5
"""The least time between two reports of the search."""
_ROUND_CELLS_PER_S, _LEAST_ROUND_S = 3000.0, 4.0
"""The first round of annealing lasts a second for so many forward times backward nodes; later ones are longer."""
_LEAST_S = 5.0
"""How long to look for the least budget that a plan fits in, where the one that was given is impossible."""
_BOUND_SHARE, _BOUND_MOST_S = 0.3, 90.0
"""On one thread, the part of the time that the bound gets before the search begins, and the most of it."""
_BOUND_S, _SMALL_BOUND_S = 12.0, 60.0
"""How long the relaxation of one list of cuts may take, on a large graph and on a small one."""
_LISTS_BEFORE_EXACT, _EXACT_S = 3, 15.0
"""The full ILP has a first try after so many lists of cuts, for so long: where memory is ample, it soon knows better
plans than the search. It has the rest of the time after the last list."""


@dataclass
class _Search:
    """What is known: the best keep-set, the bound, and where the time went.

    `asked`: the problem as it was given. `problem`: the same as one of least time, `asked.as_time()`.
    """

    asked: Problem
    problem: Problem
    options: SolveOptions
    deadline: Deadline
    solver: str
    annealing: Annealing
    bound_s: float = 0.0
    is_infeasible: bool = False
    starts: list[KeepSet] = field(default_factory=list)
    stage_s: dict[str, float] = field(default_factory=dict)
    windows: int = 0
    exact: tuple[Decisions, float] | None = None

    @property
    def incumbent_s(self) -> float | None:
        """The cost of the best plan that fits."""
        costs_s = [] if self.annealing.best is None else [self.annealing.best.outcome.cost_s]
        return min([*costs_s, *([] if self.exact is None else [self.exact[1]])], default=None)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to do, or no time to do it."""
        gap = relative_gap(self.incumbent_s, self.bound_s)
        return self.is_infeasible or self.deadline.over or (gap is not None and gap <= max(self.options.gap, _PROVEN))

    def report(self, phase: str) -> None:
        """Tell the caller where the search stands."""
        if self.options.on_progress is not None:
            bound_s = self.bound_s or None
            progress = Progress(self.deadline.elapsed_s, self.incumbent_s, bound_s, phase, self.asked.unit)
            self.options.on_progress(progress)


class _Enough(threading.Event):
    """Stands for the event that stops a solve, and counts as set once a relaxation has told all that it can."""

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


def solve(asked: Problem, options: SolveOptions) -> Plan:
    """Bound and search until the gap is reached or the time is over, then spell out the best plan found."""
    problem = asked.as_time()
    solver = options.solver or SOLVER
    version = load_backend(solver)
    deadline = Deadline(options)
    keeper = Keeper(problem.graph, problem.budget_bytes)
    unit_s = sum(min(impl.duration_s for impl in node.implementations) for node in problem.graph.forward) or 1.0
    search = _Search(asked, problem, options, deadline, solver, Annealing(keeper, unit_s, options.seed))
    search.starts.extend(search.annealing.look_at(start).keep for start in problem.starts)
    _first_bound(search)
    if not search.is_over:
        _search_and_bound(search)
    return _plan(search, version)


# -- the bound ---------------------------------------------------------------------------------------------------------


def _first_bound(search: _Search) -> None:
    """The relaxation with one window: a bound, a start, or the proof that nothing fits."""
    begin_s = time.monotonic()
    _relax(search, 1.0, (1,), _START_S, gap=_START_GAP)
    search.stage_s["first bound"] = time.monotonic() - begin_s
    search.report("bound")


def _relax(
    search: _Search,
    share: float,
    cuts: tuple[int, ...],
    limit_s: float,
    gap: float,
    stop: threading.Event | None = None,
) -> None:
    """Solve one relaxation; at the full budget it bounds the problem, at any it suggests a start."""
    graph = search.problem.graph
    parts = relaxation.encode(graph, int(search.problem.budget_bytes * share), cuts)
    enough = _Enough(search.options.stop if stop is None else stop)

    def note(progress: Progress) -> None:
        if progress.bound is not None:
            search.bound_s = max(search.bound_s, progress.bound * parts.unit_s * (1 - _SOLVER_TOLERANCE))
        is_useless = progress.incumbent is not None and progress.incumbent * parts.unit_s <= search.bound_s
        enough.reached = is_useless or search.is_over

    noted = note if share == 1.0 and gap == 0.0 else None
    stage = replace(search.deadline.stage(limit_s), gap=gap, threads=1, on_progress=noted, stop=enough)
    solution = solve_model(parts.model, stage, search.solver)
    if share == 1.0:
        search.is_infeasible |= solution.status is Status.INFEASIBLE
        if solution.bound is not None:
            search.bound_s = max(search.bound_s, solution.bound * parts.unit_s * (1 - _SOLVER_TOLERANCE))
            search.windows = max(search.windows, len(cuts))
    if solution.values is not None:
        start = relaxation.decode(parts, solution.values)
        search.starts.append(KeepSet.just_in_time(start.kept, start.variant))


def _solve_exactly(search: _Search, stop: threading.Event, limit_s: float) -> None:
    """On a graph that is small enough, the full ILP, from the best plan so far."""
    graph, budget_bytes = search.problem.graph, search.problem.budget_bytes
    if search.is_over or stop.is_set() or limit_s <= 0 or not is_small(graph):
        return
    parts = ilp.encode(graph, budget_bytes)
    enough = _Enough(stop)

    def note(progress: Progress) -> None:
        if progress.bound is not None:
            search.bound_s = max(search.bound_s, progress.bound * parts.unit * (1 - _SOLVER_TOLERANCE))
        gap = None if progress.incumbent is None else relative_gap(progress.incumbent * parts.unit, search.bound_s)
        enough.reached = search.is_over or (gap is not None and gap <= max(search.options.gap, _PROVEN))

    best = search.annealing.best
    start = None
    if best is not None:
        start = ilp.first_point(parts, Keeper(graph, budget_bytes).decide(best.keep))
    stage = replace(search.deadline.stage(limit_s), gap=search.options.gap, threads=1, on_progress=note, stop=enough)
    solution = solve_model(parts.model, stage, search.solver, start)
    search.is_infeasible |= solution.status is Status.INFEASIBLE
    if solution.bound is not None:
        search.bound_s = max(search.bound_s, solution.bound * parts.unit * (1 - _SOLVER_TOLERANCE))
    if solution.values is not None:
        decisions = ilp.decode(parts, solution.values)
        # The paper's rows charge an intermediate that is made in place too little: the replay has the last word.
        cost_s = evaluate(graph, decisions).cost_s
        is_better = search.exact is None or cost_s < search.exact[1]
        if is_better and check(to_schedule(graph, decisions, budget_bytes)).valid:
            search.exact = (decisions, cost_s)
    search.report("exact")


def _improve_bound(search: _Search, stop: threading.Event, upto_s: float = math.inf) -> None:
    """Relaxations with several windows, then the full problem if it is small.

    `stop` ends what is running; `upto_s`: when it has to be over, in seconds of the solve.
    """
    most_s = _SMALL_BOUND_S if is_small(search.problem.graph) else _BOUND_S
    for number, cuts in enumerate(cut_lists(search.problem.graph)):
        if number == _LISTS_BEFORE_EXACT:
            _solve_exactly(search, stop, min(_EXACT_S, upto_s - search.deadline.elapsed_s))
        limit_s = min(most_s, upto_s - search.deadline.elapsed_s)
        if search.is_over or stop.is_set() or limit_s <= 0:
            return
        _relax(search, 1.0, cuts, limit_s, gap=0.0, stop=stop)
        search.report("bound")
    _solve_exactly(search, stop, max(upto_s - search.deadline.elapsed_s, 0.0))


# -- the search --------------------------------------------------------------------------------------------------------


def _search_and_bound(search: _Search) -> None:
    """Both at once where there are two threads, else one after the other."""
    begin_s = time.monotonic()
    if search.options.thread_count > 1:
        stop = threading.Event()
        with ThreadPoolExecutor(1, "gapless-bound") as beside:
            bound = beside.submit(_improve_bound, search, stop)
            try:
                _look_at_starts(search)
                _anneal(search)
            finally:
                stop.set()  # a solver must not outlive the solve
        bound.result()
    else:
        _look_at_starts(search)  # who interrupts the bound shall have a plan
        share_s = min(_BOUND_SHARE * search.deadline.remaining_s, _BOUND_MOST_S)
        _improve_bound(search, search.options.stop, search.deadline.elapsed_s + share_s)
        _anneal(search)
    search.stage_s["search"] = time.monotonic() - begin_s


def _look_at_starts(search: _Search) -> None:
    """More starts, from relaxations of a tighter budget: often plans that fit, before any search."""
    for share in _TIGHTER[1:]:
        if not search.is_over:
            _relax(search, share, (1,), _START_S, _START_GAP)
    for start in tuple(search.starts):
        search.annealing.look_at(start)
    search.report("start")


def _anneal(search: _Search) -> None:
    """Rounds from one start after the other, the best first, each followed by a cooler one from the best plan."""
    annealing = search.annealing
    if not search.starts:
        search.starts.append(_keep_everything(search.problem))
    told_s, told_at_s = search.incumbent_s, search.deadline.elapsed_s

    def watch() -> bool:
        """Whether to stop; tells of better plans, but not of every one that a hot search comes upon."""
        nonlocal told_s, told_at_s
        if search.incumbent_s != told_s and search.deadline.elapsed_s - told_at_s >= _TELL_S:
            told_s, told_at_s = search.incumbent_s, search.deadline.elapsed_s
            search.report("search")
        return search.is_over

    for number, duration_s in enumerate(_rounds(search.problem)):
        if search.is_over:
            return
        ranked = sorted(search.starts, key=lambda keep: annealing.price_s(annealing.look_at(keep)))
        start, hot = ranked[number // 2 % len(ranked)], HOT
        if number % 2 and annealing.best is not None:
            start, hot = annealing.best.keep, WARM
        annealing.round(start, min(duration_s, search.deadline.remaining_s), watch, hot)
        search.report("search")


def _rounds(problem: Problem) -> Iterator[float]:
    cells = len(problem.graph.forward) * len(problem.graph.backward)
    duration_s = max(cells / _ROUND_CELLS_PER_S, _LEAST_ROUND_S)
    while True:
        yield duration_s
        yield duration_s
        duration_s *= 1.5


def _keep_everything(problem: Problem) -> KeepSet:
    nodes = len(problem.graph.forward)
    variant = np.zeros(len(problem.graph.backward), dtype=np.int64)
    return KeepSet.just_in_time(np.ones(nodes, dtype=np.bool_), variant)


# -- the answer --------------------------------------------------------------------------------------------------------


def _plan(search: _Search, version: str) -> Plan:
    stopped = StopReason.INTERRUPTED if search.options.stop.is_set() else StopReason.TIME_LIMIT
    solution = Solution(
        status=Status.INFEASIBLE if search.is_infeasible else Status.NO_SOLUTION,
        stop_reason=StopReason.FINISHED if search.is_infeasible else stopped,
        solver=f"{search.solver}+annealing",
        version=version,
        seed=search.options.seed,
        wall_s=search.deadline.elapsed_s,
        bound=search.bound_s,
        unit=search.asked.unit,
    )
    if search.is_infeasible:
        details = _least_budget(search)
        return Plan(replace(solution, wall_s=search.deadline.elapsed_s), None, details)
    if search.incumbent_s is None:
        return Plan(solution, None)
    decisions = _best_decisions(search)
    schedule = to_schedule(search.asked.graph, decisions, search.asked.budget_bytes)
    if not check(schedule).valid:  # a view that can't share its bytes, for instance: better no plan than a false one
        return Plan(replace(solution, stop_reason=StopReason.OTHER_LIMIT), None)
    judged = evaluate(search.problem.graph, decisions)
    assert not judged.faults, judged.faults[0]
    assert judged.peak_bytes <= search.problem.budget_bytes, "a plan that fits passes the budget"
    assert search.bound_s <= judged.cost_s * (1 + 1e-9), "a plan beats its lower bound"
    gap = relative_gap(judged.cost_s, search.bound_s) or 0.0
    if gap <= _PROVEN:
        status, reason = Status.OPTIMAL, StopReason.FINISHED
    else:
        status, reason = Status.FEASIBLE, StopReason.GAP_REACHED if gap <= search.options.gap else stopped
    solution = replace(solution, status=status, stop_reason=reason, objective=judged.cost_s)
    return Plan(solution, schedule, _details(search, judged))


def _best_decisions(search: _Search) -> Decisions:
    best = search.annealing.best
    if best is None or (search.exact is not None and search.exact[1] < best.outcome.cost_s):
        assert search.exact is not None
        return search.exact[0]
    return Keeper(search.problem.graph, search.problem.budget_bytes).decide(best.keep)


def _least_budget(search: _Search) -> dict[str, object]:
    """For a budget that nothing fits: what every plan has to have, proven, and the least that a plan was found for."""
    graph = search.problem.graph
    parts = relaxation.encode(graph, None)
    stage = replace(search.deadline.stage(_START_S), gap=0.0, threads=1, on_progress=None)
    solution = solve_model(parts.model, stage, search.solver)
    bound_bytes = 0
    if solution.bound is not None:
        bound_bytes = int(solution.bound * (1 - _SOLVER_TOLERANCE) * relaxation.BYTES_PER_UNIT)
    details: dict[str, object] = {"least_budget_bound_bytes": bound_bytes, "least_budget_found_bytes": None}
    if solution.values is not None and not search.deadline.over:
        start = relaxation.decode(parts, solution.values)
        annealing = Annealing(Keeper(graph, max(bound_bytes, 1)), 1e-6 * parts.unit_s, search.options.seed)
        keep = KeepSet.just_in_time(start.kept, start.variant)
        annealing.round(keep, min(_LEAST_S, search.deadline.remaining_s), lambda: search.deadline.over)
        details["least_budget_found_bytes"] = bound_bytes + int(np.ceil(annealing.least_overflow_bytes))
    return details


def _least_s(graph: TrainingGraph) -> float:
    """What a step costs at least where memory is no limit: the backward nodes that could share an intermediate are
    charged with equal parts of making it."""
    least_s = [min(impl.duration_s for impl in node.implementations) for node in graph.forward]
    needs = [{need for variant in node.variants for need in variant.needs} for node in graph.backward]
    readers = Counter(need for its in needs for need in its)
    found_s = sum(its for its, node in zip(least_s, graph.forward, strict=True) if node.creator is None)
    for node in graph.backward:
        found_s += min(
            min(impl.duration_s for impl in variant.implementations)
            + sum(least_s[need] / readers[need] for need in variant.needs if graph.forward[need].creator is not None)
            for variant in node.variants
        )
    return found_s


def _details(search: _Search, judged: Evaluation) -> dict[str, object]:
    graph, unit = search.problem.graph, search.asked.unit
    least_s = _least_s(graph)
    overhead_s, bound_s = judged.cost_s - least_s, search.bound_s - least_s
    return {
        f"forward_{unit}": judged.forward_s,
        f"backward_{unit}": judged.backward_s,
        f"recompute_{unit}": judged.recompute_s,
        f"unlimited_{unit}": least_s,
        "overhead": overhead_s / least_s if least_s else 0.0,
        "overhead_bound": max(bound_s, 0.0) / least_s if least_s else 0.0,
        "model_peak_bytes": judged.peak_bytes,
        "states": search.annealing.states,
        "bound_windows": search.windows,
        "stages": {stage: round(duration_s, 6) for stage, duration_s in search.stage_s.items()},
    }
