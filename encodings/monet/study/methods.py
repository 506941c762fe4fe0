"""The methods by name: MONeT's own search, and what it is compared with (sections 4.4 to 4.6, Figure A.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.evaluate import evaluate, unlimited_s
from gapless.encodings.monet.offload.search import optimise_travelling
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.joint import optimise
from gapless.encodings.monet.search.retention import fit_implementations, keep_set_of
from gapless.encodings.monet.search.state import SOLVER, SOLVER_TOLERANCE, Attempt, stopped
from gapless.encodings.monet.study import baselines, checkmate, offloading
from gapless.encodings.monet.study.ablation import ABLATIONS, ablation, carry_over
from gapless.encodings.monet.study.gist import encoded_graph
from gapless.options import Deadline, SolveOptions
from gapless.profiles.training.graph import TrainingGraph
from gapless.solution import StopReason
from gapless.solvers.registry import solve_model

__all__ = ["CARRIED", "METHODS", "Asking"]

_LAYERS_SHARE = 0.15
"""Of the time limit, for the plans by layers and by blocks that the search with a link begins with, each."""

Rule = Callable[[TrainingGraph, int], Decisions | None]


@dataclass
class Asking:
    """What the methods share: a question of least time, and what the first that answers it came to."""

    problem: Problem
    options: SolveOptions
    parameters: Parameters
    attempt: Attempt | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is an answer."""
        return self.attempt is not None

    def offer(self, candidate: Attempt) -> None:
        """Take it."""
        self.attempt = candidate


@dataclass(frozen=True)
class _Named:
    """A method by its name in `Problem.method`."""

    name: str
    answer: Callable[[Problem, SolveOptions, Parameters], Attempt]

    def supports(self, problem: Problem) -> bool:
        """Any question may be asked: a method that a graph doesn't suit says why."""
        return True

    def run(self, search: Asking) -> Iterator[Attempt]:
        """Its one answer."""
        yield self.answer(search.problem, search.options, search.parameters)


def _best(problem: Problem, options: SolveOptions, parameters: Parameters) -> Attempt:
    """MONeT's own search; where there is a link, with offloading, from the plan by layers on if there is one, and from
    what blocks suggest.
    """
    if problem.link is None:
        return optimise(problem, options, parameters)
    deadline = Deadline(options)
    stage = replace(deadline.stage(deadline.remaining_s * _LAYERS_SHARE), on_plan=None, on_progress=None)
    layers = offloading.by_layers(problem, stage, parameters).decisions
    others = [] if layers is None else [keep_set_of(problem.graph, layers)]
    others += offloading.block_starts(problem, deadline.stage(deadline.remaining_s * _LAYERS_SHARE))
    return optimise_travelling(problem, deadline.stage(), parameters, others)


def _ablated(problem: Problem, options: SolveOptions, parameters: Parameters) -> Attempt:
    """MONeT with some of its choices only; convolutions that it doesn't choose are the fastest that fit its plan.

    What it proves holds for its own choices: its bound is of that class, and where nothing fits, the question is open.
    """
    graph, part = problem.graph, ablation(problem.graph, problem.method)
    found = optimise(Problem(part, problem.budget_bytes), replace(options, on_plan=None), parameters)
    details = {f"{problem.method}_{name}": value for name, value in found.details.items()}
    if found.is_infeasible:
        details["infeasible_within"] = problem.method
    decisions = None
    if found.decisions is not None:
        carried = carry_over(part, found.decisions, graph)
        decisions = fit_implementations(graph, carried, problem.budget_bytes)
    return replace(
        found,
        decisions=decisions,
        bound_s=unlimited_s(graph, out_of_place=False),
        class_bound_s=found.bound_s,
        is_infeasible=False,
        details=details,
    )


def _checkmate(problem: Problem, options: SolveOptions, parameters: Parameters) -> Attempt:
    """Checkmate's plan on the device. Its memory has no workspace in it: it is given less until the plan fits.

    `checkmate-d` runs default implementations, `checkmate` the fastest that fit the plan. The bound of its class is for
    default ones.
    """
    graph, budget_bytes, deadline = problem.graph, problem.budget_bytes, Deadline(options)
    single, claim_bytes = checkmate.single_choice(graph), budget_bytes
    decisions, class_bound_s, step_bytes = None, None, budget_bytes // 100
    while claim_bytes > 0 and not deadline.over:
        stage = deadline.stage(deadline.remaining_s / 2)
        if claim_bytes == budget_bytes:
            plan, class_bound_s = _rematerialised(single, claim_bytes, stage, parameters)
        else:
            plan = _searched(single, checkmate.search(single, claim_bytes, stage, parameters))
        if plan is None:
            break
        decisions = carry_over(single, plan, graph)
        if problem.method == "checkmate":
            decisions = fit_implementations(graph, decisions, budget_bytes)
        over_bytes = evaluate(graph, decisions).peak_bytes - budget_bytes
        if over_bytes <= 0:
            break
        claim_bytes -= max(over_bytes, step_bytes)
        step_bytes *= 2
    reason = stopped(options) if deadline.over else StopReason.FINISHED
    return Attempt(
        decisions,
        reason,
        f"{options.solver or SOLVER}+annealing",
        unlimited_s(graph, out_of_place=False),
        class_bound_s=class_bound_s,
        details={"claimed_budget_bytes": claim_bytes},
    )


