"""The solver of the fusion problem: baselines first, then an exact method from the best of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gapless.encodings.cupcake.decision import FusionDecision
from gapless.encodings.cupcake.lowering import to_schedule
from gapless.encodings.cupcake.methods.baselines import Baseline
from gapless.encodings.cupcake.methods.in_order import EXACT, BestFusion, FusionSearch, baselines_of
from gapless.encodings.cupcake.parameters import DEFAULTS, FUSION_ONLY, Parameters
from gapless.encodings.cupcake.problem import Problem
from gapless.io.typed import data_of
from gapless.methods import MethodChoice
from gapless.options import Deadline, SolveOptions
from gapless.profiles.gradients.fusion import Costs, timeline
from gapless.profiles.gradients.modes import PLAIN
from gapless.profiles.gradients.profile import FusionProfile
from gapless.solution import claim_of
from gapless.system import Plan

__all__ = ["BestFusion", "best_fusion", "solve"]

_REPLAY_S = 2e-4
"""What lowering, replaying and writing take for each gradient at most; kept of a time limit."""


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
    return _run(problem, options, parameters, Deadline(options), baselines_of(problem.costs, parameters))


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """Search, and spell out the best fusion; with the step times of all baselines for comparison."""
    deadline, parameters = Deadline(options), parameters or DEFAULTS
    baselines = baselines_of(problem.costs, parameters)
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
    if len(costs.modes) == 1 or not parameters.methods.allows(FUSION_ONLY):
        return None
    less = replace(
        parameters,
        grid_bins=(min(parameters.grid_bins),),
        most_labels=max(1, parameters.most_labels // 10),
        most_grid_cells=max(1, parameters.most_grid_cells // 10),
        most_extensions=max(1, parameters.most_extensions // 10),
    )
    silent, tried = SolveOptions(), list[Baseline]()
    for mode in costs.modes:
        if mode.name != PLAIN and not deadline.over:
            only = replace(costs, modes=(mode,))
            search = FusionSearch(only, silent, less, deadline, baselines_of(only, parameters))
            fusion = search.first(MethodChoice(only=EXACT)).fusion
            tried.append(Baseline(FUSION_ONLY, fusion, costs.step_s(fusion), mode.name))
    return min(tried, key=lambda baseline: baseline.iteration_s, default=None)


def _plan(
    problem: Problem, found: BestFusion, baselines: list[Baseline], options: SolveOptions, deadline: Deadline
) -> Plan:
    """A fusion spelled out."""
    solution = claim_of(
        found.iteration_s, found.bound_s, options, solver=found.solver, version=found.version,
        wall_s=deadline.elapsed_s, otherwise=found.stop_reason, source=found.solver,
    )  # fmt: skip
    schedule = to_schedule(problem.profile, problem.costs, found.fusion)
    decision = FusionDecision.of_fusion(found.fusion)
    details = {**data_of(decision), "method": found.solver, **_details(problem, found, baselines)}
    return Plan(solution, schedule, details, decision=decision)


def _run(
    problem: Problem, options: SolveOptions, parameters: Parameters, deadline: Deadline, known: list[Baseline]
) -> BestFusion:
    """By the method that is asked for, or the first that suits the costs of those that the parameters leave."""
    choice = parameters.methods if problem.method == "auto" else MethodChoice(only=(problem.method,))
    return FusionSearch(problem.costs, options, parameters, deadline, known).first(choice)


def _details(problem: Problem, found: BestFusion, baselines: list[Baseline]) -> dict[str, object]:
    times, profile = timeline(problem.costs, found.fusion), problem.profile
    return {
        **found.details,
        "compress_s": float(times.compress_s.sum()),
        "send_s": float(times.send_s.sum()),
        "decode_s": float(times.decode_s.sum()),
        **({"work_s": float(times.work_s.sum())} if problem.costs.cores else {}),
        "exposed_s": times.exposed_s,
        "scaling": profile.compute_s / found.iteration_s if found.iteration_s else 1.0,
        "baselines_s": {baseline.name: baseline.iteration_s for baseline in baselines},
    }
