"""The bound beside the search: relaxations, then the integer program; and what makes a proof of their claims.

The backward pass is cut into the windows of a relaxation by one list of cuts after the other. No list is best for all
graphs, and which one is shows only when they are tried: at UNet's 5 GiB these bounds differ by 4 %. One that is
no use is noticed early: its own best point costs no more than what is proven already.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.checker import check
from gapless.encodings.monet.bounds import relaxation
from gapless.encodings.monet.bounds.side_work import Advance, Strand, Work
from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.ilp import model as ilp
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.search.keepset import KeepSet
from gapless.encodings.monet.search.state import SOLVER_TOLERANCE, UNCONFIRMED_GAP, Found, State
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.profiles.training.graph import TrainingGraph
from gapless.solution import PROVEN_GAP, Solution, Status, StopReason
from gapless.solvers.proofs import confirmed, dual_bound
from gapless.solvers.registry import solve_model

__all__ = [
    "bounding_strands",
    "can_relax",
    "confirm",
    "cut_lists",
    "first_relaxation",
    "least_budget",
    "linear_least_bytes",
]


@dataclass(frozen=True)
class _Cuts:
    """Shares of the backward pass: at `plain` a window begins, a stage at `single` is a window of its own.

    From `tail` on, each stage is a window of its own.
    """

    plain: tuple[float, ...] = ()
    single: tuple[float, ...] = ()
    tail: float = 1.0

    def stages(self, count: int) -> tuple[int, ...]:
        """The stages at which windows begin, out of `count`."""
        single = [1 + int(share * count) for share in self.single]
        tail = range(1 + int(self.tail * count), count + 1)
        cuts = {1, *(1 + int(share * count) for share in self.plain), *single, *(stage + 1 for stage in single), *tail}
        return tuple(sorted(stage for stage in cuts if stage <= count))


_ANY = (_Cuts(), _Cuts((0.35,)), _Cuts((0.23, 0.69)))
_SMALL = (_Cuts((0.69,), single=(0.223, 0.34)), _Cuts((0.35,), tail=0.58))
"""On a graph that is small enough: single stages in the middle, where a network with skips from end to end holds the
most gradients, and at the end, where a chain holds its largest tensors. The latter closes VGG-16's gap in seconds."""
_MORE = (_Cuts((0.25,)), _Cuts((0.33, 0.66)), _Cuts((0.5,)), _Cuts((0.2, 0.45, 0.7)))


def cut_lists(graph: TrainingGraph, is_small: bool) -> Iterator[tuple[int, ...]]:
    """The stages at which windows begin, ascending from 1; the lists that are mostly best first."""
    seen = set()
    for cuts in (*_ANY, *(_SMALL if is_small else ()), *_MORE):
        stages = cuts.stages(len(graph.backward))
        if stages not in seen:
            seen.add(stages)
            yield stages


_ENCODING_S = 3e-4
"""Seconds of a node that a relaxation with one window may take to be set up, on a busy machine."""


def can_relax(state: State) -> bool:
    """Whether time is left to set up a relaxation."""
    graph = state.problem.graph
    if state.deadline.remaining_s > _ENCODING_S * (len(graph.forward) + len(graph.backward)):
        return True
    state.deadline.strike()
    return False


def first_relaxation(state: State) -> Found:
    """The relaxation with one window, for a bound and a start; it ends once its bound leaves nothing to look for."""
    bounding, is_enough = state.parameters.bounding, threading.Event()

    def advance(weight: float, bound: float = -math.inf, interim: Callable[[], object] | None = None) -> None:
        if state.is_close(state.options.gap, bound):
            is_enough.set()

    return _relaxing(state, (1,), bounding.start_steps, bounding.start_gap)(advance, is_enough)[0]


def bounding_strands(state: State) -> list[Strand[Found]]:
    """What bounds in turns: relaxations; and on a small graph, after a first one, the integer program."""
    bounding, exacts = state.parameters.bounding, iter(list[Work[Found]]())
    if state.is_small and state.allows("exact") and state.problem.link is None:
        exacts = (_solving_exactly(state, steps) for steps in (bounding.exact_steps,))
    if not state.allows("relaxation"):
        return [Strand(exacts)]
    return [Strand(_relaxings(state)), Strand(exacts, after=1)]


