"""The methods of fusion in the order in which they are tried, and what they share.

The first that suits the costs is taken: `affine`, else `pareto`. What stands behind runs where it is asked for by name,
or where a parameter file leaves out those before it; baselines are what exact methods start from, besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gapless import __version__
from gapless.encodings.cupcake.methods import algorithm1, milp
from gapless.encodings.cupcake.methods.affine import affine_costs, solve_affine
from gapless.encodings.cupcake.methods.baselines import BASELINES, Baseline, layer_wise
from gapless.encodings.cupcake.methods.joint import solve_joint
from gapless.encodings.cupcake.methods.pareto import Bounded
from gapless.encodings.cupcake.parameters import Parameters
from gapless.methods import Method, MethodChoice, run_methods
from gapless.options import Deadline, Progress, SolveOptions
from gapless.profiles.gradients.fusion import Costs, Fusion, timeline
from gapless.solution import StopReason, settled_bound
from gapless.solvers.proofs import solve_proven
from gapless.solvers.registry import load_backend

__all__ = ["EXACT", "IN_ORDER", "SEARCHES", "BestFusion", "FusionSearch", "baselines_of", "judged"]

_ARCS_PER_S = 5e5
"""How many arcs of the MILP are encoded in a second at least; a model that can't be solved in time isn't encoded."""


@dataclass(frozen=True)
class BestFusion:
    """A fusion with its step time, forward included, and a lower bound on the step time of all fusions.

    `bound_s` is None for a method that proves nothing. `details`: what the method counts. `stop_reason`: why the method
    ended, but for the deadline.
    """

    fusion: Fusion
    iteration_s: float
    bound_s: float | None
    solver: str
    version: str
    details: Mapping[str, object] = field(default_factory=dict)
    stop_reason: StopReason = StopReason.FINISHED

    @property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """(first, last) gradient of each group, both inclusive, in ready order."""
        return self.fusion.groups


def judged(
    costs: Costs, fusion: Fusion, method: str, bound_end_s: float | None, details: Mapping[str, object],
    stop_reason: StopReason = StopReason.FINISHED,
) -> BestFusion:  # fmt: skip
    """The fusion with the step time that its time line has; `bound_end_s` is without forward."""
    iteration_s = costs.step_s(fusion)
    bound_s = None if bound_end_s is None else costs.forward_s + bound_end_s
    settled_s = settled_bound(iteration_s, bound_s)
    if settled_s is None and bound_s is not None:
        stop_reason = StopReason.CONTRADICTED
    return BestFusion(fusion, iteration_s, settled_s, method, __version__, details, stop_reason)


@dataclass
class FusionSearch:
    """What methods share; it ends with the first answer. `baselines`: what exact methods start from the best of."""

    costs: Costs
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    baselines: list[Baseline]
    best: BestFusion | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is an answer."""
        return self.best is not None

    def offer(self, candidate: BestFusion) -> None:
        """The answer."""
        self.best = candidate

    def first(self, choice: MethodChoice) -> BestFusion:
        """The answer of the first of the chosen methods that suits the costs, else the best baseline."""
        named = len(choice.only) == 1
        run_methods(IN_ORDER if named else SEARCHES, self.costs, self, choice)
        if self.best is None:
            self.best = judged(self.costs, self.start.fusion, self.start.name, None, {"setting": self.start.setting})
        return self.best

    @property
    def start(self) -> Baseline:
        """The best baseline; every gradient on its own where none may be tried."""
        return min(self.baselines or [layer_wise(self.costs)], key=lambda baseline: baseline.iteration_s)

    @property
    def start_end_s(self) -> float:
        """When the time line of the start ends, without forward."""
        return self.start.iteration_s - self.costs.forward_s

    @property
    def stopped(self) -> StopReason:
        """Why a search of ours ended without a proof; that the clock struck is said by the deadline."""
        return StopReason.INTERRUPTED if self.options.stop.is_set() else StopReason.WORK_LIMIT

    def bounded(self, method: str, found: Bounded) -> BestFusion:
        """What an exact method has found, and proven."""
        return judged(self.costs, found.fusion, method, found.bound_end_s, found.counts, self.stopped)

    def report(self, iteration_s: float, fusion: Fusion, method: str) -> None:
        """What is known while a method goes on."""
        if self.options.on_plan is not None:
            self.options.on_plan(iteration_s, lambda: judged(self.costs, fusion, method, None, {}))

    def reporting(self, method: str) -> Callable[[float, Fusion], None]:
        """Reports what a method has found: when its time line ends, and the fusion."""
        return lambda end_s, fusion: self.report(self.costs.forward_s + end_s, fusion, method)

    def started(self) -> Baseline:
        """The start, reported."""
        start = self.start
        self.report(start.iteration_s, start.fusion, start.name)
        if self.options.on_progress is not None:
            self.options.on_progress(Progress(self.deadline.elapsed_s, start.iteration_s, None, "baselines"))
        return start


