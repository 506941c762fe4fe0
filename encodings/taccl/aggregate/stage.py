"""The stage of whole messages: plans in which a rank sends all it has at once, ours and those of the libraries."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gapless import __version__
from gapless.checker import check
from gapless.encodings.taccl.aggregate.gossip import gossip_transfers
from gapless.encodings.taccl.aggregate.planning import rooted_transfers, transfers_of
from gapless.encodings.taccl.baselines import Baseline, Baselines
from gapless.encodings.taccl.baselines.cut import standard_name
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.sends import Transfer, sends_in_turn, to_schedule
from gapless.encodings.taccl.sketch.phases import is_spread_backwards
from gapless.options import Deadline, SolveOptions
from gapless.schedule import Schedule
from gapless.solution import Solution, Status, StopReason
from gapless.system import Plan

__all__ = ["may_aggregate", "plan_aggregated"]

_MOST_RANKS = 128
_MOST_LINKS = 20_000
_MOST_CELLS = 30_000_000
"""Ranks, links, and pairs of chunk and link, above which whole messages are not looked at."""
_DRAWS_S, _ROOTED_S, _GOSSIP_S = 2.0, 1.0, 2.0
_BASELINES_S = 4.0
"""What each kind of plan may take at most."""
_ALPHA_SHARE = 0.02
"""Of the time of a chunk on its link; where no link's latency is more, sharing it is worth nothing."""


def may_aggregate(problem: Chunked) -> bool:
    """Whether whole messages are a choice: nobody restricts the links chunk by chunk, and there are not too many.

    A sketch that says whose chunks go first orders single chunks, so it leaves no choice.
    """
    links, chunks = problem.link_count, problem.collective.chunk_count
    few = problem.collective.rank_count <= _MOST_RANKS and links <= _MOST_LINKS and links * chunks <= _MOST_CELLS
    free = problem.path_slack is None and problem.given is None and not problem.logical.own_first.any()
    return few and free and is_spread_backwards(problem.collective) and any(problem.collective.destinations)


@dataclass(frozen=True)
class _Found:
    """A schedule with the problem that it solves (its chunks may be cut), and whose it is."""

    problem: Chunked
    schedule: Schedule
    method: str
    variant: str = ""

    @property
    def end_s(self) -> float:
        """When the last transfer ends."""
        return float(self.schedule.end_s.max(initial=0.0))


def plan_aggregated(problem: Chunked, options: SolveOptions, bounds: Bounds | None = None) -> Plan | None:
    """The fastest under the replay, of our own and of baselines; None where there is none.

    Its bound holds however chunks are grouped (`Bounds.any_grouping_s`). `details["method"]` is `aggregated`, or
    `baseline:` and the name of the algorithm; of equally fast ones ours is kept, and one that cuts no chunks.
    """
    deadline = Deadline(options)
    bounds = bounds or bounds_of(problem)
    enough_s = [phase.any_grouping_s / max(1 - options.gap, 1e-9) for phase in bounds.phases]
    found = _drawn(problem, deadline, options, enough_s)
    found += _baselines(problem, deadline)
    if not found:
        return None
    best = min(found, key=lambda its: its.end_s * (1 if its.problem is problem else 1 + 1e-9))
    report = check(best.schedule)
    assert report.valid, report.summary()
    bounds = bounds if best.problem is problem else bounds_of(best.problem)
    return _plan(best, report.makespan_s, bounds, options, deadline)


def _drawn(problem: Chunked, deadline: Deadline, options: SolveOptions, enough_s: list[float]) -> list[_Found]:
    """Our own plans; none where latencies don't count. `enough_s`: when a phase is good enough."""
    topology, seed = problem.logical.topology, options.seed
    if (topology.alpha_s < _ALPHA_SHARE * problem.duration_s).all():
        return []
    found = []

    def offer(transfers: list[Transfer] | None, variant: str) -> None:
        if transfers:
            found.append(_Found(problem, _scheduled(problem, transfers), "aggregated", variant))

    offer(transfers_of(problem, Deadline(deadline.stage(_DRAWS_S)), seed, enough_s), "phases in turn")
    limit_s = min((its.end_s for its in found), default=math.inf)
    offer(gossip_transfers(problem, Deadline(deadline.stage(_GOSSIP_S)), limit_s), "gossip")
    offer(rooted_transfers(problem, Deadline(deadline.stage(_ROOTED_S)), seed), "by way of one rank")
    return found


def _scheduled(problem: Chunked, transfers: list[Transfer]) -> Schedule:
    topology = problem.logical.topology
    title = f"aggregated {problem.collective.name} on {topology.name}"
    return to_schedule(topology, problem.collective, problem.chunk_bytes, *sends_in_turn(transfers), title)


def _baselines(problem: Chunked, deadline: Deadline) -> list[_Found]:
    """Those that the sketch allows, in chunks as they are unless these may be cut."""
    if problem.collective.reduces and standard_name(problem.collective) is None:
        return []
    library = Baselines(problem.logical.topology, problem.collective)
    stage = Deadline(deadline.stage(_BASELINES_S))
    found = []
    for its in library.of_size(problem.chunk_bytes, may_cut=problem.may_cut, is_over=lambda: stage.over):
        if _keeps_to_sketch(problem, its):
            uncut = its.collective.chunk_count == problem.collective.chunk_count
            solved = problem if uncut else replace(problem, collective=its.collective, chunk_bytes=its.chunk_bytes)
            found.append(_Found(solved, its.schedule, f"baseline:{its.name}", its.variant))
    return found


def _keeps_to_sketch(problem: Chunked, baseline: Baseline) -> bool:
    """Whether every chunk stays on the links that the sketch leaves it, as a part of a sum and as a sum."""
    if problem.sketch is None:
        return True
    schedule, cuts = baseline.schedule, baseline.collective.chunk_count // problem.collective.chunk_count
    link, chunk = schedule.place[schedule.moves.owner], schedule.moves.values // cuts
    reduces = schedule.reduces[schedule.moves.owner]
    for phase in problem.phases:
        its = reduces == phase.backwards
        if not phase.problem.logical.allowed[chunk[its], link[its]].all():
            return False
    return True


def _plan(found: _Found, end_s: float, bounds: Bounds, options: SolveOptions, deadline: Deadline) -> Plan:
    assert bounds.any_grouping_s <= end_s * (1 + 1e-9), "a schedule beats its lower bound"
    bound_s = min(bounds.any_grouping_s, end_s)
    proven = end_s - bound_s <= 1e-6 * end_s
    reason = StopReason.FINISHED
    if not proven and end_s - bound_s <= options.gap * end_s:
        reason = StopReason.GAP_REACHED
    elif not proven and deadline.over:
        reason = StopReason.INTERRUPTED if options.stop.is_set() else StopReason.TIME_LIMIT
    solution = Solution(
        status=Status.OPTIMAL if proven else Status.FEASIBLE,
        stop_reason=reason,
        solver=found.method,
        version=__version__,
        seed=options.seed,
        wall_s=deadline.elapsed_s,
        objective=end_s,
        bound=bound_s,
    )
    schedule = found.schedule
    details = {
        "method": found.method,
        "ratio": end_s / bound_s if bound_s else 1.0,
        "sends": len(schedule),
        "chunk_transfers": len(schedule.moves.values),
        "links_used": len(np.unique(schedule.place)),
        "bounds_s": bounds.any_grouping,
        "ordering": found.variant,
    }
    return Plan(solution, schedule, details, problem=found.problem)
