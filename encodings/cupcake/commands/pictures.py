"""Pictures of what `advise` answers, from its plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gapless.encodings.cupcake.commands.compared import Pays
from gapless.encodings.cupcake.commands.what_if import FIGURES
from gapless.plot.style import GREY, PALETTE, check_plot, finish, new_axes, time_scale
from gapless.plot.sweep_curves import plot_sweep
from gapless.profiles.compressors.compressor import ERRORS
from gapless.report.text import described, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["draw_compression", "draw_what_if"]


@dataclass(frozen=True)
class _Point:
    """One measure of a row, as `plot_sweep` takes it."""

    fields: Mapping[str, str | int | float]
    swept: tuple[str, ...]
    details: Mapping[str, float]
    system: str = ""


def draw_what_if(data: Mapping[str, Any]) -> Figure | SubFigure:
    """Draw a figure's measures along its first axis, a curve for each combination of the others; returns the figure."""
    check_plot()
    shown = FIGURES[data["figure"]].shown
    points = list(_points(data["rows"], data["axes"], shown))
    along = data["axes"][0]
    axes = plot_sweep(points, new_axes(6.5, 4.0), words(along), f"details.{_measure(shown)}")
    if along == "bandwidth_bytes_per_s" and FIGURES[data["figure"]].has_crossover:
        _shade_ranges(axes, data["rows"])
    fixed = {"ranks": data["ranks"], "batch": data["batch"]}
    said = [f"{name} {value}" for name, value in fixed.items() if value and name not in data["axes"]]
    axes.set_title(", ".join([data["profile"], data["compressor"], *said]), fontsize=9)
    return axes.figure


def _shade_ranges(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """The ranges of the crossovers, as far as the axis goes."""
    limits = axes.get_xlim()
    least, most = (end(row["bandwidth_bytes_per_s"] for row in rows) for end in (min, max))
    ends_at: dict[str | None, float] = {"never": least, "always": most}
    for low, high in {tuple(_at(end, ends_at) for end in row["range"]) for row in rows}:
        if least <= high and low <= most:
            axes.axvspan(max(low, least), min(high, most), color=GREY, alpha=0.15, linewidth=0)
    axes.plot([], [], color=GREY, alpha=0.3, linewidth=6, label="range of the crossover")
    axes.set_xlim(limits)
    finish(axes, legend="beside")


def _at(end: Pays, ends_at: Mapping[str | None, float]) -> float:
    return float(ends_at.get(end["pays"], end["crossover_bytes_per_s"] or 0.0))


def _points(rows: Sequence[Mapping[str, Any]], axes: Sequence[str], shown: Sequence[str]) -> Iterator[_Point]:
    for row in rows:
        fields = {words(axis): _label(axis, row[axis]) for axis in axes}
        for measure in shown:
            kind = {"gradients": _WORDS[measure]} if len(shown) > 1 else {}
            if row[measure] is not None:  # a ratio that doesn't exist
                yield _Point({**fields, **kind}, (*fields, *kind), {_measure(shown): row[measure]})


_WORDS = {
    "uncompressed_s": "plain", "compressed_s": "compressed", "beside_s": "compressed beside the backward pass",
    "serial_s": "plain, after the backward pass",
}  # fmt: skip


def _measure(shown: Sequence[str]) -> str:
    return "step_s" if len(shown) > 1 else shown[0]


def _label(column: str, value: str | float) -> str | float:
    """What stands at the axis: with its unit, which `plot_sweep` reads."""
    if column.endswith(("_s", "_bytes")):
        return described(column, value)
    return f"{value:g}" if isinstance(value, float) else value


def draw_training(data: Mapping[str, Any]) -> Figure | SubFigure:
    """Draw loss, and held-out accuracy where there is one, against seconds, a curve for each fusion; returns the
    figure.
    """
    check_plot()
    reached = data["time_to_loss"]
    curves = reached["curves"]
    has_accuracy = all(curve["accuracy"] for curve in curves)
    figure = new_axes(9.5 if has_accuracy else 6.5, 4.0).figure
    figure.clear()
    columns = [("seconds", "losses", "loss"), ("looked_s", "accuracy", "held-out accuracy (%)")][: 1 + has_accuracy]
    scale, unit = time_scale(max(curve["seconds"][-1] for curve in curves))
    for (along, what, label), axes in zip(columns, figure.subplots(1, len(columns), squeeze=False)[0], strict=True):
        for curve, colour in zip(curves, PALETTE, strict=False):
            values = [100 * value if what == "accuracy" else value for value in curve[what]]
            axes.plot([at_s / scale for at_s in curve[along]], values, color=colour, label=curve["name"])
        axes.set_xlabel(f"time ({unit})")
        axes.set_ylabel(label)
        if what == "losses":
            axes.axhline(reached["loss"], color=GREY, linestyle="--", linewidth=1)
        finish(axes, legend="beside" if what == columns[-1][1] else "")
    return figure


def draw_compression(data: Mapping[str, Any]) -> Figure | SubFigure:
    """Draw the step of every row as a bar in the colour of its class of error; returns the figure."""
    check_plot()
    rows = data["rows"]
    axes = new_axes(6.5, 1.2 + 0.3 * len(rows))
    scale, unit = time_scale(max(row["iteration_s"] for row in rows))
    places = {error: [place for place, row in enumerate(rows) if row["error"] == error] for error in ERRORS}
    for (error, at), colour in zip(places.items(), PALETTE, strict=False):
        if at:
            axes.barh(at, [rows[place]["iteration_s"] / scale for place in at], color=colour, label=error)
    axes.axvline(data["compute_s"] / scale, color=GREY, linestyle="--", label="a worker alone")
    axes.set_yticks(range(len(rows)), [f"{row['compressor']}, {row['plan']}" for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"step ({unit})")
    batch = f", batch {data['batch']}" if data["batch"] else ""
    axes.set_title(f"{data['profile']}, {data['ranks']} ranks{batch}", fontsize=9)
    return finish(axes, legend="beside").figure
