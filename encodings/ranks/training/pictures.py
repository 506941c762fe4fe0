"""The picture of a controller's run: norms of gradients over epochs, and which phases it took for critical."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.plot.style import BLUE, GREY, ORANGE, VERMILION, finish, new_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

__all__ = ["draw_regimes"]


def draw_regimes(data: Mapping[str, Any]) -> Figure | SubFigure:
    """Draw accordion's run of `gapless run ranks`: each layer's norm as a share of its largest, the whole model's, and
    behind them, the darker the more layers, the epochs that are sent as in a critical phase.
    """
    row = next(row for row in data["rows"] if row["name"] == "accordion")
    norms, modes = np.array(row["norms"]), row["modes"]
    low = data["modes"][-1]
    ax, epochs = new_axes(7.0, 4.0), np.arange(len(norms))
    for epoch, layers in enumerate(modes):
        share = sum(mode == low for mode in layers) / len(layers)
        ax.axvspan(epoch - 0.5, epoch + 0.5, color=ORANGE, alpha=0.4 * share, linewidth=0, gid=f"critical-{epoch}")
    for number, column in enumerate(norms.T):
        label = "a layer" if number == 0 else None
        ax.plot(epochs, column / (column.max() or 1.0), color=GREY, linewidth=0.7, alpha=0.7, label=label)
    whole = np.linalg.norm(norms, axis=1)
    ax.plot(epochs, whole / (whole.max() or 1.0), "-o", color=BLUE, markersize=3, label="the whole model")
    decays = [epoch for epoch, (old, new) in enumerate(pairwise(data["learning_rates"]), start=1) if new < old]
    for number, epoch in enumerate(decays):
        label = "the learning rate falls" if number == 0 else None
        ax.axvline(epoch - 0.5, color=VERMILION, linestyle="--", linewidth=1, label=label)
    ax.fill_between([], [], color=ORANGE, alpha=0.4, label=f"all layers in {low}")
    ax.set(xlabel="epoch", ylabel="norm of the mean gradient (share of its largest)", ylim=(0, 1.05),
           xlim=(-0.5, len(norms) - 0.5))  # fmt: skip
    return finish(ax, grid=False, legend="beside").figure
