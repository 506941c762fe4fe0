"""Aggregated sends: plans in which a rank sends all it has at once, our own and those of the libraries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from gapless.encodings.taccl.aggregate.exchange import exchange_transfers
from gapless.encodings.taccl.aggregate.planning import rooted_transfers, transfers_of
from gapless.encodings.taccl.baselines.cut import standard_name
from gapless.encodings.taccl.baselines.library import Baselines
from gapless.encodings.taccl.baselines.quickest import keeps_to_links
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.candidate import SAME, Candidate, checked
from gapless.encodings.taccl.chunked import MOST_PAIRS, Chunked
from gapless.encodings.taccl.ordering.sends import Transfer, sends_in_turn, to_schedule
from gapless.encodings.taccl.parameters import Aggregation
from gapless.encodings.taccl.sketch.phases import is_spread_backwards
from gapless.methods import MethodChoice, run_methods
from gapless.options import Deadline, SolveOptions

__all__ = ["VARIANTS", "Known", "may_aggregate", "plan_aggregated"]

_DEFAULTS = Aggregation()
_OWN = "aggregated"
_MOST_LINKS = 20_000
"""Links above which aggregated sends are not looked at: they don't fit into memory."""
_ALPHA_SHARE = 0.02
"""Of the time of a chunk on its link; where no link's latency is more, sharing it is worth nothing."""


def may_aggregate(problem: Chunked, parameters: Aggregation = _DEFAULTS) -> bool:
    """Whether aggregated sends are a choice: nobody restricts the links chunk by chunk, and there are not too many.

    A sketch that says whose chunks go first orders single chunks, so it leaves no choice.
    """
    links, ranks = problem.link_count, problem.collective.rank_count
    few = ranks <= parameters.most_ranks and links <= _MOST_LINKS and problem.pair_count <= MOST_PAIRS
    free = problem.path_slack is None and problem.given is None and not problem.logical.own_first.any()
    return few and free and is_spread_backwards(problem.collective) and any(problem.collective.destinations)


@dataclass(frozen=True)
class Known:
    """When the best plan so far ends, and the fastest that a little work found of the libraries' algorithms."""

    best_s: float = math.inf
    library_s: float = 0.0


_NOTHING = Known()


@dataclass
class _Search:
    """What was made so far, without bounds: `library` by the libraries' algorithms, `own` by our constructions.

    `known`: what is known already.
    """

    problem: Chunked
    deadline: Deadline
    gap: float
    seed: int
    parameters: Aggregation
    bounds: Bounds
    known: Known
    library: list[Candidate] = field(default_factory=list)
    own: list[Candidate] = field(default_factory=list)

    @property
    def library_s(self) -> float:
        """When the fastest of the libraries' algorithms ends."""
        return min((made.end_s for made in self.library), default=math.inf)

    @property
    def best_s(self) -> float:
        """What a construction is to beat."""
        return min((made.end_s for made in self.own), default=min(self.library_s, self.known.best_s))

    @property
    def is_quick(self) -> bool:
        """Whether a library's algorithm is proven within the gap by bounds that are worked out at once."""
        return self.library_s * (1 - self.gap) <= self.bounds.quick_asked_s

    @property
    def is_over(self) -> bool:
        """Whether a library's algorithm is proven within the gap; else all constructions are tried."""
        return self.is_quick or self.library_s * (1 - self.gap) <= self.bounds.asked_s

    @cached_property
    def enough_s(self) -> list[float]:
        """When each phase is good enough."""
        return [phase.any_grouping_s / max(1 - self.gap, 1e-9) for phase in self.bounds.phases]

    def offer(self, candidate: Candidate) -> None:
        """Note what was made."""
        (self.own if candidate.method == _OWN else self.library).append(candidate)


