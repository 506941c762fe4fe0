"""The three stages one after the other, over several routings of equal time; the replay picks the best schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.candidate import Candidate, checked
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.paths import shortest_path_routing
from gapless.encodings.taccl.milp import contiguity
from gapless.encodings.taccl.milp.router import Router
from gapless.encodings.taccl.milp.routers import Mirror, find_mirror, router_of
from gapless.encodings.taccl.ordering.list_scheduling import RULES, Order, Rule, better_orders, list_schedule
from gapless.encodings.taccl.ordering.sends import Routing, Sends, sends_of, to_schedule
from gapless.encodings.taccl.ordering.tables import MANY_SENDS, SendTable, tables, times_of
from gapless.encodings.taccl.parameters import Milp
from gapless.ir.schedule import Schedule
from gapless.methods.ledger import charge
from gapless.model import Model
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.solution import Solution
from gapless.solvers.registry import load_backend, solve_model

__all__ = ["synthesise"]

ROUTING_SOLVER = "highs"
"""For stage 1 unless the options name another."""
CONTIGUITY_SOLVER = "cpsat"
"""For stage 3, whose disjunctions are its own: plain rows of the same model take HiGHS sixty times as long."""

_DEFAULTS = Milp()
_NO_BETTER = 1.01
"""A routing this near to the bound of its phase serves the phase that is its mirror, too."""
_REPLAYED = 2
"""Orders of one routing that are replayed, those that end first."""
_SHARE = 0.5
"""The first routing takes at most this part of the time that is left, so that something is left to order it."""
_STEP_NONZEROS = 1_000
"""What a step of the solver costs apart from the model's nonzeros, in nonzeros."""
_OPTIMAL = 1e-6
"""What a plan may be longer than its bound and still be called optimal."""
_PAIR_S = 2e-6
"""Seconds that it takes to write a model down, for each pair of chunk and link."""
_SOLVER_TOLERANCE = 5e-7
"""A MILP solver keeps rows to about 1e-6: its bound is lowered by what that can be worth, so that it stays a bound."""


@dataclass(frozen=True)
class _Replayed:
    """A schedule that replays clean."""

    schedule: Schedule
    sends: Sends
    order: Order

    @property
    def makespan_s(self) -> float:
        """When its last transfer ends."""
        return float(self.schedule.end_s.max(initial=0.0))


@dataclass
class _Search:
    """What the stages know so far: the best schedule, the bounds, where the time went. `versions`: of the solvers."""

    problem: Chunked
    options: SolveOptions
    deadline: Deadline
    router: str
    versions: str
    bounds: Bounds
    parameters: Milp
    best: _Replayed | None = None
    routings_tried: int = 0
    routers: list[Router] = field(default_factory=list)
    mirror: Mirror | None = None

    @property
    def makespan_s(self) -> float:
        """Of the best schedule, inf before there is one."""
        return math.inf if self.best is None else self.best.makespan_s

    @property
    def connection_s(self) -> float:
        """gamma of (5.11), in seconds; without congestion, links of equal time only are chosen between."""
        return self.parameters.connection_s if self.problem.logical.topology.congestion else 0.0

    def is_within(self, gap: float) -> bool:
        """Whether the best schedule is proven to be within `gap` of the best possible."""
        proven = None if self.best is None else relative_gap(self.best.makespan_s, self.bounds.chunk_by_chunk_s)
        return proven is not None and proven <= gap

    def is_near(self, makespan_s: float, gap: float) -> bool:
        """Whether a schedule of this length is proven to be within `gap` of the best possible."""
        return makespan_s - self.bounds.chunk_by_chunk_s <= gap * makespan_s

    def offer(self, sends: Sends, order: Order) -> _Replayed:
        """Replay an order; keep it if it is the best so far, or as fast and closer to the links' policy."""
        problem = self.problem
        network = problem.logical.topology
        schedule = to_schedule(network, problem.collective, problem.chunk_bytes, sends, times_of(order))
        candidate = _Replayed(checked(schedule), sends, order)
        if self.best is None or self._key(candidate) < self._key(self.best):
            self.best = candidate
            self.report("contiguity" if order.note.endswith(contiguity.EXACT) else "ordering")
            if self.options.on_plan is not None:
                self.options.on_plan(candidate.makespan_s, lambda: _candidate(self, candidate))
        return candidate

    def report(self, phase: str) -> None:
        """Report to the caller where the search stands."""
        if self.options.on_progress is not None:
            incumbent = None if self.best is None else self.best.makespan_s
            self.options.on_progress(Progress(self.deadline.elapsed_s, incumbent, self.bounds.chunk_by_chunk_s, phase))

    def _key(self, candidate: _Replayed) -> tuple[float, float]:
        # Makespans that differ only by rounding, less than 1e-9 of the bound, are equal.
        steps = round(candidate.makespan_s / (1e-9 * self.bounds.chunk_by_chunk_s))
        return steps, float(self.problem.link_weight[np.unique(candidate.sends.link)].sum())


