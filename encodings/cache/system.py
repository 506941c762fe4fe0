"""The cache as the rest of gapless sees it."""

from __future__ import annotations

from gapless.encodings.cache import decision, parameters, problem, remarks, solve, view
from gapless.encodings.cache.commands import options
from gapless.encodings.cache.question import Question
from gapless.lazy import lazy
from gapless.system import System

__all__ = ["SYSTEM"]


SYSTEM = System(
    name="cache",
    what="how each layer and head keeps its keys and values",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve cache --profile synthetic:layers=32,heads=32 --cache 0.3x -o plan.json
  gapless solve cache --profile cache.npz --cache 2GiB --tokens 32768 --batch 4
""",
    summary=("method", "saved", "cache_bytes", "full_bytes", "full_step_s"),
    remarks=lazy(lambda: remarks.remarks),
    lighter="fewer layers",
    view=lazy(lambda: view.render),
    headline=("{profile}: a cache of keys and values", "within {cache_bytes}"),
    pictures=("front", "gantt"),
    drawers={"front": lazy(lambda: view.draw_front)},
    device_names=lambda plan: (plan.schedule.topology.name,),
    runs=options.RUNS,
    profiles=(options.PROFILE,),
    cost=lazy(lambda: solve.cost),
    decision=lambda: decision.CacheDecision,
    package="gapless.encodings.cache",
)
