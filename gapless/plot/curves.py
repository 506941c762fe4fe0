"""Curves: overhead against memory of a sweep, and incumbent and bound of a solve over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Protocol

from gapless.anytime.convergence import Convergence
from gapless.errors import InputError
from gapless.plot.style import BLUE, GREEN, ORANGE, axis_label, finish, new_axes, save, time_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["TradeoffPoint", "plot_convergence", "plot_tradeoff", "write_plot"]


_METHOD_COLOURS = (BLUE, GREEN, "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:gray", "tab:olive", "tab:cyan")
"""Of the curves of methods, the system's own first; the bound has the colour that is left."""


class TradeoffPoint(Protocol):
    """A budget's share of the memory that a step without saving takes, and the overhead it costs; None is not drawn."""

    @property
    def memory_ratio(self) -> float:
        """The budget, over the peak without saving."""

    @property
    def method(self) -> str:
        """What decided; each has a curve."""

    @property
    def overhead(self) -> float | None:
        """Of a plan, over the least time (or energy) without a budget."""

    @property
    def overhead_bound(self) -> float | None:
        """No plan has less."""


def plot_tradeoff(rows: Sequence[TradeoffPoint], ax: Axes | None = None, cost: str = "compute") -> Axes:
    """Draw overhead against memory ratio, a line for each method and one for the proven bound; returns the axes.

    `ax`: the matplotlib axes to draw on, None for a figure of its own. `cost`: what the overhead is of, for the label.
    Raises `InputError` for fewer than two rows with an overhead: they are no curve.
    """
    count = sum(row.overhead is not None for row in rows)
    if count < 2:
        raise InputError(f"a trade-off curve needs two rows with an overhead, got {count}; draw the plan instead")
    ax = ax or new_axes(5.0, 3.5)
    methods = list(dict.fromkeys(row.method for row in rows))
    ax.set_prop_cycle(color=[*islice(cycle(_METHOD_COLOURS), len(methods)), ORANGE])
    for method in methods:
        points = sorted(
            (row.memory_ratio, row.overhead) for row in rows if row.method == method and row.overhead is not None
        )
        label = "plan" if len(methods) == 1 else method
        ax.plot([x for x, _ in points], [100 * y for _, y in points], "o-", label=label)
    bounds = sorted({(row.memory_ratio, row.overhead_bound) for row in rows if row.overhead_bound is not None})
    if bounds:
        ax.plot([x for x, _ in bounds], [100 * y for _, y in bounds], "--", label="lower bound")
    ax.set_xlabel("memory ratio")
    ax.set_ylabel(f"{cost} overhead (%)")
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.3)
    ax.legend()
    return ax


def write_plot(path: str, rows: Sequence[TradeoffPoint], cost: str = "compute") -> None:
    """Draw the trade-off into a file, whole or not at all; its ending says the kind."""
    save(plot_tradeoff(rows, cost=cost).figure, path)


def plot_convergence(convergence: Convergence, ax: Axes | None = None) -> Axes:
    """Draw incumbent and bound over the time of the solve, the gap between them shaded; returns the axes.

    `ax`: the matplotlib axes to draw on, None for a figure of its own.
    """
    ax = ax or new_axes(6.5, 3.5)
    wall_s = convergence.wall_s
    known = [value for value in (*convergence.incumbent, *convergence.bound) if value is not None]
    titles = {"s": "objective", "span_s": "span", "j": "energy", "error": "error", "cost": "cost"}
    title, unit = titles[convergence.unit], "J" if convergence.unit == "j" else ""
    scale, unit = time_scale(max(known, default=0.0)) if convergence.unit.endswith("s") else (1.0, unit)
    for label, values, colour, style in (
        ("incumbent", convergence.incumbent, BLUE, "-"),
        ("bound of the question", convergence.bound, ORANGE, "--"),
    ):
        points = [(at, value / scale) for at, value in zip(wall_s, values, strict=True) if value is not None]
        if points:  # with markers: a series of one report would be no line
            x, y = zip(*points, strict=True)
            ax.plot(
                x, y, style, drawstyle="steps-post", color=colour, marker="o", markersize=3.5, label=label,
                clip_on=False,
            )  # fmt: skip
    both = [
        (at, low / scale, high / scale)
        for at, low, high in zip(wall_s, convergence.bound, convergence.incumbent, strict=True)
        if low is not None and high is not None
    ]
    if both:
        x_both, low_both, high_both = zip(*both, strict=True)
        ax.fill_between(x_both, low_both, high_both, step="post", color=GREEN, alpha=0.12, linewidth=0, label="gap")
    ax.set(xlabel="time of the solve (s)", ylabel=axis_label(title, unit))
    ax.set_xlim(left=0.0)
    ax.ticklabel_format(axis="y", useOffset=False)
    return finish(ax, grid=True, legend="inside")
