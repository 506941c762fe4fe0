"""Synthesis without a MILP, for clusters whose models are too large: match or route on orbits, schedule, unfold.

Everything happens on one chunk of each orbit under the rotations that the topology has (`symmetry/quotient.py`), so
that tries are cheap: many are made, and the best is kept until it is proven good enough or enough sends were put in
order. Where a sketch allows chunks some links only, there are no rotations: every chunk is planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from gapless.array_types import Floats, Mask
from gapless.encodings.taccl.bounds.bandwidth.bottlenecks import Bottleneck, find_bottleneck_sets
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.candidate import SAME, Candidate
from gapless.encodings.taccl.chunked import FEW_PAIRS, Chunked, Phase
from gapless.encodings.taccl.flow.matching import match
from gapless.encodings.taccl.flow.paths import busiest_s, round_flow, route_paths
from gapless.encodings.taccl.flow.phases import PhaseSearch, search_phases
from gapless.encodings.taccl.ordering.list_scheduling import Order, Rule, Table, better_orders, list_schedule
from gapless.encodings.taccl.ordering.sends import Routing, in_turn, lowered
from gapless.encodings.taccl.parameters import Greedy
from gapless.encodings.taccl.sketch.phases import is_spread_backwards
from gapless.encodings.taccl.symmetry.quotient import Columns, QuotientProblem, quotient_problem
from gapless.encodings.taccl.symmetry.rotations import no_rotations
from gapless.errors import InputError
from gapless.methods.ledger import charge
from gapless.options import Deadline, SolveOptions

__all__ = ["may_be_greedy", "plan_greedy"]

_DEFAULTS = Greedy()
_ALPHA_SHARE, _SHARED_BY = 0.1, 8
"""Where latencies are a larger part of a link's time for a chunk, matchings that so many share are tried as well."""
_MOST_BY_LOAD = 10_000
"""Sends up to which those go first whose resources have most left to do: later sends are looked at again each time."""
_UNEVEN = 0.005
"""How much longer than by the flow the busiest resource may be taken before other paths are looked for."""
_PROMISING, _GROUPS_PERTURBED = 1.1, 3
"""Orders are perturbed that are at most so much worse than the best, of so many sizes of groups."""
_ROWS_FOR_ALL_TRIES = 20_000
"""With more sends than this in all, a single seed is tried."""


@dataclass(frozen=True)
class _Routed:
    """Sends of a quotient problem's chunks; `given_s`: when a matching starts them, zeros without one."""

    quotient: QuotientProblem
    routing: Routing
    given_s: Floats


_Best = tuple[_Routed, Order]


@dataclass(kw_only=True)
class _Search(PhaseSearch[_Best]):
    """What is known of one phase; `most_tries`: orders, besides. `is_brief`: without linear programs for bounds."""

    parameters: Greedy
    most_tries: float
    is_brief: bool
    bounds: Bounds | None = None

    @property
    def problem(self) -> Chunked:
        """The problem of the phase."""
        return self.phase.problem

    @property
    def over(self) -> bool:
        """Whether there is a plan, and it is good enough, or there have been enough tries, or the time is up."""
        if self.best is None:
            return False
        is_enough = self.tries >= self.most_tries or self.left <= 0 or self.is_within(self.options.gap)
        return is_enough or self.deadline.over

    def is_within(self, gap: float) -> bool:
        """Whether the best plan is proven to be within `gap` of the best possible."""
        if self.bounds is None or self.best is None:
            return False
        return self.best[1].makespan_s - self.bounds.chunk_by_chunk_s <= gap * self.best[1].makespan_s

    def allowed(self, quotient: QuotientProblem) -> Mask | None:
        """`allowed[c, l]`: whether the quotient's c-th chunk may take link l; None where all may take all."""
        return None if self.problem.is_free else self.problem.usable[quotient.chunks]

    def ordered(self, table: Table, rule: Rule, given_s: Floats | None = None) -> Order:
        """The rows put in order by a rule."""
        self.left -= len(table)
        return list_schedule(table, rule, given_s)

    def offer(self, routed: _Routed, order: Order) -> None:
        """Keep an order if it is the best so far."""
        self.tries += 1
        if self.best is None or order.makespan_s < self.best[1].makespan_s * (1 - SAME):
            self.keep((routed, order), None if self.bounds is None else self.bounds.chunk_by_chunk_s)

    def end_s(self, best: _Best) -> float:
        """When an order is over."""
        return best[1].makespan_s

    def sends(self, best: _Best) -> Columns:
        """All sends of an order, in the order of their starts."""
        routed, order = best
        times = order.start_s, order.end_s, order.place
        return routed.quotient.columns(routed.routing.chunk, routed.routing.link, *times)


