"""The three stages one after the other, over several routings of equal time; the replay picks the best schedule."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from planwright.checker import check
from planwright.encodings.taccl import contiguity, routing
from planwright.encodings.taccl.bounds import Bounds, combinatorial_bounds
from planwright.encodings.taccl.lowering import to_schedule
from planwright.encodings.taccl.ordering import VARIANTS, Ordering, order
from planwright.encodings.taccl.problem import Problem
from planwright.encodings.taccl.routing import Routing, RoutingModel
from planwright.encodings.taccl.sends import send_orbits, single_sends
from planwright.options import Deadline, Progress, SolveOptions, relative_gap
from planwright.recipe import Plan
from planwright.schedule import Schedule
from planwright.solution import Solution, Status, StopReason
from planwright.solvers.registry import load_backend, solve_model

__all__ = ["synthesise"]

ROUTING_SOLVER = "highs"
"""For stage 1 unless the options name another."""
CONTIGUITY_SOLVER = "cpsat"
"""For stage 3, whose disjunctions are its own: plain rows of the same model take HiGHS sixty times as long."""

# How long a stage may go on improving what it has. The first routing for least time is not limited by these.
_OTHER_ROUTING_S = 1.0
_EXACT_STAGE_S = 2.0
_ROUTING_SHARE = 0.5
"""The part of the time limit that the first routing may take, so that something is left to order it."""
_ROUTING_GAP = 0.01
"""The first routing is proven to within this, or to within the gap asked for where that is less."""
_SEEDS = 4
_SOLVER_TOLERANCE = 5e-7
"""A MILP solver keeps rows to about 1e-6: its bound is lowered by what that can be worth, so that it stays a bound."""


@dataclass(frozen=True)
class _Candidate:
    """A schedule with the makespan that its replay found."""

    schedule: Schedule
    routing: Routing
    ordering: Ordering
    makespan_s: float


@dataclass
class _Search:
    """What the stages know so far: the best schedule, the bounds, and where the time went."""

    problem: Problem
    options: SolveOptions
    deadline: Deadline
    router: str
    bounds: Bounds
    best: _Candidate | None = None
    stage_s: dict[str, float] = field(default_factory=dict)
    routings_tried: int = 0

    @property
    def gap(self) -> float | None:
        """Proven distance of the best schedule from the best possible."""
        return relative_gap(None if self.best is None else self.best.makespan_s, self.bounds.best_s)

    def is_within(self, gap: float) -> bool:
        """Whether the best schedule is proven to be within `gap` of the best possible."""
        return self.gap is not None and self.gap <= gap

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Charge the time of the block to the stage."""
        begin_s = time.monotonic()
        try:
            yield
        finally:
            self.stage_s[stage] = self.stage_s.get(stage, 0.0) + time.monotonic() - begin_s

    def offer(self, routing_: Routing, ordering: Ordering) -> _Candidate:
        """Replay an ordering; keep it if it is the best so far, or as fast and closer to the links' policy."""
        schedule = to_schedule(self.problem, routing_, ordering)
        report = check(schedule)
        assert report.valid, report.summary()
        candidate = _Candidate(schedule, routing_, ordering, report.makespan_s)
        if self.best is None or self._key(candidate) < self._key(self.best):
            self.best = candidate
            self.report("ordering" if ordering.variant in {v.name for v in VARIANTS} else "contiguity")
        return candidate

    def report(self, phase: str) -> None:
        """Tell the caller where the search stands."""
        if self.options.on_progress is not None:
            incumbent = None if self.best is None else self.best.makespan_s
            self.options.on_progress(Progress(self.deadline.elapsed_s, incumbent, self.bounds.best_s, phase))

    def _key(self, candidate: _Candidate) -> tuple[float, float]:
        # Makespans that differ only by rounding, less than 1e-9 of the bound, are equal.
        steps = round(candidate.makespan_s / (1e-9 * self.bounds.best_s))
        return steps, float(self.problem.link_weight[np.unique(candidate.routing.link)].sum())


def synthesise(problem: Problem, options: SolveOptions) -> Plan:
    """Route, order and schedule until the gap is reached, the routings are used up, or the time is over."""
    router = options.solver or ROUTING_SOLVER
    versions = f"{load_backend(router)}+{load_backend(CONTIGUITY_SOLVER)}"
    deadline = Deadline(options)
    unrestricted = problem if problem.path_slack is None else replace(problem, path_slack=None)
    search = _Search(problem, options, deadline, router, combinatorial_bounds(unrestricted))
    search.stage_s["bounds"] = deadline.elapsed_s
    search.report("bounds")
    with search.timed("routing"):
        parts = routing.encode(problem)
        first = _route_for_least_time(search, parts)
        policy = None if first is None else _route_for_policy(search, parts)
    if first is None:  # no time for the model: shortest ways need no solver
        _schedule(search, [routing.shortest_path_routing(problem)])
    else:
        _schedule(search, [first] if policy is None else [first, policy])
        for other in _other_routings(search, parts):
            _schedule(search, [other])
    return _plan(search, versions)


# -- stage 1: routings -------------------------------------------------------------------------------------------------


