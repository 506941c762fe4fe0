"""The memory of a training step over time, from its schedule, and as text.

For decisions, make their schedule first: `memory_timeline(to_schedule(graph, decisions, budget_bytes))`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.checker.inspection import memory_steps
from gapless.checker.replay import replayed
from gapless.errors import InputError
from gapless.ir.live_memory import live_bytes
from gapless.ir.schedule import EventKind, Schedule
from gapless.units import format_bytes, format_seconds

__all__ = ["PHASES", "MemoryTimeline", "memory_timeline", "render"]

PHASES = ("forward", "recompute", "backward")
"""The phases of a step, by number."""

WIDTH = 100
ROWS = 8
MOST_LINES = 5
LEVELS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class MemoryTimeline:
    """What each of n events holds while it runs, workspace included.

    `start_s`, `end_s`: float, shape (n,). `live_bytes`: int64, shape (n,). `phase`: int64, shape (n,), into `PHASES`.
    `operator`, `implementation`: the names of the ops and of how they run. `budget_bytes`: inf for none.
    """

    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    live_bytes: NDArray[np.int64]
    phase: NDArray[np.int64]
    operator: tuple[str, ...]
    implementation: tuple[str, ...]
    budget_bytes: float


def memory_timeline(schedule: Schedule) -> MemoryTimeline:
    """The timeline of a schedule of MONeT: one device, one event after the other; raises `InputError` for another.

    With a host beside it, what is under way to and from there counts as the replay has it. The forward pass ends with
    the first run of the loss; forward ops that run later are recomputation.
    """
    if schedule.topology.engines != ((0, "compute"),) or (schedule.kind == EventKind.COLLECTIVE).any():
        raise InputError("timeline: must be a schedule of compute events on one device")
    order = np.argsort(schedule.start_s, kind="stable")
    order = order[~schedule.is_transfer[order]]
    graph, numbers = schedule.graph, schedule.op[order].tolist()
    ops = [graph.ops[number] for number in numbers]
    choices = schedule.implementation[order].tolist()
    losses = [row for row, op in enumerate(ops) if op.kind == "loss"]
    forward_end = losses[0] if losses else len(ops)
    phase = [2 if op.kind == "backward" else int(row > forward_end) for row, op in enumerate(ops)]
    return MemoryTimeline(
        start_s=schedule.start_s[order],
        end_s=schedule.end_s[order],
        live_bytes=_held(schedule, order),
        phase=np.array(phase, dtype=np.int64),
        operator=tuple(op.name for op in ops),
        implementation=tuple(op.implementations[choice].name for op, choice in zip(ops, choices, strict=True)),
        budget_bytes=schedule.topology.memory_bytes[0],
    )


def _held(schedule: Schedule, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most bytes that the device holds while each event runs; int64, shape (n,)."""
    if len(order) == len(schedule):
        return live_bytes(schedule, order.tolist())
    memory = memory_steps(replayed(schedule))[0]
    first = np.maximum(memory.time_s.searchsorted(schedule.start_s[order], side="right") - 1, 0)
    last = np.maximum(memory.time_s.searchsorted(schedule.end_s[order], side="left"), first + 1)
    spans = zip(first.tolist(), last.tolist(), strict=True)
    return np.array([memory.live_bytes[begin:stop].max() for begin, stop in spans], dtype=np.int64)


def render(timeline: MemoryTimeline) -> str:
    """At most 23 lines of at most 100 columns: phases, recomputation, implementations, and memory over time."""
    return "\n".join(
        [*_phase_lines(timeline), *_recomputation_lines(timeline), *_implementation_lines(timeline), *_chart(timeline)]
    )


def _phase_lines(timeline: MemoryTimeline) -> list[str]:
    lines = [f"{'phase':<10} {'ops':>6} {'time':>10} {'peak':>10}  at"]
    for number, name in enumerate(PHASES):
        rows = np.flatnonzero(timeline.phase == number)
        if len(rows):
            time_s = float((timeline.end_s - timeline.start_s)[rows].sum())
            top = int(rows[timeline.live_bytes[rows].argmax()])
            peak = format_bytes(int(timeline.live_bytes[top]))
            lines.append(
                f"{name:<10} {len(rows):>6} {format_seconds(time_s):>10} {peak:>10}  {timeline.operator[top]}"[:WIDTH]
            )
    return lines


