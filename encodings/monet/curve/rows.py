"""The trade-off of memory and time or energy: a row for each method and budget, as a curve and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from gapless.errors import SolverError
from gapless.options import relative_gap
from gapless.solution import PROVEN_GAP, Status, StopReason
from gapless.units import Unit

__all__ = ["Row", "closed"]


@dataclass(frozen=True)
class Row:
    """What a budget costs; None stands for what is not known, or not there.

    `memory_ratio`: the budget, over the peak of a step that keeps everything. `cost_s`, `energy_j`, `peak_bytes`: as
    replayed; the energy is None where a power is unknown. `bound_s`, or `bound_j` where the energy was minimised: no
    plan has less. `gap`, `overhead`, `overhead_bound`: of what was minimised, the last two over the least without a
    budget. `violations`: rules that the replay found broken, which leaves the plan unwritten. `plan`: the plan file's
    name in the folder. `stop_reason`: why the solver stopped. `method`: what decided. `plan_budget_bytes`: the smaller
    budget whose plan this is, where its own was dearer; None where the plan is its own.
    """

    budget_bytes: int
    memory_ratio: float
    status: Status
    cost_s: float | None = None
    energy_j: float | None = None
    bound_s: float | None = None
    bound_j: float | None = None
    gap: float | None = None
    overhead: float | None = None
    overhead_bound: float | None = None
    peak_bytes: int | None = None
    solve_s: float = 0.0
    violations: int = 0
    plan: str | None = None
    stop_reason: StopReason | None = None
    method: str = "auto"
    plan_budget_bytes: int | None = None

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody stopped the solver: its plan is the best so far and no answer, a later sweep goes on."""
        return self.stop_reason is StopReason.INTERRUPTED

    @property
    def is_answer(self) -> bool:
        """Whether there is nothing to go on with: a plan, a proof that there is none, or a method that has none."""
        settled = self.status is not Status.NO_SOLUTION or self.stop_reason is StopReason.FINISHED
        return settled and not self.is_interrupted

    def cost(self, unit: Unit) -> float | None:
        """What was minimised."""
        return self.cost_s if unit == "s" else self.energy_j

    def bound(self, unit: Unit) -> float | None:
        """What was proven of it."""
        return self.bound_s if unit == "s" else self.bound_j

    @property
    def verdict(self) -> str:
        """The status in a word for people, `interrupted` where it isn't settled."""
        return "interrupted" if self.is_interrupted else self.status.value

    @property
    def data(self) -> dict[str, object]:
        """The row in plain values, for files."""
        reason = None if self.stop_reason is None else self.stop_reason.value
        return {**asdict(self), "status": self.status.value, "stop_reason": reason}


def closed(rows: Iterable[Row], unit: Unit) -> list[Row]:
    """The rows as curves, by method and ascending budget: a plan for less memory is a plan for more.

    So the cost of a method never rises with the budget. A bound, or a proof that nothing fits, holds for every smaller
    budget and every method. Raises `SolverError` where a plan refutes what was proven.
    """
    rows = list(rows)
    found: list[Row] = []
    best: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row.budget_bytes):
        larger = [other for other in rows if other.budget_bytes >= row.budget_bytes]
        row = _with_bound(_with_plan_of(row, best.get(row.method), unit), larger, unit)
        found.append(row)
        if row.plan is not None:
            best[row.method] = row
    order = list(dict.fromkeys(row.method for row in rows))
    return sorted(found, key=lambda row: (order.index(row.method), row.budget_bytes))


def _with_plan_of(row: Row, best: Row | None, unit: Unit) -> Row:
    """The row with the best plan of smaller budgets, where its own is dearer or there is none."""
    cost, least = row.cost(unit), None if best is None else best.cost(unit)
    if best is None or least is None or (cost is not None and cost <= least):
        return row
    return replace(
        row,
        status=Status.FEASIBLE if row.status is not Status.INFEASIBLE else row.status,
        cost_s=best.cost_s,
        energy_j=best.energy_j,
        overhead=best.overhead,
        peak_bytes=best.peak_bytes,
        plan=best.plan,
        plan_budget_bytes=best.plan_budget_bytes or best.budget_bytes,
    )


def _with_bound(row: Row, larger: Sequence[Row], unit: Unit) -> Row:
    """The row with what the rows of budgets that are no smaller have proven."""
    bounds = [bound for other in larger if (bound := other.bound(unit)) is not None]
    cost, bound = row.cost(unit), max(bounds, default=None)
    is_infeasible = any(other.status is Status.INFEASIBLE for other in larger)
    if cost is None:
        return replace(row, status=Status.INFEASIBLE, stop_reason=StopReason.FINISHED) if is_infeasible else row
    if is_infeasible or (bound is not None and bound > cost * (1 + PROVEN_GAP)):
        proven = "that nothing fits" if is_infeasible else f"a bound of {bound}"
        raise SolverError(f"budget {row.budget_bytes}: a plan of {cost} refutes {proven}, claimed for it or for more")
    gap = relative_gap(cost, bound)
    if bound is None or (row.plan_budget_bytes is None and bound == row.bound(unit)):
        return row
    unlimited = cost / (1 + row.overhead) if row.overhead is not None else 0.0
    return replace(
        row,
        bound_s=bound if unit == "s" else None,
        bound_j=bound if unit == "j" else None,
        status=Status.OPTIMAL if gap is not None and gap <= PROVEN_GAP else row.status,
        gap=gap,
        overhead_bound=max(bound / unlimited - 1, 0.0) if unlimited else 0.0,
    )
