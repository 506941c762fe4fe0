"""Curves of a sweep: what instances cost over one of their fields, a curve for each combination of the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Protocol, TypedDict

from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.plot.style import GREY, PALETTE, axis_label, bytes_scale, check_plot, finish, new_axes, time_scale
from gapless.units import UNITS, parse_bandwidth, parse_bytes, parse_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SweepRow", "draw_sweep", "plot_sweep"]


class _Look(TypedDict, total=False):
    """How a line is drawn, beside its colour."""

    linestyle: str
    linewidth: float
    marker: str
    markersize: float


_MARKERS = "os^D"
_STYLES = list(product(_MARKERS, PALETTE))
_BOUNDS = {"makespan_s": "bound_s", "objective_s": "bound_s", "energy_j": "bound_j", "objective_j": "bound_j",
           "objective_span_s": "bound_span_s", "objective_error": "bound_error",
           "objective_cost": "bound_cost"}  # fmt: skip
_COLUMNS = (*_BOUNDS, "gap", "peak_bytes", "solve_s")
_KNOWN = (*_COLUMNS, *(f"bound_{unit}" for unit in UNITS))
_DASHED: _Look = {"linestyle": "--", "linewidth": 1.0}
_DASH: _Look = {"linestyle": "", "marker": "_", "markersize": 12.0}
"""A lower bound, where values are numbers, and where they are names, which no line joins."""
_PANELS_A_ROW = 2
_MOST_INSIDE = 4
"""More curves than these have their legend beside the axes."""
_MOST_TICKS = 9
_LOG_SPAN = 30.0
"""An axis whose largest value is so many times the smallest is logarithmic."""
_MANY_DECADES = 1e4

Field = str | int | float


class SweepRow(Protocol):
    """An instance: its fields, which of them vary, and what came of it by column; `gapless.sweeps.Row` is one."""

    @property
    def system(self) -> str:
        """The system that solved it."""

    @property
    def fields(self) -> Mapping[str, Field]:
        """What was asked."""

    @property
    def swept(self) -> tuple[str, ...]:
        """The fields that vary."""

    @property
    def details(self) -> Mapping[str, object]:
        """The encoding's own account."""


