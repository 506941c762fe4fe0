"""Pictures: modes over layers and epochs, and the front of data and error with the rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.plot.style import BLUE, GREY, ORANGE, PALETTE, amounts, check_plot, new_axes, plain
from gapless.text import described

__all__ = ["draw_front", "draw_modes"]

_MOST_NAMES = 60
_MILLION = 1e6


def draw_modes(plan: SavedPlan, ax: Any = None) -> Any:
    """Draw the mode of each layer in each epoch, the darker the more is sent; returns the axes."""
    phases, layers, modes = plan.details.get("phases"), plan.problem.get("layers"), plan.problem.get("modes")
    if not (isinstance(phases, list) and phases and isinstance(layers, list) and isinstance(modes, list)):
        raise InputError("modes: the plan doesn't say its phases, layers and modes")
    rows = [[modes.index(mode) for mode in phase["modes"]] for phase in phases for _ in range(phase["epochs"])]
    grid = np.array(rows).T
    ax = new_axes(7.0, 1.4 + 0.16 * min(len(layers), _MOST_NAMES)) if ax is None else ax
    colours = amounts().resampled(max(len(modes), 2))
    drawn = ax.imshow(grid, aspect="auto", cmap=colours, vmin=-0.5, vmax=max(len(modes), 2) - 0.5, interpolation="none")
    bar = ax.figure.colorbar(drawn, ax=ax, ticks=range(len(modes)))
    bar.ax.set_yticklabels([plain(str(mode)) for mode in modes], fontsize=8)
    if len(layers) <= _MOST_NAMES:
        ax.set_yticks(range(len(layers)), [plain(str(layer)) for layer in layers], fontsize=6)
    ax.set_xlabel("epoch; layers stand in the order in which their gradients are ready")
    ax.set_ylabel("layer")
    error = described("objective_error", plan.claim.get("objective_error"))
    ax.set_title(f"{plan.schedule.name}: error {error}", loc="left", fontsize=10)
    return ax


def draw_front(data: Mapping[str, Any]) -> Any:
    """Draw both fronts and a point for each rule; returns the figure."""
    check_plot()
    ax = new_axes(6.5, 4.2)
    for name, title, colour in (("static", "by layer", BLUE), ("epoch", "by layer and epoch", ORANGE)):
        points = data[name]
        ax.plot([row["sent_floats"] / _MILLION for row in points], [row["error"] for row in points], "-o",
                color=colour, markersize=3, label=title)  # fmt: skip
    rest = [colour for colour in PALETTE if colour not in (BLUE, ORANGE)]
    for number, row in enumerate(data["baselines"]):
        is_constant = row["name"].startswith("constant")
        colour = GREY if is_constant else rest[number % len(rest)]
        ax.plot(row["sent_floats"] / _MILLION, row["error"], "s" if is_constant else "D", color=colour, markersize=5,
                label=row["name"])  # fmt: skip
    ax.set(xlabel="sent by a worker (million floats)", ylabel="error")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.3)
    ax.set_title(str(data["trace"]), loc="left", fontsize=9)
    ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax.figure
