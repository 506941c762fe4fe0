"""First plan: one for every question, before bounds or linear programs, so that there is an answer when time is up.

It is the quickest of the libraries' algorithms, or chunks go along shortest paths, in the order of the longest path
from now on; with many sends, a single matching on orbits has to do. Its work is counted, and no clock cuts it short: so
no answer is slower than any of them, whatever the time limit is and whatever else the machine does.
"""

from __future__ import annotations

from dataclasses import replace

from gapless.encodings.taccl.baselines.quickest import quickest
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.chunked import MOST_PAIRS, Chunked
from gapless.encodings.taccl.flow.greedy import may_be_greedy, plan_greedy
from gapless.encodings.taccl.flow.paths import shortest_path_routing
from gapless.encodings.taccl.ordering.list_scheduling import RULES, list_schedule
from gapless.encodings.taccl.ordering.sends import sends_of, to_schedule
from gapless.encodings.taccl.ordering.tables import single_sends, times_of
from gapless.encodings.taccl.symmetry.quotient import rotations_of
from gapless.ir.schedule import Schedule
from gapless.methods.ledger import charge
from gapless.options import Deadline, Progress

__all__ = ["first_plan", "least_limit_s"]

_FEW_SENDS = 2_000
"""Sends up to which shortest paths take a tenth of a second; with more, a matching on orbits is quicker."""
_AFTER_S = 7e-6
"""Seconds for each send of a chunk that are kept for lowering the plan, its replay, and writing it."""
_TREES_S, _PATHS_S = 8e-6, 20e-6
"""Seconds for each send of a chunk until a plan is written, where chunks have many destinations, and where one."""
_FREE_SENDS = 50_000
"""Sends up to which there is a first plan whatever the time limit is."""


@charge("first")
def first_plan(problem: Chunked, deadline: Deadline) -> Candidate | None:
    """A plan with a bound on plans chunk by chunk; None where the time limit is too short for any, which is noted.

    Of a time limit, what the replay of such a plan takes is kept.
    """
    sends = sum(_wanted_by(problem))
    if sends > _FREE_SENDS and least_limit_s(problem) > deadline.remaining_s:
        deadline.strike()
        return None
    deadline.keep(_AFTER_S * sends)
    is_quotient = problem.is_free and may_be_greedy(problem)
    fits = problem.pair_count <= MOST_PAIRS
    plan: Candidate | None = None
    if fits and (sends <= _FEW_SENDS or not is_quotient or _has_no_rotations(problem)):
        plan = _by_shortest_paths(problem)
    elif is_quotient:
        # Whoever asks for it offers it, as an answer; what the greedy offers is none yet.
        plan = plan_greedy(problem, replace(deadline.stage(), on_plan=None), most_tries=1)
    plan = _by_library(problem, plan)
    options = deadline.stage()
    if plan is not None and options.on_progress is not None:
        options.on_progress(Progress(deadline.elapsed_s, plan.end_s, None, "first plan"))
    return plan


def _has_no_rotations(problem: Chunked) -> bool:
    """Whether a matching, or paths by load, would have to look at every chunk."""
    return all(len(rotations_of(phase.problem)) == 1 for phase in problem.phases)


def least_limit_s(problem: Chunked) -> float:
    """About the least time limit in which there is a plan."""
    wanted_by = _wanted_by(problem)
    return (_TREES_S if max(wanted_by) > 1 else _PATHS_S) * sum(wanted_by)


def _wanted_by(problem: Chunked) -> list[int]:
    """How many ranks want each chunk of each phase: at least so many sends of it there are in any plan."""
    return [len(ranks) for phase in problem.phases for ranks in phase.problem.collective.destinations]


def _by_library(problem: Chunked, known: Candidate | None) -> Candidate | None:
    """The plan that is known, or what a library's algorithm makes that is quicker."""
    library = quickest(problem)
    if library is None:
        return known
    made = _latency_bounded(library.problem, library.schedule, f"baseline:{library.name}", library.variant)
    return made if made.is_faster(known) else known


def _by_shortest_paths(problem: Chunked) -> Candidate:
    sends = sends_of(problem, [shortest_path_routing(phase.problem) for phase in problem.phases])
    order = list_schedule(single_sends(problem, sends), RULES[0])
    network = problem.logical.topology
    schedule = to_schedule(network, problem.collective, problem.chunk_bytes, sends, times_of(order))
    return _latency_bounded(problem, schedule, "shortest-paths", order.name)


def _latency_bounded(problem: Chunked, schedule: Schedule, method: str, variant: str) -> Candidate:
    """A schedule with a bound for all that is whole chunks: when the last of them, each alone, can be there."""
    bound_s = max(float(phase.problem.earliest_s[phase.problem.wanted].max(initial=0.0)) for phase in problem.phases)
    return Candidate(problem, schedule, method, variant, bound_s, {"latency": bound_s})