def _route_for_least_time(search: _Search, parts: RoutingModel) -> Routing | None:
    """The routing of least time; its proven bound joins the others. None if there was no time to find one."""
    parts.model.minimize((1.0, [parts.time]))
    stage = search.deadline.stage(_ROUTING_SHARE * search.deadline.remaining_s)
    stage = replace(stage, gap=min(search.options.gap, _ROUTING_GAP), on_progress=None)
    solution = solve_model(parts.model, stage, search.router)
    if solution.bound is not None and search.problem.path_slack is None:  # else it is a bound of fewer routings
        bound = solution.bound * (1 - _SOLVER_TOLERANCE)
        search.bounds = replace(search.bounds, routing_s=bound * parts.unit_s)
    search.report("routing")
    if solution.values is None or solution.objective is None:
        return None
    parts.model.add("time_is_least", (1.0, [parts.time]), upper=solution.objective * (1 + 1e-9))
    return routing.decode(parts, solution.values)


def _route_for_policy(search: _Search, parts: RoutingModel) -> Routing | None:
    """Of the routings of least time, one with few (uc-min) or many (uc-max) links of the switch-hyperedges (5.11)."""
    weighed = np.flatnonzero(search.problem.link_weight)
    if not len(weighed):
        return None
    parts.model.minimize((search.problem.link_weight[weighed], parts.is_util[weighed]))
    return _route_on(search, parts, search.options.seed)


def _other_routings(search: _Search, parts: RoutingModel) -> Iterator[Routing]:
    """More routings of least time, while the gap is not reached: least sum of arrivals, then other seeds.

    Schedules of routings of equal time differ by a tenth, and nothing but scheduling them tells which is best.
    """
    arrivals = np.unique(parts.start[search.problem.wanted])
    goals = [((1.0, arrivals), search.options.seed)]
    goals += [((1.0, np.array([parts.time])), search.options.seed + 1 + k) for k in range(_SEEDS)]
    for objective, seed in goals:
        if search.deadline.over or search.is_within(search.options.gap):
            return
        parts.model.minimize(objective)
        with search.timed("routing"):
            found = _route_on(search, parts, seed)
        if found is not None:
            yield found


def _route_on(search: _Search, parts: RoutingModel, seed: int) -> Routing | None:
    if search.deadline.over:
        return None
    stage = replace(search.deadline.stage(_OTHER_ROUTING_S), seed=seed % 2**31, gap=0.0, on_progress=None)
    solution = solve_model(parts.model, stage, search.router)
    return None if solution.values is None else routing.decode(parts, solution.values)


# -- stages 2 and 3: schedules -----------------------------------------------------------------------------------------


def _schedule(search: _Search, routings: list[Routing]) -> None:
    """Order the routings in every variant, then schedule the best ordering exactly."""
    search.routings_tried += len(routings)
    with search.timed("ordering"):
        candidates = [candidate for found in routings for candidate in _order(search, found)]
    best = min(candidates, key=lambda candidate: candidate.makespan_s)
    if not search.is_within(0.0) and not search.deadline.over:
        with search.timed("contiguity"):
            _schedule_exactly(search, best)


def _order(search: _Search, found: Routing) -> list[_Candidate]:
    """Every variant, send by send and, where the routing is symmetric, orbit by orbit."""
    candidates: list[_Candidate] = []
    for sends in (send_orbits(search.problem, found), single_sends(search.problem, found)):
        for variant in VARIANTS:
            if sends is not None and (not candidates or not search.deadline.over):
                candidates.append(search.offer(found, order(sends, variant)))
    return candidates


def _schedule_exactly(search: _Search, candidate: _Candidate) -> None:
    parts = contiguity.encode(candidate.ordering)
    stage = replace(search.deadline.stage(_EXACT_STAGE_S), gap=0.0, on_progress=None)
    solution = solve_model(parts.model, stage, CONTIGUITY_SOLVER, start=contiguity.first_point(parts))
    if solution.values is not None:
        search.offer(candidate.routing, contiguity.decode(parts, solution.values))


# -- the answer --------------------------------------------------------------------------------------------------------


def _plan(search: _Search, versions: str) -> Plan:
    assert search.best is not None  # every path through `synthesise` schedules at least one routing
    best = search.best
    assert search.bounds.best_s <= best.makespan_s * (1 + 1e-9), "a schedule beats its lower bound"
    bound_s = min(search.bounds.best_s, best.makespan_s)  # sums of the same numbers in another order
    proven = search.is_within(1e-6)
    reason = StopReason.FINISHED
    if not proven and search.is_within(search.options.gap):
        reason = StopReason.GAP_REACHED
    elif not proven and search.deadline.over:
        reason = StopReason.INTERRUPTED if search.options.stop.is_set() else StopReason.TIME_LIMIT
    elapsed_s = search.deadline.elapsed_s
    solution = Solution(
        status=Status.OPTIMAL if proven else Status.FEASIBLE,
        stop_reason=reason,
        solver=f"{search.router}+{CONTIGUITY_SOLVER}",
        version=versions,
        seed=search.options.seed,
        wall_s=elapsed_s,
        objective=best.makespan_s,
        bound=bound_s,
    )
    details = {
        "ratio": best.makespan_s / bound_s,
        "sends": len(best.schedule),
        "chunk_transfers": len(best.routing),
        "links_used": len(set(best.routing.link.tolist())),
        "stages": {stage: round(duration_s, 6) for stage, duration_s in search.stage_s.items()},
        "bounds_s": {
            "latency": search.bounds.latency_s,
            "bandwidth": search.bounds.bandwidth_s,
            "routing": search.bounds.routing_s,
            "any_grouping": search.bounds.any_grouping_s,
        },
        "routings_tried": search.routings_tried,
        "ordering": best.ordering.variant,
    }
    return Plan(solution, best.schedule, details)