def may_be_greedy(problem: Chunked) -> bool:
    """Whether the greedy can plan it: its phases are parts of every plan, and there is no order on links."""
    return is_spread_backwards(problem.collective) and not problem.logical.own_first.any()


def plan_greedy(
    problem: Chunked,
    options: SolveOptions,
    parameters: Greedy = _DEFAULTS,
    most_tries: float = np.inf,
    bounds: Bounds | None = None,
    is_brief: bool = False,
) -> Candidate | None:
    """The best plan of the greedy, with bounds on what any plan could reach; `most_tries`: orders for each phase.

    `is_brief`: linear programs are solved only where chunks follow a flow, which is for one rank each.

    Of a single order, the bound is that of the shortest paths alone, which takes no linear program; it is waited for.
    Else there is no plan where the time is up before there is an order.

    There is none where a sketch leaves some chunk no path to some rank. Raises `InputError` for what `may_be_greedy`
    rules out.
    """
    collective = problem.collective
    if not is_spread_backwards(collective):
        raise InputError(f"{collective.name}: the greedy takes sums that a rank with a part wants, or a single rank")
    if not may_be_greedy(problem):
        raise InputError("method: must be milp or auto under a sketch that sends own chunks first, got greedy")
    deadline = Deadline(options)
    bounds = bounds or bounds_of(problem, options=deadline.stage())
    if problem.pair_count > FEW_PAIRS:  # bounds on single chunks would take longer than the plan
        quick = replace(bounds.parameters, most_pairs=min(FEW_PAIRS, bounds.parameters.most_pairs))
        bounds = bounds_of(problem, quick, bounds.options)
    rows = parameters.rows // len(problem.phases)

    def begun(phase: Phase, share: SolveOptions) -> _Search:
        return _Search(
            phase, share, Deadline(share), rows, "greedy",
            parameters=parameters, most_tries=most_tries, is_brief=is_brief,
        )  # fmt: skip

    found = search_phases(
        problem, options, deadline, begun, lambda search, number, _: _find(search, bounds.phases[number]),
        partial(_candidate, problem, bounds), in_turn=True,
    )  # fmt: skip
    return None if found is None else _candidate(problem, bounds, *found)


def _candidate(problem: Chunked, bounds: Bounds, searches: Sequence[_Search], found: Sequence[Columns]) -> Candidate:
    """The phases in turn, with the bounds that were worked out."""
    schedule = lowered(problem, in_turn(found), retimed=len(found) > 1)  # so that phases overlap
    known = [search.bounds for search in searches if search.bounds is not None]
    best = [search.best for search in searches if search.best is not None]
    rotations = best[0][0].quotient.rotations
    bounds_s = {
        "latency": max(bound.latency_s for bound in known),
        "cuts": max(bound.chunk_by_chunk["cuts"] for bound in known),
    } if known else {}  # fmt: skip
    if known and not any(search.is_brief for search in searches):
        bounds_s["bandwidth"] = max(bound.bandwidth.time_s for bound in known)
        bounds_s["bandwidth_is_exact"] = all(bound.bandwidth.exact for bound in known)
    account = {
        "rotations": len(rotations),
        "rotation_generators": [list(pair) for pair in rotations.generators],
        "tries": sum(search.tries for search in searches),
    }
    variant = "; ".join(order.name for _, order in best)
    bound_s = _bound_s(bounds, searches)
    return Candidate(problem, schedule, "greedy", variant, bound_s, bounds_s, False, account)