@dataclass(frozen=True)
class _Libraries:
    """Those of the libraries' algorithms that chunks are allowed, in chunks as they are unless these may be cut."""

    name: str = "baselines"

    def supports(self, problem: Chunked) -> bool:
        """Whether templates say how it is done."""
        return not problem.collective.reduces or standard_name(problem.collective) is not None

    def run(self, search: _Search) -> Iterator[Candidate]:
        """Each in its fastest variant; none where the fastest of a little work was hopeless."""
        problem = search.problem
        if search.known.library_s > search.parameters.hopeless_library_factor * search.known.best_s:
            return
        library = Baselines(problem.logical.topology, problem.collective)
        made = library.of_size(
            problem.chunk_bytes, None, problem.may_cut, search.parameters.baseline_transfers,
            is_over=lambda: search.deadline.over, accepts=partial(keeps_to_links, problem),
        )  # fmt: skip
        for baseline in made:
            collective, chunk_bytes = baseline.collective, baseline.chunk_bytes
            uncut = collective.chunk_count == problem.collective.chunk_count
            solved = problem if uncut else replace(problem, collective=collective, chunk_bytes=chunk_bytes)
            yield Candidate(solved, baseline.schedule, f"baseline:{baseline.name}", baseline.variant, 0.0, {})


@dataclass(frozen=True)
class _Construction:
    """A kind of our own plans, of messages as large as they come; not tried where latencies don't count."""

    name: str
    transfers: Callable[[_Search], list[Transfer] | None]
    is_for_sums: bool = False

    def supports(self, problem: Chunked) -> bool:
        """Whether some link's latency is a part of its time that counts, and, `is_for_sums`, all want all sums."""
        is_shared = not (problem.logical.topology.alpha_s < _ALPHA_SHARE * problem.duration_s).all()
        return is_shared and (problem.sums_for_all or not self.is_for_sums)

    def run(self, search: _Search) -> Iterator[Candidate]:
        """The fastest of its randomised constructions."""
        problem, topology = search.problem, search.problem.logical.topology
        transfers = self.transfers(search)
        if transfers:
            title = f"aggregated {problem.collective.name} on {topology.name}"
            sends = sends_in_turn(transfers, problem)
            schedule = to_schedule(topology, problem.collective, problem.chunk_bytes, *sends, title)
            yield Candidate(problem, schedule, _OWN, self.name.replace("-", " "), 0.0, {})


_VARIANTS = (
    _Libraries(),  # first, since they are quick: constructions take the time that is left
    _Construction("phase-by-phase", lambda search: transfers_of(
        search.problem, search.deadline, search.seed, search.parameters, search.enough_s, search.known.best_s)),
    _Construction("through-one-rank", lambda search: rooted_transfers(
        search.problem, search.deadline, search.seed, search.parameters, search.best_s), True),
    _Construction("exchange", lambda search: exchange_transfers(
        search.problem, search.deadline, search.seed, search.best_s, search.parameters.exchange_looks), True),
)  # fmt: skip
VARIANTS = tuple(variant.name for variant in _VARIANTS)
"""By their names, in the order in which they are tried."""


def plan_aggregated(
    problem: Chunked,
    options: SolveOptions,
    parameters: Aggregation = _DEFAULTS,
    bounds: Bounds | None = None,
    choice: MethodChoice | None = None,
    known: Known = _NOTHING,
) -> Candidate | None:
    """The fastest under the replay, of our own and of baselines; None where there is none, or none but hopeless ones.

    Its bound holds however chunks are grouped (`Bounds.any_grouping_s`). Its method is `aggregated`, or `baseline:` and
    the name of the algorithm; of equally fast ones ours is kept, and one that cuts no chunks.
    """
    deadline = Deadline(options)
    bounds = bounds or bounds_of(problem, options=deadline.stage())
    search = _Search(problem, deadline, options.gap, options.seed, parameters, bounds, known)
    run_methods(_VARIANTS, problem, search, choice)
    made = [*search.own, *search.library]
    if not made:
        return None
    best = min(made, key=lambda one: one.end_s * (1 if one.problem is problem else 1 + SAME))
    bounds = bounds if best.problem is problem else replace(bounds, problem=best.problem)
    bounds_s = bounds.quick_any_grouping if search.is_quick else bounds.any_grouping
    checked(best.schedule)
    bound_s = max(bounds.any_chunking_s, *bounds_s.values())
    return replace(best, bound_s=bound_s, bounds_s=bounds_s)
