"""What people see of a plan: what `show` prints, and pictures.

Text: each rank's region and load, and other allreduces beside it. Pictures: what each rank receives before and after,
where in the gradient entries lie, and what advice answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.checker import Report
from gapless.encodings.oktopk.decision import SparseDecision
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.plot.style import BLUE, GREY, ORANGE, PALE, VERMILION, check_plot, finish, new_axes, time_scale
from gapless.report.text import table
from gapless.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["draw_advice", "draw_density", "draw_loads", "render"]

MOST_LINES = 64

_FEW = 10
"""Selected entries, up to which a logarithmic axis would show nothing."""


def render(plan: SavedPlan, report: Report) -> str:
    """A line a region, load and words beside others, and their times."""
    details, loads = plan.details, plan.details.get("loads")
    if not (plan.decision or "cuts" in details) or not isinstance(loads, Mapping):
        return "the plan does not say its regions"
    decision = SparseDecision.of(plan)
    cuts, owners = decision.cuts, decision.owners
    rows = [["region", "first entry", "entries", "owner", "receives", "averaged", "even"]]
    for region, owner in enumerate(owners[:MOST_LINES]):
        received = [f"{loads[name][owner]:,}" for name in ("plan", "averaged", "even")]
        width = cuts[region + 1] - cuts[region]
        rows.append([str(region), f"{cuts[region]:,}", f"{width:,}", str(owner), *received])
    lines = [table(rows), _ratios(details), _words(details, report)]
    if len(owners) > MOST_LINES:
        lines.insert(1, f"... and {len(owners) - MOST_LINES} regions more")
    balancing = details.get("balancing")
    if isinstance(balancing, Mapping):
        balanced, direct = (format_seconds(balancing[name]) for name in ("balanced_s", "direct_s"))
        held = f"the rank with most sums has {balancing['largest_over_mean']:.2f} times the mean"
        lines.append(f"{held}: {balanced} with balancing, {direct} without")
    drift = details.get("drift")
    if isinstance(drift, Mapping) and drift.get("renewal_steps"):
        lines.append(f"new boundaries every {drift['renewal_steps']} steps (`gapless advise sparse` says why)")
    return "\n\n".join(lines)


def _ratios(details: Mapping[str, Any]) -> str:
    """The busiest owner's load over the ideal."""
    recorded, later = details["recorded_ratio"], details.get("later_ratio")
    rows = [["received over k (P - 1) / P", "recorded", *(["later, mean", "later, worst"] if later else [])]]
    for name, ratio in recorded.items():
        rows.append([name, f"{ratio:.3f}", *([f"{later[name][k]:.3f}" for k in ("mean", "worst")] if later else [])])
    return table(rows)


def _words(details: Mapping[str, Any], report: Report) -> str:
    times_s = {"plan": report.makespan_s, **details["baselines_s"]}
    rows = [["", "words of the busiest rank", "time"]]
    for name, words in details["words"].items():
        rows.append([name, f"{words:,.0f}", format_seconds(times_s[name]) if name in times_s else ""])
    return table(rows)


def draw_loads(plan: SavedPlan, ax: Axes | None = None) -> Axes:
    """Entries that each rank receives in phase 1: even regions, averaged boundaries, this plan; returns the axes."""
    loads = _details(plan, "loads")
    ranks = len(loads["plan"])
    ax = ax or new_axes(min(max(6.0, 0.3 * ranks + 3), 11.0), 3.4)
    for place, (name, colour) in enumerate((("even", PALE), ("averaged", ORANGE), ("plan", BLUE))):
        ax.bar(np.arange(ranks) + 0.28 * (place - 1), loads[name], width=0.28, color=colour, label=name)
    ax.axhline(loads["ideal"], color=GREY, linewidth=0.9, linestyle="--", label="k (P - 1) / P")
    ax.set_xticks(range(0, ranks, -(-ranks // 32)))
    ax.set_xlabel("rank")
    ax.set_ylabel("entries received")
    ax.set_title(f"{plan.schedule.name}: what each rank receives in phase 1", loc="left", fontsize=10)
    return finish(ax, legend="inside")


def draw_density(plan: SavedPlan, ax: Axes | None = None) -> Axes:
    """Selected entries over the gradient, with the plan's boundaries as lines; returns the axes."""
    histogram, cuts = _details(plan, "histogram"), SparseDecision.of(plan).cuts
    edges, counts = np.array(histogram["edges"]), np.array(histogram["entries"])
    ax = ax or new_axes(8.0, 3.2)
    ax.stairs(counts, edges, color=BLUE, fill=True, alpha=0.6)
    for cut in cuts[1:-1]:
        ax.axvline(cut, color=VERMILION, linewidth=0.7)
    ax.set_xlim(edges[0], edges[-1])
    if counts.max(initial=0) > _FEW:
        ax.set_yscale("symlog")
    else:
        from matplotlib.ticker import MaxNLocator

        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("entry of the gradient")
    ax.set_ylabel("selected, all ranks")
    ax.set_title(f"{plan.schedule.name}: selected entries, boundaries of regions", loc="left", fontsize=10)
    return finish(ax)


def _details(plan: SavedPlan, name: str) -> Mapping[str, Any]:
    found = plan.details.get(name)
    if not isinstance(found, Mapping):
        raise InputError(f"plan: does not say its {name}; solve it again")
    return found


def draw_advice(data: Mapping[str, Any]) -> Figure | SubFigure:
    """Time by density, of sparse allreduces and of the dense ring; returns the figure."""
    check_plot()
    rows, ax = data["rows"], new_axes(6.5, 4.0)
    scale_s, unit = time_scale(max(row["topka_s"] or row["sparse_s"] for row in rows))
    densities = [row["density"] for row in rows]
    for name, colour, label in (
        ("sparse_s", BLUE, "planned"), ("averaged_s", ORANGE, "averaged boundaries"), ("topka_s", GREY, "TopkA"),
    ):  # fmt: skip
        if all(row[name] is not None for row in rows):
            ax.plot(
                densities, [row[name] / scale_s for row in rows], color=colour, marker="o", markersize=3, label=label
            )
    if data["dense_s"] is not None:
        ax.axhline(data["dense_s"] / scale_s, color=VERMILION, linewidth=0.9, label="dense ring")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("density")
    ax.set_ylabel(f"time of an allreduce ({unit})")
    return finish(ax, legend="inside").figure