def _find(search: _Search, bounds: Bounds) -> None:
    """Orders for one phase."""
    problem = search.problem
    with charge("greedy: quotient"):
        quotient = quotient_problem(problem, None if problem.is_free else no_rotations(problem.logical.topology))
    bottlenecks: tuple[Bottleneck, ...] = ()
    is_for_one = bool((quotient.wanted.sum(axis=1) == 1).all())
    if search.most_tries > 1 and not search.deadline.over:
        search.is_brief &= not is_for_one
        search.bounds = bounds if search.is_brief else bounds.with_proven(bounds.bandwidth.time_s)
        bottlenecks = bounds.bottlenecks if search.is_brief else bounds.bandwidth.bottlenecks
    if search.most_tries > 1 and search.deadline.over:
        return
    if is_for_one:
        _route(search, quotient)
    else:
        _match(search, quotient, bottlenecks)


def _route(search: _Search, quotient: QuotientProblem) -> None:
    """Chunks that one rank wants: paths of the flow, and by load, then every rule, then other orders."""
    for routed in _routings(search, quotient):
        if len(routed.routing) <= _MOST_BY_LOAD and search.most_tries > 1:
            with charge("greedy: ordering"):
                search.offer(
                    routed,
                    search.ordered(_table_of(search, routed), Rule("most left to do")),
                )
        orders = _schedule(search, routed)
        if search.over:
            return
        best_s = min(order.makespan_s for order in orders)
        if search.best is not None and best_s <= _PROMISING * search.best[1].makespan_s:
            _perturb(search, routed, orders)


def _routings(search: _Search, quotient: QuotientProblem) -> Iterator[_Routed]:
    """Along the flow that the bound has found, and where it has found none, or the problem is small, by load.

    Chunks of one orbit take images of one another's paths. Where whole chunks can't be shared out well enough so
    (a ring of eight, where half of what goes to the other side goes left), a small problem is routed without. The
    flow knows of no sketch that allows some chunks some links only.
    """
    problem, allowed = search.problem, search.allowed(quotient)
    flow = search.bounds.bandwidth.flow if allowed is None and search.bounds is not None else None
    small = problem.pair_count <= FEW_PAIRS
    if flow is not None:
        quotients = [quotient]
        while quotients:
            taken = quotients.pop()
            with charge("greedy: routing"):
                options = search.deadline.stage(0.5 * search.deadline.remaining_s)
                options = replace(options, step_limit=search.parameters.rounding_steps, threads=1, on_progress=None)
                routing = round_flow(taken, problem.occupancy_s, flow, options)
            yield _Routed(taken, routing, np.zeros(len(routing)))
            uneven = busiest_s(taken, routing, problem.occupancy_s) > flow.time_s * (1 + _UNEVEN)
            if small and len(taken.rotations) > 1 and uneven:
                quotients.append(quotient_problem(problem, no_rotations(quotient.topology)))
    if flow is None or small:
        with charge("greedy: routing"):
            rounds = 1 if search.bounds is None else 3
            routing = route_paths(quotient, problem.occupancy_s, allowed, rounds)
        yield _Routed(quotient, routing, np.zeros(len(routing)))


def _perturb(search: _Search, routed: _Routed, orders: list[Order]) -> None:
    """Perturb the best order that each of the best sizes of groups has until there is none better for a while."""
    best: dict[int, Order] = {}
    for order in sorted(orders, key=lambda order: order.makespan_s):
        best.setdefault(order.rule.most, order)
    with charge("greedy: ordering"):
        for order in islice(best.values(), _GROUPS_PERTURBED):

            def is_over(_: float, rows: int = len(order.table)) -> bool:
                search.left -= rows
                return search.over

            for better in better_orders(order, search.options.seed, search.parameters.patience, is_over):
                search.offer(routed, better)
            if search.over:
                return


