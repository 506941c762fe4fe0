"""The Gantt chart of links and streams: bars where they can be distinguished, shades of how busy a row is elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.ir.schedule import Schedule
from gapless.plot.lanes import (
    AGAIN,
    BETWEEN_NODES,
    IN_NODE,
    LINK,
    REDUCING,
    Lanes,
    busiest,
    by_device,
    joined,
    lanes_of,
    resource_lanes_of,
    utilisation,
)
from gapless.plot.style import (
    BLUE,
    BROWN,
    GREEN,
    ORANGE,
    PALETTE,
    PURPLE,
    SKY,
    VERMILION,
    finish,
    is_pale,
    legend_above,
    new_axes,
    plain,
    time_scale,
)  # fmt: skip
from gapless.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["kind_colours", "plot_gantt", "plot_resources"]

MOST_LANES = 80
"""With more links and engines than this, a row is a device."""
MOST_BARS = 200
"""With more bars than this in any row, rows are shaded by how busy they are."""
MOST_ROWS = 96
SLICES = 1200

_WIDTH_IN = 10.0
_NARROW = 1 / 250
"""Bars of less than this share of the time are joined where they touch."""
_EDGED = 1 / 100
"""Narrower bars have no white edge: it would make their colour pale."""
_LETTER = 0.0085
"""The share of the width that a letter takes."""
_STRIPS = 24
"""A shaded row is so many pixels high, which two, three, four, six and eight kinds share evenly."""

_COLOURS = {
    "forward": BLUE, "backward": GREEN, "encode": ORANGE, "decode": PURPLE, "collective": VERMILION, "compute": BLUE,
    IN_NODE: BLUE, BETWEEN_NODES: ORANGE, REDUCING: VERMILION, LINK: SKY, AGAIN: BROWN, "gather": SKY,
    "scatter": ORANGE,
}  # fmt: skip
"""The colours of well-known kinds, the same in every picture; others take what is left of the palette."""


def plot_gantt(
    schedule: Schedule, ax: Axes | None = None, device_names: Sequence[str] = (), until_s: float = 0.0
) -> Axes:
    """Draw when each link and each stream is busy, and with what; returns the axes.

    `ax`: the matplotlib axes to draw on, None for a figure of its own. `device_names`: by device, numbers if empty.
    `until_s`: how far the axis goes at least.
    Up to `MOST_LANES` links and streams have a row each, with a bar an event. With more, the links of a device share a
    row, and so do its streams; and then, or where a row would have more than `MOST_BARS` bars, a row has a strip for
    each kind of its events, paler the less of the time there is any of that kind: no number of events makes a
    black block, and no frequent kind hides a rare one, such as the sends of a NIC. Links and streams that nothing uses
    are left out.
    """
    lanes = lanes_of(schedule, device_names)
    is_by_device = len(lanes.names) > MOST_LANES
    if is_by_device:
        lanes = by_device(lanes, device_names, MOST_ROWS)
    name = f"{schedule.name}: {format_seconds(lanes.span_s)}"
    return _draw(replace(lanes, until_s=until_s), ax, is_by_device, name)


def plot_resources(schedule: Schedule, ax: Axes | None = None, device_names: Sequence[str] = ()) -> Axes:
    """Draw when each exclusive resource (a switch's side, a NIC, a rail) is held, and for what; returns the axes.

    `ax`: the matplotlib axes to draw on, None for a figure of its own. `device_names` is not used: resources have names
    of their own. Beside each stands the share of the makespan in which it is held: what limits a collective is near
    100 %. Of more than `MOST_ROWS` resources the busiest are drawn; rows of many events are shaded as `plot_gantt`'s.
    """
    every = resource_lanes_of(schedule)
    shown = busiest(every, MOST_ROWS)
    held_s = np.bincount(shown.row, weights=shown.end_s - shown.start_s, minlength=len(shown.names))
    shares = np.minimum(100 * held_s / (every.span_s or 1.0), 100.0)
    names = tuple(f"{name}, {_percent(share)}" for name, share in zip(shown.names, shares.tolist(), strict=True))
    left_out = len(every.names) - len(names)
    title = f", the {len(names)} busiest of {len(every.names)} resources" if left_out else ""
    name = f"{schedule.name}: {format_seconds(every.span_s)}{title}"
    return _draw(replace(shown, names=names), ax, len(names) > MOST_LANES, name)


def _percent(share: float) -> str:
    return "< 1 %" if 0 < share < 1 else f"{share:.0f} %"


def _draw(lanes: Lanes, ax: Axes | None, is_dense: bool, title: str) -> Axes:
    """Bars, or shades where there would be too many; `is_dense`: the rows are many."""
    bars = joined(lanes, _NARROW * lanes.span_s)
    is_shaded = is_dense or int(np.bincount(bars.row).max(initial=0)) > MOST_BARS
    ax = ax or new_axes(_WIDTH_IN, _height_in(len(lanes.names), is_dense))
    scale_s, unit = time_scale(lanes.span_s)
    if len(lanes.row):
        (_draw_shades if is_shaded else _draw_bars)(ax, lanes if is_shaded else bars, scale_s)
    _draw_frame(ax, lanes, scale_s)
    ax.set_xlabel(f"time ({unit})" + (", a strip a kind, paler where it is idle in between" if is_shaded else ""))
    ax.set_title(title, loc="left", fontsize=10)
    return ax


def kind_colours(kinds: Sequence[str]) -> list[str]:
    """A colour for each kind, no two alike while the palette lasts."""
    wanted = [_COLOURS.get(kind) for kind in kinds]
    free = [colour for colour in PALETTE if colour not in wanted]
    chosen: list[str] = []
    for colour in wanted:
        is_taken = colour is None or colour in chosen
        chosen.append(free.pop(0) if is_taken and free else colour or PALETTE[-1])
    return chosen


def _height_in(rows: int, is_dense: bool) -> float:
    return 1.3 + (0.12 if is_dense else 0.16 if rows > 24 else 0.22) * max(rows, 3)


def _draw_bars(ax: Axes, bars: Lanes, scale_s: float) -> None:
    """A bar an event, with its name where there is room for it."""
    from matplotlib.collections import PolyCollection

    span_s, colours = bars.span_s, kind_colours(bars.kinds)
    wide = bars.end_s - bars.start_s >= _EDGED * span_s
    for kind in range(len(bars.kinds)):
        for is_wide in (True, False):  # a narrow bar needs an edge of its own colour, so that it is seen at all
            rows = np.flatnonzero((bars.kind == kind) & (wide == is_wide))
            left, right = bars.start_s[rows] / scale_s, bars.end_s[rows] / scale_s
            low, high = bars.row[rows] - 0.4, bars.row[rows] + 0.4
            corners = np.stack([left, low, left, high, right, high, right, low], axis=1).reshape(-1, 4, 2)
            edge = "white" if is_wide else colours[kind]
            ax.add_collection(PolyCollection(list(corners), facecolors=colours[kind], edgecolors=edge, linewidths=0.5))
    _write_names(ax, bars, colours, scale_s)


def _write_names(ax: Axes, bars: Lanes, colours: Sequence[str], scale_s: float) -> None:
    """The name of each event whose bar has room for it."""
    for k, text in enumerate(bars.label):
        share = (bars.end_s[k] - bars.start_s[k]) / bars.span_s
        if text and share > _LETTER * (len(text) + 1):
            x, y = (bars.start_s[k] + bars.end_s[k]) / 2 / scale_s, bars.row[k]
            colour = "black" if is_pale(colours[bars.kind[k]]) else "white"
            ax.text(x, y, plain(text), ha="center", va="center", fontsize=6.5, color=colour, clip_on=True)


def _draw_shades(ax: Axes, lanes: Lanes, scale_s: float) -> None:
    """Each row has a strip for each kind that it has, in the kind's colour, paler the more of the time it is idle."""
    shades = _shades(utilisation(lanes, SLICES), lanes)
    extent = (0.0, lanes.span_s / scale_s, len(lanes.names) - 0.5, -0.5)
    ax.imshow(shades, aspect="auto", interpolation="nearest", extent=extent)
    ax.hlines(np.arange(1, len(lanes.names)) - 0.5, *extent[:2], color="white", linewidth=0.8)


def _shades(busy: NDArray[np.float64], lanes: Lanes) -> NDArray[np.float64]:
    """Colours, shape (rows * `_STRIPS`, slices, 3)."""
    from matplotlib.colors import to_rgb

    colours = np.array([to_rgb(colour) for colour in kind_colours(lanes.kinds)])
    has = np.moveaxis(busy, 1, 0).max(axis=2, initial=0.0) > 0.0
    strips = np.concatenate([_strips(np.flatnonzero(row)) for row in has])  # the kind of each
    rows = np.repeat(np.arange(len(lanes.names)), _STRIPS)
    of_strip = busy[strips, rows]
    depth = np.where(of_strip > 1e-9, 0.25 + 0.75 * of_strip, 0.0)[:, :, None]
    return np.asarray(1.0 - depth * (1.0 - colours[strips][:, None, :]))


def _strips(kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """The kind of each of a row's `_STRIPS` strips: its kinds, from the top, in equal shares."""
    return np.asarray(kinds[np.arange(_STRIPS) * len(kinds) // _STRIPS])


def _draw_frame(ax: Axes, lanes: Lanes, scale_s: float) -> None:
    """Names of the rows, the time axis, and the legend above."""
    rows = len(lanes.names)
    ax.set_yticks(
        range(rows),
        [plain(name) for name in lanes.names],
        fontsize=8 if rows <= 24 else 6.5 if rows <= MOST_LANES else 5.5,
    )
    ax.set_ylim(max(rows, 1) - 0.5, -0.5)
    ax.set_xlim(0.0, lanes.span_s / scale_s or 1.0)
    ax.tick_params(axis="y", length=0)
    named = zip(kind_colours(lanes.kinds), map(plain, lanes.kinds), strict=True)
    legend_above(finish(ax), sorted(named, key=itemgetter(1)))  # by name, so that two pictures read alike
