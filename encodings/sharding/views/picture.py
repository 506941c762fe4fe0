"""A picture of layouts along a model's graph: by axis of the mesh, what each module's tensors are on its devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from gapless.encodings.sharding.decision import ShardingDecision
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.plot.style import BLUE, GREEN, ORANGE, PALE, PURPLE, SKY, VERMILION, legend_above, new_axes, plain
from gapless.profiles.layouts.layouts import MeshLayouts, NodeLayout, is_partial, split_dimension

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ROWS", "draw_layouts", "kind_of", "stripes"]

ROWS = ("parameters", "forward", "backward")
"""Of each axis of the mesh."""
_WHOLE, _PARTIAL, _LATER = "whole (R)", "sum not made yet (P)", "a later dimension"
_SPLITS = ("batch, or rows (S0)", "columns, heads or tokens (S1)", "third dimension (S2)", "fourth dimension (S3)")
_COLOURS = dict(
    zip((_WHOLE, *_SPLITS, _LATER, _PARTIAL), (PALE, BLUE, ORANGE, GREEN, SKY, PURPLE, VERMILION), strict=True)
)
"""What a part of a layout says, and its colour."""
_VIEWS = ("alias", "view", "_unsafe_view", "t", "transpose", "permute", "detach", "expand", "unsqueeze", "squeeze")
"""Ops that compute nothing: no stripe of their own."""
_BLOCK_IN, _LEAST_WIDTH, _GAP = 0.65, 2.5, 0.3
"""A block's part of the picture, in inches; how many modules wide it is at least; between axes of the mesh."""


def kind_of(part: str) -> str:
    """What a part of a layout says, in the words of the legend."""
    dimension = split_dimension(part)
    if dimension is None:
        return _PARTIAL if is_partial(part) else _WHOLE
    return _SPLITS[dimension] if dimension < len(_SPLITS) else _LATER


def stripes(layouts: MeshLayouts) -> dict[tuple[str, str], list[str]]:
    """Layouts by module, in the order of the graph, and row of `ROWS`: of parameters, and of what ops make."""
    found: dict[tuple[str, str], list[str]] = {}
    for node in layouts.nodes:
        row = _row(node)
        outputs = [layout for layout in node.outputs if layout]
        if row and node.module and outputs:
            found.setdefault((node.module, row), []).append(outputs[0])
    return found


def _row(node: NodeLayout) -> str:
    """The row of a node; empty for what has none."""
    if node.op == "parameter":
        return ROWS[0]
    packet = node.op.removeprefix("aten.").partition(".")[0]
    if "." not in node.op or packet in _VIEWS:
        return ""
    return ROWS[2] if node.is_backward else ROWS[1]


def draw_layouts(plan: SavedPlan, ax: Axes | None = None) -> Axes:
    """Draw how tensors are laid out along each axis of the mesh, a column a module; returns the axes.

    A module has a stripe for each parameter, and for each op that computes, in the order of the graph. Raises
    `InputError` for a plan of an instance without a model, and for one whose layouts name no modules.
    """
    layouts = ShardingDecision.of(plan).layouts
    if layouts is None:
        raise InputError("--kind layouts: the plan has no layouts, as its instance is of no model; draw --kind usage")
    known = stripes(layouts)
    modules = list(dict.fromkeys(module for module, row in known if row != ROWS[0]))
    if not modules:
        raise InputError("--kind layouts: the layouts of the plan name no modules of their model; solve it again")
    blocks = [(name, list(each)) for name, each in groupby(modules, _block)]
    width_of = {module: max(1.0, _LEAST_WIDTH / len(each)) for _, each in blocks for module in each}
    rows = [(axis, row) for axis in range(len(layouts.mesh)) for row in ROWS]
    ax = ax or new_axes(max(7.0, min(16.0, 1.8 + _BLOCK_IN * len(blocks))), 1.6 + 0.42 * len(rows))
    shown = _bars(ax, known, width_of, rows)
    _label(ax, layouts.mesh, [(name, [width_of[module] for module in each]) for name, each in blocks], rows)
    legend_above(ax, [(colour, kind) for kind, colour in _COLOURS.items() if kind in shown])
    ax.set_title(f"{plan.schedule.name}: layouts by module", loc="left", fontsize=10)
    return ax


def _bars(
    ax: Axes, known: Mapping[tuple[str, str], Sequence[str]], width_of: Mapping[str, float],
    rows: Sequence[tuple[int, str]],
) -> set[str]:  # fmt: skip
    """The stripes; returns the kinds that were drawn."""
    shown: set[str] = set()
    for height, (axis, row) in enumerate(rows):
        bars: dict[str, list[tuple[float, float]]] = {}
        start = 0.0
        for module, width in width_of.items():
            parts = [layout.split(",")[axis] for layout in known.get((module, row), ())]
            for number, part in enumerate(parts):
                span = start + width * number / len(parts), width / len(parts)
                bars.setdefault(kind_of(part), []).append(span)
            start += width
        for kind, spans in bars.items():
            ax.broken_barh(spans, (height + axis * _GAP - 0.42, 0.84), facecolors=_COLOURS[kind], linewidth=0)
        shown |= set(bars)
    return shown


def _label(
    ax: Axes, mesh: Sequence[int], blocks: Iterable[tuple[str, Sequence[float]]], rows: Sequence[tuple[int, str]]
) -> None:
    """Names of blocks below their modules, with lines between, and of rows beside them."""
    start, middles, names = 0.0, [], []
    for name, widths in blocks:
        middles.append(start + sum(widths) / 2)
        names.append(plain(name, 24))
        for width in widths:
            start += width
            ax.axvline(start, color="white", linewidth=0.4)
        ax.axvline(start, color="white", linewidth=1.6)
    ax.set_xticks(middles, names, rotation=60, ha="right", rotation_mode="anchor", fontsize=7.5)
    heights = [height + axis * _GAP for height, (axis, _) in enumerate(rows)]
    titles = [f"axis {axis} ({mesh[axis]} devices): {row}" if row == ROWS[0] else row for axis, row in rows]
    ax.set_yticks(heights, titles, fontsize=8)
    ax.set(xlim=(0, start), ylim=(heights[-1] + 0.5, -0.5), xlabel="modules, in the order of the joint graph")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _block(module: str) -> str:
    """The block that a module is of, by the end of its name: up to the first number, or the module itself."""
    parts = module.split(".")
    numbered = next((place for place, part in enumerate(parts) if part[-1].isdigit()), None)
    if numbered is None:
        return parts[-1]
    return ".".join(parts[max(numbered - 1, 0) if parts[numbered].isdigit() else numbered : numbered + 1])
