"""Synthesis without a MILP, for clusters whose models are too large: match or route on orbits, dispatch, unfold.

Everything happens on one chunk of each orbit under the rotations that the topology has (`board`), so that tries are
cheap: many are made, and the best is kept until it is proven good enough or the time is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless import __version__
from gapless.encodings.taccl.assembly import reversed_columns, table_of, to_schedule
from gapless.encodings.taccl.bounds.bandwidth import Bottleneck
from gapless.encodings.taccl.bounds.bottleneck_sets import find_bottleneck_sets
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.matching import Match, match
from gapless.encodings.taccl.flow.paths import Routes, route_paths
from gapless.encodings.taccl.flow.rounding import round_flow
from gapless.encodings.taccl.list_scheduling import Rule, Table, Timing, dispatch
from gapless.encodings.taccl.reordering import order_by_load, reorderings
from gapless.encodings.taccl.sketch.phases import is_spread_backwards
from gapless.encodings.taccl.symmetry.quotient import Columns, QuotientProblem, quotient_problem
from gapless.encodings.taccl.symmetry.rotations import Rotations, no_rotations
from gapless.errors import InputError
from gapless.options import Deadline, Progress, SolveOptions, charge
from gapless.schedule import Schedule
from gapless.solution import Solution, Status, StopReason
from gapless.system import Plan

__all__ = ["plan_greedy"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

SOLVER = "greedy"
_SEEDS = 16
_SPARE_SHARES = (0.0, 0.8, 0.9, 0.95, 1.0)
"""Until when a door may bring a chunk again, as a part of the best time so far."""
_GROUPS = (1, 2, 4, 8, 1 << 30)
_ALPHA_SHARE = 0.1
"""Of a link's time for a chunk; where latencies are a larger part, matchings that share them are tried as well."""
_SHARED_BY = 8
_BOUNDS_SHARE = 0.3
"""The part of the time that the linear programs of the bounds may take."""
_ROUNDING_S = 2.0
"""For whole numbers of chunks on the ways of the flow."""
_SMALL_BOARD = 100_000
"""Pairs of chunk and link up to which ways by load are tried beside those of the flow."""
_MOST_BY_LOAD = 10_000
"""Sends up to which those go first whose resources have most left to do: later sends are looked at again each time."""
_UNEVEN = 0.005
"""How much longer than by the flow the busiest resource may be taken before other ways are looked for."""
_PROMISING = 1.1
"""Orders by rules that are worse than the best by more are not shaken."""
_GROUPS_SHAKEN = 3
"""So many sizes of groups, those that the rules were best with."""
_PATIENCE, _SHAKING_S = 60, 10.0
"""Orders in a row that may be no better than the best, and for how long each size of groups is shaken."""
_ROWS_FOR_ALL_TRIES = 20_000
"""With more sends than this in all, a single seed is tried."""


@dataclass(frozen=True)
class _Rows:
    """Sends of a board's chunks, parents first; `given_s`: when a matching starts them, zeros without one."""

    board: QuotientProblem
    chunk: Ids
    link: Ids
    parent: Ids
    given_s: Floats


