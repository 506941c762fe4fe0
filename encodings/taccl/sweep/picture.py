"""The picture of a sweep: time or bandwidth over the size, with the bound, and by colour under which sketch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

from gapless.encodings.taccl.sweep.table import FORMAT, VERSION
from gapless.errors import InputError
from gapless.io.record import Record, load_record, suggestion
from gapless.plot.style import GREY, PALETTE, bytes_scale, finish, new_axes, time_scale
from gapless.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["draw_sizes"]

_COLUMNS = ("algbw_bytes_per_s", "makespan_s")
_TEXTS = ("plan", "sketch", "baseline")
_BASELINE = "baseline"
_MARKERS = "os^D"


@dataclass(frozen=True)
class _Point:
    """A size: what serves it, how well (None: nothing does), and the best that any plan could do."""

    size_bytes: int
    served_by: str
    value: float | None
    bound: float


def draw_sizes(path: str, y: str | None = None) -> tuple[Figure | SubFigure, str]:
    """Draw the `summary.json` of a sweep over sizes; returns the figure, and what it shows in words.

    `y`: the column along the axis, None for the bandwidth. Raises `InputError` for a file that is none, for a column
    that can't be drawn, and where no size is served.
    """
    y = y or _COLUMNS[0]
    if y not in _COLUMNS:
        hint = suggestion(y, _COLUMNS)
        raise InputError(f"--y: must be one of {', '.join(_COLUMNS)}, got {y!r}" + (f"; {hint}" if hint else ""))
    record = load_record(path)
    record.of_format(FORMAT, VERSION)
    points = [_point(row, y) for row in record.records("rows")]
    served = [point for point in points if point.value is not None]
    if not served:
        raise InputError(f"{path}: rows: must hold a size that is served, got none; sweep for longer")
    if len(served) == 1:
        raise InputError(f"{path}: one size is no curve; draw its plan instead, with `gapless plot PLAN`")
    axes = new_axes(6.5, 4.0)
    _plot(axes, points, served, y)
    axes.set_title(f"{record.text('collective')} on {record.text('topology')}", fontsize=10)
    return axes.figure, f"curve of {len(served)} sizes"


def _point(row: Record, y: str) -> _Point:
    size_bytes, bound_s = row.integer("size_bytes", 1), row.number("bound_s", 0)
    plan, sketch, baseline = (None if row.raw(name) is None else row.text(name) for name in _TEXTS)
    value = None if plan is None else row.number(y, 0)
    bound = math.inf if not bound_s else bound_s if y == "makespan_s" else size_bytes / bound_s
    served_by = sketch or (_BASELINE if plan == baseline else "no sketch")
    return _Point(size_bytes, served_by, value, bound)


def _plot(axes: Axes, points: Sequence[_Point], served: Sequence[_Point], y: str) -> None:
    """The points by colour, joined by a grey line, and the bound."""
    is_time = y == "makespan_s"
    scale, unit = (time_scale if is_time else bytes_scale)(max(point.value or 0.0 for point in served))

    def curve(chosen: Iterable[tuple[int, float | None]]) -> tuple[list[int], list[float]]:
        known = [(size, value / scale) for size, value in chosen if value is not None and math.isfinite(value)]
        return [size for size, _ in known], [value for _, value in known]

    axes.plot(*curve((point.size_bytes, point.value) for point in served), color=GREY, linewidth=0.8)
    looks = zip(cycle(PALETTE), cycle(_MARKERS), strict=False)
    for name, (colour, marker) in zip(sorted({point.served_by for point in served}), looks, strict=False):
        own = curve((point.size_bytes, point.value) for point in served if point.served_by == name)
        axes.plot(*own, label=name, color=colour, marker=marker, linestyle="")
    if any(math.isfinite(point.bound) for point in points):
        label = "lower bound" if is_time else "upper bound"
        bound = curve((point.size_bytes, point.bound) for point in points)
        axes.plot(*bound, label=label, color=GREY, linestyle="--", linewidth=1.0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xticks([point.size_bytes for point in points], [format_bytes(point.size_bytes) for point in points])
    axes.tick_params(axis="x", rotation=30)
    axes.set_xlabel("size")
    axes.set_ylabel(f"makespan ({unit})" if is_time else f"algorithm bandwidth ({unit}/s)")
    finish(axes, grid=True, legend="inside")
