"""When a solver's word is a proof: a claim is repeated without presolve, or checked by weak duality.

HiGHS's presolve (1.11 to 1.15) was seen to prove a wrong optimum and a wrong "infeasible" on well-posed models of a few
hundred columns. So what is printed as `optimal` or `infeasible` on the word of one model goes through here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from gapless.model import Model
from gapless.model.arrays import Floats, ModelArrays
from gapless.options import Deadline, SolveOptions
from gapless.solution import PROVEN_GAP, Solution, Status, StopReason
from gapless.solvers.backend import FEASIBLE, better
from gapless.solvers.registry import solve_model

__all__ = ["confirmed", "dual_bound", "solve_proven"]

_NEGLIGIBLE = 1e-9
"""Of the largest cost: a reduced cost as small as this, of a column without a bound, is a rounding error."""


def solve_proven(
    model: Model, options: SolveOptions | None = None, solver: str = "highs", start: ArrayLike | None = None
) -> Solution:
    """As `solve_model`, with what it claims confirmed within the same time limit; raises what that raises.

    A feasible start that is better than the claimed optimum, or where there should be none, is the answer.
    """
    options = options or SolveOptions()
    deadline = Deadline(options)
    claimed = solve_model(model, options, solver, start)
    if start is not None and claimed.status in (Status.OPTIMAL, Status.INFEASIBLE):
        point = np.asarray(start, dtype=np.float64)
        arrays = model.arrays()
        objective = arrays.objective(point)
        if arrays.violation(point) <= FEASIBLE and _is_beaten(arrays, claimed, objective):
            return _without_proof(replace(claimed, values=point, objective=objective, bound=None))
    return replace(confirmed(model, claimed, deadline.stage(), solver), wall_s=deadline.elapsed_s)


def confirmed(model: Model, claimed: Solution, options: SolveOptions, solver: str = "highs") -> Solution:
    """A solution whose status is true as far as a second look can say; what makes no claim comes back as it is.

    An optimum of a linear program is proven by its dual values; any other claim by a second solve without presolve,
    from the point that was found. What could not be confirmed is FEASIBLE with the bound of the second solve, or
    NO_SOLUTION. A better point, or one where there should be none, is the answer, without a proof.
    """
    if claimed.status not in (Status.OPTIMAL, Status.INFEASIBLE):
        return claimed
    arrays = model.arrays()
    if claimed.status is Status.OPTIMAL and _is_proven_by_prices(arrays, claimed):
        return claimed
    second = solve_model(model, replace(options, presolve=False, on_progress=None), solver, claimed.values)
    if claimed.status is Status.INFEASIBLE:
        return claimed if second.status is Status.INFEASIBLE else _without_proof(second)
    if second.objective is None:
        return replace(claimed, status=Status.FEASIBLE, stop_reason=second.stop_reason, bound=None)
    if _is_beaten(arrays, claimed, second.objective):
        return _without_proof(second)
    if second.status is Status.OPTIMAL:
        return claimed
    return replace(claimed, status=Status.FEASIBLE, stop_reason=second.stop_reason, bound=second.bound)


def dual_bound(arrays: ModelArrays, row_prices: Floats) -> float:
    """What weak duality proves of the linear program of plain rows: no point has a better objective than this.

    `row_prices`: float, one per row, as in `Solution.row_prices`; whatever they are, the bound is true but for rounding
    errors. Infinite, in the direction that says nothing, where they prove nothing.
    """
    sign = -1.0 if arrays.maximize else 1.0
    cost, prices = sign * arrays.cost, sign * np.asarray(row_prices, dtype=np.float64)
    useless = ((prices > 0) & np.isinf(arrays.row_lower)) | ((prices < 0) & np.isinf(arrays.row_upper))
    prices = np.where(useless, 0.0, prices)
    moved = np.bincount(arrays.index, weights=arrays.value * prices[arrays.row_of_entry], minlength=len(cost))
    reduced = cost - moved
    sides = np.where(reduced > 0, arrays.lower, arrays.upper)
    counts = (reduced != 0) & ~(np.isinf(sides) & (np.abs(reduced) <= _NEGLIGIBLE * np.abs(cost).max(initial=0.0)))
    row_sides = np.where(prices > 0, arrays.row_lower, np.where(prices < 0, arrays.row_upper, 0.0))
    return sign * float(reduced[counts] @ sides[counts] + prices @ row_sides) + arrays.offset


def _is_beaten(arrays: ModelArrays, claimed: Solution, objective: float) -> bool:
    """Whether a point of this objective contradicts the claim; what differs by less than `PROVEN_GAP` is equal."""
    if claimed.objective is None:
        return True
    distance = abs(objective - claimed.objective)
    is_same = distance <= PROVEN_GAP * max(abs(claimed.objective), abs(objective))
    return not is_same and better(arrays, objective, claimed.objective)


def _is_proven_by_prices(arrays: ModelArrays, claimed: Solution) -> bool:
    """Whether a linear program's own dual values prove its optimum."""
    if claimed.row_prices is None or claimed.objective is None or arrays.is_integer.any() or not arrays.is_linear:
        return False
    bound = dual_bound(arrays, claimed.row_prices)
    return abs(claimed.objective - bound) <= PROVEN_GAP * max(abs(claimed.objective), abs(bound), 1e-12)


def _without_proof(second: Solution) -> Solution:
    """A second answer that contradicts the first, or that ran out of time: what it found, and no claim."""
    if second.values is None:
        reason = StopReason.CONTRADICTED if second.stop_reason is StopReason.FINISHED else second.stop_reason
        return replace(second, status=Status.NO_SOLUTION, stop_reason=reason, bound=None)
    return replace(second, status=Status.FEASIBLE, stop_reason=StopReason.CONTRADICTED)
