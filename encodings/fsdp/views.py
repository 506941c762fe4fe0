"""A plan of sharded training as people read it, and as FSDP2 takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.encodings.fsdp.decision import ShardedDecision
from gapless.encodings.fsdp.execution.wrapping import costs_of, wrapping_of_plan
from gapless.encodings.fsdp.step.costs import Kind
from gapless.encodings.fsdp.step.timeline import timeline
from gapless.errors import InputError
from gapless.io.formats.fsdp2 import write_fsdp2
from gapless.report.baselines import render_baselines
from gapless.units import format_seconds

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["export_fsdp2", "render"]

_MOST_LINES = 60
_SHOWN = {Kind.FORWARD: "gather", Kind.BACKWARD: "gather again", Kind.SCATTER: "scatter"}


def render(plan: SavedPlan, report: Report) -> str:
    """A line a collective in the order of the network, and the baselines beside the plan."""
    decision = ShardedDecision.of(plan)
    events = {
        plan.schedule.graph.ops[int(op)].name: number
        for number, op in enumerate(plan.schedule.op.tolist())
        if int(op) >= 0
    }
    lines = [f"{'':>3} {'collective':<13} {'precision':<9} {'from':>10} {'to':>10}  layers"]
    for number, each in enumerate(decision.collectives[:_MOST_LINES]):
        names = decision.layers[each.first], decision.layers[each.last]
        layers = " .. ".join(dict.fromkeys(names))
        name = f"{each.kind} {layers}"
        first = events.get(f"{name}, first part", events[name])
        start = format_seconds(float(plan.schedule.start_s[first]))
        end = format_seconds(float(plan.schedule.end_s[events[name]]))
        kept = ", kept" if each.kept else ""
        lines.append(f"{number:>3} {_SHOWN[each.kind]:<13} {each.precision:<9} {start:>10} {end:>10}  {layers}{kept}")
    if len(decision.collectives) > _MOST_LINES:
        lines.append(f"    ... and {len(decision.collectives) - _MOST_LINES} collectives more")
    baselines_s = plan.details.get("baselines_s")
    if isinstance(baselines_s, Mapping) and all(isinstance(step_s, float) for step_s in baselines_s.values()):
        lines.append(render_baselines("order", baselines_s, report.makespan_s))
    return "\n".join(lines)


def export_fsdp2(path: str, plan: SavedPlan, values: Mapping[str, object]) -> str:
    """Write how FSDP2 wraps a model by a plan; returns what that comes to."""
    wrapping = wrapping_of_plan(plan)
    times = timeline(costs_of(plan), ShardedDecision.of(plan).order)
    if times is None:
        raise InputError("plan: must be one that can be run")
    write_fsdp2(path, wrapping)
    return f"{len(wrapping.groups)} groups, a step of {format_seconds(times.step_s)}"