def synthesise(
    problem: Chunked, options: SolveOptions, parameters: Milp = _DEFAULTS, bounds: Bounds | None = None
) -> Candidate | None:
    """Route, order and schedule until the gap is reached, the routings are used up, or the time is over.

    There is no plan where the time is over before there is a routing, or would be before the model is written down.
    Solvers run on one thread, and so many steps: another number of threads would make another plan.
    """
    solver = options.solver or ROUTING_SOLVER
    versions = f"{load_backend(solver)}+{load_backend(CONTIGUITY_SOLVER)}"
    deadline = Deadline(options)
    if bounds is None or problem.path_slack is not None:
        limits = None if bounds is None else bounds.parameters
        bounds = bounds_of(replace(problem, path_slack=None), limits, deadline.stage())  # the bound is for all paths
    search = _Search(problem, options, deadline, solver, versions, bounds, parameters)
    search.report("bounds")
    with charge("milp: routing"):
        routers, found = _route_phases(search)
        is_routed = bool(routers) and len(found) == len(routers)
        policy = _route_for_policy(search, routers) if is_routed else None
    if not routers or (not is_routed and deadline.over):
        return None
    if not is_routed:  # no routing with so much work: shortest paths need no solver
        _schedule(search, [[shortest_path_routing(phase.problem) for phase in problem.phases]])
    else:
        search.routers = routers
        if policy is not None and search.connection_s:
            _schedule(search, [policy])  # its links are imposed, whatever the others would take
        else:
            _schedule(search, [found] if policy is None else [found, policy])
            _schedule_others(search, routers)
    with charge("milp: confirming"):
        _confirm(search)
    assert search.best is not None  # every path to here schedules at least one routing
    return _candidate(search, search.best)


# -- stage 1: routings, one for each phase -----------------------------------------------------------------------------


def _schedule_others(search: _Search, routers: list[Router]) -> None:
    """Schedule more routings until several in a row have made nothing better."""
    without = 0
    for other in _other_routings(search, routers):
        before_s = search.makespan_s
        _schedule(search, [other])
        without = 0 if search.makespan_s < before_s * (1 - search.parameters.least_gain) else without + 1
        if without == search.parameters.patience:
            return


def _route_phases(search: _Search) -> tuple[list[Router], list[Routing]]:
    """Routers, and their routings of least time as far as there are any: phase by phase, or one that is mirrored."""
    routers: list[Router] = []
    found: list[Routing] = []
    phases = search.problem.phases
    pairs = sum(phase.problem.pair_count for phase in phases)
    if pairs * _PAIR_S > search.deadline.remaining_s:
        search.deadline.strike()
        return routers, found
    for number, phase in enumerate(phases):
        routers.append(_router(search, phase.problem, len(phases) - number))
        least = _route_for_least_time(search, routers[-1], len(phases) - number)
        if least is None:
            break
        found.append(least[0])
        # Parts of a sum are added one at a time, copies needn't be sent so: the mirror might do better by itself.
        if number == 0 and least[1] <= _NO_BETTER * max(search.bounds.latency_s, search.bounds.chunk_by_chunk["cuts"]):
            search.mirror = find_mirror(search.problem)
            if search.mirror is not None:
                break
    return routers, found


def _router(search: _Search, problem: Chunked, phases_left: int) -> Router:
    """The model of a phase; where it takes a linear program first, the bound of that joins the others."""

    def solve(model: Model) -> Solution:
        return solve_model(model, replace(_stage(search, phases_left), gap=0.0), search.router)

    router = router_of(problem, None if search.deadline.over else solve, search.bounds.chunk_by_chunk_s)
    _note_bound(search, router, router.bound)
    return router


