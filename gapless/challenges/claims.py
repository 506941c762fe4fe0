"""What a plan file claims, held against its own replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gapless.checker import Report
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, solution_of
from gapless.report.text import described
from gapless.solution import PROVEN_GAP, Bound, PlanClass, Solution, Status
from gapless.system import Problem, System
from gapless.units import Unit

__all__ = ["Claim", "bound_in_words", "claim_of_plan", "cost_of", "false_claims", "in_words", "is_below"]

_WIDEST_FIRST = list(PlanClass)


@dataclass(frozen=True)
class Claim:
    """What a plan costs, and what is claimed of it. `cost`: by its replay, or by the question."""

    cost: float
    solution: Solution

    @property
    def unit(self) -> Unit:
        """Of cost and bounds."""
        return self.solution.unit

    def refuted_by(self, cost: float, plans: PlanClass) -> list[Bound]:
        """The bounds that a plan of so narrow a class refutes: it belongs to all wider classes, too."""
        return [
            bound
            for bound in self.solution.bounds
            if bound.objective is None and is_wider(bound.plans, plans) and is_below(cost, bound.value)
        ]  # fmt: skip


def is_wider(one: PlanClass, other: PlanClass) -> bool:
    """Whether every plan of the other class belongs to the one; a class is as wide as itself."""
    return _WIDEST_FIRST.index(one) <= _WIDEST_FIRST.index(other)


def is_below(cost: float, other: float) -> bool:
    """Whether a number is smaller by more than rounding."""
    return cost < other - PROVEN_GAP * abs(other)


def in_words(cost: float | None, unit: Unit) -> str:
    """A cost or a bound for people."""
    return described(f"objective_{unit}", cost)


def bound_in_words(bound: Bound, unit: Unit) -> str:
    """A bound with its class for people."""
    value = in_words(bound.value, unit) if bound.objective is None else f"{bound.value:g} {bound.unit}"
    return f"{value} ({f'plans {bound.name}' if bound.name else bound.plans.value})"


def cost_of(system: System, problem: Problem, plan: SavedPlan, report: Report, unit: Unit) -> float | None:
    """What a plan costs by its replay, or by the question; None where it answers a part of the question only."""
    if system.cost is not None:
        return system.cost(problem, plan, report)
    if unit == "span_s":
        return plan.schedule.span_s
    return report.energy_j if unit == "j" else report.makespan_s


def claim_of_plan(where: str, system: System, problem: Problem, plan: SavedPlan, report: Report) -> Claim:
    """What a plan claims. Raises `InputError` for what can't be a claim, or is one on a part of the question."""
    try:
        solution = solution_of(plan.claim)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    cost = cost_of(system, problem, plan, report, solution.unit)
    if cost is None:
        raise InputError(f"{where}: must answer all of its question, and was stopped before; solve it to the end")
    return Claim(cost, solution)


def false_claims(claim: Claim, report: Report) -> Iterator[str]:
    """What a file claims of its plan that isn't so, a line each."""
    solution, unit = claim.solution, claim.unit
    if not report.valid:
        yield f"the plan doesn't replay clean: {report.violations[0].message}"
    stored, cost = solution.objective, in_words(claim.cost, unit)
    if stored is None or is_below(stored, claim.cost) or is_below(claim.cost, stored):
        yield f"{in_words(stored, unit)} is claimed, and the plan costs {cost}"
    for bound in solution.bounds:
        bounded = claim.cost if bound.objective is None else bound.objective
        if is_below(bounded, bound.value):
            said = cost if bound.objective is None else f"{bounded:g} {bound.unit}"
            yield f"the bound {bound_in_words(bound, unit)} is above the plan's own {said}"
    is_proven = solution.bound is not None and not is_below(solution.bound, claim.cost)
    if solution.status is Status.OPTIMAL and not is_proven:
        yield f"optimal is claimed, with the bound {in_words(solution.bound, unit)} for a plan of {cost}"
