"""In which other ways a collective is asked for where a plan is challenged: in other chunks, without its sketch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.problem import Problem
from gapless.solution import PlanClass
from gapless.system import Challenge, Narrowing

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["challenges", "narrowing"]

_CHUNKS = (1, 2, 4, 8)
"""Numbers that are tried besides the plan's own: those that the search for a number tries first."""
_SKETCH = ("sketch", "sketch_file", "path_slack")


def narrowing(problem: Problem | Chunked, said: Mapping[str, Any]) -> list[Narrowing]:
    """A sketch or a slack of paths; chunks. A search over sketches keeps to none."""
    found: list[Narrowing] = []
    if isinstance(problem, Chunked):  # what an answer solved; nobody knows what else was asked
        return found
    if not problem.searches_sketches and any(name in said for name in _SKETCH):
        found.append(Narrowing(PlanClass.SKETCH, _without_sketch(problem, said)))
    if problem.chunks is not None:
        found.append(Narrowing(PlanClass.CHUNKS, {"chunks": None}))
    return found


def _without_sketch(problem: Problem, said: Mapping[str, Any]) -> dict[str, object]:
    """The question without its sketch, which may have said how many nodes and bytes there are."""
    outright: dict[str, object] = {"size": problem.size_bytes}
    sketch = problem.sketch
    if sketch is not None and not isinstance(sketch, str) and ("topology" in said or "topology_file" in said):
        outright["nodes"] = said.get("nodes", sketch.node_count or 1)
    return {**dict.fromkeys(_SKETCH), **outright}


def challenges(problem: Problem | Chunked, plan: SavedPlan) -> list[Challenge]:
    """Other numbers of chunks, and the plan's own number outright, in which its bound for these chunks can be met."""
    if isinstance(problem, Chunked):
        return []
    if problem.searches_sketches:
        return [Challenge("without --sketch", PlanClass.QUESTION, _without_sketch(problem, {"topology": ""}))]
    keeps_to = [PlanClass.SKETCH] if problem.sketch is not None or problem.path_slack is not None else []
    around = (keeps_to or [PlanClass.QUESTION])[0]
    own = plan.problem.get("chunks_per_rank")
    numbers = [each for each in _CHUNKS if each != own]
    found = [Challenge(f"--chunks {number}", around, {"chunks": number}) for number in numbers]
    if isinstance(own, int) and problem.chunks is None:
        found.append(Challenge(f"--chunks {own}", PlanClass.CHUNKS, {"chunks": own}))
    return found