def _route_for_least_time(search: _Search, router: Router, phases_left: int) -> tuple[Routing, float] | None:
    """The routing of least time, and that; its proven bound joins the others. None if there was no time to find one."""
    model, work = router.least_time_model(), search.parameters.routing_work // len(search.problem.phases)
    gap = min(search.options.gap, search.parameters.routing_gap)
    options = replace(_stage(search, phases_left), gap=gap, step_limit=_steps(model, work))
    solution = solve_model(model, options, search.router)
    _note_bound(search, router, solution.bound if router.proves else None)
    search.report("routing")
    if solution.values is None or solution.objective is None:
        return None
    worth = search.connection_s / router.unit_s * np.count_nonzero(router.problem.link_weight)  # of all links together
    router.model.add("time_is_least", (1.0, [router.time]), upper=(solution.objective + worth) * (1 + 1e-9))
    return router.decode(solution.values), solution.objective * router.unit_s


def _note_bound(search: _Search, router: Router, bound: float | None) -> None:
    """A bound of any phase is one of the whole."""
    if bound is not None:
        bound_s = bound * (1 - _SOLVER_TOLERANCE) * router.unit_s
        search.bounds = search.bounds.with_proven(bound_s)


def _route_for_policy(search: _Search, routers: list[Router]) -> list[Routing] | None:
    """Of the routings of least time, those with few (uc-min) or many (uc-max) links of the switch-hyperedges (5.11).

    Where the topology has congestion, a link is worth time.
    """
    found = []
    for router in routers:
        weight = router.problem.link_weight
        weighed = np.flatnonzero((weight != 0) & (router.is_util >= 0))
        if not len(weighed):
            return None
        gamma = search.connection_s / router.unit_s
        links = ((gamma or 1.0) * weight[weighed], router.is_util[weighed])
        router.model.minimize(*([(1.0, [router.time])] if gamma else []), links)
        routing = _route_on(search, router, search.options.seed, len(routers))
        if routing is None:
            return None
        found.append(routing)
    return found


def _other_routings(search: _Search, routers: list[Router]) -> Iterator[list[Routing]]:
    """More routings of least time, while the gap is not reached: least sum of arrivals, then other seeds.

    Schedules of routings of equal time differ by a tenth, and nothing but scheduling them shows which is best.
    """
    for attempt in range(search.parameters.routings):
        if search.deadline.over or search.is_within(search.options.gap):
            return
        found = []
        for router in routers:
            router.model.minimize(router.ties if attempt == 0 else (1.0, [router.time]))
            with charge("milp: routing"):
                routing = _route_on(search, router, search.options.seed + attempt, len(routers))
            if routing is not None:
                found.append(routing)
        if len(found) == len(routers):
            yield found


