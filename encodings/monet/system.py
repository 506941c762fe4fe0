"""MONeT as the rest of gapless sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.encodings.monet import decisions, parameters, problem, solve
from gapless.encodings.monet.commands import CURVE, RUN
from gapless.encodings.monet.question import Question
from gapless.lazy import lazy
from gapless.system import System

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["SYSTEM"]


def _view(plan: SavedPlan, report: Report) -> str:
    """The memory over the step, what is recomputed, which algorithms run."""
    from gapless.encodings.monet.curve.timeline import memory_timeline, render

    return render(memory_timeline(plan.schedule))


def _device_names(plan: SavedPlan) -> tuple[str, ...]:
    """Those of a device that has a host to offload to; a device alone goes by number."""
    return ("device", "host") if plan.schedule.topology.device_count == 2 else ()


def _remarks(details: Mapping[str, object]) -> tuple[str, ...]:
    """What the method's plan needs, or the least budget, where the one that was given is too little."""
    from gapless.units import format_bytes, format_count

    if isinstance(needed := details.get("needed_bytes"), int):
        carried = f", carried over from batch {details['carried_batch']}," if "carried_batch" in details else ""
        return (f"the plan{carried} needs {format_count(needed)} bytes ({format_bytes(needed)}), more than the budget",)

    bound, found = (details.get(f"least_budget_{title}_bytes") for title in ("bound", "found"))
    if not isinstance(bound, int):  # nothing is known, or the solve was stopped before anything was
        return ()
    tail = f"; a plan was found for {format_count(found)} ({format_bytes(found)})" if isinstance(found, int) else ""
    return (f"every plan needs at least {format_count(bound)} bytes ({format_bytes(bound)}), proven{tail}",)


SYSTEM = System(
    name="monet",
    plans_steps=True,
    what="checkpointing and operator selection under a memory budget",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    decision=lambda: decisions.StepDecision,
    example="""\
  gapless solve monet --graph resnet50 --batch 184 --device p100 --budget 8GiB --gap 0.02 -o plan.json
  gapless solve monet --graph mobilenet_v2 --batch 64 --budget 0.8x --method checkmate
""",
    summary=(
        "overhead", "overhead_bound", "offloaded_tensors", "offloaded_bytes", "waiting_s", "device_peak_bytes",
        "least_budget_bound_bytes", "least_budget_found_bytes", "nodes",
    ),
    lighter="--threads 1, or --method greedy",
    remarks=_remarks,
    view=_view,
    device_names=_device_names,
    headline=("{graph}, batch {batch}", "within {budget_bytes}", "least {objective}"),
    budgets=lambda plan: plan.schedule.topology.memory_bytes,
    pictures=("memory",),
    sweeps=(CURVE,),
    runs=(RUN,),
    narrowing=lazy(lambda: solve.narrowing),
    challenges=lazy(lambda: solve.challenges),
    package="gapless.encodings.monet",
)  # fmt: skip