def _match(search: _Search, quotient: QuotientProblem, bottlenecks: tuple[Bottleneck, ...]) -> None:
    """Chunks that many ranks want: matchings from other seeds and with more spare sends, each put in order again."""
    sets = find_bottleneck_sets(quotient.topology, list(bottlenecks), quotient.rotations)
    allowed = search.allowed(quotient)
    quotients = [quotient] if search.most_tries == 1 else _variants(search.problem, quotient)
    large = False
    for seed in range(search.options.seed, search.options.seed + search.parameters.seeds):
        for share in search.parameters.spare_shares:
            for variant in quotients:
                spare_s = 0.0 if search.best is None else share * search.best[1].makespan_s
                with charge("greedy: matching"):
                    matched = match(variant, sets, spare_s, seed, search.phase.backwards, allowed)
                    if matched is None:
                        continue
                    search.left -= len(matched[0])
                    routed = _useful(quotient, *matched)
                _schedule(search, routed)
                large = len(routed.routing) * len(quotient.rotations) > _ROWS_FOR_ALL_TRIES
                if search.over:
                    return
        if large:
            return


def _variants(problem: Chunked, quotient: QuotientProblem) -> list[QuotientProblem]:
    """The problem, with fewer links between nodes, and with latencies that groups share, where that matters."""
    quotients = [found for found in (quotient, quotient.with_single_ports()) if found is not None]
    alpha_s = np.where(problem.may_group, quotient.topology.alpha_s, 0.0)
    if (alpha_s < _ALPHA_SHARE * quotient.duration_s).all():
        return quotients
    shared_s = quotient.duration_s - alpha_s * (1 - 1 / _SHARED_BY)
    return [*quotients, *(replace(found, duration_s=shared_s) for found in quotients)]


def _schedule(search: _Search, routed: _Routed) -> list[Order]:
    """Put the sends in order and group them by every rule, as long as that is not over."""
    orders: list[Order] = []
    table, given_s = _table_of(search, routed), routed.given_s
    groups = search.parameters.groups if table.may_join.any() else (1,)
    with charge("greedy: ordering"):
        for given in (given_s, None):
            for backwards in (False, True):
                for most in groups:
                    if search.over:
                        return orders
                    rule = Rule("longest from now" if given is None else "as given", backwards, most)
                    orders.append(search.ordered(table, rule, given))
                    search.offer(routed, orders[-1])
    return orders


def _useful(quotient: QuotientProblem, routing: Routing, start_s: Floats) -> _Routed:
    """The matching without sends that lead nowhere wanted."""
    kept = routing.that_lead_to(quotient.wanted[routing.chunk, quotient.topology.link_target[routing.link]])
    return _Routed(quotient, routing.part(kept), start_s[kept])


def _table_of(search: _Search, routed: _Routed) -> Table:
    """The sends as rows to be put in order.

    Backwards in time, where a chunk is a sum, a rank sends it to one rank only at a time: that is to add one part at a
    time.
    """
    problem, quotient, topology, routing = search.problem, routed.quotient, routed.quotient.topology, routed.routing
    chunk, link = routing.chunk, routing.link
    own = (quotient.group_count + quotient.rotations.link_orbit[link]).tolist()
    clocks = [(clock, *quotient.groups[number]) for clock, number in zip(own, link.tolist(), strict=True)]
    if search.phase.backwards:
        first = quotient.group_count + len(topology.links)
        copies = (first + chunk * topology.device_count + topology.link_source[link]).tolist()
        clocks = [(copy, *held) for copy, held in zip(copies, clocks, strict=True)]
    return Table(
        needs=[(row,) if row >= 0 else () for row in routing.parent.tolist()],
        link=own,
        clocks=clocks,
        alpha_s=topology.alpha_s[link],
        beta_s=problem.duration_s[link] - topology.alpha_s[link],
        may_join=problem.may_group[link],
    )


def _bound_s(bounds: Bounds, searches: Sequence[_Search]) -> float:
    """Each phase's bound holds for the whole, but not their sum: how often a sum crosses a cut bounds both together."""
    if any(search.bounds is None for search in searches):
        return max(phase.latency_s for phase in bounds.phases)
    best_s = max(search.bounds.chunk_by_chunk_s for search in searches if search.bounds is not None)
    return max(best_s, bounds.crossing_s) if len(searches) > 1 else best_s
