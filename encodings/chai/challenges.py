"""What a head map costs by its question, for whoever challenges a plan: no replay knows errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.encodings.chai.problem import Problem
from gapless.encodings.chai.view import map_of

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["cost", "pinned"]


def pinned(problem: Problem) -> Mapping[str, object]:
    """The distance, which `auto` chooses by what is measured for a method: sums of two measures are no two errors."""
    return {"distance": problem.distance}


def cost(problem: Problem, plan: SavedPlan, report: Report) -> float:
    """The error of the plan's map, inf where it keeps more than the budget. Raises `InputError` for one that isn't."""
    chosen = map_of(plan, "details")
    return problem.error(chosen) if int(chosen.counts.sum()) <= problem.most_kept else math.inf
