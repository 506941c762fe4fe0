"""The recipe: the problem's method decides, the evaluator and the replay judge, and only a plan that fits comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gapless.checker import Report, check
from gapless.encodings.monet.decisions import Decisions, StepDecision
from gapless.encodings.monet.evaluate import Evaluation, evaluate, unlimited_s
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.retention import keep_set_of, tightened
from gapless.encodings.monet.search.state import SOLVER, Attempt
from gapless.encodings.monet.study.methods import CARRIED, METHODS, Asking
from gapless.ir.schedule import Schedule
from gapless.methods import MethodChoice, run_methods
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.profiles.training.graph import TrainingGraph
from gapless.solution import PROVEN_GAP, Bound, PlanClass, Solution, Status, StopReason, by_class
from gapless.solvers.registry import load_backend
from gapless.system import Challenge, Narrowing, Plan

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["challenges", "narrowing", "solve"]

_ROUNDING = 1e-9
_SPELLING_S = 3e-7
"""Seconds of a cell (a forward and a backward node) that are kept for evaluator, schedule, replay and plan file.
They take 1.0e-7 to 1.5e-7 of a machine with nothing else to do."""


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """Decide by the problem's method, and spell out the plan that it found.

    A method that finds none, or one that doesn't fit the budget, ends in `no_solution`; `infeasible` is proven for the
    question, whatever the method.
    """
    deadline, version = Deadline(options), load_backend(options.solver or SOLVER)
    deadline.keep(_SPELLING_S * len(problem.graph.forward) * len(problem.graph.backward))

    def plan(attempt: Attempt) -> Plan:
        return _plan(problem, attempt, version, options.seed, deadline.elapsed_s)

    asking = Asking(problem.as_time(), _reporting(problem, options, plan), parameters or Parameters())
    decides = problem.method if problem.carried is None else CARRIED
    run_methods(METHODS, asking.problem, asking, MethodChoice(only=(decides,)))
    assert asking.attempt is not None  # each of the names has a method
    return plan(asking.attempt)


@dataclass(frozen=True)
class _Trial:
    """Decisions, spelled out and judged; `cost_s`: what the replay says where something is copied."""

    decisions: Decisions
    graph: TrainingGraph
    schedule: Schedule
    judged: Evaluation
    report: Report
    states_bytes: int

    @property
    def cost_s(self) -> float:
        """What the step takes."""
        return self.report.makespan_s if self.decisions.copies else self.judged.cost_s

    @property
    def row_bytes(self) -> int:
        """What it holds by the paper's rows, which know nothing of copies."""
        return 0 if self.decisions.copies else self.judged.peak_bytes + self.states_bytes


def _plan(problem: Problem, attempt: Attempt, version: str, seed: int, wall_s: float) -> Plan:
    """What an attempt came to, judged and spelled out."""
    solution = Solution(
        status=Status.INFEASIBLE if attempt.is_infeasible else Status.NO_SOLUTION,
        stop_reason=attempt.stop_reason,
        solver=attempt.solver,
        version=version,
        seed=seed,
        wall_s=wall_s,
        bound=attempt.bound_s,
        unit=problem.unit,
    )
    details = {**_class_bound(problem, attempt), **attempt.details}
    if attempt.decisions is None:
        return Plan(solution, None, details)
    trial = _tried(problem, attempt, attempt.decisions)
    if not trial.report.valid or trial.row_bytes > problem.budget_bytes:  # better no plan than a false one
        details["needed_bytes"] = max(trial.row_bytes, trial.report.peak_bytes[0])
        is_final = attempt.stop_reason is StopReason.FINISHED  # a method that has no other plan
        reason = StopReason.FINISHED if is_final else StopReason.OTHER_LIMIT
        return Plan(replace(solution, stop_reason=reason), None, details)
    if attempt.bound_s > trial.cost_s * (1 + _ROUNDING):  # better no bound than a false one
        details["alarm"] = f"a bound of {attempt.bound_s} was claimed, and a plan costs {trial.cost_s}"
        attempt = replace(attempt, bound_s=unlimited_s(problem.as_time().graph, out_of_place=False))
    details = {**_costs(problem, trial, attempt), **_travelled(problem, trial), **details}
    decision = tightened(trial.graph, trial.decisions).decision
    return Plan(_proven(problem, attempt, solution, trial.cost_s), trial.schedule, details, decision=decision)


def _tried(problem: Problem, attempt: Attempt, decisions: Decisions) -> _Trial:
    """Let the evaluator and the replay judge."""
    graph = attempt.graph_of(problem.graph)
    schedule = to_schedule(graph, decisions, problem.budget_bytes, problem.link, problem.updates)
    judged = evaluate(attempt.graph_of(problem.as_time().graph), decisions)
    assert not judged.faults, judged.faults[0]
    states_bytes = 0 if problem.updates is None else problem.updates.total_bytes
    return _Trial(decisions, graph, schedule, judged, check(schedule), states_bytes)


