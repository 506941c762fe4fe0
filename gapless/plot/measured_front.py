"""The Pareto front of measured configurations, with the intervals of their means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.errors import InputError
from gapless.io.record import Record, load_record
from gapless.plot.style import BLUE, GREY, ORANGE, VERMILION, axis_label, bytes_scale, finish, new_axes, time_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FORMAT", "MeasuredTable", "plot_front", "read_measured"]

FORMAT, VERSION = "gapless.measure-summary", 1

_LOOKS = {
    "chosen": (VERMILION, "*", 13.0, "chosen"),
    "not ruled out": (BLUE, "o", 6.0, "not ruled out"),
    "worse": (GREY, "o", 5.0, "worse"),
    "infeasible": (GREY, "x", 6.0, "breaks a limit"),
}
"""Colour, marker, size and label by standing; what wasn't measured isn't drawn."""
_MARGIN, _RING = 0.05, 15.0


@dataclass(frozen=True)
class Point:
    """A configuration: its means with the ends of their intervals, by metric."""

    title: str
    standing: str
    is_on_front: bool
    metrics: Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True)
class MeasuredTable:
    """The summary.json of measured configurations. `axes`: what was asked for, then what has limits.

    `units`: of every metric. `limits`: (metric, value). `confidence`: of each interval.
    """

    asked: str
    confidence: float
    axes: tuple[str, ...]
    units: Mapping[str, str]
    limits: tuple[tuple[str, float], ...]
    points: tuple[Point, ...]


def read_measured(path: str | Path) -> MeasuredTable:
    """The table in a file. Raises `InputError` for a file that is none."""
    record = load_record(path)
    record.of_format(FORMAT, VERSION)
    answer = record.record("answer")
    metrics = answer.record("metrics")
    units = {name: metrics.text(name) for name in metrics.names()}
    limits = [(limit.text("metric", choices=units), limit.number("value")) for limit in answer.records("limits")]
    axes = answer.texts("axes", "a list of metrics", units)
    if not axes:
        raise answer.fail("axes", "a list of metrics", axes)
    points = tuple(_point(row, units) for row in record.records("rows"))
    return MeasuredTable(
        _asked(answer), answer.number("confidence"), axes, units, tuple(limits), points
    )  # fmt: skip


def _asked(answer: Record) -> str:
    """The question as it was typed."""
    return " subject to ".join(filter(None, [answer.text("choose"), ", ".join(map(str, answer.array("subject_to")))]))


def _point(row: Record, units: Mapping[str, str]) -> Point:
    fields, metrics = row.record("fields"), row.record("metrics")
    found = {
        name: (entry.number("mean"), entry.number("low"), entry.number("high"))
        for name in metrics.names()
        if name in units
        for entry in [metrics.record(name)]
    }
    title = " ".join(f"{name}={fields.raw(name)}" for name in fields.names())
    return Point(title, row.text("standing"), row.boolean("front"), found)


def plot_front(table: MeasuredTable, x: str | None = None, y: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw every configuration with its intervals, and the front by the means; returns the axes.

    `y`: what was asked for, and `x` the first metric with a limit, where they are None. Rings are round those on the
    front of all metrics that were asked about.
    `ax`: the matplotlib axes to draw on, None for a figure of its own. Raises `InputError` where nothing can be drawn.
    """
    x, y = _axes(table, x, y)
    points = [point for point in table.points if point.standing in _LOOKS and {x, y} <= set(point.metrics)]
    if not points:
        raise InputError(f"no configuration has {x!r} and {y!r}: nothing was measured; run the sweep first")
    ax = ax or new_axes(6.5, 4.2)
    scales = {name: _scale(table.units[name], [point.metrics[name] for point in points]) for name in (x, y)}
    for standing, (colour, marker, size, label) in _LOOKS.items():
        members = [point for point in points if point.standing == standing]
        if members:
            (x_means, x_halves), (y_means, y_halves) = (_spread(members, name, scales[name][0]) for name in (x, y))
            ax.errorbar(
                x_means, y_means, xerr=x_halves, yerr=y_halves, color=colour, marker=marker, markersize=size,
                linestyle="", elinewidth=0.9, capsize=2.0, label=label,
            )  # fmt: skip
    front = [point for point in points if point.is_on_front]
    if front:
        rings = [_spread(front, name, scales[name][0])[0] for name in (x, y)]
        ax.plot(*rings, "o", markersize=_RING, markerfacecolor="none", color=ORANGE, label="on the front, by means")
    _draw_limits(ax, table, x, y, scales)
    for name, set_label in ((x, ax.set_xlabel), (y, ax.set_ylabel)):
        set_label(axis_label(name, scales[name][1]))
    ax.set_title(f"{table.asked}; each interval with {100 * table.confidence:.4g} % confidence", fontsize=9)
    ax.margins(_MARGIN)
    return finish(ax, grid=True, legend="beside")


def _axes(table: MeasuredTable, x: str | None, y: str | None) -> tuple[str, str]:
    known = ", ".join(table.units)
    y = y or table.axes[0]
    others = [name for name in (*table.axes, *table.units) if name != y]
    x = x or (others[0] if others else y)
    for option, name in (("x", x), ("y", y)):
        if name not in table.units:
            raise InputError(f"--{option}: must be a metric, one of {known}, got {name!r}")
    if x == y:
        raise InputError(f"--x: must be another metric than --y, got {x!r}; the file's metrics are {known}")
    return x, y


def _scale(unit: str, values: Sequence[tuple[float, float, float]]) -> tuple[float, str]:
    """What the axis divides by, and its unit."""
    most = max(abs(high) for _, _, high in values)
    in_units = {"bytes": bytes_scale, "s": time_scale}
    return in_units[unit](most) if unit in in_units else (1.0, unit)


def _spread(points: Sequence[Point], metric: str, scale: float) -> tuple[list[float], list[list[float]]]:
    """Means, and how far their intervals reach below and above."""
    found = [point.metrics[metric] for point in points]
    below, above = [(mean - low) / scale for mean, low, _ in found], [(high - mean) / scale for mean, _, high in found]
    return [mean / scale for mean, _, _ in found], [below, above]


def _draw_limits(ax: Axes, table: MeasuredTable, x: str, y: str, scales: Mapping[str, tuple[float, str]]) -> None:
    for metric, draw_line in ((x, ax.axvline), (y, ax.axhline)):
        for value in [limit for name, limit in table.limits if name == metric]:
            draw_line(value / scales[metric][0], color=GREY, linestyle="--", linewidth=1.0, label=f"limit of {metric}")
