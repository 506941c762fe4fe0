"""What people see of a plan: its modes by layer, the baselines beside, and the front of bytes against errors."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from gapless.checker import Report
from gapless.encodings.cache.decision import CacheDecision
from gapless.encodings.cache.question import UNIFORM
from gapless.encodings.cache.remarks import remarks
from gapless.io.plan import SavedPlan
from gapless.io.record import Record
from gapless.plot.style import BLUE, GREY, ORANGE, PURPLE, VERMILION, finish, new_axes
from gapless.report.text import table
from gapless.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_front", "render"]


def render(plan: SavedPlan, report: Report) -> str:
    """A line a layer, then the baselines."""
    details = Record(dict(plan.details), "details")
    rows = [["layer", "window", "keys", "values", "bytes", "error"]]
    sizes, errors = details.array("layer_bytes"), details.array("layer_errors")
    for layer, modes in enumerate(CacheDecision.of(plan).layers):
        window = str(modes.window) if modes.window else "all"
        size, error = (details.real(f"layer {layer}", each[layer], 0.0) for each in (sizes, errors))
        rows.append([
            str(layer), window, _counted(modes.keys), _counted(modes.values), format_bytes(size), f"{error:.3g}",
        ])  # fmt: skip
    lines = [["plan", "error", "cache", "step", ""]]
    lines.append(_line(details.text("method"), details, True))
    for name in details.record("baselines").names():
        other = details.record("baselines").record(name)
        lines.append(_line(name, other, other.boolean("fits")))
    return "\n\n".join([table(rows), table(lines), *remarks(plan.details)])


def _counted(names: tuple[str, ...]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(names).most_common())


def _line(name: str, row: Record, fits: bool) -> list[str]:
    size, step_s = format_bytes(row.number("cache_bytes", 0)), format_seconds(row.number("step_s", 0))
    return [name, f"{row.number('error', 0):.4g}", size, step_s, "" if fits else "takes more bytes"]


_COLOURS = {"share": PURPLE, "window": ORANGE, "random": GREY}


def draw_front(plan: SavedPlan, ax: Axes | None = None) -> Axes:
    """Draw the least error within any number of bytes, the baselines beside, and the plan on it; returns the axes."""
    details, ax = Record(dict(plan.details), "details"), ax or new_axes(6.5, 4.0)
    full = details.number("full_bytes", 0)
    pairs = [Record({"pair": each}, "details: front").array("pair") for each in details.array("front")]
    least = [1.0]
    if pairs:  # there was time for them
        points = np.array([[details.real("front", value, 0.0) for value in pair] for pair in pairs])
        ax.plot(100 * points[:, 0] / full, points[:, 1], color=BLUE, label="least error")
        least = points[points[:, 1] > 0, 1].tolist() or least
    beside = details.record("baselines")
    for name in beside.names():
        row = beside.record(name)
        place, error = 100 * row.number("cache_bytes", 0) / full, row.number("error", 0)
        if name in UNIFORM:
            ax.plot(place, error, "o", color=BLUE, markersize=4, mfc="none")
            ax.annotate(name, (place, error), textcoords="offset points", xytext=(5, 4), fontsize=7)
        else:
            ax.plot(place, error, "s", color=_COLOURS[name], markersize=4, mfc="none", label=name)
    error, share = details.number("error", 0), 100 * details.number("cache_bytes", 0) / full
    ax.plot(share, error, "o", color=VERMILION, label=f"plan ({details.text('method')})")
    if pairs:
        ax.set_yscale("symlog", linthresh=max(min(least), 1e-7))
    else:  # the plan alone
        ax.set(xlim=(0.0, 100.0), ylim=(0.0, None))
    ax.set_xlabel("cache, share of the full one (%)")
    ax.set_ylabel(f"{Record(dict(plan.problem), 'problem').text('measure')}, in sum over layers (nats)")
    ax.set_title(
        f"{plan.schedule.name}: {share:.1f} % of the cache at an error of {error:.3g}", loc="left", fontsize=10
    )
    return finish(ax, grid=True, legend="inside")
