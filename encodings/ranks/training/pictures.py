"""The picture of what controllers saw and did: norms over epochs, the phases that the rule takes for critical, and how
each layer was sent in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.encodings.ranks.training.variants import BATCHES
from gapless.plot.style import BLUE, GREY, ORANGE, VERMILION, amounts, check_plot, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["draw_regimes"]

_SHADE = 0.4


def draw_regimes(data: Mapping[str, Any]) -> Figure | SubFigure:
    """Draw each run of `gapless run ranks` that a controller decided. Above: each layer's norm as a share of its
    largest, the whole model's, and behind them, the darker the more layers, the epochs that are critical by the rule.
    Below: the mode of each layer by epoch, with a dot where its phase is critical; or the batch of the whole model.
    """
    check_plot()
    from matplotlib.figure import Figure

    runs = [row for row in data["rows"] if row["norms"]]
    figure = Figure(figsize=(1.5 + 4.5 * len(runs), 6.0), layout="constrained")
    grid = figure.subplots(2, len(runs), squeeze=False, sharex=True)
    decays = [epoch for epoch, (old, new) in enumerate(pairwise(data["learning_rates"]), start=1) if new < old]
    for column, row in enumerate(runs):
        above, below = grid[:, column]
        _draw_norms(above, row, decays)
        _draw_sent(below, row, data["modes"])
        above.set_title(row["name"], loc="left", fontsize=10)
        below.set_xlabel("epoch")
    grid[0, 0].set_ylabel("norm of the mean gradient\n(share of its largest)")
    grid[0, -1].legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _draw_norms(ax: Axes, row: Mapping[str, Any], decays: Sequence[int]) -> None:
    norms, critical = np.array(row["norms"]), _critical(row)
    for epoch, share in enumerate(critical.mean(axis=1).tolist()):
        ax.axvspan(epoch - 0.5, epoch + 0.5, color=ORANGE, alpha=_SHADE * share, linewidth=0, gid=f"critical-{epoch}")
    for number, column in enumerate(norms.T):
        label = "a layer" if number == 0 else None
        ax.plot(column / (column.max() or 1.0), color=GREY, linewidth=0.7, alpha=0.7, label=label)
    whole = np.linalg.norm(norms, axis=1)
    ax.plot(whole / (whole.max() or 1.0), "-o", color=BLUE, markersize=3, label="the whole model")
    for number, epoch in enumerate(decays):
        label = "the learning rate falls" if number == 0 else None
        ax.axvline(epoch - 0.5, color=VERMILION, linestyle="--", linewidth=1, label=label)
    ax.fill_between([], [], color=ORANGE, alpha=_SHADE, label="critical in all layers")
    ax.set(ylim=(0, 1.05), xlim=(-0.5, len(norms) - 0.5))
    finish(ax)


def _draw_sent(ax: Axes, row: Mapping[str, Any], by_cost: Sequence[str]) -> None:
    """How each layer was sent, from the bottom up, the darker the more."""
    from matplotlib.patches import Patch

    names, sent = list(by_cost), row["modes"]
    if row["name"] == BATCHES:
        names = ["large batch", "small batch"]
        sent = [[names[steps == max(row["steps"])]] for steps in row["steps"]]
    table = np.array([[names.index(name) for name in modes] for modes in sent])
    shades = amounts().resampled(max(len(names), 2))
    ax.imshow(table.T, aspect="auto", origin="lower", cmap=shades, vmin=0, vmax=max(len(names) - 1, 1),
              interpolation="nearest")  # fmt: skip
    epochs, layers = _critical(row).nonzero()
    ax.plot(epochs, layers, ".", color=ORANGE, markersize=4, gid=f"dots-{row['name']}", label="critical by the rule")
    handles = [Patch(color=shades(number), label=name) for number, name in enumerate(names)]
    ax.legend(handles=[*handles, *ax.lines], fontsize=8, frameon=False, loc="upper center", ncols=3,
              bbox_to_anchor=(0.5, -0.2))  # fmt: skip
    ax.set_ylabel("the whole model" if row["name"] == BATCHES else "layer")
    ax.set_yticks([])


def _critical(row: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """By epoch and layer; of batches by epoch alone, shape (E, 1)."""
    return np.array(row["critical"], dtype=bool)
