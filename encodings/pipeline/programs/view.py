"""What people see of a plan: ranks with layers, times and memory, the schedules of the field; the pipeline diagram."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gapless.array_types import Ints
from gapless.checker import Report
from gapless.encodings.pipeline.programs.breakdown import said
from gapless.encodings.pipeline.programs.decision import PipelineDecision, rank_of_stage
from gapless.io.plan import SavedPlan
from gapless.io.record import Record
from gapless.ir.schedule import EventKind, Schedule
from gapless.plot.style import (
    BLUE,
    BROWN,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILION,
    finish,
    legend_above,
    new_axes,
    time_scale,
)
from gapless.report.text import table
from gapless.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_pipeline", "render"]


def render(plan: SavedPlan, report: Report) -> str:
    """A line a rank, then the schedules of the field, and the step by kind of communication."""
    lines = [_ranks(plan, report)]
    baselines_s = plan.details.get("baselines_s")
    if isinstance(baselines_s, Mapping) and baselines_s:
        lines.append(_baselines(baselines_s, report.makespan_s))
    exposed = plan.details.get("exposed_s")  # which plans from before don't have
    if isinstance(exposed, Mapping) and sum(exposed.values()) > 0:
        lines.append(said(exposed))
    return "\n\n".join(lines)


def _ranks(plan: SavedPlan, report: Report) -> str:
    """Each rank: its layers, how long it computes and when it is done, its memory."""
    schedule = plan.schedule
    ranks = _rank_count(schedule)
    engine_rank = np.array([device for device, _ in schedule.topology.engines], dtype=np.int64)
    is_op = schedule.op >= 0
    done_s, of_rank = np.zeros(ranks), engine_rank[schedule.place[is_op]]
    np.maximum.at(done_s, of_rank, schedule.end_s[is_op])
    layers = _layers(plan, ranks)
    rows = [["rank", "layers", "computes", "done at", "peak memory"]]
    for rank in range(ranks):
        busy_s = sum(busy for busy, (device, name) in zip(report.busy_s.engines, schedule.topology.engines, strict=True)
                     if device == rank and name == "compute")  # fmt: skip
        peak = format_bytes(report.peak_bytes[rank])
        rows.append([str(rank), layers[rank], format_seconds(busy_s), format_seconds(float(done_s[rank])), peak])
    return table(rows)


def _rank_count(schedule: Schedule) -> int:
    """The devices that compute; hosts don't."""
    return 1 + max(device for device, _ in schedule.topology.engines)


def _layers(plan: SavedPlan, ranks: int) -> list[str]:
    """The layers of each rank's stages, such as `0-5, 18-23`."""
    decision, asked = PipelineDecision.of(plan), Record(dict(plan.problem), "problem")
    ends, parts = [0, *decision.cut, asked.integer("layers", 1)], list[list[str]]([[] for _ in range(ranks)])
    for stage, rank in enumerate(rank_of_stage(asked)):
        own = stage % (len(ends) - 1)  # of each copy of the model
        first, last = ends[own], ends[own + 1] - 1
        parts[rank].append(str(first) if first == last else f"{first}-{last}")
    return [", ".join(each) for each in parts]


def _baselines(baselines_s: Mapping[str, float], step_s: float) -> str:
    rows = [["schedule", "step", "of this plan's"]]
    for name, seconds in sorted(baselines_s.items(), key=lambda item: float(item[1])):
        rows.append([name, format_seconds(float(seconds)), f"{float(seconds) / step_s:.3f}" if step_s else "-"])
    return table(rows)


COLOURS = {
    "forward": BLUE, "backward": GREEN, "weight": ORANGE, "recompute": BROWN, "encode": PURPLE, "decode": PURPLE,
    "send": GREY, "sum": VERMILION, "cell": PURPLE,
}  # fmt: skip
NAMES = {
    "forward": "forward (F)", "backward": "input gradient (I)", "weight": "weight gradient (W)",
    "sum": "sum of gradients", "send": "blocking send", "recompute": "forward again (R)", "encode": "encode, decode",
    "cell": "forward and backward",
}  # fmt: skip
WHOLE = "backward (B)"

MOST_LABELS = 1500
"""With more ops than this there is no room for the numbers of their micro-batches."""
MOST_MESSAGES = 1500
_EDGED = 1 / 250
"""Narrower ops have no white edge: it would make their colour pale."""
_LETTER = 0.006
"""The share of the width that a digit takes."""
_MANY = 24
"""Of more ranks, rows are thin."""
_WIDTH_IN = 11.0