def _recomputation_lines(timeline: MemoryTimeline) -> list[str]:
    """What is recomputed, the most often first."""
    again = Counter(
        name for name, phase in zip(timeline.operator, timeline.phase.tolist(), strict=True) if phase == 1
    ).most_common()
    if not again:
        return ["nothing is recomputed"]
    often = Counter(times for _, times in again)
    parts = [f"{count} ops {_times(times)}" for times, count in sorted(often.items())]
    names = ", ".join(name if times == 1 else f"{name} {_times(times)}" for name, times in again)
    return [f"recomputed: {', '.join(parts)}"[:WIDTH], f"  {_shortened(names, WIDTH - 2)}"]


def _implementation_lines(timeline: MemoryTimeline) -> list[str]:
    """For each kind of op that has named implementations: how often it runs in which."""
    kinds: dict[str, Counter[str]] = {}
    for name, how in zip(timeline.operator, timeline.implementation, strict=True):
        kinds.setdefault(_kind(name), Counter())[how or "default"] += 1
    lines = [
        f"  {kind}: " + "; ".join(f"{how} x{count}" for how, count in impls.most_common())
        for kind, impls in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
        if set(impls) != {"default"}
    ]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES - 1 :] = [f"  and {len(lines) - MOST_LINES + 1} more kinds of operators"]
    return ["implementations:", *(_shortened(line, WIDTH) for line in lines)] if lines else []


def _kind(name: str) -> str:
    """An op's name without the number at its end."""
    head, _, tail = name.rpartition(".")
    return head if head and tail.isdigit() else name


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _chart(timeline: MemoryTimeline) -> list[str]:
    """Memory over time against the budget: bars of the most held in each slice of time, and what mostly runs then."""
    total_s = float(timeline.end_s.max(initial=0.0))
    if not total_s:
        return []
    peak = int(timeline.live_bytes.max())
    bounded = math.isfinite(timeline.budget_bytes)
    scale = max(float(peak), timeline.budget_bytes if bounded else 0.0, 1.0)
    label = max(len(format_bytes(scale)), len(format_bytes(peak)))
    columns = WIDTH - label - 3
    heights, letters = _slices(timeline, columns, total_s)
    level = np.ceil(heights / scale * ROWS * 8).astype(int)
    lines = []
    for row in range(ROWS - 1, -1, -1):
        bar = "".join(LEVELS[part] for part in np.clip(level - 8 * row, 0, 8).tolist())
        lines.append(f"{format_bytes(scale * (row + 1) / ROWS) if row % 4 == 3 else '':>{label}} |{bar}|")
    fraction = (
        f", {100 * peak / timeline.budget_bytes:.1f} % of the budget" if bounded and timeline.budget_bytes else ""
    )
    legend = "f forward, r recompute, b backward"
    return [
        f"memory: at most {format_bytes(peak)}{fraction}",
        *lines,
        f"{'':>{label}} |{letters}|",
        f"{'':>{label}}  0 to {format_seconds(total_s)}; {legend}",
    ]


def _slices(timeline: MemoryTimeline, columns: int, total_s: float) -> tuple[NDArray[np.float64], str]:
    """The most bytes held in each of some equal slices of time, and the letter of the phase that takes most of it."""
    heights = np.zeros(columns)
    shares = np.zeros((columns, len(PHASES)))
    edges = np.linspace(0.0, total_s, columns + 1)
    first = np.clip(np.searchsorted(edges, timeline.start_s, side="right") - 1, 0, columns - 1)
    last = np.clip(np.searchsorted(edges, timeline.end_s, side="left") - 1, first, columns - 1)
    for row, (begin, stop) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        part = slice(begin, stop + 1)
        heights[part] = np.maximum(heights[part], timeline.live_bytes[row])
        shared_s = np.minimum(edges[1:][part], timeline.end_s[row]) - np.maximum(
            edges[:-1][part], timeline.start_s[row]
        )
        shares[part, timeline.phase[row]] += np.maximum(shared_s, 0.0)
    return heights, "".join(PHASES[number][0] for number in shares.argmax(axis=1).tolist())
