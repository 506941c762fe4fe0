"""One attempt: a question asked otherwise, and what its answer says of the plan that is challenged."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gapless.challenges.claims import Claim, bound_in_words, cost_of, in_words, is_below
from gapless.challenges.parameters import ChallengeParameters
from gapless.checker import check
from gapless.errors import InputError, SolverError
from gapless.io.plan import SavedPlan, claim_data, replay_of
from gapless.options import SolveOptions
from gapless.question.entry import Entry
from gapless.question.recorded import said_of
from gapless.recipe import solve
from gapless.solution import PlanClass, Solution, Status, StopReason
from gapless.system import Challenge, Problem, System
from gapless.units import Unit

__all__ = ["Attempt", "Challenged", "Verdict", "attempted"]

_CUT_SHORT = (StopReason.TIME_LIMIT, StopReason.INTERRUPTED, StopReason.OUT_OF_MEMORY)


class Verdict(enum.Enum):
    """What an attempt says of the plan."""

    REFUTED = "refuted"
    """A valid plan is below a bound, or the plan is below a bound of the attempt: one of the claims is false."""
    BETTER = "better"
    """A valid plan is better than the plan."""
    NO_BETTER = "no better"
    NO_PLAN = "no plan"
    """No valid plan of the whole question was found."""
    NOT_ASKED = "not asked"
    """The question can't be asked this way; `Attempt.says` has why."""


@dataclass(frozen=True)
class Challenged:
    """The plan that is challenged, its question, and the class of plans that the question asks for."""

    where: str
    system: System
    problem: Problem
    plan: SavedPlan
    valid: bool
    claim: Claim
    plans: PlanClass


@dataclass(frozen=True)
class Attempt:
    """What an attempt found. `plans`: the narrowest class that its plan belongs to; `cost`, `bound`: in `unit`.

    `says`: a line for each claim that it refutes, or why there is nothing. `is_cut_short`: whether the time limit or
    somebody ended it. `plan`: what it found, where that is better.
    """

    name: str
    plans: PlanClass
    verdict: Verdict
    unit: Unit
    cost: float | None = None
    bound: float | None = None
    valid: bool = False
    says: tuple[str, ...] = ()
    is_cut_short: bool = False
    plan: SavedPlan | None = field(default=None, repr=False)

    @property
    def data(self) -> Mapping[str, object]:
        """In plain values."""
        return {
            "name": self.name,
            "class": self.plans.value,
            f"objective_{self.unit}": self.cost,
            f"bound_{self.unit}": self.bound,
            "valid": self.valid,
            "verdict": self.verdict.value,
            "says": list(self.says),
            "cut_short": self.is_cut_short,
        }


def attempted(asked: Challenged, challenge: Challenge, share: float, options: SolveOptions,
              parameters: ChallengeParameters) -> Attempt:  # fmt: skip
    """Make an attempt with a share of the work, and judge what it found."""
    plans = challenge.plans or asked.plans
    nothing = Attempt(challenge.name, plans, Verdict.NOT_ASKED, asked.claim.unit)
    try:
        if challenge.search is not None:
            plan, solution = _searched(asked, challenge, share, options)
        else:
            plan, solution = _solved(asked, challenge, share, options, parameters)
    except (InputError, SolverError) as error:
        return replace(nothing, says=(str(error),))
    return _judged(asked, nothing, plan, solution, list(_contradictions(asked, challenge, solution)))


def _searched(
    asked: Challenged, challenge: Challenge, share: float, options: SolveOptions
) -> tuple[SavedPlan | None, Solution]:
    """A schedule from the plan itself, with what can be claimed of it."""
    assert challenge.search is not None
    claimed = asked.claim.solution
    solution = replace(
        claimed, status=Status.NO_SOLUTION, stop_reason=StopReason.WORK_LIMIT, solver="challenge", objective=None,
        bound=None, narrower=(), seed=options.seed,
    )  # fmt: skip
    schedule = challenge.search(asked.problem, asked.plan, options, share)
    if schedule is None:
        return None, solution
    found = replace(asked.plan, schedule=schedule, decision={})  # what it decides may be another now
    cost = cost_of(asked.system, asked.problem, found, check(schedule), claimed.unit)
    solution = replace(solution, status=Status.FEASIBLE, objective=cost)
    return replace(found, claim=claim_data(solution), run={**asked.plan.run, "challenge": challenge.name}), solution


def _solved(
    asked: Challenged, challenge: Challenge, share: float, options: SolveOptions, parameters: ChallengeParameters
) -> tuple[SavedPlan | None, Solution]:
    """The plan of a solve, None where there is none that replays clean."""
    problem = asked.problem
    if challenge.values:
        said = {**(said_of(problem) or {}), **asked.system.pinned(problem), **challenge.values}
        problem = asked.system.ask({name: value for name, value in said.items() if value is not None})
    if challenge.restarted is not None:
        problem = challenge.restarted(problem, asked.plan)
    searches = Entry(asked.system).parameters()
    searches = challenge.parameters(searches) if challenge.parameters is not None else searches
    if hasattr(searches, "with_share"):
        searches = searches.with_share(share)
    steps = max(1, int(share * parameters.steps))
    result = solve(problem, replace(options, step_limit=steps, **challenge.options), searches)
    if result.schedule is None or not result.valid:
        return None, result.solution
    plan = result.plan
    return replace(plan, run={**plan.run, "challenge": challenge.name}), result.solution


def _judged(
    asked: Challenged, nothing: Attempt, plan: SavedPlan | None, solution: Solution, against: list[str]
) -> Attempt:
    """What an answer says of the plan and of its bounds; `against`: claims that are false already."""
    claim, unit = asked.claim, asked.claim.unit
    found = replace(nothing, bound=solution.bound, is_cut_short=solution.stop_reason in _CUT_SHORT)
    report = None if plan is None else replay_of(plan.schedule, plan.windows)
    cost = None if plan is None or report is None else cost_of(asked.system, asked.problem, plan, report, unit)
    if plan is None or report is None or cost is None or not math.isfinite(cost) or not report.valid:
        return replace(found, verdict=Verdict.REFUTED if against else Verdict.NO_PLAN, says=tuple(against))
    found = replace(found, cost=cost, valid=True)
    against += [
        f"a plan of {in_words(cost, unit)} is below the bound {bound_in_words(bound, unit)}"
        for bound in claim.refuted_by(cost, found.plans)
    ]
    is_better = is_below(cost, claim.cost)
    if is_better and claim.solution.status is Status.OPTIMAL:
        against.append(f"a plan of {in_words(cost, unit)} is better than an optimal one")
    verdict = Verdict.REFUTED if against else Verdict.BETTER if is_better else Verdict.NO_BETTER
    return replace(found, verdict=verdict, says=tuple(against), plan=plan if is_better else None)


def _contradictions(asked: Challenged, challenge: Challenge, solution: Solution) -> Iterator[str]:
    """What an attempt claims that the plan refutes: a bound on all plans, or that there is none."""
    cost, unit = asked.claim.cost, asked.claim.unit
    if not asked.valid:
        return
    if solution.status is Status.INFEASIBLE and set(challenge.values) <= {"method"}:
        yield f"{challenge.name} claims that the question is infeasible, and the plan answers it"
    if solution.bound is not None and is_below(cost, solution.bound):
        yield f"{challenge.name} claims the bound {in_words(solution.bound, unit)}, and the plan is below it"
