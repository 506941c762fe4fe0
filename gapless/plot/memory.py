"""Memory over the step: live bytes, the budget that was asked for, and where ops run again to save memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.checker.inspection import MemorySteps, known_events, memory_steps
from gapless.checker.replay import replayed
from gapless.errors import InputError
from gapless.ir.schedule import EventKind, Schedule
from gapless.plot.style import (
    BLUE,
    BROWN,
    GREEN,
    VERMILION,
    bytes_scale,
    finish,
    legend_above,
    new_axes,
    plain,
    time_scale,
)
from gapless.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_memory"]

MOST_POINTS = 2000
_NARROW = 1 / 500
"""Gaps of less than this share of the time between two stretches of a kind are not drawn."""

Floats = NDArray[np.float64]


def plot_memory(
    schedule: Schedule, ax: Axes | None = None, device: int | None = None, device_names: Sequence[str] = (),
    steps: Sequence[MemorySteps] | None = None, budgets: Sequence[float] = (), until_s: float = 0.0,
) -> Axes:  # fmt: skip
    """Draw the bytes that a device holds over time, as the replay has them; returns the axes.

    `ax`: the matplotlib axes to draw on, None for a figure of its own. `device`: None for the one with the highest
    peak, of those with a budget, or else a capacity, if there are any. `steps`: the replay's, where there is one
    already. `budgets`: the bytes that were asked for, by device, inf for none: a line. Shaded are runs of ops that ran
    before (recomputation) and, in a training step, the backward pass. `until_s`: how far the axis goes at least. Raises
    `InputError` for a device that isn't there.
    """
    steps = memory_steps(replayed(schedule)) if steps is None else steps
    budgets = budgets or (math.inf,) * len(steps)
    if device is not None and not 0 <= device < len(steps):
        raise InputError(f"device must be in 0..{len(steps) - 1}, got {device}")
    limits = budgets if np.isfinite(budgets).any() else schedule.topology.memory_bytes
    chosen = _fullest(limits, steps) if device is None else device
    numbers = known_events(schedule)
    span_s = float(schedule.end_s[numbers].max(initial=0.0))
    scale_s, time_unit = time_scale(max(span_s, until_s))
    peak_bytes, budget_bytes = int(steps[chosen].live_bytes.max(initial=0)), budgets[chosen]
    most_bytes = max(peak_bytes, budget_bytes if math.isfinite(budget_bytes) else 0.0, 1.0)
    scale_bytes, unit = bytes_scale(most_bytes)
    ax = ax or new_axes(10.0, 4.0)
    time_s, live_bytes = _outline(steps[chosen], span_s)
    x, y = time_s / scale_s, live_bytes / scale_bytes
    label = f"live, at most {format_bytes(peak_bytes)}"
    ax.fill_between(x, y, step="post", color=BLUE, alpha=0.18, linewidth=0)
    ax.plot(x, y, drawstyle="steps-post", color=BLUE, linewidth=1.2, label=label)
    if math.isfinite(budget_bytes):
        label = f"budget {format_bytes(budget_bytes)}"
        ax.axhline(budget_bytes / scale_bytes, color=VERMILION, linestyle="--", linewidth=1.4, label=label)
    _shade(ax, schedule, numbers, chosen, scale_s, span_s)
    where = "" if len(steps) == 1 else f" of {plain(device_names[chosen]) if device_names else f'device {chosen}'}"
    ax.set(
        xlim=(0.0, max(span_s, until_s) / scale_s or 1.0),
        xlabel=f"time ({time_unit})",
        ylabel=f"memory{where} ({unit})",
    )
    ax.set_ylim(0.0, 1.12 * most_bytes / scale_bytes)
    ax.set_title(f"{schedule.name}: {format_seconds(span_s)}", loc="left", fontsize=10)
    legend_above(ax)
    return finish(ax)


def _fullest(limits: Sequence[float], steps: Sequence[MemorySteps]) -> int:
    """The device with the highest peak, of those with a limit if there are any."""
    limited = [device for device, size in enumerate(limits) if math.isfinite(size)]
    return max(limited or range(len(steps)), key=lambda device: int(steps[device].live_bytes.max(initial=0)))


def _outline(steps: MemorySteps, span_s: float) -> tuple[Floats, NDArray[np.int64]]:
    """The levels to draw, from 0 to the end: of each slice of time the highest, then the one that it ends with.

    Slices are instants, or where there are too many of those, `MOST_POINTS` equal parts.
    """
    time_s, live_bytes = np.append(0.0, steps.time_s), np.append(0, steps.live_bytes)
    slot = np.cumsum(np.append(0, np.diff(time_s) > 1e-9 * span_s))
    if slot[-1] > MOST_POINTS:
        slot = np.floor(time_s / span_s * MOST_POINTS).astype(np.int64)
    first = np.flatnonzero(np.append(True, np.diff(slot) > 0))
    last = np.append(first[1:], len(slot)) - 1
    at_s, highest, ends = time_s[first], np.maximum.reduceat(live_bytes, first), live_bytes[last]
    x, y = np.repeat(at_s, 2), np.stack([highest, ends], axis=1).ravel()
    # A passing level is drawn where it is a peak; one that the slice ends with, always.
    is_drawn = np.ones(len(y), dtype=np.bool_)
    is_drawn[::2] = highest > np.maximum(ends, np.append(0, ends[:-1]))
    return np.append(x[is_drawn], span_s), np.append(y[is_drawn], ends[-1])


def _shade(
    ax: Axes, schedule: Schedule, numbers: NDArray[np.int64], device: int, scale_s: float, span_s: float
) -> None:
    """The stretches in which the device recomputes, and those of the backward pass."""
    numbers = numbers[schedule.kind[numbers] == EventKind.COMPUTE]
    engine_device = np.array([number for number, _ in schedule.topology.engines], dtype=np.int64)
    numbers = numbers[engine_device[schedule.place[numbers]] == device]
    numbers = numbers[np.argsort(schedule.start_s[numbers], kind="stable")]
    op = schedule.op[numbers]
    _, first = np.unique(op, return_index=True)
    is_again = np.ones(len(op), dtype=np.bool_)
    is_again[first] = False
    is_backward = np.array([schedule.graph.ops[number].kind == "backward" for number in op.tolist()], dtype=np.bool_)
    for mask, colour, alpha, title in (
        (is_again, BROWN, 0.45, "recomputation"),
        (is_backward & ~is_again, GREEN, 0.10, "backward"),
    ):
        rows = numbers[mask]
        spans = _stretches(schedule.start_s[rows], schedule.end_s[rows], _NARROW * span_s)
        for k, (begin_s, end_s) in enumerate(spans):
            label = title if not k else None
            ax.axvspan(
                begin_s / scale_s, end_s / scale_s, color=colour, alpha=alpha, linewidth=0, label=label, zorder=0
            )


def _stretches(start_s: Floats, end_s: Floats, narrow_s: float) -> list[tuple[float, float]]:
    """The events as stretches, those with a gap of at most `narrow_s` between them as one."""
    if not len(start_s):
        return []
    ends = np.maximum.accumulate(end_s)
    breaks = np.flatnonzero(start_s[1:] - ends[:-1] > narrow_s)
    begins, stops = np.append(0, breaks + 1), np.append(breaks, len(ends) - 1)
    return list(zip(start_s[begins].tolist(), ends[stops].tolist(), strict=True))
