"""Pipelines as the rest of gapless sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.encodings.pipeline import classes, parameters, problem, solve
from gapless.encodings.pipeline.commands import ADVICE, CURVE, EXPORTS, PROFILES, RUN
from gapless.encodings.pipeline.programs import decision, view
from gapless.encodings.pipeline.question import Question
from gapless.lazy import lazy
from gapless.system import System
from gapless.units import format_bytes

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["SYSTEM"]


def _rank_names(plan: SavedPlan) -> tuple[str, ...]:
    ranks = 1 + max(device for device, _ in plan.schedule.topology.engines)
    kinds = [f"rank {rank}" for rank in range(ranks)] + [f"host {rank}" for rank in range(ranks)]
    return tuple(kinds[: plan.schedule.topology.device_count])


def _remarks(details: Mapping[str, object]) -> tuple[str, ...]:
    """The least memory, where what was given is too little for any plan; and costs that nobody measured."""
    if details.get("unmeasured") == "split":
        return ("what it costs to split backwards wasn't measured; measure a profile, or ask for --backward whole",)
    least = details.get("least_memory_bytes", details.get("least_memory_bound_bytes"))
    if "method" in details or not isinstance(least, int | float):
        return ()
    return (f"every plan needs at least {format_bytes(least)} of memory a rank",)


SYSTEM = System(
    name="pipeline",
    what="cut, order and compression of pipeline-parallel training",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve pipeline --profile uniform:f=10,b=12,w=8 --ranks 4 --micro-batches 16 --hop 2 --in-flight 5
  gapless solve pipeline --profile gpt-8.3b --ranks 4 --micro-batches 32 --bandwidth 200Gbps --replicas 4 -o plan.json
""",
    summary=(
        "method", "backwards", "peak_in_flight", "spread_s", "bubble", "error", "offloaded_stashes", "offloaded_bytes",
        "least_memory_bytes", "least_memory_bound_bytes",
    ),
    remarks=_remarks,
    lighter="fewer micro-batches",
    exports=EXPORTS,
    advice=(ADVICE,),
    sweeps=(CURVE,),
    runs=(RUN,),
    view=lazy(lambda: view.render),
    device_names=_rank_names,
    headline=(
        "{profile} on {ranks} ranks, {micro_batches} micro-batches", "within {memory_bytes} a rank",
        "at most {in_flight} in flight",
    ),
    budgets=lambda plan: plan.schedule.topology.memory_bytes if "memory_bytes" in plan.problem else (),
    pictures=("pipeline", "memory", "gantt"),
    drawers={"pipeline": lazy(lambda: view.draw_pipeline)},
    profiles=PROFILES,
    narrowing=lazy(lambda: classes.narrowing),
    challenges=lazy(lambda: classes.challenges),
    decision=lambda: decision.PipelineDecision,
    package="gapless.encodings.pipeline",
)  # fmt: skip
