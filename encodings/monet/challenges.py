"""In which other ways a training step is asked for where a plan is challenged: from what the plan keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.reading import keep_set_of
from gapless.solution import PlanClass
from gapless.system import Challenge, Narrowing

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["challenges", "narrowing"]


def narrowing(problem: Problem, said: Mapping[str, Any]) -> list[Narrowing]:
    """A method of a narrower kind of plans; the others are tried in any case."""
    return [] if problem.method == "auto" else [Narrowing(PlanClass.METHOD, {})]


def challenges(problem: Problem, plan: SavedPlan) -> list[Challenge]:
    """The search from the plan's own keep-set on."""
    return [Challenge("the plan as a start", PlanClass.QUESTION, restarted=_from_plan)]


def _from_plan(problem: Problem, plan: SavedPlan) -> Problem:
    return replace(problem, method="auto", starts=(keep_set_of(problem.graph, plan.schedule),))
