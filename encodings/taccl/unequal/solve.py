"""Solving a collective of unlike shares: bounds, methods in turn, the best of their plans.

*Equal shares* (`equal`): the plan of the collective of the plain name, for shares of the mean size, resized. It is all
that few bytes need, where latencies count and shares hardly do.

*Packed trees* (`packed`, `packing.py`) and *matchings* (`matched`): of ALLGATHERV, shares are cut into pieces of nearly
one size, so that a rank with more data has more of them, and each goes along a tree of its own; or into chunks for
matchings with restarts, resized. Trees come first: they do best where links are few, matchings behind switches.

*List scheduling* (`listed`, `scheduling.py`): of ALLTOALLV, pieces along the paths of a fluid. It comes first, with its
bound; then equal shares where that leaves too much; at last what is best of it, perturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

from gapless import __version__
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.candidate import SAME, CollectiveDecision, checked
from gapless.encodings.taccl.chunked import Chunked, claim
from gapless.encodings.taccl.flow.restarts import matched_plan
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.switches.bounds import has_plain_bandwidth
from gapless.encodings.taccl.unequal.bounds import check_paths, quick_bounds, routed_bound_s
from gapless.encodings.taccl.unequal.packing import packed_plan, pieces_alike
from gapless.encodings.taccl.unequal.problem import Unequal, UnequalInChunks
from gapless.encodings.taccl.unequal.resizing import resized
from gapless.encodings.taccl.unequal.scheduling import flow_of, list_scheduled, lowered, perturbed
from gapless.ir.collective import alltoall
from gapless.ir.schedule import Schedule
from gapless.methods.ledger import charge
from gapless.options import Deadline, SolveOptions
from gapless.system import Plan

__all__ = ["solve_unequal"]

PlanChunked = Callable[[Chunked, SolveOptions, Parameters], Plan]
"""Plans chunks of one size."""

_PART = 0.5
"""Where others follow, a method takes at most this part of the time that is left."""
_EQUAL_WORK = 0.3
"""Of the work for a collective of equal shares."""
_MATCHED_WORK = 0.75
"""Likewise, for each number of pieces that is matched."""
_SHORTEST = 0.5
"""Of a fast link's latency: pieces that take less there are too short for matchings."""


@dataclass(frozen=True)
class _Made:
    """A plan in its chunks, by a method in one of its variants."""

    cut: UnequalInChunks
    schedule: Schedule
    method: str
    variant: str

    @property
    def end_s(self) -> float:
        """When the last transfer ends."""
        return float(self.schedule.end_s.max(initial=0.0))


@dataclass
class _Search:
    """The best plan so far, and the bounds of the question by name."""

    problem: Unequal
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    bounds_s: dict[str, float] = field(default_factory=dict)
    best: _Made | None = None

    @property
    def bound_s(self) -> float:
        """No plan takes less."""
        return max(self.bounds_s.values())

    @property
    def enough_s(self) -> float:
        """When a plan ends that is proven within the gap, and a little more."""
        return self.bound_s * (1 + self.options.gap)

    @property
    def is_over(self) -> bool:
        """Whether there is a plan, and the time is up or it is good enough."""
        return self.best is not None and (self.deadline.over or self.best.end_s <= self.enough_s)

    def offer(self, made: _Made) -> None:
        """Keep a plan if it is faster than the best."""
        if self.best is None or made.end_s < self.best.end_s * (1 - SAME):
            self.best = made
            if self.options.on_plan is not None:
                self.options.on_plan(made.end_s, self.answer)

    def stage(self) -> SolveOptions:
        """A part of the time that is left."""
        return replace(self.deadline.stage(_PART * self.deadline.remaining_s), on_plan=None, on_progress=None)

    def answer(self) -> Plan:
        """The best plan with the bound of the question."""
        best = self.best
        source = max(self.bounds_s, key=self.bounds_s.__getitem__)
        end_s = None if best is None else best.end_s
        solver = "" if best is None else best.method
        solution = claim(end_s, self.bound_s, solver, __version__, self.options, self.deadline, source)
        if best is None:
            return Plan(solution, None, {}, problem=self.problem)
        decision = CollectiveDecision(best.method, best.variant, best.cut.pieces)
        details = {
            "method": best.method,
            "ratio": best.end_s / self.bound_s,
            "sends": len(best.schedule),
            "chunk_transfers": len(best.schedule.moves.values),
            "bounds_s": dict(self.bounds_s),
            "provenance": asdict(decision),
        }
        return Plan(solution, best.schedule, details, problem=best.cut, decision=decision)


def solve_unequal(problem: Unequal, options: SolveOptions, parameters: Parameters, plan_chunked: PlanChunked) -> Plan:
    """The best plan for a question. Raises `InputError` where bytes have no path."""
    check_paths(problem)
    search = _Search(problem, options, parameters, Deadline(options))
    with charge("bounds: quick"):
        search.bounds_s |= quick_bounds(problem)
    for made in _methods(search, plan_chunked):
        search.offer(made)
        if search.is_over:
            break
    if search.best is not None:
        checked(search.best.schedule)
    return search.answer()


