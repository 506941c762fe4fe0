"""In which other ways a pipeline is asked for where a plan is challenged: by another placement, without its cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gapless.encodings.pipeline.placement import PLACEMENTS
from gapless.encodings.pipeline.problem import Problem
from gapless.solution import PlanClass
from gapless.system import Challenge, Narrowing

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["challenges", "narrowing"]


def narrowing(problem: Problem, said: Mapping[str, Any]) -> list[Narrowing]:
    """A placement, which is the linear one where nothing is said; a cut, but for the rule that leaves it open."""
    found = [Narrowing(PlanClass.PLACEMENT, {"placement": None, "chunks": None})]
    if not isinstance(problem.cut, str) or problem.cut == "even":
        found.append(Narrowing(PlanClass.CUT, {"cut": None}))
    return found


def challenges(problem: Problem, plan: SavedPlan) -> list[Challenge]:
    """The other placements, with as few stages on a rank as each has; and any cut, for the rule of the bottleneck."""
    found = [
        Challenge(
            f"--placement {name}", PlanClass.QUESTION,
            {"placement": name, "chunks": None, "method": None, "cut": problem.cut if problem.cut == "even" else None},
        )
        for name in PLACEMENTS
        if name != problem.placement
    ]  # fmt: skip
    if problem.cut == "bottleneck":
        found.append(Challenge("without --cut", PlanClass.PLACEMENT, {"cut": None}))
    return found