def _proven(problem: Problem, attempt: Attempt, solution: Solution, cost_s: float) -> Solution:
    """The solution of a plan that fits, beside what is proven."""
    is_proven = (relative_gap(cost_s, attempt.bound_s) or 0.0) <= PROVEN_GAP
    status, reason = (Status.OPTIMAL, StopReason.FINISHED) if is_proven else (Status.FEASIBLE, attempt.stop_reason)
    return replace(
        solution, status=status, stop_reason=reason, objective=cost_s, bound=attempt.bound_s,
        bound_source=_source(problem, attempt), narrower=_narrower(problem, attempt, cost_s, attempt.bound_s),
    )  # fmt: skip


def _reporting(problem: Problem, options: SolveOptions, plan: Callable[[Attempt], Plan]) -> SolveOptions:
    """Options for a method, which counts in seconds, and offers what makes an attempt."""
    on_progress, on_plan = options.on_progress, options.on_plan

    def report(progress: Progress) -> None:
        if on_progress is not None:
            on_progress(replace(progress, unit=problem.unit))

    def offer(cost: float, attempt: Callable[[], Attempt]) -> None:
        if on_plan is not None:
            on_plan(cost, lambda: plan(attempt()))

    in_unit = on_progress if on_progress is None or problem.unit == "s" else report
    return replace(options, on_progress=in_unit, on_plan=None if on_plan is None else offer)


def _class_bound(problem: Problem, attempt: Attempt) -> dict[str, object]:
    """What is proven of the method's own class of plans, under its name: no bound on the question."""
    bound = attempt.class_bound_s
    return {} if bound is None else {f"bound_{problem.method}_{problem.unit}": bound}


def _narrower(problem: Problem, attempt: Attempt, cost_s: float, bound_s: float | None) -> tuple[Bound, ...]:
    """The same as a bound, where the plan is of that class: implementations chosen after the solve may leave it."""
    class_s = attempt.class_bound_s
    if class_s is None or class_s > cost_s * (1 + PROVEN_GAP):
        return ()
    name = f"of the kind that method {problem.method} looks for"
    return by_class(cost_s, bound_s, [Bound(PlanClass.METHOD, class_s, attempt.solver, name)])[0]


def _source(problem: Problem, attempt: Attempt) -> str:
    """What proves the bound of the question: for methods that look at a part of it, the cost without a budget."""
    return attempt.solver if problem.method == "auto" and problem.carried is None else "no budget"


def _travelled(problem: Problem, trial: _Trial) -> dict[str, object]:
    """What is copied to the host and back, how long the step waits for that, what either side holds."""
    if problem.link is None:
        return {}
    nodes, peak_bytes = [copy.node for copy in trial.decisions.copies], trial.report.peak_bytes
    waiting_s = trial.cost_s - trial.judged.cost_s
    return {
        "offloaded_tensors": len(nodes),
        "offloaded_bytes": sum(problem.graph.forward[k].output_bytes for k in nodes if k < len(problem.graph.forward)),
        **_updated(problem, nodes),
        "waiting_s": waiting_s if waiting_s > _ROUNDING * trial.cost_s else 0.0,
        "device_peak_bytes": peak_bytes[0],
        "host_peak_bytes": peak_bytes[1],
    }


def _updated(problem: Problem, nodes: Sequence[int]) -> dict[str, object]:
    """How much of what an optimiser has travels."""
    if problem.updates is None:
        return {}
    first, count = len(problem.graph.forward), len(problem.graph.backward)
    both = ("states", problem.updates.states_bytes), ("gradients", problem.updates.gradients_bytes)
    return {
        f"offloaded_{title}_bytes": sum(sizes[k - start] for k in nodes if start <= k < start + count)
        for start, (title, sizes) in zip((first, first + count), both, strict=True)
    }


def _costs(problem: Problem, trial: _Trial, attempt: Attempt) -> dict[str, object]:
    """Where the cost comes from, and how far it is from that without a budget."""
    unit, judged, cost_s, least = problem.unit, trial.judged, trial.cost_s, unlimited_s(problem.as_time().graph)
    return {
        f"forward_{unit}": judged.forward_s,
        f"backward_{unit}": judged.backward_s,
        f"recompute_{unit}": judged.recompute_s,
        f"unlimited_{unit}": least,
        "overhead": (cost_s - least) / least if least else 0.0,
        "overhead_bound": max(attempt.bound_s - least, 0.0) / least if least else 0.0,
        **({} if trial.decisions.copies else {"model_peak_bytes": trial.row_bytes}),
    }


def narrowing(problem: Problem, said: Mapping[str, object]) -> list[Narrowing]:
    """A method of a narrower kind of plans; the others are tried in any case."""
    return [] if problem.method == "auto" and problem.carried is None else [Narrowing(PlanClass.METHOD, {})]


def challenges(problem: Problem, plan: SavedPlan) -> list[Challenge]:
    """The search from the plan's own keep-set on, where its file says what it decides."""
    is_start = bool(plan.decision) and problem.method != "gist"  # whose tensors are others
    return [Challenge("the plan as a start", PlanClass.QUESTION, restarted=_from_plan)] if is_start else []


def _from_plan(problem: Problem, plan: SavedPlan) -> Problem:
    decisions = StepDecision.of(plan).on(problem.graph)
    return replace(problem, method="auto", carried=None, starts=(keep_set_of(problem.graph, decisions),))