@dataclass
class _Search:
    problem: Chunked
    options: SolveOptions
    deadline: Deadline
    one_at_a_time: bool
    rotations: Rotations | None = None
    bounds: Bounds | None = None
    best: tuple[_Rows, Timing] | None = None
    tries: int = 0
    stage_s: dict[str, float] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether there is a plan, and it is good enough or the time is up."""
        return self.best is not None and (self.deadline.over or self.is_within(self.options.gap))

    def is_within(self, gap: float) -> bool:
        """Whether the best plan is proven to be within `gap` of the best possible."""
        if self.bounds is None or self.best is None:
            return False
        return self.best[1].makespan_s - self.bounds.chunk_by_chunk_s <= gap * self.best[1].makespan_s

    def offer(self, rows: _Rows, timing: Timing) -> None:
        """Keep a timing if it is the best so far."""
        self.tries += 1
        if self.best is None or timing.makespan_s < self.best[1].makespan_s * (1 - 1e-9):
            self.best = (rows, timing)
            if self.options.on_progress is not None:
                bound_s = None if self.bounds is None else self.bounds.chunk_by_chunk_s
                self.options.on_progress(Progress(self.deadline.elapsed_s, timing.makespan_s, bound_s, "greedy"))


def plan_greedy(problem: Chunked, options: SolveOptions) -> Plan:
    """The best plan of the greedy, with bounds on what any plan could reach.

    What reduces is planned backwards in time, as the spreading of its chunks over links that are turned round; where
    the sums are wanted by more than one rank (ALLREDUCE), they are spread in a second phase.
    """
    collective = problem.collective
    if problem.sketch is not None:
        raise InputError(f"sketch {problem.sketch.name}: the greedy keeps to no sketch; leave it out, or take the MILP")
    if not is_spread_backwards(collective):
        raise InputError(f"{collective.name}: the greedy takes sums of all ranks, wanted by one rank or by all of them")
    deadline = Deadline(options)
    phases = problem.phases
    searches, parts = [], []
    for number, phase in enumerate(phases):
        share = deadline.stage(deadline.remaining_s / (len(phases) - number))
        search = _Search(phase.problem, share, Deadline(share), phase.backwards)
        found = _find(search)
        searches.append(search)
        parts.append((reversed_columns(found) if phase.backwards else found, phase.backwards))
    schedule = to_schedule(problem, parts)
    solution = _solution(problem, searches, options, deadline)
    return Plan(solution, schedule, _details(searches, parts, schedule, solution), timings=_timings(searches))


def _find(search: _Search) -> Columns:
    """All sends of the best plan for one phase, in order of their starts."""
    problem = search.problem
    with charge(search.stage_s, "board"):
        board = quotient_problem(problem)
    with charge(search.stage_s, "bounds"):
        stage = search.deadline.stage(_BOUNDS_SHARE * search.deadline.remaining_s)
        bounds = bounds_of(problem, options=stage, one_at_a_time=search.one_at_a_time)
        search.bounds = bounds.with_proven(bounds.bandwidth.time_s)
    if (board.wanted.sum(axis=1) == 1).all():
        _route(search, board)
    else:
        _match(search, board, search.bounds.bandwidth.bottlenecks)
    assert search.best is not None  # both offer at least one
    rows, timing = search.best
    search.rotations = rows.board.rotations
    with charge(search.stage_s, "unfolding"):
        return rows.board.columns(rows.chunk, rows.link, timing.start_s, timing.end_s, timing.place)


def _route(search: _Search, board: QuotientProblem) -> None:
    """Chunks that one rank wants: ways of the flow, and by load, then every rule of dispatch, then other orders."""
    for rows in _routings(search, board):
        if len(rows.chunk) <= _MOST_BY_LOAD:
            table = table_of(search.problem, rows.board, rows.chunk, rows.link, rows.parent, search.one_at_a_time)
            with charge(search.stage_s, "ordering"):
                search.offer(rows, order_by_load(table))
        found = _dispatch(search, rows.board, rows, (False, True))
        if search.over:
            return
        best_s = min(timing.makespan_s for timing in found)
        if search.best is not None and best_s <= _PROMISING * search.best[1].makespan_s:
            _reorder(search, rows, found)


def _routings(search: _Search, board: QuotientProblem) -> Iterator[_Rows]:
    """Along the flow that the bound has found, and where it has found none, or the board is small, by load.

    Chunks of one orbit take images of one another's ways. Where whole chunks can't be shared out well enough in that
    way (a ring of eight, where half of what goes to the other side goes left), a small board is routed without.
    """
    assert search.bounds is not None
    problem, flow = search.problem, search.bounds.bandwidth.flow
    small = problem.collective.chunk_count * problem.link_count <= _SMALL_BOARD
    if flow is not None:
        boards = [board]
        while boards:
            its = boards.pop()
            with charge(search.stage_s, "routing"):
                options = search.deadline.stage(min(_ROUNDING_S, 0.5 * search.deadline.remaining_s))
                routes = round_flow(its, problem.occupancy_s, flow, options)
            yield _rows_of(its, routes)
            if small and len(its.rotations) > 1 and routes.busy_s > flow.time_s * (1 + _UNEVEN):
                boards.append(quotient_problem(problem, no_rotations(board.topology)))
    if flow is None or small:
        with charge(search.stage_s, "routing"):
            routes = route_paths(board, problem.occupancy_s)
        yield _rows_of(board, routes)


def _rows_of(board: QuotientProblem, routes: Routes) -> _Rows:
    return _Rows(board, routes.chunk, routes.link, routes.parent, np.zeros(len(routes.chunk)))


def _reorder(search: _Search, rows: _Rows, found: list[Timing]) -> None:
    """Shake the best order that each of the best sizes of groups has until that has been in vain for a while."""
    table = table_of(search.problem, rows.board, rows.chunk, rows.link, rows.parent, search.one_at_a_time)
    best: dict[int, Timing] = {}
    for timing in sorted(found, key=lambda timing: timing.makespan_s):
        best.setdefault(timing.most, timing)
    with charge(search.stage_s, "ordering"):
        for most, timing in islice(best.items(), _GROUPS_SHAKEN):
            best_s, in_vain, until_s = timing.makespan_s, 0, search.deadline.elapsed_s + _SHAKING_S
            forwards = partial(_ordered, table, Rule(most, backwards=False, longest_first=False))
            backwards = partial(_ordered, table, Rule(most, backwards=True, longest_first=False))
            for other in reorderings(forwards, backwards, timing, search.options.seed):
                search.offer(rows, other)
                in_vain = 0 if other.makespan_s < best_s * (1 - 1e-9) else in_vain + 1
                best_s = min(best_s, other.makespan_s)
                if search.over:
                    return
                if in_vain == _PATIENCE or search.deadline.elapsed_s > until_s:
                    break


def _ordered(table: Table, rule: Rule, given_s: Floats) -> Timing:
    return dispatch(table, given_s, rule)


def _match(search: _Search, board: QuotientProblem, bottlenecks: tuple[Bottleneck, ...]) -> None:
    """Chunks that many ranks want: matchings from other seeds and with more spare sends, each dispatched again."""
    pods = find_bottleneck_sets(board.topology, list(bottlenecks), board.rotations)
    boards = _variants(search.problem, board)
    large = False
    for seed in range(search.options.seed, search.options.seed + _SEEDS):
        for share in _SPARE_SHARES:
            for doors in boards:
                spare_s = 0.0 if search.best is None else share * search.best[1].makespan_s
                with charge(search.stage_s, "matching"):
                    matched = match(doors, pods, spare_s, seed, search.one_at_a_time)
                    if matched is None:
                        continue
                    rows = _useful(board, matched)
                _dispatch(search, board, rows, (False, True))
                large = len(rows.chunk) * len(board.rotations) > _ROWS_FOR_ALL_TRIES
                if search.over:
                    return
        if large:
            return


def _variants(problem: Chunked, board: QuotientProblem) -> list[QuotientProblem]:
    """The board, with fewer links between nodes, and with latencies that groups share, where that matters."""
    boards = [found for found in (board, board.with_single_ports()) if found is not None]
    alpha_s = np.where(problem.may_group, board.topology.alpha_s, 0.0)
    if (alpha_s < _ALPHA_SHARE * board.duration_s).all():
        return boards
    shared_s = board.duration_s - alpha_s * (1 - 1 / _SHARED_BY)
    return [*boards, *(replace(found, duration_s=shared_s) for found in boards)]


def _dispatch(search: _Search, board: QuotientProblem, rows: _Rows, longest: tuple[bool, ...]) -> list[Timing]:
    """Order and group the rows by every rule, as long as that is not over."""
    found = []
    table = table_of(search.problem, board, rows.chunk, rows.link, rows.parent, search.one_at_a_time)
    groups = _GROUPS if table.may_join.any() else (1,)
    with charge(search.stage_s, "ordering"):
        for longest_first in longest:
            for backwards in (False, True):
                for most in groups:
                    rule = Rule(most, backwards, longest_first)
                    found.append(dispatch(table, rows.given_s, rule))
                    search.offer(rows, found[-1])
                    if search.over:
                        return found
    return found


def _useful(board: QuotientProblem, matched: Match) -> _Rows:
    """The matching without sends that lead nowhere wanted."""
    target = board.topology.link_target[matched.link]
    useful = board.wanted[matched.chunk, target].tolist()
    parents = matched.parent.tolist()
    for row in range(len(parents) - 1, -1, -1):  # children stand behind their parents
        if useful[row] and parents[row] >= 0:
            useful[parents[row]] = True
    kept = np.array(useful, dtype=np.bool_)
    number = np.cumsum(kept) - 1
    parent = np.where(matched.parent >= 0, number[matched.parent], -1)
    return _Rows(board, matched.chunk[kept], matched.link[kept], parent[kept], matched.start_s[kept])


def _solution(problem: Chunked, searches: list[_Search], options: SolveOptions, deadline: Deadline) -> Solution:
    """What is claimed of the phases one after the other.

    Each phase's bound holds for the whole, but not their sum: how often a sum crosses a cut bounds both together.
    """
    makespan_s = sum(search.best[1].makespan_s for search in searches if search.best is not None)
    best_s = max(search.bounds.chunk_by_chunk_s for search in searches if search.bounds is not None)
    if len(searches) > 1:
        best_s = max(best_s, bounds_of(problem).crossing_s)
    assert best_s <= makespan_s * (1 + 1e-6), "a schedule beats its lower bound"
    bound_s = min(best_s, makespan_s)
    proven = makespan_s - bound_s <= 1e-6 * makespan_s
    reason = StopReason.FINISHED
    if not proven and makespan_s - bound_s <= options.gap * makespan_s:
        reason = StopReason.GAP_REACHED
    elif not proven and deadline.over:
        reason = StopReason.INTERRUPTED if options.stop.is_set() else StopReason.TIME_LIMIT
    return Solution(
        status=Status.OPTIMAL if proven else Status.FEASIBLE,
        stop_reason=reason,
        solver=SOLVER,
        version=__version__,
        seed=options.seed,
        wall_s=deadline.elapsed_s,
        objective=makespan_s,
        bound=bound_s,
    )


def _details(
    searches: list[_Search], parts: list[tuple[Columns, bool]], schedule: Schedule, solution: Solution
) -> dict[str, Any]:
    assert solution.bound is not None
    assert solution.objective is not None
    bounds = [search.bounds for search in searches if search.bounds is not None]
    rotations = searches[0].rotations
    assert rotations is not None
    return {
        "method": "greedy",
        "ratio": solution.objective / solution.bound,
        "sends": len(schedule),
        "chunk_transfers": sum(len(moves) for moves, _ in parts),
        "links_used": len(np.unique(np.concatenate([moves.link for moves, _ in parts]))),
        "bounds_s": {
            "latency": max(bound.latency_s for bound in bounds),
            "cuts": max(bound.chunk_by_chunk["cuts"] for bound in bounds),
            "bandwidth": max(bound.bandwidth.time_s for bound in bounds),
            "bandwidth_is_exact": all(bound.bandwidth.exact for bound in bounds),
        },
        "rotations": len(rotations),
        "rotation_generators": [list(pair) for pair in rotations.generators],
        "tries": sum(search.tries for search in searches),
        "ordering": "; ".join(search.best[1].variant for search in searches if search.best is not None),
    }


def _timings(searches: list[_Search]) -> dict[str, float]:
    stages = sorted({stage for search in searches for stage in search.stage_s})
    return {stage: round(sum(search.stage_s.get(stage, 0.0) for search in searches), 6) for stage in stages}