def _route_on(search: _Search, router: Router, seed: int, phases: int) -> Routing | None:
    if search.deadline.over:
        return None
    steps = _steps(router.model, search.parameters.another_routing_work // phases)
    options = replace(_stage(search, phases), seed=seed % 2**31, gap=0.0, step_limit=steps)
    solution = solve_model(router.model, options, search.router)
    return None if solution.values is None else router.decode(solution.values)


def _stage(search: _Search, phases_left: int) -> SolveOptions:
    """The options for a model of one of the phases that are left."""
    stage = search.deadline.stage(_SHARE * search.deadline.remaining_s / phases_left)
    return replace(stage, threads=1, on_progress=None)


def _steps(model: Model, work: int) -> int:
    """How many steps of the solver on a model are so much work."""
    return max(1, work // (_STEP_NONZEROS + len(model.arrays().value)))


# -- stages 2 and 3: schedules -----------------------------------------------------------------------------------------


def _schedule(search: _Search, routings: list[list[Routing]]) -> None:
    """Order the routings in every variant, then schedule the best ordering exactly."""
    search.routings_tried += len(routings)
    if search.mirror is not None:
        routings = [[first, search.mirror.image(first)] for first, *_ in routings]
    with charge("milp: ordering"):
        candidates = [candidate for found in routings for candidate in _order(search, sends_of(search.problem, found))]
    single = [candidate for candidate in candidates if not candidate.order.place.any()]
    best = min(single, key=attrgetter("makespan_s"))
    if not search.is_within(_enough(search)) and not search.deadline.over:
        with charge("milp: contiguity"):
            _schedule_exactly(search, best)


def _order(search: _Search, sends: Sends) -> list[_Replayed]:
    """By every rule, send by send and, with symmetry, orbit by orbit; the most promising orders are replayed."""
    orders: list[Order] = []
    for table in tables(search.problem, sends):
        for rule in RULES:
            if not orders or not search.deadline.over:
                orders.append(list_schedule(table, rule))
    best = min(orders, key=attrgetter("makespan_s"))
    assert isinstance(best.table, SendTable)
    orders = sorted([*orders, *_perturbed(search, best)], key=attrgetter("makespan_s"))
    chosen = orders[:_REPLAYED]
    if len(search.problem.phases) > 1:
        chosen += _grouped(search, best.table, orders[0].makespan_s)
    return [search.offer(sends, order) for order in chosen]


def _perturbed(search: _Search, best: Order) -> list[Order]:
    """Better orders than the best, until there is none for a while; none are looked for within the gap."""
    parameters, rows_left = search.parameters, [search.parameters.perturbed_rows]

    def is_over(length_s: float) -> bool:
        rows_left[0] -= len(best.table)
        return rows_left[0] < 0 or search.is_near(length_s, _enough(search)) or search.deadline.over

    better = better_orders(best, search.options.seed, parameters.perturbations, is_over, parameters.least_gain)
    return list(better)[-_REPLAYED:]


def _grouped(search: _Search, table: SendTable, length_s: float) -> list[Order]:
    """Orders in which chunks travel together, where the best without, of this length, is not within the gap."""
    if search.is_near(length_s, _enough(search)) or not table.may_join.any() or len(table) > MANY_SENDS:
        return []
    orders = [
        min((list_schedule(table, Rule("longest from now", backwards, most)) for backwards in (False, True)),
            key=attrgetter("makespan_s"))
        for most in search.parameters.groups
    ]  # fmt: skip
    orders += _perturbed(search, min(orders, key=attrgetter("makespan_s")))
    return sorted(orders, key=attrgetter("makespan_s"))[:_REPLAYED]


def _enough(search: _Search) -> float:
    """The gap at which stages 2 and 3 stop: that asked for where they are long, for sums; else they go to the end."""
    return search.options.gap if len(search.problem.phases) > 1 else 0.0


def _schedule_exactly(search: _Search, candidate: _Replayed) -> None:
    model = contiguity.encode(candidate.order, search.bounds.chunk_by_chunk_s)
    options = replace(_stage(search, 1), gap=_enough(search), step_limit=search.parameters.exact_steps)
    solution = solve_model(model.model, options, CONTIGUITY_SOLVER, start=contiguity.first_point(model))
    if solution.values is not None:
        search.offer(candidate.sends, contiguity.decode(model, solution.values))


def _confirm(search: _Search) -> None:
    """Drop the bound of a routing MILP where an optimum rests on it, and the solver can't repeat it without presolve.

    Its presolve was seen to prove what is false (`gapless/solvers/proofs.py`).
    """
    bounds, makespan_s = search.bounds, search.makespan_s
    others_s = max(bounds.chunk_by_chunk.values())
    if others_s >= bounds.proven_s or makespan_s - bounds.proven_s > _OPTIMAL * makespan_s:
        return
    for router in search.routers:
        model = router.least_time_model()
        steps = _steps(model, search.parameters.routing_work)
        options = replace(_stage(search, 1), gap=0.0, step_limit=steps, presolve=False)
        bound = solve_model(model, options, search.router).bound if router.proves else router.bound
        if bound is not None and bound * (1 - _SOLVER_TOLERANCE) * router.unit_s >= bounds.proven_s * (1 - _OPTIMAL):
            return
    search.bounds = bounds.with_proven(others_s, anew=True)


def _candidate(search: _Search, best: _Replayed) -> Candidate:
    bounds, unused = search.bounds, search.problem.logical.unused
    return Candidate(
        search.problem, best.schedule, "milp", best.order.name, bounds.chunk_by_chunk_s,
        {**bounds.chunk_by_chunk, "routing": bounds.proven_s or None, "any_grouping": bounds.any_grouping_s},
        is_grouped=False,
        account={"routings_tried": search.routings_tried, **({"unused_symmetry": list(unused)} if unused else {})},
        solver_name=f"{search.router}+{CONTIGUITY_SOLVER}",
        version=search.versions,
    )  # fmt: skip