def draw_sweep(rows: Sequence[SweepRow], x: str | None = None, y: str | None = None) -> Figure:
    """Draw the rows of every system into axes of their own; returns the figure.

    `x`: a field, `y`: a column, for systems that have them. Raises `InputError` where nothing is left to draw.
    """
    check_plot()
    from matplotlib.figure import Figure

    by_system: dict[str, list[SweepRow]] = {}
    for row in rows:
        by_system.setdefault(row.system, []).append(row)
    asked = [own for own in by_system.values() if x is None or x in _names(own)]
    known = [[bool(_names(own)) and _value(row, y or _default_y(own)) is not None for row in own] for own in asked]
    drawn = [own for own, are_known in zip(asked, known, strict=True) if any(are_known)]
    if not drawn:
        swept = sorted(_names(rows))
        hint = suggestion(x or "", swept) or f"swept are {', '.join(swept) or 'no fields'}"
        what = f"--x {x}" if x is not None else "the sweep"
        raise InputError(f"{what}: there are no results to draw over a swept field; {hint}")
    if sum(map(sum, known)) < 2:
        raise InputError("a sweep of one result is no curve; draw its plan instead, with `gapless plot PLAN`")
    columns = min(len(drawn), _PANELS_A_ROW)
    lines = -(-len(drawn) // columns)
    figure = Figure(figsize=(6.5 * columns, 4.0 * lines), layout="constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes, own in zip(panels, drawn, strict=False):
        plot_sweep(own, axes, x, y)
        if len(drawn) > 1:
            axes.set_title(own[0].system)
    for axes in panels[len(drawn) :]:
        axes.set_axis_off()
    return figure


def plot_sweep(rows: Sequence[SweepRow], ax: Axes | None = None, x: str | None = None, y: str | None = None) -> Axes:
    """Draw a column of rows of one system over a field, with the proven bound dashed; returns the axes.

    `ax`: the matplotlib axes to draw on, None for a figure of its own. `x`: the field, None for the one with the most
    numbers. `y`: None for the replayed time (or energy, where that was minimised). Rows without a value are left out.
    Raises `InputError` where nothing is left, or too many curves.
    """
    x, y = x or _default_x(rows), y or _default_y(rows)
    drawn = [row for row in rows if _value(row, y) is not None and x in row.fields]
    others = [name for name in _names(rows) if name != x]
    curves: dict[tuple[Field | None, ...], list[SweepRow]] = {}
    for row in drawn:
        curves.setdefault(tuple(row.fields.get(name) for name in others), []).append(row)
    if not 1 <= len(curves) <= len(_STYLES):
        raise InputError(f"a picture has 1 to {len(_STYLES)} curves, got {len(curves)} over {x!r}; choose another --x")
    ax = ax or new_axes(6.5, 4.0)
    values, bound = list(dict.fromkeys(row.fields[x] for row in drawn)), _BOUNDS.get(y)
    place_of, scale = (
        _x_axis(ax, x, values),
        _y_axis(ax, y, [value for row in drawn if (value := _value(row, y)) is not None]),
    )
    line, dashed = ("-", _DASHED) if _numbers(values) is not None else ("", _DASH)
    for (marker, colour), (key, members) in zip(_STYLES, curves.items(), strict=False):
        label = ", ".join(f"{name} {value}" for name, value in zip(others, key, strict=True) if value is not None)
        points = _points(members, x, y, place_of, scale)
        ax.plot(*points, label=label or "plan", color=colour, marker=marker, markersize=4.5, linestyle=line)
        ax.plot(*_points(members, x, bound, place_of, scale), color=colour, **dashed)
    if any(_value(row, bound) is not None for row in drawn):
        ax.plot([], [], label="lower bound", color=GREY, **dashed)
    return finish(ax, grid=True, legend="beside" if len(curves) > _MOST_INSIDE else "inside")


def _points(
    rows: Sequence[SweepRow], x: str, column: str | None, place_of: Mapping[Field, float], scale: float
) -> tuple[list[float], list[float]]:
    """Where the rows stand that have a value, from left to right."""
    known = [(row.fields[x], _value(row, column)) for row in rows]
    points = sorted((place_of[at], value / scale) for at, value in known if value is not None)
    return [at for at, _ in points], [value for _, value in points]


def _names(rows: Sequence[SweepRow]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.swept))


def _value(row: SweepRow, column: str | None) -> float | None:
    """A column of a row; None where it is not known, or no number."""
    if column is None:
        return None
    inner = column.removeprefix("details.")
    if inner == column and column not in _KNOWN:
        hint = suggestion(column, _COLUMNS) or f"known are {', '.join(_COLUMNS)} and details.NAME"
        raise InputError(f"--y: must be a column of numbers, got {column!r}; {hint}")
    found = getattr(row, column) if inner == column else row.details.get(inner)
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def _default_y(rows: Sequence[SweepRow]) -> str:
    for objective, shown in (
        ("objective_span_s", "objective_span_s"), ("objective_j", "energy_j"), ("objective_error", "objective_error"),
        ("objective_cost", "objective_cost"),
    ):  # fmt: skip
        if any(_value(row, objective) is not None for row in rows):
            return shown
    return "makespan_s"


def _default_x(rows: Sequence[SweepRow]) -> str:
    """The swept field with the most values, of those whose values are all numbers if there are any."""
    if not _names(rows):
        raise InputError("there is nothing to draw over: no field of the sweep is a list")
    values = {
        name: list(dict.fromkeys(row.fields[name] for row in rows if name in row.fields)) for name in _names(rows)
    }
    return max(values, key=lambda name: (_numbers(values[name]) is not None, len(values[name])))


def _numbers(values: Sequence[Field]) -> list[float] | None:
    """The values as numbers of one kind: plain, shares such as 0.5x, sizes, bandwidths or times; None for names."""
    readers: tuple[Callable[[str], float], ...] = (float, _share, parse_bytes, parse_bandwidth, parse_seconds)
    for reader in readers:
        try:
            found = [float(reader(str(value))) for value in values]
        except (ValueError, OverflowError):  # InputError is one, too
            continue
        if all(math.isfinite(value) for value in found):
            return found
    return None


def _share(text: str) -> float:
    if not text.endswith("x"):
        raise ValueError(text)
    return float(text[:-1])


def _x_axis(ax: Axes, name: str, values: Sequence[Field]) -> dict[Field, float]:
    """Label the axis; returns the place of each value on it."""
    ax.set_xlabel(axis_label(name))
    numbers = _numbers(values)
    if numbers is None:
        ax.set_xticks(range(len(values)), [str(value) for value in values], rotation=30, ha="right")
        return {value: float(place) for place, value in enumerate(values)}
    if min(numbers) > 0 and max(numbers) / min(numbers) > _LOG_SPAN:
        ax.set_xscale("log")
        ax.minorticks_off()
    if len(values) <= _MOST_TICKS or not all(isinstance(value, (int, float)) for value in values):
        ticks = sorted(zip(numbers, map(str, values), strict=True))[:: -(-len(values) // _MOST_TICKS)]
        ax.set_xticks([at for at, _ in ticks], [label for _, label in ticks])
    return dict(zip(values, numbers, strict=True))


def _y_axis(ax: Axes, name: str, values: Sequence[float]) -> float:
    """Label the axis; returns what its unit is worth."""
    most, least = max(values), min(values)
    title, scale, unit = name.removeprefix("details."), 1.0, ""
    for ending, scale_of in (("_s", time_scale), ("_bytes", bytes_scale)):
        if title.endswith(ending):
            title, (scale, unit) = title.removesuffix(ending), scale_of(most)
    if title.endswith("_j"):
        title, unit = title.removesuffix("_j"), "J"
    ax.set_ylabel(axis_label(title, unit))
    if least > 0 and most / least > _LOG_SPAN:
        from matplotlib.ticker import LogLocator, StrMethodFormatter

        ax.set_yscale("log")
        ax.minorticks_off()
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if most / least < _MANY_DECADES else (1.0,)))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        ax.ticklabel_format(axis="y", useOffset=False)
    return scale
