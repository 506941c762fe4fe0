"""Solution: what a solver claims. Whether it is true is for the checker to say (`gapless.Report`)."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.options import SolveOptions, relative_gap
from gapless.report.short_repr import Brief
from gapless.units import Unit

__all__ = [
    "PROVEN_GAP",
    "Bound",
    "PlanClass",
    "Solution",
    "Status",
    "StopReason",
    "by_class",
    "claim_of",
    "refuted",
    "settled_bound",
    "with_class_exhausted",
]

PROVEN_GAP = 1e-6
"""The relative gap of objective and bound below which an answer counts as optimal."""


class Status(enum.Enum):
    """What is known, as claimed by the solver."""

    OPTIMAL = "optimal"
    """The values are feasible and the bound proves that nothing is better; of a plan, none of the whole question."""
    FEASIBLE = "feasible"
    """The values are feasible; how far from the best they can be is `Solution.gap`."""
    INFEASIBLE = "infeasible"
    """Proven: there is no feasible point."""
    UNBOUNDED = "unbounded"
    """Proven: the objective can be improved for ever."""
    NO_SOLUTION = "no_solution"
    """Nothing was found and nothing was proven."""
    INVALID = "invalid"
    """A plan was found whose replay breaks a rule: nothing is claimed of it."""


class StopReason(enum.Enum):
    """Why the solver stopped."""

    FINISHED = "finished"
    GAP_REACHED = "gap_reached"
    TIME_LIMIT = "time_limit"
    """The clock: the same question may have another plan the next time."""
    CLASS_EXHAUSTED = "class_exhausted"
    """The narrower class of plans that the question keeps the search to has nothing better by more than the gap."""
    WORK_LIMIT = "work_limit"
    """Counted work: tries, steps, orders without improvement."""
    INTERRUPTED = "interrupted"
    OUT_OF_MEMORY = "out_of_memory"
    OTHER_LIMIT = "other_limit"
    CONTRADICTED = "contradicted"
    """A solver's claim was refuted by a second look: the claim is dropped, the better plan kept."""

    @property
    def sentence(self) -> str:
        """The same for people."""
        return _WHY[self]


_WHY = {
    StopReason.FINISHED: "the search came to its end",
    StopReason.GAP_REACHED: "the gap that was asked for is reached",
    StopReason.TIME_LIMIT: "the time was up; another run may find another plan",
    StopReason.CLASS_EXHAUSTED: "nothing in the narrower class that was asked for is better",
    StopReason.WORK_LIMIT: "the counted work was done",
    StopReason.INTERRUPTED: "it was interrupted",
    StopReason.OUT_OF_MEMORY: "memory ran out",
    StopReason.OTHER_LIMIT: "the solver came to a limit of its own",
    StopReason.CONTRADICTED: "a second look refuted a solver's claim",
}


class PlanClass(enum.Enum):
    """The plans that a bound holds for, the widest first."""

    QUESTION = "question"
    """Any plan of this question as a user would mean it: however it is cut, grouped, routed or ordered."""
    SKETCH = "sketch"
    """Plans that keep to this sketch, in any number of chunks."""
    PLACEMENT = "placement"
    """Plans that place stages on ranks by this rule, however the model is cut."""
    CUT = "cut"
    """Plans with this cut."""
    CHUNKS = "chunks"
    """Plans that send these chunks, alone or in groups."""
    ALONE = "alone"
    """Plans that send these chunks one at a time, at least inside nodes."""
    METHOD = "method"
    """Plans of the kind that this method looks for, such as those without a choice of implementations."""
    HISTORY = "history"
    """Plans of each batch after these batches before it."""


@dataclass(frozen=True)
class Bound:
    """A bound, and the class of plans that it holds for.

    `value`: in the solution's unit. `source`: what proves it, such as the name of the bound or of the solver. `name`:
    of the class, as it goes on after "plans": "in 1 chunk under sketch ndv2-sk-1"; empty for any plan of the question.
    `objective` and `unit`: what is bounded and what it is counted in, where that isn't the solution's objective.
    """

    plans: PlanClass
    value: float
    source: str = ""
    name: str = ""
    objective: float | None = None
    unit: str = ""