def _searched(single: TrainingGraph, plan: checkmate.Rematerialisation | None) -> Decisions | None:
    return None if plan is None else checkmate.to_decisions(single, plan)


def _rematerialised(
    single: TrainingGraph, claim_bytes: int, options: SolveOptions, parameters: Parameters
) -> tuple[Decisions | None, float | None]:
    """A plan of Checkmate's and what it proves: by search, then on a small graph by its integer program."""
    deadline = Deadline(options)
    plan = checkmate.search(single, claim_bytes, deadline.stage(deadline.remaining_s / 2), parameters)
    found = _searched(single, plan)
    if (len(single.forward) + len(single.backward)) ** 2 > parameters.bounding.small_cells:
        return found, None
    model = checkmate.encode(single, claim_bytes)
    fits = plan is not None and checkmate.memory_bytes(single, plan).max() <= claim_bytes
    start = checkmate.first_point(model, plan) if plan is not None and fits else None
    steps = parameters.bounding.exact_steps
    stage = replace(deadline.stage(), threads=1, step_limit=steps, on_progress=None, on_plan=None)
    solution = solve_model(model.milp, stage, options.solver or SOLVER, start)
    if solution.values is not None:
        better = checkmate.to_decisions(single, checkmate.decode(model, solution.values))
        found = found if better is None else better
    bound = solution.bound
    return found, None if bound is None else bound * model.unit * (1 - SOLVER_TOLERANCE)


def _by_rule(name: str, rule: Rule) -> _Named:
    """A method that searches nothing: a rule decides, and each run is the fastest that fits."""

    def answer(problem: Problem, options: SolveOptions, parameters: Parameters) -> Attempt:
        graph, budget_bytes = problem.graph, problem.budget_bytes
        decisions = rule(graph, budget_bytes)
        if decisions is not None:
            decisions = fit_implementations(graph, decisions, budget_bytes)
        return Attempt(decisions, StopReason.FINISHED, name, unlimited_s(graph, out_of_place=False))

    return _Named(name, answer)


def _gist(problem: Problem, options: SolveOptions, parameters: Parameters) -> Attempt:
    """What Gist does: its own graph, whose tensors are kept encoded, and no choice but that of algorithms that fit."""

    def encoded(graph: TrainingGraph) -> TrainingGraph:
        return encoded_graph(graph, parameters.encoding)

    graph = encoded(problem.graph)
    decisions = fit_implementations(graph, baselines.store_all(graph), problem.budget_bytes)
    bound_s = unlimited_s(problem.graph, out_of_place=False)
    return Attempt(decisions, StopReason.FINISHED, "gist", bound_s, graph_of=encoded)


def _carried(problem: Problem, options: SolveOptions, parameters: Parameters) -> Attempt:
    """A plan of another batch size, with the fastest implementations that fit; what it needs as it is, too."""
    graph, plan = problem.graph, problem.carried
    assert plan is not None
    decisions = plan.on(graph)
    details = {"carried_batch": plan.batch, "unchanged_peak_bytes": evaluate(graph, decisions).peak_bytes}
    fitted = fit_implementations(graph, decisions, problem.budget_bytes)
    return Attempt(fitted, StopReason.FINISHED, CARRIED, unlimited_s(graph, out_of_place=False), details=details)


CARRIED = "carried"
"""What a problem with a carried plan is answered by; no method by name, since it takes a plan."""
METHODS = (
    _Named(CARRIED, _carried),
    _Named("auto", _best),
    *(_Named(name, _ablated) for name in ABLATIONS),
    _Named("checkmate", _checkmate),
    _Named("checkmate-d", _checkmate),
    _by_rule("lean", lambda graph, budget_bytes: baselines.lean(graph)),
    _Named("gist", _gist),
    _Named("offload-all", offloading.in_order),
    _Named("offload-layers", offloading.by_layers),
    _Named("offload-blocks", offloading.by_blocks),
    _by_rule("greedy", baselines.greedy_eviction),
    _by_rule("sqrt", lambda graph, budget_bytes: baselines.sqrt_checkpoints(graph)),
    _by_rule("revolve", lambda graph, budget_bytes: baselines.revolve(graph)),
    _by_rule("store-all", lambda graph, budget_bytes: baselines.store_all(graph)),
    _by_rule("eager", baselines.eager),
)
"""All of them; `auto` is MONeT's own."""
