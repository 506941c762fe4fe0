"""Placements that are searched: the question in each of them with little work, then those that look best.

The bound of each placement holds for it, the least of them for all that were tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gapless import __version__
from gapless.encodings.pipeline.classes import SHARE, any_placement_s
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.programs.start import Start
from gapless.encodings.pipeline.search.search import Search
from gapless.options import Deadline, SolveOptions
from gapless.solution import PROVEN_GAP, Bound, PlanClass, Status, claim_of
from gapless.system import Plan

__all__ = ["best_placed"]

Planned = Callable[[Problem, SolveOptions, Parameters], Plan]
"""The best plan of a question whose placement is given."""


@dataclass
class _Tried:
    """A question in one placement. `cost_s`: of the best plan so far, inf without one. `bound_s`: on all plans."""

    question: Problem
    cost_s: float
    bound_s: float
    plan: Plan | None = None

    @property
    def name(self) -> str:
        """Of the placement."""
        each = self.question.chunks // self.question.copies
        return self.question.placed if each == 1 else f"{self.question.placed} of {each}"

    def note(self, plan: Plan) -> None:
        """What a search says of it; that it has no plan at all, too."""
        claim, self.plan = plan.solution, plan
        if claim.status is Status.INFEASIBLE:
            self.bound_s = math.inf
        if claim.objective is None:
            return
        bound_s = claim.narrower[-1].value if claim.narrower else claim.bound
        self.cost_s, self.bound_s = claim.objective, max(self.bound_s, bound_s or 0.0)


def best_placed(problem: Problem, options: SolveOptions, parameters: Parameters, planned: Planned) -> Plan:
    """The best plan of a question and its alternatives, which says which of them it is."""
    deadline = Deadline(options)
    questions = [replace(each, alternatives=(), starts=_starts(problem, each))
                 for each in (problem, *problem.alternatives)]  # fmt: skip
    tried = [_first(question, deadline, parameters) for question in questions]
    tried.sort(key=lambda each: each.cost_s)
    share = parameters.with_share(1 / min(parameters.refined_placements, len(tried)))
    best: _Tried | None = None
    for number, each in enumerate(tried):
        is_begun = bool(each.question.starts)  # whose plan is no slower than that which it begins with
        if best is not None and not is_begun and (number >= parameters.refined_placements or deadline.over):
            continue
        if best is not None and not is_begun and each.bound_s >= best.cost_s * (1 - max(PROVEN_GAP, options.gap)):
            continue
        each.note(planned(each.question, _offering(each.question, deadline.stage()), share))
        if each.plan is not None and each.plan.schedule is not None and (best is None or each.cost_s < best.cost_s):
            best = each
    return _nothing(tried) if best is None else _answer(best, tried, options, deadline)


def _starts(problem: Problem, question: Problem) -> tuple[Start, ...]:
    """Those in the placement of a question."""
    placing = question.placement, question.chunks
    return tuple(start for start in problem.starts if (start.placement, start.chunks) == placing)


def _first(question: Problem, deadline: Deadline, parameters: Parameters) -> _Tried:
    """One cut by the schedules of the field and a short run of the heuristic."""
    partial_cuts = max(1, int(SHARE * parameters.partial_cuts))
    search = Search(question, _silent(deadline.stage()), deadline, replace(
        parameters, ordered_cuts=1, partial_cuts=partial_cuts), lambda found: None)  # fmt: skip
    search.run(is_quick=True)
    return _Tried(question, math.inf if search.best is None else search.best.timeline.cost_s, search.bound_s)


def _silent(options: SolveOptions) -> SolveOptions:
    return replace(options, on_progress=None, on_plan=None)


def _offering(question: Problem, options: SolveOptions) -> SolveOptions:
    """Plans that are offered before the last one say which placement they have, too."""
    report = options.on_plan
    if report is None:
        return options
    return replace(options, on_plan=lambda cost, make: report(cost, lambda: replace(make(), problem=question)))


def _nothing(tried: list[_Tried]) -> Plan:
    """Infeasible only where every placement is."""
    plans = [each.plan for each in tried if each.plan is not None]
    return next((plan for plan in plans if plan.solution.status is not Status.INFEASIBLE), plans[0])


def _answer(best: _Tried, tried: list[_Tried], options: SolveOptions, deadline: Deadline) -> Plan:
    """The best plan, with the bound of every placement and that of those that were tried."""
    plan, question = best.plan, best.question
    assert plan is not None
    assert plan.solution.objective is not None
    bound_s, source = any_placement_s(question)
    least = min(tried, key=lambda each: each.bound_s)
    names = [each.name for each in tried]
    placed = f"{', '.join(names[:-1])} or {names[-1]} placement" if len(names) > 1 else f"{names[0]} placement"
    cut = "" if question.cut == "auto" else "this cut, " if isinstance(question.cut, tuple) else f"cut {question.cut}, "
    plans = PlanClass.PLACEMENT if question.cut == "auto" else PlanClass.CUT
    narrower = Bound(plans, max(least.bound_s, bound_s), least.name, f"with {cut}{placed}")
    solution = claim_of(
        plan.solution.objective, bound_s, options, solver=plan.solution.solver, version=__version__,
        wall_s=deadline.elapsed_s, unit=question.unit, source=source, narrower=[narrower],
    )  # fmt: skip
    found = {each.name: each.cost_s for each in tried if math.isfinite(each.cost_s)}
    bounds = {each.name: each.bound_s for each in tried if math.isfinite(each.bound_s)}
    details = {**plan.details, f"placements_{question.unit}": found, f"placement_bounds_{question.unit}": bounds}
    return replace(plan, solution=solution, details=details, problem=question)