@dataclass(frozen=True)
class FusionMethod:
    """A method; `suits`: whether it is for such costs; `find`: its answer, None where it has none."""

    name: str
    suits: Callable[[Costs], bool]
    find: Callable[[FusionSearch], BestFusion | None]

    def supports(self, problem: Costs) -> bool:
        """Whether it is for such costs."""
        return self.suits(problem)

    def run(self, search: FusionSearch) -> Iterator[BestFusion]:
        """Its answer."""
        if (best := self.find(search)) is not None:
            yield best


def _has_one_mode(costs: Costs) -> bool:
    return len(costs.modes) == 1 and not costs.modes[0].decodes_after


def _any(costs: Costs) -> bool:
    return True


def _affine(search: FusionSearch) -> BestFusion:
    """The dynamic programme for affine costs, exact."""
    start = search.started()
    return search.bounded("affine", solve_affine(search.costs, start.fusion, search.start_end_s, search.deadline))


def _pareto(search: FusionSearch) -> BestFusion:
    """Labels over groups and modes together, with bounds from a grid; exact where there are few enough labels."""
    start, effort = search.started(), (search.deadline, search.parameters, search.options.gap)
    return search.bounded("pareto", solve_joint(search.costs, start.fusion, search.start_end_s, *effort))


def _milp(search: FusionSearch) -> BestFusion:
    """The MILP; the best baseline where encoding it alone would take most of the time that is left."""
    costs, deadline, start = search.costs, search.deadline, search.started()
    solver = search.options.solver or "highs"
    load_backend(solver)
    method, arcs = f"milp+{solver}", len(costs.modes) * costs.count * (costs.count + 1) // 2
    if arcs > 0.5 * _ARCS_PER_S * deadline.remaining_s:
        deadline.strike()
        return judged(costs, start.fusion, method, None, {"columns": 0}, search.stopped)
    times = timeline(costs, start.fusion)
    unit_s = times.end_s or 1.0
    encoding = milp.encode(costs, unit_s)
    point, report = milp.point(encoding, start.fusion, times), search.reporting(method)
    stage = replace(deadline.stage(), on_point=lambda end, at: report(end * unit_s, milp.decode(encoding, at)))
    solution = solve_proven(encoding.model, stage, solver, point)
    bound_s = None if solution.bound is None else solution.bound * unit_s
    fusion = start.fusion if solution.values is None else milp.decode(encoding, solution.values)
    details = {"rows": encoding.model.row_count, "columns": encoding.model.column_count}
    return judged(costs, fusion, method, bound_s, details, solution.stop_reason)


def _algorithm1(search: FusionSearch) -> BestFusion:
    """The paper's search; where it has scored no fusion, as of one gradient, the best baseline stands in for it."""
    start, most = search.started(), search.parameters.most_nodes
    nodes = math.inf if most is None else most
    found = algorithm1.search(search.costs, search.deadline, search.reporting("algorithm1"), nodes)
    details: dict[str, object] = {"nodes": found.nodes, "search_finished": found.finished}
    if found.fusion is None:
        details["instead"] = start.name
    stop_reason = StopReason.FINISHED if found.finished else search.stopped
    return judged(search.costs, found.fusion or start.fusion, "algorithm1", None, details, stop_reason)


def _baseline(name: str) -> FusionMethod:
    def find(search: FusionSearch) -> BestFusion | None:
        found = BASELINES[name](search.costs, search.parameters)
        return None if found is None else judged(search.costs, found.fusion, name, None, {"setting": found.setting})

    return FusionMethod(name, _any, find)


FusionKind = Method[Costs, FusionSearch, BestFusion]
EXACT = ("affine", "pareto")
SEARCHES: tuple[FusionKind, ...] = (
    FusionMethod("affine", lambda costs: affine_costs(costs) is not None, _affine),
    FusionMethod("pareto", _any, _pareto),
    FusionMethod("milp", _any, _milp),
    FusionMethod("algorithm1", _has_one_mode, _algorithm1),
)
IN_ORDER = (*SEARCHES, *map(_baseline, BASELINES))


def baselines_of(costs: Costs, parameters: Parameters) -> list[Baseline]:
    """Every baseline that the modes offered allow, and the parameters leave."""
    made = (build(costs, parameters) for name, build in BASELINES.items() if parameters.methods.allows(name))
    return [baseline for baseline in made if baseline is not None]
