"""What people see of a plan: what presolve left, the memory beside its limit, and what fills it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gapless.checker import Report
from gapless.encodings.sharding.decision import ShardingDecision
from gapless.encodings.sharding.model.view import render_model
from gapless.io.plan import SavedPlan
from gapless.io.record import Record
from gapless.plot.memory import plot_memory
from gapless.report.text import described, table
from gapless.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_usage", "render"]

_MOST_NAMED = 8
"""Nodes that are named of those that fill the memory."""
_SIZES = ("nodes", "choices", "edges", "time_points")


def render(plan: SavedPlan, report: Report) -> str:
    """What each step of presolve left, then the fullest time point."""
    details = Record(dict(plan.details), "details")
    rows = [["presolve", "nodes", "choices", "edges", "time points"]]
    for step in details.records("presolve", default=[]):
        rows.append([step.text("step"), *(f"{step.integer(name, 0):,}" for name in _SIZES)])
    layouts = ShardingDecision.of(plan).layouts
    model = [] if layouts is None else render_model(plan, layouts)
    return "\n\n".join([*model, table(rows), *_fullest(plan, report)])


def _fullest(plan: SavedPlan, report: Report) -> list[str]:
    """The time point at which most is used, and the nodes that use most of it."""
    schedule = plan.schedule
    sizes, limit = schedule.graph.size_bytes, schedule.topology.memory_bytes[0]
    peak = max(report.peak_bytes, default=0)
    if not peak:
        return ["memory: no node uses any"]
    starts, ends = np.zeros(len(sizes), dtype=np.int64), np.full(len(sizes), len(schedule))
    for at, op in enumerate(schedule.op.tolist()):
        starts[list(schedule.graph.ops[op].outputs)] = at
    ends[schedule.freed_tensor.values] = schedule.freed_tensor.owner + 1
    change = np.zeros(len(schedule) + 1, dtype=np.int64)
    np.add.at(change, starts, sizes)
    np.subtract.at(change, ends, sizes)
    at = int(change.cumsum().argmax())
    live = np.flatnonzero((starts <= at) & (at < ends) & (sizes > 0))
    largest = live[np.argsort(-sizes[live], kind="stable")][:_MOST_NAMED]
    share = f"{peak / limit:.1%} of {format_bytes(limit)}" if limit else "of none"
    name = schedule.graph.ops[int(schedule.op[at])].name
    rows = [["node", "choice", "uses"]]
    for node, choice, size in (
        (*schedule.graph.tensor_name(tensor).partition(":")[::2], int(sizes[tensor])) for tensor in largest.tolist()
    ):
        rows.append([node, choice, format_bytes(size)])
    return [f"memory: {format_bytes(peak)}, {share}, at {name}, with {len(live):,} nodes; the largest", table(rows)]


def draw_usage(plan: SavedPlan, ax: Axes | None = None) -> Axes:
    """Draw the bytes in use at each time point, with the limit; returns the axes."""
    axes = plot_memory(plan.schedule, ax, budgets=plan.schedule.topology.memory_bytes)
    axes.set(xlabel="time points at which nodes start or end", ylabel=axes.get_ylabel())
    cost = described("objective_cost", plan.claim.get("objective_cost"))
    axes.set_title(f"{plan.schedule.name}: cost {cost}", loc="left", fontsize=10)
    return axes
