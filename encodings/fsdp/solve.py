"""The solver of sharded training: what is done today, then labels from the best of it, with a bound on every plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gapless import __version__
from gapless.encodings.fsdp.decision import ShardedDecision
from gapless.encodings.fsdp.parameters import DEFAULTS, Parameters
from gapless.encodings.fsdp.problem import Problem
from gapless.encodings.fsdp.search.baselines import BUILDERS, FSDP2_BUILDERS, fits
from gapless.encodings.fsdp.search.bounds import step_bound_s
from gapless.encodings.fsdp.search.labels import search
from gapless.encodings.fsdp.search.precision import with_precisions
from gapless.encodings.fsdp.search.shared import best_grouped, relaxed_bound, starts_of
from gapless.encodings.fsdp.step.costs import Costs, Order, Replicas
from gapless.encodings.fsdp.step.lowering import to_schedule
from gapless.encodings.fsdp.step.timeline import Timeline, timeline
from gapless.methods import Method, MethodChoice, run_methods
from gapless.options import Deadline, SolveOptions
from gapless.solution import PROVEN_GAP, Solution, Status, StopReason, claim_of
from gapless.system import Plan

__all__ = ["solve"]

_LOWERING_S = 1e-3
"""What lowering, replaying and writing take for each layer at most; kept of a time limit."""


@dataclass(frozen=True)
class Candidate:
    """An order, what made it, and its times."""

    method: str
    order: Order
    times: Timeline


@dataclass
class ShardedSearch:
    """What methods share. `bound_s`: no plan of the question takes less. `baselines_s`: step times by name."""

    problem: Problem
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    best: Candidate | None = None
    bound_s: float = 0.0
    bound_source: str = "memory"
    baselines_s: dict[str, float] = field(default_factory=dict)

    @property
    def costs(self) -> Costs:
        """Of the question."""
        return self.problem.costs

    @property
    def best_s(self) -> float:
        """When the best ends."""
        return float("inf") if self.best is None else self.best.times.step_s

    @property
    def is_over(self) -> bool:
        """Whether the best is proven, or time is up; baselines are all made, for comparison."""
        return self.best is not None and len(self.baselines_s) > 0 and self.deadline.over

    def proves(self) -> bool:
        """Whether no plan is faster than the best."""
        return self.best is not None and self.bound_s >= self.best.times.step_s * (1 - PROVEN_GAP)

    def offer(self, candidate: Candidate) -> None:
        """Keep it where it is better than the best."""
        if candidate.method in BUILDERS:
            self.baselines_s[candidate.method] = candidate.times.step_s
        if self.best is None or candidate.times.step_s < self.best.times.step_s:
            self.best = candidate
            if self.options.on_plan is not None:
                self.options.on_plan(candidate.times.step_s, lambda: _plan(self, candidate))


@dataclass(frozen=True)
class Baseline:
    """What is done today, by its name."""

    name: str

    def supports(self, problem: Problem) -> bool:
        """What the executor can run."""
        return problem.executor == "any" or self.name in FSDP2_BUILDERS

    def run(self, search: ShardedSearch) -> Iterator[Candidate]:
        """Its order, where it stays within memory."""
        order = BUILDERS[self.name](search.costs)
        times = fits(search.costs, order)
        if order is not None and times is not None:
            yield Candidate(self.name, order, times)


@dataclass(frozen=True)
class Labels:
    """Labels: over passes, in groups that are searched for; or with groups of each kind of collective."""

    name: str = "labels"

    def supports(self, problem: Problem) -> bool:
        """Every question."""
        return True

    def run(self, search_: ShardedSearch) -> Iterator[Candidate]:
        """Each order that is better than those before it; and what bounds all plans."""
        if search_.proves():
            return
        for order in (_grouped if search_.problem.executor == "fsdp2" else _free)(search_):
            times = fits(search_.costs, order)
            if times is not None:
                yield Candidate(self.name, order, times)
            if search_.proves():
                return


def _free(search_: ShardedSearch) -> Iterator[Order]:
    """With groups of their own for every kind of collective."""
    costs, parameters = search_.costs, search_.parameters
    most, layers = _labels(costs, parameters), parameters.most_layers
    _bound(search_, most)
    found = search(costs, most, layers, search_.best_s, search_.deadline)
    if found.order is not None:
        yield found.order


def _grouped(search_: ShardedSearch) -> Iterator[Order]:
    """With groups that all kinds share."""
    costs, parameters = search_.costs, search_.parameters
    most = max(1, min(parameters.most_labels, parameters.most_extensions // (12 * costs.positions)))
    found = relaxed_bound(costs, most, search_.best_s, search_.deadline)
    if found > search_.bound_s:
        search_.bound_s, search_.bound_source = found, "passes"
    for offered in _offers(costs):
        yield from best_grouped(offered, starts_of(costs), parameters.most_extensions, most, search_.deadline)


def _offers(costs: Costs) -> list[Costs]:
    """What sharding may be, kind by kind and then all together: few labels hold few choices, and what is offered
    besides makes no plan slower."""
    share, more_bytes = costs.replicas.share, costs.replicas.bytes
    offers = [Replicas()]
    offers += [Replicas(share, is_full=is_full) for is_full in (False, True)] if share < 1 else []
    offers += (
        [Replicas(bytes=more_bytes, is_full=is_full) for is_full in (False, True)] if more_bytes is not None else []
    )
    return [replace(costs, replicas=each) for each in dict.fromkeys([*offers, costs.replicas])]


def _bound(search_: ShardedSearch, most_labels: int) -> None:
    """What bounds all plans besides memory at every moment: labels, had gradients no size, up to the best plan's end.

    With groups of any size where layers are few; else one by one without latency, which no group is faster than.
    """
    costs = search_.costs.without_gradients()
    most_layers = costs.layers
    if costs.layers > search_.parameters.most_layers:
        costs, most_layers = replace(costs, latency_s=0.0), 1
    relaxed = search(costs, most_labels, most_layers, search_.best_s, search_.deadline)
    if relaxed.bound_s > search_.bound_s:
        search_.bound_s, search_.bound_source = relaxed.bound_s, "labels"


def _labels(costs: Costs, parameters: Parameters) -> int:
    """How many labels are kept of as many layers gathered and scattered."""
    stages = costs.positions + costs.layers
    return max(1, min(parameters.most_labels, parameters.most_extensions // (2 * stages * parameters.most_layers)))


_Kind = Method[Problem, ShardedSearch, Candidate]
METHODS: tuple[_Kind, ...] = (*(Baseline(name) for name in BUILDERS), Labels())


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """Baselines, then labels; the best order, its precisions, and a bound."""
    deadline, parameters = Deadline(options), parameters or DEFAULTS
    deadline.keep(_LOWERING_S * problem.costs.layers)
    if problem.costs.least_bytes > problem.memory_bytes:
        claim = Solution(
            Status.INFEASIBLE, StopReason.FINISHED, "memory", __version__, options.seed, deadline.elapsed_s
        )
        return Plan(claim, None, {"least_memory_bytes": problem.costs.least_bytes})
    search_ = ShardedSearch(problem, options, parameters, deadline, bound_s=step_bound_s(problem.costs))
    choice = parameters.methods if problem.method == "auto" else MethodChoice(only=(problem.method,))
    run_methods(METHODS, problem, search_, choice)
    if search_.best is None:
        reason = StopReason.TIME_LIMIT if deadline.has_struck else StopReason.WORK_LIMIT
        claim = Solution(Status.NO_SOLUTION, reason, "labels", __version__, options.seed, deadline.elapsed_s)
        return Plan(claim, None, {"least_memory_bytes": problem.costs.least_bytes})
    return _plan(search_, search_.best)


def _plan(search_: ShardedSearch, best: Candidate) -> Plan:
    """An order spelled out."""
    problem, costs = search_.problem, search_.costs
    order = with_precisions(costs, best.order)
    times = timeline(costs, order)
    assert times is not None, "precisions change no order"
    solution = claim_of(
        times.step_s, search_.bound_s, search_.options, solver=best.method, version=__version__,
        wall_s=search_.deadline.elapsed_s, source=search_.bound_source,
    )  # fmt: skip
    names = problem.profile.layer_names
    decision = ShardedDecision(names, order.collectives, order.holds)
    schedule = to_schedule(costs, names, order, times, f"{problem.profile.name} on {problem.ranks} ranks")
    details = {
        "method": best.method,
        "exposed_s": times.step_s - costs.compute_s,
        "peak_bytes": times.peak_bytes,
        "kept": [k for each in order.collectives if each.kept for k in range(each.first, each.last + 1)],
        "baselines_s": dict(search_.baselines_s),
    }
    return Plan(solution, schedule, details, decision=decision)
