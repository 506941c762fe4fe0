"""In which other ways a training step is asked for where a plan is challenged: from what the plan keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.reading import keep_set_of
from gapless.system import Challenge

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["challenges"]


def challenges(problem: Problem, plan: SavedPlan) -> list[Challenge]:
    """The search from the plan's own keep-set on."""
    return [Challenge("the plan as a start", restarted=_from_plan)]


def _from_plan(problem: Problem, plan: SavedPlan) -> Problem:
    return replace(problem, method="auto", starts=(keep_set_of(problem.graph, plan.schedule),))