def _methods(search: _Search, plan_chunked: PlanChunked) -> Iterator[_Made]:
    """Plans as they are found, with bounds worked out where they may end the search."""
    problem, parameters = search.problem, search.parameters.shares
    if problem.amounts.is_gather:
        yield from _gathering(search, plan_chunked)
        return
    with charge("fluid"):
        flow = flow_of(problem, parameters)
    if has_plain_bandwidth(problem.topology):
        search.bounds_s["bandwidth"] = flow.bound_s
    with charge("listed"):
        listed = list_scheduled(problem, flow, parameters, search.deadline, search.enough_s)
        made = _Made(*lowered(problem, listed), "listed", listed.name(flow.load_s))
    yield made
    _note_bandwidth(search)
    if search.is_over:
        return
    yield from _equal(search, plan_chunked)
    with charge("perturbed"):
        seed = search.options.seed
        better = perturbed(problem, listed, parameters, seed, search.deadline, search.enough_s)
    if better is not listed:
        yield _Made(*lowered(problem, better), "listed", better.name(flow.load_s))


def _note_bandwidth(search: _Search) -> None:
    """The exact bandwidth bound, where it can be had."""
    with charge("bounds: bandwidth"):
        most = search.parameters.shares.most_program_variables
        exact_s = routed_bound_s(search.problem, search.stage(), most)
        search.bounds_s["bandwidth"] = max(search.bounds_s.get("bandwidth", 0.0), exact_s)


def _gathering(search: _Search, plan_chunked: PlanChunked) -> Iterator[_Made]:
    """Plans of an ALLGATHERV: along packed trees, for equal shares, then by matchings of ever finer pieces."""
    problem, parameters = search.problem, search.parameters
    _note_bandwidth(search)
    with charge("packed"):
        packed = packed_plan(problem, parameters.shares, search.options.seed, search.deadline, search.enough_s)
    if packed is not None:
        cut, schedule, variant = packed
        yield _Made(cut, schedule, "packed", variant)
        if search.is_over:
            return
    yield from _equal(search, plan_chunked)
    for pieces in _matched_pieces(search):
        if search.is_over:
            return
        with charge("matched"):
            chunked, shares = _gathered(problem, pieces)
            matching = parameters.with_share(_MATCHED_WORK).matching
            found = matched_plan(chunked, search.stage(), matching, bounds_of(chunked))
            made = None if found is None else resized(problem, found.schedule, shares)
        if found is not None and made is not None:
            yield _Made(*made, "matched", found.variant)


def _matched_pieces(search: _Search) -> Iterator[list[list[int]]]:
    """The pieces of all shares for matchings: no more than there is work for, none too short to be worth a message."""
    topology, sizes, parameters = search.problem.topology, search.problem.amounts.rows[0], search.parameters.shares
    ranks, fastest = topology.device_count, int(topology.beta_s_per_byte.argmin())
    mean_s, alpha_s = topology.beta_s_per_byte[fastest] * sum(sizes) / ranks, topology.alpha_s[fastest]
    most, known = parameters.most_matched_sends // (ranks * (ranks - 1)), set[int]()
    for number in parameters.matched_pieces:
        fitting = min(number, most)
        if fitting > 0 and fitting not in known and mean_s >= _SHORTEST * alpha_s * fitting:
            known.add(fitting)
            yield pieces_alike(sizes, fitting)


def _equal(search: _Search, plan_chunked: PlanChunked) -> Iterator[_Made]:
    """A plan for equal shares, resized."""
    chunked, shares = _alike(search.problem)
    with charge("equal"):
        plan = plan_chunked(chunked, search.stage(), search.parameters.with_share(_EQUAL_WORK))
        if plan.schedule is None:
            return
        count = plan.schedule.graph.tensor_count // chunked.collective.chunk_count
        cut = [[chunk * count + k for chunk in chunks for k in range(count)] for chunks in shares]
        made = resized(search.problem, plan.schedule, cut)
    decision = plan.decision
    what = f"{decision.method}, {decision.variant}" if isinstance(decision, CollectiveDecision) else ""
    yield _Made(*made, "equal", what.removesuffix(", "))


def _alike(problem: Unequal) -> tuple[Chunked, list[list[int]]]:
    """The collective in chunks of nearly one size, and for each share the chunks that stand for it."""
    amounts, ranks = problem.amounts, problem.topology.device_count
    if amounts.is_gather:
        return _gathered(problem, pieces_alike(amounts.rows[0], 1))
    mean_bytes = -(-int(amounts.sent.sum()) // (ranks * (ranks - 1)))
    chunked = Chunked(problem.topology, alltoall(ranks), mean_bytes, may_cut=True)
    return chunked, [[number] for number in range(ranks * ranks)]


def _gathered(problem: Unequal, shares: Sequence[Sequence[int]]) -> tuple[Chunked, list[list[int]]]:
    """An ALLGATHERV in these pieces, as if all were as large as the largest piece."""
    collective = replace(problem.amounts.cut(shares), chunk_sizes=None, name="pieces")
    largest = max(max(pieces) for pieces in shares if pieces)
    return Chunked(problem.topology, collective, largest), [list(buffer) for buffer in collective.inputs]