def _relaxings(state: State) -> Iterator[Work[Found]]:
    """Starts of tighter budgets, then relaxations with several windows.

    On a small graph more steps for those whose own best point is above what is proven, the highest first.
    """
    bounding, best_s = state.parameters.bounding, dict[tuple[int, ...], float]()
    for share in bounding.tighter_budgets if state.problem.link is None else ():
        yield _relaxing(state, (1,), bounding.start_steps, bounding.start_gap, share)
    for number, cuts in enumerate(cut_lists(state.problem.graph, state.is_small)):
        if state.is_small and number == bounding.lists_before_more:
            for high in sorted(best_s, key=lambda cuts: -best_s[cuts]):
                if best_s[high] > state.bound_s:
                    yield _relaxing(state, high, bounding.more_steps)
        yield _relaxing(state, cuts, bounding.steps, best_s=best_s)


class _AnyOf(threading.Event):
    """Stands for several events: is set once one of them is. Whoever sets it, as Ctrl-C does, sets the first."""

    def __init__(self, *events: threading.Event) -> None:
        super().__init__()
        self._events = events

    def is_set(self) -> bool:
        """Whether any of them is."""
        return any(event.is_set() for event in self._events)

    def set(self) -> None:
        """Set the first, by which the whole solve ends."""
        self._events[0].set()


def _relaxing(
    state: State,
    cuts: tuple[int, ...],
    steps: int,
    gap: float = 0.0,
    share: float = 1.0,
    best_s: dict[tuple[int, ...], float] | None = None,
) -> Work[Found]:
    """One relaxation; at the full budget it bounds the problem, at any it suggests a start.

    `best_s` gets the cost of its best point, which no bound of it is above.
    """

    def work(advance: Advance, stop: threading.Event) -> tuple[Found, float]:
        model = relaxation.encode(
            state.problem.bound_graph, int(state.problem.budget_bytes * share), cuts, state.problem.link
        )

        def found(solution: Solution) -> Found:
            start = None if solution.values is None else relaxation.decode(model, solution.values)
            is_of_problem = share == 1.0
            windows = len(cuts) if is_of_problem and solution.bound is not None else 0
            return Found("bound", model.milp, model.unit_s, solution, is_of_problem, start, windows=windows)

        solution = _solved(state, model.milp, _Limits(steps, gap), found, advance, stop)
        if best_s is not None and solution.objective is not None:
            best_s[cuts] = solution.objective * model.unit_s
        return found(solution), _weight(state, model.milp, steps if solution.steps is None else solution.steps)

    return work


def _solving_exactly(state: State, steps: int) -> Work[Found]:
    """The integer program, from the best plan there is now."""
    graph, budget_bytes = state.problem.graph, state.problem.budget_bytes
    decisions = None if state.incumbent_s is None else state.best_plan(state.annealing.keeper)()

    def work(advance: Advance, stop: threading.Event) -> tuple[Found, float]:
        model = ilp.encode(graph, budget_bytes)
        start = None if decisions is None else ilp.first_point(model, decisions)

        def found(solution: Solution) -> Found:
            values = solution.values
            plan = None if values is None else _replayed(graph, budget_bytes, ilp.decode(model, values))
            return Found("exact", model.milp, model.unit, solution, plan=plan)

        limits = _Limits(steps, state.options.gap)
        solution = _solved(state, model.milp, limits, found, advance, stop, start)
        return found(solution), _weight(state, model.milp, steps if solution.steps is None else solution.steps)

    return work


def _replayed(graph: TrainingGraph, budget_bytes: int, decisions: Decisions) -> tuple[Decisions, float] | None:
    """A plan and its cost, None where it doesn't fit: the paper's rows charge what is made in place too little."""
    if not check(to_schedule(graph, decisions, budget_bytes)).valid:
        return None
    judged = evaluate(graph, decisions)
    return (decisions, judged.cost_s) if judged.peak_bytes <= budget_bytes else None


@dataclass(frozen=True)
class _Limits:
    """Where a solve ends: after so many steps, or at a gap."""

    steps: int
    gap: float