@dataclass(frozen=True, repr=False)
class Solution(Brief):
    """The answer of one solve of one model.

    `values`: float, one per column of the model, None without a feasible point. `objective` and `bound` are in the
    model's own sense and unit; `bound` is None where the backend knows none. `unit`: of both where an encoding speaks
    for its problem, as names of fields end in it. Its `bound`, `gap` and `optimal` hold for any plan of the question,
    and `bound_source` says what proves them; `narrower` are bounds of narrower classes that the plan is in, the widest
    first. `row_prices`: the dual value of each row of a linear program, by how much the objective rises with the row's
    binding bound, or with what its rows are multiplied to show that it has no solution; None where the backend gives
    none. `steps`: how many the backend took, None where it counts none.
    """

    status: Status
    stop_reason: StopReason
    solver: str
    version: str
    seed: int
    wall_s: float
    values: NDArray[np.float64] | None = None
    objective: float | None = None
    bound: float | None = None
    unit: Unit = "s"
    row_prices: NDArray[np.float64] | None = None
    steps: int | None = None
    bound_source: str = ""
    narrower: tuple[Bound, ...] = ()

    @property
    def gap(self) -> float | None:
        """|objective - bound| / |objective|, None where either is unknown."""
        return relative_gap(self.objective, self.bound)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds by class of plans, the widest first."""
        widest = () if self.bound is None else (Bound(PlanClass.QUESTION, self.bound, self.bound_source),)
        return widest + self.narrower

    def gap_of(self, bound: Bound) -> float | None:
        """The gap of what a bound is on, 0 where nothing of its class is better; None without an objective."""
        return relative_gap(self.objective if bound.objective is None else bound.objective, bound.value)

    @property
    def proven_class(self) -> PlanClass | None:
        """The widest class of plans that nothing better is in, None where that is proven of none."""
        gaps = ((one.plans, self.gap_of(one)) for one in self.bounds)
        return next((plans for plans, gap in gaps if gap is not None and gap <= PROVEN_GAP), None)

    @property
    def has_values(self) -> bool:
        """Whether there is a feasible point to decode."""
        return self.values is not None


def refuted(solution: Solution) -> Solution:
    """What is left of a claim on a plan that doesn't replay clean: no bound, and so no gap."""
    return replace(solution, status=Status.INVALID, bound=None, bound_source="", narrower=())


def settled_bound(objective: float, bound: float | None) -> float | None:
    """What a plan leaves of a bound on all plans: the objective where they agree, None where the plan refutes it."""
    if bound is None or (objective and bound - objective > PROVEN_GAP * abs(objective)):  # 0 / 0 is a rounding error
        return None
    return objective if objective - bound <= PROVEN_GAP * abs(objective) else bound


def by_class(objective: float, bound: float | None, found: Iterable[Bound]) -> tuple[tuple[Bound, ...], bool]:
    """Bounds of classes that a plan is in, the widest first, and whether the plan refutes one, which is dropped.

    `bound`: of the question. A bound that says no more than that of a wider class is left out.
    """
    kept, is_refuted = list[Bound](), False
    least = -math.inf if bound is None else bound
    for one in sorted(found, key=lambda each: list(PlanClass).index(each.plans)):
        if one.objective is not None:
            kept.append(one)
            continue
        settled = settled_bound(objective, one.value)
        is_refuted |= settled is None
        if settled is not None and settled - least > PROVEN_GAP * abs(objective):
            kept.append(replace(one, value=settled))
            least = settled
    return tuple(kept), is_refuted


def claim_of(
    objective: float, bound: float | None, options: SolveOptions, *, solver: str, version: str, wall_s: float,
    unit: Unit = "s", otherwise: StopReason = StopReason.WORK_LIMIT, source: str = "", narrower: Iterable[Bound] = (),
) -> Solution:  # fmt: skip
    """What is claimed of a plan beside a bound on all plans of the question: optimal where they agree.

    `source`: what proves the bound. `narrower`: bounds of the classes that the question keeps the search to.
    `otherwise`: why the search ended, if neither with a proof nor with the gap that was asked for. A bound that the
    plan refutes is dropped, with the stop reason that says so.
    """
    settled = settled_bound(objective, bound)
    within, is_refuted = by_class(objective, settled, narrower)
    gap = relative_gap(objective, settled)
    is_optimal, is_enough = gap == 0, gap is not None and gap <= options.gap
    if is_refuted or (settled is None and bound is not None):
        otherwise = StopReason.CONTRADICTED
    solution = Solution(
        status=Status.OPTIMAL if is_optimal else Status.FEASIBLE,
        stop_reason=StopReason.FINISHED if is_optimal else StopReason.GAP_REACHED if is_enough else otherwise,
        solver=solver, version=version, seed=options.seed, wall_s=wall_s, objective=objective, bound=settled, unit=unit,
        bound_source="" if settled is None else source, narrower=within,
    )  # fmt: skip
    return solution if is_enough else with_class_exhausted(solution, options)


def with_class_exhausted(solution: Solution, options: SolveOptions) -> Solution:
    """The same; where work has ended as a narrower class has nothing left to find, with the reason that says so."""
    ended = (StopReason.WORK_LIMIT, StopReason.FINISHED, StopReason.GAP_REACHED)
    gaps = [solution.gap_of(one) for one in solution.narrower if one.objective is None]
    is_exhausted = any(gap is not None and gap <= options.gap for gap in gaps)
    if solution.status is not Status.FEASIBLE or solution.stop_reason not in ended or not is_exhausted:
        return solution
    return replace(solution, stop_reason=StopReason.CLASS_EXHAUSTED)
