"""What people see of a plan: its heads by layer, the baselines beside, the fronts and the heads as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gapless.checker import Report
from gapless.encodings.chai.head_map import map_of
from gapless.encodings.chai.question import LOSS
from gapless.io.plan import SavedPlan
from gapless.io.record import Record
from gapless.plot.style import BLUE, GREY, ORANGE, PALE, PALETTE, PURPLE, VERMILION, finish, is_pale, new_axes
from gapless.report.text import table
from gapless.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_front", "draw_heads", "render"]


def render(plan: SavedPlan, report: Report) -> str:
    """A line a layer, then the baselines."""
    chosen = map_of(plan)
    rows = [["layer", "keys kept", "largest group", "of heads"]]
    details = Record(dict(plan.details), "details")
    rises = details.array("rises", default=None)
    if rises is not None:
        rows[0].append("rise of the loss")
        if len(rises) != len(chosen.kept):
            raise details.fail("rises", f"of {len(chosen.kept)} layers", len(rises))
    for layer, kept in enumerate(chosen.kept):
        _, sizes = np.unique(chosen.representative[layer], return_counts=True)
        shown = ",".join(map(str, kept[:12])) + (",..." if len(kept) > 12 else "")
        rows.append([str(layer), str(len(kept)), str(int(sizes.max())), shown])
        if rises is not None:
            rows[-1].append(f"{details.real(f'rises[{layer}]', rises[layer], 0.0):.4f}")
    lines = [["map", "error", "keys kept", "step"]]
    name = details.text("method")
    error = Record(plan.claim, "claim").number("objective_error")
    lines.append([name, f"{error:.4g}", str(int(chosen.counts.sum())), format_seconds(report.makespan_s)])
    for other in details.record("baselines").names():
        row = details.record("baselines").record(other)
        kept_heads, step_s = row.integer("kept_heads", 1), row.number("step_s", 0)
        lines.append([other, f"{row.number('error', 0):.4g}", str(kept_heads), format_seconds(step_s)])
    return f"{table(rows)}\n\n{table(lines)}"


_COLOURS = {"uniform": ORANGE, "elbow": PURPLE, "random": GREY}
_MOST_LABELS = 36
"""With more heads than this, there is no room for the numbers of those that are used."""


def draw_front(plan: SavedPlan, ax: Axes | None = None) -> Axes:
    """Draw the least error of every saving, the baselines beside, and the plan on it; returns the axes."""
    details = Record(dict(plan.details), "details")
    ax = ax or new_axes(6.5, 4.0)
    saving, error = zip(*_pairs(details, "front"), strict=True)
    ax.plot(100 * np.array(saving), error, color=BLUE, label="least error")
    beside = details.record("baseline_fronts")
    for name in beside.names():
        saving, error = zip(*sorted(_pairs(beside, name)), strict=True)
        ax.plot(100 * np.array(saving), error, ".:", color=_COLOURS.get(name, GREY), label=name)
    asked = Record(dict(plan.problem), "problem")
    claimed = Record(plan.claim, "claim").number("objective_error", 0)
    ax.plot(100 * details.number("saved", 0), claimed, "o", color=VERMILION, label=f"plan ({details.text('method')})")
    ax.set_xlabel("saved of the cache of keys and values (%)")
    measure = asked.text("distance")
    ax.set_ylabel("rise of the loss, in sum over layers" if measure == LOSS else f"error ({measure})")
    ax.set_ylim(bottom=0.0)
    saved, name = details.number("saved"), plan.schedule.name
    ax.set_title(f"{name}: {100 * saved:.1f} % saved at an error of {claimed:.4g}", loc="left", fontsize=10)
    return finish(ax, grid=True, legend="inside")


def _pairs(record: Record, name: str) -> list[tuple[float, float]]:
    pairs = [Record({"pair": each}, f"{record.where}: {name}").array("pair") for each in record.array(name)]
    return [(record.real(name, saving, -np.inf), record.real(name, error, -np.inf)) for saving, error in pairs]


def draw_heads(plan: SavedPlan, ax: Axes | None = None) -> Axes:
    """Draw the heads of each layer, in the colour of the head whose attention they use; returns the axes.

    Heads that keep their own and share it with none are pale. The number is that of the head that is used.
    """
    chosen = map_of(plan)
    layers, heads = chosen.representative.shape
    ax = ax or new_axes(*(max(least, min(11.0, 1.2 + 0.28 * count)) for least, count in ((5.0, heads), (2.5, layers))))
    grid = np.zeros((layers, heads))
    for layer, row in enumerate(chosen.representative.tolist()):
        shared = [head for head in dict.fromkeys(row) if row.count(head) > 1]
        place = {head: 1 + number % (len(PALETTE)) for number, head in enumerate(shared)}
        grid[layer] = [place.get(head, 0) for head in row]
    from matplotlib.colors import ListedColormap
    from matplotlib.ticker import MaxNLocator

    edges = np.arange(heads + 1) - 0.5, np.arange(layers + 1) - 0.5
    ax.pcolormesh(*edges, grid, cmap=ListedColormap([PALE, *PALETTE]), vmin=-0.5, vmax=len(PALETTE) + 0.5,
                  edgecolors="white", linewidth=0.6)  # fmt: skip
    if heads <= _MOST_LABELS:
        for (layer, head), used in np.ndenumerate(chosen.representative):
            ink = "black" if is_pale([PALE, *PALETTE][int(grid[layer, head])]) else "white"
            ax.text(head, layer, str(used), ha="center", va="center", fontsize=7 if heads <= 16 else 5.5, color=ink)
    ax.invert_yaxis()
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlabel("head")
    ax.set_ylabel("layer")
    kept = int(chosen.counts.sum())
    most = max(sum(row.count(head) > 1 for head in set(row)) for row in chosen.representative.tolist())
    repeat = f", and colours repeat after {len(PALETTE)} groups" if most > len(PALETTE) else ""
    heads_kept = "1 head" if kept == 1 else f"{kept} heads"
    said = f"keys of {heads_kept} kept; in a layer, heads of one colour share one's attention{repeat}"
    ax.set_title(f"{plan.schedule.name}: {said}", loc="left", fontsize=10)
    return ax
