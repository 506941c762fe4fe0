"""Solution: what a solver claims. Whether it is true is for the checker to say (`gapless.Report`)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.brief import Brief
from gapless.options import SolveOptions, relative_gap
from gapless.units import Unit

__all__ = [
    "PROVEN_GAP",
    "Bound",
    "PlanClass",
    "Solution",
    "Status",
    "StopReason",
    "claim_of",
    "refuted",
    "settled_bound",
]

PROVEN_GAP = 1e-6
"""The relative gap of objective and bound below which an answer counts as optimal."""


class Status(enum.Enum):
    """What is known, as claimed by the solver."""

    OPTIMAL = "optimal"
    """The values are feasible and the bound proves that nothing is better."""
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
    WORK_LIMIT = "work_limit"
    """Counted work: tries, steps, orders without improvement."""
    INTERRUPTED = "interrupted"
    OUT_OF_MEMORY = "out_of_memory"
    OTHER_LIMIT = "other_limit"
    CONTRADICTED = "contradicted"
    """A solver's claim was refuted by a second look: the claim is dropped, the better plan kept."""


class PlanClass(enum.Enum):
    """The plans that a bound holds for, the widest first."""

    QUESTION = "question"
    """Any plan of this question as a user would mean it: however it is cut, grouped, routed or ordered."""
    SKETCH = "sketch"
    """Plans that keep to this sketch, in any number of chunks."""
    PLACEMENT = "placement"
    """Plans with these stages on these ranks."""
    CUT = "cut"
    """Plans with this cut."""
    CHUNKS = "chunks"
    """Plans that send these chunks, alone or in groups."""
    HISTORY = "history"
    """Plans of this batch after these batches before it."""


@dataclass(frozen=True)
class Bound:
    """A bound, and the class of plans that it holds for.

    `value`: in the solution's unit. `source`: what proves it, such as the name of the bound or of the solver.
    """

    plans: PlanClass
    value: float
    source: str = ""


@dataclass(frozen=True, repr=False)
class Solution(Brief):
    """The answer of one solve of one model.

    `values`: float, one per column of the model, None without a feasible point. `objective` and `bound` are in the
    model's own sense and unit; `bound` is None where the backend knows none. An encoding's `bound` holds for any plan
    of the question, and `bound_source` says what proves it; `narrower` are bounds of narrower classes, the widest
    first. `unit`: of both where an encoding speaks for its problem, as names of fields end in it. `row_prices`: the
    dual value of each row of a linear program, by how much the objective rises with the row's binding bound; None where
    the backend gives none. `steps`: how many the backend took, None where it counts none.
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


def claim_of(
    objective: float, bound: float | None, options: SolveOptions, *, solver: str, version: str, wall_s: float,
    unit: Unit = "s", otherwise: StopReason = StopReason.WORK_LIMIT,
) -> Solution:  # fmt: skip
    """What is claimed of a plan beside a bound on all plans: optimal where they agree.

    `otherwise`: why the search ended, if neither with a proof nor with the gap that was asked for. A bound that the
    plan refutes is dropped, with the stop reason that says so.
    """
    settled = settled_bound(objective, bound)
    gap = relative_gap(objective, settled)
    is_optimal, is_enough = gap == 0, gap is not None and gap <= options.gap
    if settled is None and bound is not None:
        otherwise = StopReason.CONTRADICTED
    return Solution(
        status=Status.OPTIMAL if is_optimal else Status.FEASIBLE,
        stop_reason=StopReason.FINISHED if is_optimal else StopReason.GAP_REACHED if is_enough else otherwise,
        solver=solver, version=version, seed=options.seed, wall_s=wall_s, objective=objective, bound=settled, unit=unit,
    )  # fmt: skip
