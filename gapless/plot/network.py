"""The topology with the load of each link: ranks and arrows, or a matrix where arrows would be a tangle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.checker.inspection import known_events
from gapless.ir.schedule import Schedule
from gapless.plot.style import GREY, PALE, amounts, new_axes, plain
from gapless.topologies.topology import Topology
from gapless.units import format_count, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

__all__ = ["plot_topology"]

MOST_RANKS, MOST_ARROWS = 32, 160
"""With more ranks, or more links in use, the load is drawn as a matrix."""

_BENDS = (0.16, -0.22, 0.28, -0.34, 0.4, -0.48, 0.55)
"""How far a link may swing out, by its length, the first that is clear of other ranks. No two are alike but for their
side: a link never lies on the one back."""
_CLEAR = 0.2
"""How near a link may come to a rank that it doesn't join, where ranks of a node stand in a circle of radius 1."""
_NAME_PT, _RADIUS_PT = 7.5, 9.0
"""The letters of a rank's name, and the circle that it stands in."""
_WIDEST_IN, _HIGHEST_IN = 8.0, 6.0
_MARGIN = 0.3
"""Around the ranks, in the same unit."""

Floats = NDArray[np.float64]


def plot_topology(schedule: Schedule, ax: Axes | None = None, device_names: Sequence[str] = ()) -> Axes:
    """Draw the machine with the share of the makespan that each link is in use, as replayed; returns the axes.

    `ax`: the matplotlib axes to draw on, None for a figure of its own. Ranks of a node stand in a circle; links that
    nothing uses are pale, and devices without a link in use are left out. Above `MOST_RANKS` ranks or `MOST_ARROWS`
    links in use it is a matrix, from row to column. Of parallel links the busiest counts. Colours go from none to the
    busiest link.
    """
    topology = schedule.topology
    busy, makespan_s = _link_use(schedule)
    names = [plain(name) for name in device_names] or [str(device) for device in range(topology.device_count)]
    is_matrix = topology.device_count > MOST_RANKS or int((busy > 0).sum()) > MOST_ARROWS
    if is_matrix:
        ax = ax or new_axes(7.5, 6.5)
        shown = _draw_matrix(ax, topology, busy, names)
    else:
        layout = _layout(topology, busy)
        ax = ax or new_axes(*_size_in(layout))
        shown = _draw_arrows(ax, topology, busy, names, layout)
    bar = ax.figure.colorbar(shown, ax=ax, shrink=0.8, pad=0.02)
    bar.set_label("link in use (% of the makespan)", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    used = f"{format_count(int((busy > 0).sum()))} of {format_count(len(busy))} links in use"
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

    joined = _joined(topology, busy)
    names = [names[device] for device in joined]
    count = len(joined)
    load = np.full((topology.device_count, topology.device_count), np.nan)
    np.fmax.at(load, (topology.link_source, topology.link_target), 100 * busy)
    load = load[np.ix_(joined, joined)]
    ax.imshow(np.where(np.isnan(load), np.nan, 0.0), cmap=ListedColormap([PALE]), interpolation="nearest")
    used = np.where(load > 0, load, np.nan)
    shown = ax.imshow(used, cmap=amounts(), vmin=0, vmax=_most(busy), interpolation="nearest")
    nodes = np.array(topology.node_of_device)[joined]
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


def _joined(topology: Topology, busy: Floats) -> list[int]:
    """The devices that a link in use joins, or all if none is in use."""
    used = np.flatnonzero(busy > 0)
    joined = np.union1d(topology.link_source[used], topology.link_target[used])
    return joined.tolist() or list(range(topology.device_count))


def _most(busy: Floats) -> float:
    """Where the scale of colours ends, in percent: at the busiest link."""
    return 100 * float(busy.max(initial=0.0)) or 100.0


def _are_long(names: Sequence[str]) -> bool:
    """Whether names are too long to stand side by side."""
    return max(map(len, names)) > 3


@dataclass(frozen=True)
class _Layout:
    """Where devices stand, shape (devices, 2), NaN for one that isn't drawn; which links are drawn, and how far each
    swings out, shape (links,); `corners`: the lower left and the upper right one.
    """

    place: Floats
    links: NDArray[np.int64]
    bends: Floats
    corners: Floats


def _layout(topology: Topology, busy: Floats) -> _Layout:
    place = _places(topology, busy)
    is_shown = ~np.isnan(place[:, 0])
    links = np.flatnonzero(is_shown[topology.link_source] & is_shown[topology.link_target])
    bends, middle = _bends(topology, place, links)
    ends = np.concatenate([place[is_shown], middle])
    return _Layout(place, links, bends, np.stack([ends.min(axis=0) - _MARGIN, ends.max(axis=0) + _MARGIN]))


def _draw_arrows(ax: Axes, topology: Topology, busy: Floats, names: list[str], layout: _Layout) -> ScalarMappable:
    """Pale links first, then those in use, the busiest on top."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import FancyArrowPatch

    place, links, bends = layout.place, layout.links, layout.bends
    shade, most = amounts(), _most(busy)
    for number in np.argsort(busy[links], kind="stable").tolist():
        link = topology.links[links[number]]
        load, along = 100 * float(busy[links[number]]), np.abs(place[link.target] - place[link.source])
        ax.add_patch(FancyArrowPatch(
            tuple(place[link.source]), tuple(place[link.target]), connectionstyle=f"arc3,rad={bends[number]}",
            arrowstyle="-|>" if load else "-", mutation_scale=9, shrinkA=_inside_pt(names, link.source, along),
            shrinkB=_inside_pt(names, link.target, along),
            color=shade(load / most) if load else PALE, linewidth=1.0 + 2.0 * load / most if load else 0.6,
        ))  # fmt: skip
    if not _are_long(names):
        ax.scatter(place[:, 0], place[:, 1], s=210, color="white", edgecolors=GREY, zorder=3)
    box = {"boxstyle": "round", "facecolor": "white", "edgecolor": GREY} if _are_long(names) else None
    for rank in np.flatnonzero(~np.isnan(place[:, 0])).tolist():
        x, y = place[rank].tolist()
        ax.text(x, y, names[rank], ha="center", va="center", fontsize=_NAME_PT, bbox=box, zorder=4)
    ax.set_aspect("equal", anchor="W")  # below the beginning of its title
    ax.set_xlim(*layout.corners[:, 0])
    ax.set_ylim(*layout.corners[:, 1])
    ax.axis("off")
    return ScalarMappable(Normalize(0, most), shade)


def _inside_pt(names: Sequence[str], rank: int, along: Floats) -> float:
    """How much of a link is hidden by the name of a rank that it ends at, in the direction `along`."""
    if not _are_long(names):
        return _RADIUS_PT
    half = np.array([0.3 * _NAME_PT * len(names[rank]) + 5.0, _RADIUS_PT])
    return float((half / np.maximum(along / np.linalg.norm(along), 1e-9)).min())


def _size_in(layout: _Layout) -> tuple[float, float]:
    """Width and height of a figure that its ranks fill, with a bar of colours on the right and a title above."""
    width, height = np.ptp(layout.corners, axis=0)
    unit_in = min(_WIDEST_IN / width, _HIGHEST_IN / height, 2.4)
    return max(unit_in * float(width) + 1.0, 4.5), max(unit_in * float(height) + 0.7, 2.0)


def _bends(topology: Topology, place: Floats, links: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """How far each link swings out, the first of `_BENDS` that is clear of other ranks, or else the clearest.

    Shape (links,), and where the middle of each then is, shape (links, 2).
    """
    ends = np.stack([topology.link_source[links], topology.link_target[links]])
    source, target = place[ends]
    aside = np.stack([(target - source)[:, 1], -(target - source)[:, 0]], axis=1)
    is_other = ~np.isnan(place[:, 0]) & np.all(np.arange(len(place)) != ends[:, :, None], axis=0)
    room, middles = np.empty((len(_BENDS), len(links))), np.empty((len(_BENDS), len(links), 2))
    for number, bend in enumerate(_BENDS):
        control = (source + target) / 2 + bend * aside
        middles[number] = (source + target) / 4 + control / 2
        nearest = np.full(is_other.shape, np.inf)
        for share in np.linspace(0.05, 0.95, 24):
            points = (1 - share) ** 2 * source + 2 * share * (1 - share) * control + share**2 * target
            np.fmin(nearest, np.linalg.norm(points[:, None] - place, axis=2), out=nearest)
        room[number] = np.where(is_other, nearest, np.inf).min(axis=1)
    is_clear = room >= _CLEAR
    chosen = np.where(is_clear.any(axis=0), is_clear.argmax(axis=0), room.argmax(axis=0))
    return np.array(_BENDS)[chosen], middles[chosen, np.arange(len(links))]


def _places(topology: Topology, busy: Floats) -> Floats:
    """Where each device stands, shape (devices, 2): one circle a node, or one for all if nodes have a rank each.

    NaN for a device that no link in use joins, unless none is in use.
    """
    shown = set(_joined(topology, busy))
    nodes = range(topology.node_count) if topology.node_count < topology.device_count else ()
    every = [topology.ranks_of_node(node) for node in nodes] or [list(range(topology.device_count))]
    groups = [kept for ranks in every if (kept := [rank for rank in ranks if rank in shown])]
    columns = math.ceil(math.sqrt(len(groups))) if len(groups) > 2 else len(groups)
    place = np.full((topology.device_count, 2), np.nan)
    for number, ranks in enumerate(groups):
        begin = math.pi if len(ranks) == 2 else math.pi / 2  # two stand side by side, below a title of some length
        angle = begin - 2 * math.pi * np.arange(len(ranks)) / len(ranks)
        middle = 2.9 * np.array([number % columns, -(number // columns)])
        place[ranks] = middle + np.stack([np.cos(angle), np.sin(angle)], axis=1) * (len(ranks) > 1)
    return place
