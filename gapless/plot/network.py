"""The topology with the load of each link: ranks and arrows, or a matrix where arrows would be a tangle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.checker.inspection import known_events
from gapless.ir.schedule import Schedule
from gapless.plot.style import GREY, PALE, amounts, new_axes, plain
from gapless.topologies.topology import Topology
from gapless.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

__all__ = ["plot_topology"]

MOST_RANKS, MOST_ARROWS = 32, 160
"""With more ranks, or more links in use, the load is drawn as a matrix."""

_BEND = 0.16
"""How far a link swings out, by its length, so that it can be distinguished from the one back."""

Floats = NDArray[np.float64]


def plot_topology(schedule: Schedule, ax: Axes | None = None, device_names: Sequence[str] = ()) -> Axes:
    """Draw the machine with the share of the makespan that each link is in use, as replayed; returns the axes.

    `ax`: the matplotlib axes to draw on, None for a figure of its own. Ranks of a node stand in a circle; links that
    nothing uses are pale. Above `MOST_RANKS` ranks or `MOST_ARROWS` links in use it is a matrix, from row to column.
    Of parallel links the busiest counts.
    """
    topology = schedule.topology
    busy, makespan_s = _link_use(schedule)
    names = [plain(name) for name in device_names] or [str(device) for device in range(topology.device_count)]
    is_matrix = topology.device_count > MOST_RANKS or int((busy > 0).sum()) > MOST_ARROWS
    ax = ax or (new_axes(7.5, 6.5) if is_matrix else new_axes(8.0, 0.6 + 6.4 * _aspect(topology)))
    draw = _draw_matrix if is_matrix else _draw_arrows
    shown = draw(ax, topology, busy, names)
    bar = ax.figure.colorbar(shown, ax=ax, shrink=0.8, pad=0.02)
    bar.set_label("link in use (% of the makespan)")
    bar.outline.set_visible(False)
    used = f"{int((busy > 0).sum())} of {len(busy)} links in use"
    name = schedule.name or plain(topology.name)
    ax.set_title(f"{name}: {format_seconds(makespan_s)}, {used}", loc="left", fontsize=10)
    return ax


def _link_use(schedule: Schedule) -> tuple[Floats, float]:
    """The share of the makespan that each link is held, and the makespan, as a replay counts them."""
    numbers = known_events(schedule)
    makespan_s = float(schedule.end_s[numbers].max(initial=0.0))
    sends = numbers[schedule.is_transfer[numbers]]
    taken_s = (schedule.end_s - schedule.start_s)[sends]
    held_s = np.bincount(schedule.place[sends], weights=taken_s, minlength=len(schedule.topology.links))
    return np.asarray(held_s / (makespan_s or 1.0)), makespan_s


def _draw_matrix(ax: Axes, topology: Topology, busy: Floats, names: list[str]) -> ScalarMappable:
    from matplotlib.colors import ListedColormap

    count = topology.device_count
    load = np.full((count, count), np.nan)
    np.fmax.at(load, (topology.link_source, topology.link_target), 100 * busy)
    ax.imshow(np.where(np.isnan(load), np.nan, 0.0), cmap=ListedColormap([PALE]), interpolation="nearest")
    used = np.where(load > 0, load, np.nan)
    shown = ax.imshow(used, cmap=amounts(), vmin=0, vmax=100, interpolation="nearest")
    nodes = np.array(topology.node_of_device)
    is_grouped = topology.node_count < topology.device_count  # lines between nodes, not between all ranks
    for edge in np.flatnonzero(np.diff(nodes)) + 0.5 if is_grouped else ():
        ax.axhline(edge, color=GREY, linewidth=0.5)
        ax.axvline(edge, color=GREY, linewidth=0.5)
    step = -(-count // 24)
    ax.set_xticks(range(0, count, step), names[::step], fontsize=7, rotation=90 if _are_long(names) else 0)
    ax.set_yticks(range(0, count, step), names[::step], fontsize=7)
    ax.set(xlabel="to rank", ylabel="from rank")
    ax.spines[:].set_visible(False)
    return shown


def _are_long(names: Sequence[str]) -> bool:
    """Whether names are too long to stand side by side."""
    return max(map(len, names)) > 3


def _draw_arrows(ax: Axes, topology: Topology, busy: Floats, names: list[str]) -> ScalarMappable:
    """Pale links first, then those in use, the busiest on top."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import FancyArrowPatch

    place = _places(topology)
    shade = amounts()
    for link in np.argsort(busy, kind="stable").tolist():
        ends = topology.links[link].source, topology.links[link].target
        load = 100 * float(busy[link])
        ax.add_patch(FancyArrowPatch(
            *(tuple(place[end]) for end in ends), connectionstyle=f"arc3,rad={_BEND}",
            arrowstyle="-|>" if load else "-", mutation_scale=9, shrinkA=9, shrinkB=9,
            color=shade(load / 100) if load else PALE, linewidth=1.0 + 0.02 * load if load else 0.6,
        ))  # fmt: skip
    if not _are_long(names):
        ax.scatter(place[:, 0], place[:, 1], s=210, color="white", edgecolors=GREY, zorder=3)
    box = {"boxstyle": "round", "facecolor": "white", "edgecolor": GREY} if _are_long(names) else None
    for rank, (x, y) in enumerate(place.tolist()):
        ax.text(x, y, names[rank], ha="center", va="center", fontsize=7.5, bbox=box, zorder=4)
    ax.set_aspect("equal", anchor="W")  # below the beginning of its title
    ax.margins(0.08)
    ax.axis("off")
    return ScalarMappable(Normalize(0, 100), shade)


def _grid(topology: Topology) -> tuple[int, int]:
    """Columns and rows in which groups of ranks stand: one group a node, or all in one if nodes have a rank each."""
    groups = topology.node_count if topology.node_count < topology.device_count else 1
    columns = math.ceil(math.sqrt(groups)) if groups > 3 else groups
    return columns, -(-groups // columns)


def _aspect(topology: Topology) -> float:
    columns, rows = _grid(topology)
    return rows / columns if columns > 1 else 0.8


def _places(topology: Topology) -> Floats:
    """Where each device stands, shape (devices, 2)."""
    columns, rows = _grid(topology)
    is_grouped = columns * rows > 1
    place = np.zeros((topology.device_count, 2))
    for group in range(topology.node_count if is_grouped else 1):
        ranks = topology.ranks_of_node(group) if is_grouped else list(range(topology.device_count))
        angle = math.pi / 2 - 2 * math.pi * np.arange(len(ranks)) / max(len(ranks), 1)
        middle = 2.9 * np.array([group % columns, -(group // columns)])
        place[ranks] = middle + np.stack([np.cos(angle), np.sin(angle)], axis=1) * (len(ranks) > 1)
    return place