def draw_pipeline(plan: SavedPlan, ax: Axes | None = None) -> Axes:
    """Draw what each rank computes when, and its messages as lines from rank to rank; returns the axes.

    Of several stages a rank, the later ones are drawn paler. Idle time is white.
    """
    schedule = plan.schedule
    ranks, span_s = _rank_count(schedule), float(schedule.end_s.max(initial=0.0)) or 1.0
    scale_s, unit = time_scale(span_s)
    ax = ax or new_axes(_WIDTH_IN, 1.2 + (0.34 if ranks <= _MANY else 0.16) * max(ranks, 3))
    _draw_messages(ax, schedule, scale_s)
    kinds = _draw_ops(ax, schedule, scale_s)
    ax.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)], fontsize=8 if ranks <= _MANY else 6)
    ax.set_ylim(ranks - 0.45, -0.55)
    ax.set_xlim(0.0, span_s / scale_s)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(f"time ({unit})")
    ax.set_title(f"{schedule.name}: {format_seconds(span_s)}", loc="left", fontsize=10)
    legend_above(ax, kinds)
    return finish(ax)


def _draw_ops(ax: Axes, schedule: Schedule, scale_s: float) -> list[tuple[str, str]]:
    """A bar an op; the colours and names of the kinds that there are."""
    ops, numbers = schedule.graph.ops, np.flatnonzero(schedule.op >= 0)
    kinds = [ops[op].kind for op in schedule.op[numbers].tolist()]
    is_split = "weight" in kinds
    engines = np.array([device for device, _ in schedule.topology.engines], dtype=np.int64)
    row = engines[schedule.place[numbers]]
    start_s, length_s = schedule.start_s[numbers], (schedule.end_s - schedule.start_s)[numbers]
    edge_pt = 0.4 if np.median(length_s) > _EDGED * float(schedule.end_s.max(initial=0.0)) else 0.0
    chunk = _chunks([ops[op].name for op in schedule.op[numbers].tolist()], row)
    found: dict[str, str] = {}
    for kind in COLOURS:
        for number in np.unique(chunk).tolist():
            here = np.flatnonzero((np.array(kinds) == kind) & (chunk == number) & (length_s > 0))
            if not len(here):
                continue
            is_sum = kind == "sum"
            ax.barh(row[here] + (0.46 if is_sum else 0.0), length_s[here] / scale_s, left=start_s[here] / scale_s,
                    height=0.1 if is_sum else 0.74, color=COLOURS[kind], alpha=1.0 if number == 0 else 0.55,
                    edgecolor="white", linewidth=edge_pt, zorder=2)  # fmt: skip
            name = WHOLE if kind == "backward" and not is_split else NAMES.get(kind, NAMES["encode"])
            found.setdefault(name, COLOURS[kind])
    if len(numbers) <= MOST_LABELS:
        _write_numbers(ax, schedule, numbers, row, chunk, scale_s)
    return [(colour, name) for name, colour in found.items()]


def _chunks(names: list[str], row: Ints) -> Ints:
    """Which of its rank's stages an op is of, 0 for the first; int64."""
    stage = np.array([int(name.split()[1]) if name.split()[1:2] else 0 for name in names], dtype=np.int64)
    chunk = np.zeros(len(names), dtype=np.int64)
    for rank in np.unique(row).tolist():
        here = row == rank
        chunk[here] = np.searchsorted(np.unique(stage[here]), stage[here])
    return chunk


def _write_numbers(
    ax: Axes, schedule: Schedule, numbers: Ints, row: Ints, chunk: Ints,
    scale_s: float,
) -> None:  # fmt: skip
    """The micro-batch of each op whose bar has room for it, dark on pale bars."""
    span_s = float(schedule.end_s.max())
    for event, rank, number in zip(numbers.tolist(), row.tolist(), chunk.tolist(), strict=True):
        words = schedule.graph.ops[int(schedule.op[event])].name.split()
        start_s, end_s = float(schedule.start_s[event]), float(schedule.end_s[event])
        if len(words) == 3 and len(words[0]) == 1 and (end_s - start_s) / span_s > _LETTER * (len(words[2]) + 0.5):
            at, colour = (start_s + end_s) / 2 / scale_s, "black" if number else "white"
            ax.text(at, rank, words[2], ha="center", va="center", fontsize=6, color=colour, clip_on=True, zorder=3)


def _draw_messages(ax: Axes, schedule: Schedule, scale_s: float) -> None:
    """A line from the sender, when a message leaves, to the receiver, when it is there."""
    from matplotlib.collections import LineCollection

    numbers, ranks = np.flatnonzero(schedule.kind == EventKind.TRANSFER), _rank_count(schedule)
    ends = schedule.topology.link_source, schedule.topology.link_target
    numbers = numbers[np.maximum(*ends)[schedule.place[numbers]] < ranks]  # between ranks, not to hosts
    if not len(numbers) or len(numbers) > MOST_MESSAGES:
        return
    links, topology = schedule.place[numbers], schedule.topology
    source, target = topology.link_source[links], topology.link_target[links]
    towards = np.sign(target - source) * 0.37
    start = np.stack([schedule.start_s[numbers] / scale_s, source + towards], axis=1)
    end = np.stack([schedule.end_s[numbers] / scale_s, target - towards], axis=1)
    ax.add_collection(LineCollection(list(np.stack([start, end], axis=1)), colors=GREY, linewidths=0.5, zorder=1))
