"""In which other ways a run is asked for where a plan is challenged, and what a run costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.encodings.bagpipe.problem import Problem
from gapless.encodings.bagpipe.question import OWNERSHIPS
from gapless.solution import PlanClass
from gapless.system import Challenge

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["challenges", "cost"]


def challenges(problem: Problem, plan: SavedPlan) -> list[Challenge]:
    """Rows with other owners: the same trace, cache and design."""
    return [
        Challenge(f"--ownership {name}", PlanClass.QUESTION, {"ownership": name})
        for name in OWNERSHIPS
        if name != problem.planning.ownership
    ]


def cost(problem: Problem, plan: SavedPlan, report: Report) -> float | None:
    """The time of the run; None where some of the question's batches aren't planned."""
    asked = problem.batch_count
    is_whole = asked is None or plan.details.get("batches_planned") == asked
    return report.makespan_s if is_whole else None
