"""Aggregated sends: plans in which a rank sends all it has at once, our own and those of the libraries."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gapless import __version__
from gapless.checker import check
from gapless.encodings.taccl.aggregate.exchange import exchange_transfers
from gapless.encodings.taccl.aggregate.gossip import gossip_transfers
from gapless.encodings.taccl.aggregate.planning import rooted_transfers, transfers_of
from gapless.encodings.taccl.baselines import Baselines
from gapless.encodings.taccl.baselines.cut import standard_name
from gapless.encodings.taccl.baselines.quickest import keeps_to_links
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.chunked import Chunked, claim
from gapless.encodings.taccl.ordering.sends import Transfer, sends_in_turn, to_schedule
from gapless.encodings.taccl.parameters import Aggregation
from gapless.encodings.taccl.sketch.phases import is_spread_backwards
from gapless.options import Deadline, SolveOptions, charge
from gapless.schedule import Schedule
from gapless.system import Plan

__all__ = ["may_aggregate", "plan_aggregated"]

_DEFAULTS = Aggregation()
_MOST_LINKS = 20_000
_MOST_CELLS = 30_000_000
"""Links, and pairs of chunk and link, above which aggregated sends are not looked at: they don't fit into memory."""
_ALPHA_SHARE = 0.02
"""Of the time of a chunk on its link; where no link's latency is more, sharing it is worth nothing."""


def may_aggregate(problem: Chunked, parameters: Aggregation = _DEFAULTS) -> bool:
    """Whether aggregated sends are a choice: nobody restricts the links chunk by chunk, and there are not too many.

    A sketch that says whose chunks go first orders single chunks, so it leaves no choice.
    """
    links, chunks = problem.link_count, problem.collective.chunk_count
    ranks = problem.collective.rank_count
    few = ranks <= parameters.most_ranks and links <= _MOST_LINKS and links * chunks <= _MOST_CELLS
    free = problem.path_slack is None and problem.given is None and not problem.logical.own_first.any()
    return few and free and is_spread_backwards(problem.collective) and any(problem.collective.destinations)


@dataclass(frozen=True)
class _Candidate:
    """A schedule with the problem that it solves (its chunks may be cut), and whose it is."""

    problem: Chunked
    schedule: Schedule
    method: str
    variant: str = ""

    @property
    def end_s(self) -> float:
        """When the last transfer ends."""
        return float(self.schedule.end_s.max(initial=0.0))


def plan_aggregated(
    problem: Chunked, options: SolveOptions, parameters: Aggregation = _DEFAULTS, bounds: Bounds | None = None
) -> Plan | None:
    """The fastest under the replay, of our own and of baselines; None where there is none.

    Its bound holds however chunks are grouped (`Bounds.any_grouping_s`). `details["method"]` is `aggregated`, or
    `baseline:` and the name of the algorithm; of equally fast ones ours is kept, and one that cuts no chunks.
    """
    deadline, timings = Deadline(options), dict[str, float]()
    bounds = bounds or bounds_of(problem, options=deadline.stage())
    with charge(timings, "baselines"):  # first, since they are quick: constructions take what is left
        found = _baselines(problem, deadline, parameters.baseline_transfers)
    known_s = min((one.end_s for one in found), default=math.inf)
    is_quick = known_s * (1 - options.gap) <= bounds.quick_asked_s
    if not is_quick and known_s * (1 - options.gap) > bounds.asked_s:
        enough_s = [phase.any_grouping_s / max(1 - options.gap, 1e-9) for phase in bounds.phases]
        with charge(timings, "aggregated"):
            found = [*_constructed(problem, deadline, options.seed, parameters, enough_s, known_s), *found]
    if not found:
        return None
    best = min(found, key=lambda candidate: candidate.end_s * (1 if candidate.problem is problem else 1 + 1e-9))
    report = check(best.schedule)
    assert report.valid, report.summary()
    bounds = bounds if best.problem is problem else replace(bounds, problem=best.problem)
    sources_s = bounds.quick_any_grouping if is_quick else bounds.any_grouping
    bound_s = max(bounds.any_chunking_s, *sources_s.values())
    solution = claim(report.makespan_s, bound_s, best.method, __version__, options, deadline)
    details = {
        "method": best.method,
        "ratio": report.makespan_s / bound_s if bound_s else 1.0,
        "sends": len(best.schedule),
        "chunk_transfers": len(best.schedule.moves.values),
        "links_used": len(np.unique(best.schedule.place)),
        "bounds_s": sources_s,
        "variant": best.variant,
    }
    rounded = {stage: round(duration_s, 6) for stage, duration_s in timings.items()}
    return Plan(solution, best.schedule, details, rounded, problem=best.problem)


def _constructed(
    problem: Chunked,
    deadline: Deadline,
    seed: int,
    parameters: Aggregation,
    enough_s: list[float],
    known_s: float,
) -> list[_Candidate]:
    """Our own plans; none where latencies don't count. `enough_s`: when a phase is good enough; `known_s`: what gossip
    and exchanges are to beat besides.
    """
    topology = problem.logical.topology
    if (topology.alpha_s < _ALPHA_SHARE * problem.duration_s).all():
        return []
    found: list[_Candidate] = []
    gossip = ("gossip",) if parameters.gossip_states else ()
    for variant in ("phase by phase", "through one rank", *gossip, "exchange"):
        best_s = min((candidate.end_s for candidate in found), default=known_s)
        if variant == "phase by phase":
            transfers = transfers_of(problem, deadline, seed, parameters, enough_s)
        elif variant == "through one rank":
            transfers = rooted_transfers(problem, deadline, seed, parameters)
        elif variant == "gossip":
            transfers = gossip_transfers(problem, deadline, best_s, parameters.gossip_states)
        else:
            transfers = exchange_transfers(problem, deadline, seed, best_s, parameters.exchange_looks)
        if transfers:
            found.append(_Candidate(problem, _scheduled(problem, transfers), "aggregated", variant))
    return found


def _scheduled(problem: Chunked, transfers: list[Transfer]) -> Schedule:
    topology = problem.logical.topology
    title = f"aggregated {problem.collective.name} on {topology.name}"
    return to_schedule(topology, problem.collective, problem.chunk_bytes, *sends_in_turn(transfers, problem), title)


def _baselines(problem: Chunked, deadline: Deadline, most_transfers: int) -> list[_Candidate]:
    """Those that chunks are allowed, in chunks as they are unless these may be cut."""
    if problem.collective.reduces and standard_name(problem.collective) is None:
        return []
    library = Baselines(problem.logical.topology, problem.collective)
    found = []
    for baseline in library.of_size(
        problem.chunk_bytes,
        None,
        problem.may_cut,
        most_transfers,
        is_over=lambda: deadline.over,
        accepts=partial(keeps_to_links, problem),
    ):
        collective, chunk_bytes = baseline.collective, baseline.chunk_bytes
        uncut = collective.chunk_count == problem.collective.chunk_count
        solved = problem if uncut else replace(problem, collective=collective, chunk_bytes=chunk_bytes)
        found.append(_Candidate(solved, baseline.schedule, f"baseline:{baseline.name}", baseline.variant))
    return found
