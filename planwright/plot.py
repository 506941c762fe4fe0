"""Pictures, with matplotlib, which is imported only here and only when something is drawn: the extra `plot`."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from planwright.errors import InputError
from planwright.io.atomic import check_writable, write_bytes

__all__ = ["TradeoffPoint", "check_plot", "plot_tradeoff", "write_plot"]

_KINDS = ("pdf", "png", "svg")


class TradeoffPoint(Protocol):
    """A budget's share of the memory that a step without saving takes, and the overhead it costs; None is not drawn."""

    @property
    def memory_ratio(self) -> float:
        """The budget, over the peak without saving."""

    @property
    def overhead(self) -> float | None:
        """Of a plan, over the least time (or energy) without a budget."""

    @property
    def overhead_bound(self) -> float | None:
        """No plan has less."""


def check_plot(path: str) -> None:
    """Raise `InputError`, before long work is done for a picture, if it could not be drawn or written."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("plotting needs matplotlib, which is not installed; pip install 'planwright[plot]'")
    if Path(path).suffix[1:] not in _KINDS:
        raise InputError(f"a plot's file must end in .pdf, .png or .svg, got {path!r}")
    check_writable(path)


def plot_tradeoff(rows: Sequence[TradeoffPoint], ax: Any = None, cost: str = "compute") -> Any:
    """Draw overhead against memory ratio, with the proven bound as a second line; returns the axes.

    As Figure 4.4 of MONeT's thesis. `ax`: the matplotlib axes to draw on, None for a figure of its own. `cost`: what
    the overhead is of, for the label.
    """
    if ax is None:
        from matplotlib.figure import Figure  # not pyplot: no window, and no state that outlives the call

        ax = Figure(figsize=(5, 3.5), layout="constrained").add_subplot()
    for title, style in (("overhead", "o-"), ("overhead_bound", "--")):
        points = sorted((row.memory_ratio, getattr(row, title)) for row in rows if getattr(row, title) is not None)
        label = "plan" if title == "overhead" else "lower bound"
        ax.plot([x for x, _ in points], [100 * y for _, y in points], style, label=label)
    ax.set_xlabel("memory ratio")
    ax.set_ylabel(f"{cost} overhead (%)")
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.3)
    ax.legend()
    return ax


def write_plot(path: str, rows: Sequence[TradeoffPoint], cost: str = "compute") -> None:
    """Draw the trade-off into a file, whole or not at all; its ending tells the kind."""
    data = io.BytesIO()
    plot_tradeoff(rows, cost=cost).figure.savefig(data, format=Path(path).suffix[1:], dpi=200)
    write_bytes(path, data.getvalue())