def _solved(
    state: State, milp: Model, limits: _Limits, found: Callable[[Solution], Found], advance: Advance,
    stop: threading.Event, start: NDArray[np.float64] | None = None,
) -> Solution:  # fmt: skip
    """Solve a model in turns with others; `found` makes what is reported of it between them."""
    said, point = -math.inf, list[tuple[float, NDArray[np.float64]]]()
    blank = Solution(Status.FEASIBLE, StopReason.OTHER_LIMIT, state.solver, "", 0, 0.0)

    def interim(bound: float) -> Found | None:
        nonlocal said
        news = replace(blank, bound=bound if math.isfinite(bound) else None)
        if point:
            news = replace(news, objective=point[-1][0], values=point[-1][1])
        elif bound <= said:
            return None
        said = max(said, bound)
        point.clear()
        return found(news)

    def note(steps: int, bound: float) -> None:
        said_s = found(replace(blank, bound=bound)).bound_s if math.isfinite(bound) else -math.inf
        advance(_weight(state, milp, steps), said_s, lambda: interim(bound))

    stage = replace(
        state.deadline.stage(), gap=limits.gap, threads=1, step_limit=limits.steps, on_progress=None, on_plan=None,
        on_step=note, on_point=lambda cost, values: point.append((cost, values)),
        stop=_AnyOf(state.options.stop, stop),
    )  # fmt: skip
    return solve_model(milp, stage, state.solver, start)


def _weight(state: State, milp: Model, steps: int) -> float:
    """What steps of a model weigh, in steps of the search: later ones are quicker than the first."""
    weight = state.parameters.bounding.weight / state.parameters.cooling.excess(state.cells)
    return weight * milp.column_count * math.sqrt(1 + steps)


# -- proofs ------------------------------------------------------------------------------------------------------------


def confirm(state: State) -> None:
    """Have what would be called optimal or infeasible confirmed without presolve; what isn't is no claim any more."""
    found, least_s = state.claim, state.incumbent_s
    if state.infeasible is not None:
        second = _again(state, state.infeasible)
        state.is_infeasible = second.status is Status.INFEASIBLE
        if not state.is_infeasible:
            state.infeasible = None
            state.details["unconfirmed"] = "infeasible"
    elif (
        found is not None
        and least_s is not None
        and state.is_close(0.0)
        and state.own_bound_s < least_s * (1 - PROVEN_GAP)
    ):
        _confirm_optimal(state, found, least_s)


def _confirm_optimal(state: State, found: Found, least_s: float) -> None:
    """Take the second solve's word; where it ends too early to say as much, the first's, short of "optimal"."""
    is_false = found.bound_s > least_s * (1 + PROVEN_GAP)
    if is_false:
        state.alarm(f"{found.phase}: a bound of {found.bound_s} was claimed, and a plan takes {least_s}")
    second = _again(state, found)
    state.claim = replace(found, solution=second)
    if least_s * (1 - PROVEN_GAP) <= state.bound_s <= least_s * (1 + PROVEN_GAP):
        return
    state.details["unconfirmed"] = "optimal"
    is_open = second.status in (Status.FEASIBLE, Status.NO_SOLUTION)
    is_beaten = second.objective is not None and second.objective * found.unit_s < found.bound_s
    if state.bound_s > least_s:
        state.claim = None
    elif is_open and not is_false and not is_beaten:
        state.claim = found.lowered(least_s * (1 - UNCONFIRMED_GAP))


def _again(state: State, found: Found) -> Solution:
    """The same model once more, without presolve, from the point that was found."""
    stage = replace(_silent(state, state.parameters.bounding.proof_steps), presolve=False)
    return solve_model(found.milp, stage, state.solver, found.solution.values)


def _silent(state: State, steps: int | None = None) -> SolveOptions:
    """The options of a solve beside the search, of which nobody hears."""
    return replace(
        state.deadline.stage(), gap=0.0, threads=1, step_limit=steps or state.options.step_limit, on_progress=None,
        on_plan=None,
    )  # fmt: skip


def linear_least_bytes(state: State) -> int:
    """A budget that every plan has to have, proven by the dual values of a linear relaxation."""
    model = relaxation.encode(state.problem.graph, None)
    relaxed = model.milp.relaxed()
    solution = solve_model(relaxed, _silent(state), state.solver)
    if solution.row_prices is None:
        return 0
    return math.ceil(dual_bound(relaxed.arrays(), solution.row_prices) * (1 - SOLVER_TOLERANCE) * model.unit_bytes)


def least_budget(state: State) -> tuple[int, KeepSet | None]:
    """The least budget by the relaxation in whole numbers, confirmed, 0 where nothing is; and a start for a search."""
    model = relaxation.encode(state.problem.graph, None)
    steps = state.parameters.bounding.start_steps
    solution = solve_model(model.milp, _silent(state, steps), state.solver)
    solution = confirmed(model.milp, solution, _silent(state, steps), state.solver)
    bound = solution.bound if solution.status is Status.OPTIMAL and solution.bound is not None else 0.0
    keep = None if solution.values is None else relaxation.decode(model, solution.values)
    return math.ceil(bound * (1 - SOLVER_TOLERANCE) * model.unit_bytes), keep
