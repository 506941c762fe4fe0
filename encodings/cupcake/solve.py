"""The solver of the fusion problem: baselines first, then an exact method from the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gapless import __version__
from gapless.encodings.cupcake.lowering import to_schedule
from gapless.encodings.cupcake.methods import algorithm1, milp
from gapless.encodings.cupcake.methods.affine import affine_costs, solve_affine
from gapless.encodings.cupcake.methods.baselines import BASELINES, Baseline, all_baselines
from gapless.encodings.cupcake.methods.joint import solve_joint
from gapless.encodings.cupcake.parameters import DEFAULTS, Parameters
from gapless.encodings.cupcake.problem import Problem
from gapless.options import Deadline, Progress, SolveOptions
from gapless.profiles.gradients.fusion import Costs, Fusion, timeline
from gapless.profiles.gradients.modes import PLAIN
from gapless.profiles.gradients.profile import FusionProfile
from gapless.solution import StopReason, claim_of, settled_bound
from gapless.solvers.proofs import solve_proven
from gapless.solvers.registry import load_backend
from gapless.system import Plan

__all__ = ["BestFusion", "best_fusion", "solve"]

_REPLAY_S = 2e-4
"""What lowering, replaying and writing take for each gradient at most; kept of a time limit."""

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
    details: dict[str, Any] = field(default_factory=dict)
    stop_reason: StopReason = StopReason.FINISHED

    @property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """(first, last) gradient of each group, both inclusive, in ready order."""
        return self.fusion.groups


def best_fusion(
    profile: FusionProfile,
    options: SolveOptions | None = None,
    method: str = "auto",
    parameters: Parameters = DEFAULTS,
    modes: tuple[str, ...] | None = None,
    decode: str = "after",
) -> BestFusion:
    """The best fusion that a method finds, in some of the profile's modes (None: all).

    Raises `InputError` for names that don't exist and a method that the question doesn't suit.
    """
    problem = Problem(profile, method, modes, decode)
    options = options or problem.default_options
    return _run(problem, options, parameters, Deadline(options), all_baselines(problem.costs, parameters))


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """Search, and spell out the best fusion; with the step times of all baselines for comparison."""
    deadline, parameters = Deadline(options), parameters or DEFAULTS
    baselines = all_baselines(problem.costs, parameters)
    deadline.keep(_REPLAY_S * problem.profile.tensor_count)

    def plan(found: BestFusion) -> Plan:
        return _plan(problem, found, baselines, options, deadline)

    def offer(iteration_s: float, found: Callable[[], BestFusion]) -> None:
        if options.on_plan is not None:
            options.on_plan(iteration_s, lambda: plan(found()))

    best = _run(problem, replace(options, on_plan=offer), parameters, deadline, baselines)
    beside = _fusion_only(problem.costs, parameters, deadline)
    if beside is not None:
        baselines.append(beside)
        if problem.method == "auto" and beside.iteration_s < best.iteration_s:
            best = replace(best, fusion=beside.fusion, iteration_s=beside.iteration_s)
    return plan(best)


def _fusion_only(costs: Costs, parameters: Parameters, deadline: Deadline) -> Baseline | None:
    """Every group compressed in one mode, the question of the paper, by a search with a tenth of the work.

    None where it isn't another question than the one that is solved.
    """
    if len(costs.modes) == 1:
        return None
    less = replace(
        parameters,
        grid_bins=(min(parameters.grid_bins),),
        most_labels=max(1, parameters.most_labels // 10),
        most_grid_cells=max(1, parameters.most_grid_cells // 10),
        most_extensions=max(1, parameters.most_extensions // 10),
    )
    found = []
    for mode in costs.modes:
        if mode.name != PLAIN and not deadline.over:
            only = replace(costs, modes=(mode,))
            start = min(all_baselines(only, parameters), key=lambda baseline: baseline.iteration_s)
            fusion = _exact(only, start, deadline, less)[0]
            found.append(Baseline("fusion-only", fusion, costs.step_s(fusion), mode.name))
    return min(found, key=lambda baseline: baseline.iteration_s, default=None)


def _plan(
    problem: Problem, found: BestFusion, baselines: list[Baseline], options: SolveOptions, deadline: Deadline
) -> Plan:
    """A fusion spelled out."""
    solution = claim_of(
        found.iteration_s, found.bound_s, options, solver=found.solver, version=found.version,
        wall_s=deadline.elapsed_s, otherwise=found.stop_reason, source=found.solver,
    )  # fmt: skip
    schedule = to_schedule(problem.profile, problem.costs, found.fusion)
    return Plan(solution, schedule, _details(problem, found, baselines))


def _run(
    problem: Problem, options: SolveOptions, parameters: Parameters, deadline: Deadline, known: list[Baseline]
) -> BestFusion:
    """The chosen method, from the best baseline."""
    costs, method = problem.costs, problem.chosen_method
    if method in BASELINES:
        baseline = BASELINES[method](costs, parameters)
        assert baseline is not None
        return _judged(costs, baseline.fusion, method, bound_s=None, details={"setting": baseline.setting})
    start = min(known, key=lambda baseline: baseline.iteration_s)
    _report(options, deadline, costs, start)
    if method == "algorithm1":
        return _search(costs, options, deadline, start, parameters)
    if method == "milp":
        return _solve_milp(costs, options, deadline, start)
    fusion, bound_end_s, details = _exact(costs, start, deadline, parameters, method, options.gap)
    return _judged(costs, fusion, method, bound_end_s, details, _stopped(options))


def _exact(
    costs: Costs, start: Baseline, deadline: Deadline, parameters: Parameters, method: str = "", gap: float = 0.0
) -> tuple[Fusion, float, dict[str, Any]]:
    """The best fusion, a bound on the end of all, and what was counted: by the affine programme where it may run."""
    start_end_s = start.iteration_s - costs.forward_s
    if method == "affine" or (not method and affine_costs(costs) is not None):
        best = solve_affine(costs, start.fusion, start_end_s, deadline)
        return best.fusion, best.bound_end_s, {"states": best.states}
    labelled = solve_joint(costs, start.fusion, start_end_s, deadline, parameters, gap)
    counts = {"labels": labelled.labels, "most_labels": labelled.most_labels}
    return labelled.fusion, labelled.bound_end_s, counts


def _stopped(options: SolveOptions) -> StopReason:
    """Why a search of ours ended without a proof; that the clock struck is said by the deadline."""
    return StopReason.INTERRUPTED if options.stop.is_set() else StopReason.WORK_LIMIT


def _search(
    costs: Costs, options: SolveOptions, deadline: Deadline, start: Baseline, parameters: Parameters
) -> BestFusion:
    """Algorithm 1; where it has scored no fusion, as of a single gradient, the best baseline stands in for it."""
    most = math.inf if parameters.most_nodes is None else parameters.most_nodes
    searched = algorithm1.search(costs, deadline, _offering(costs, options, "algorithm1"), most)
    details: dict[str, Any] = {"nodes": searched.nodes, "search_finished": searched.finished}
    if searched.fusion is None:
        details["instead"] = start.name
    stop_reason = StopReason.FINISHED if searched.finished else _stopped(options)
    return _judged(costs, searched.fusion or start.fusion, "algorithm1", None, details, stop_reason)


def _judged(
    costs: Costs,
    fusion: Fusion,
    method: str,
    bound_s: float | None,
    details: dict[str, Any],
    stop_reason: StopReason = StopReason.FINISHED,
) -> BestFusion:
    """The fusion with the step time that its time line has; `bound_s` is without forward."""
    iteration_s = costs.step_s(fusion)
    bound_s = None if bound_s is None else costs.forward_s + bound_s
    settled_s = settled_bound(iteration_s, bound_s)
    if settled_s is None and bound_s is not None:
        stop_reason = StopReason.CONTRADICTED
    return BestFusion(fusion, iteration_s, settled_s, method, __version__, details, stop_reason)


def _solve_milp(costs: Costs, options: SolveOptions, deadline: Deadline, start: Baseline) -> BestFusion:
    """The MILP; the best baseline where encoding it alone would take most of the time that is left."""
    solver = options.solver or "highs"
    load_backend(solver)
    method, arcs = f"milp+{solver}", len(costs.modes) * costs.count * (costs.count + 1) // 2
    if arcs > 0.5 * _ARCS_PER_S * deadline.remaining_s:
        deadline.strike()
        return _judged(costs, start.fusion, method, None, {"columns": 0}, _stopped(options))
    times = timeline(costs, start.fusion)
    unit_s = times.end_s or 1.0
    encoding = milp.encode(costs, unit_s)
    point = milp.point(encoding, start.fusion, times)
    offer = _offering(costs, options, method)
    stage = replace(deadline.stage(), on_point=lambda end, at: offer(end * unit_s, milp.decode(encoding, at)))
    solution = solve_proven(encoding.model, stage, solver, point)
    bound_s = None if solution.bound is None else solution.bound * unit_s
    fusion = start.fusion if solution.values is None else milp.decode(encoding, solution.values)
    details = {"rows": encoding.model.row_count, "columns": encoding.model.column_count}
    return _judged(costs, fusion, method, bound_s, details, solution.stop_reason)


def _offering(costs: Costs, options: SolveOptions, method: str) -> Callable[[float, Fusion], None]:
    """Offers what a method has found while it goes on: a fusion, and when its time line ends."""

    def offer(end_s: float, fusion: Fusion) -> None:
        if options.on_plan is not None:
            options.on_plan(costs.forward_s + end_s, lambda: _judged(costs, fusion, method, None, {}))

    return offer


def _report(options: SolveOptions, deadline: Deadline, costs: Costs, start: Baseline) -> None:
    if options.on_plan is not None:
        options.on_plan(start.iteration_s, lambda: _judged(costs, start.fusion, start.name, None, {}))
    if options.on_progress is not None:
        options.on_progress(Progress(deadline.elapsed_s, start.iteration_s, None, "baselines"))


def _details(problem: Problem, found: BestFusion, baselines: list[Baseline]) -> dict[str, Any]:
    times, profile = timeline(problem.costs, found.fusion), problem.profile
    return {
        "groups": [list(group) for group in found.groups],
        "modes": list(found.fusion.modes),
        "method": found.solver,
        **found.details,
        "compress_s": float(times.compress_s.sum()),
        "send_s": float(times.send_s.sum()),
        "decode_s": float(times.decode_s.sum()),
        "exposed_s": times.exposed_s,
        "scaling": profile.compute_s / found.iteration_s if found.iteration_s else 1.0,
        "baselines_s": {baseline.name: baseline.iteration_s for baseline in baselines},
    }
