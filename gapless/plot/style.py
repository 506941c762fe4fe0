"""What all pictures share: colours, figures of a size that fits, scales for time and bytes, and the file."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from gapless.errors import InputError
from gapless.installation.extras import missing_extra
from gapless.io.atomic import check_writable, write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure, SubFigure

__all__ = [
    "BLUE",
    "BROWN",
    "GREEN",
    "GREY",
    "ORANGE",
    "PALE",
    "PALETTE",
    "PURPLE",
    "SKY",
    "VERMILION",
    "amounts",
    "axis_label",
    "bytes_scale",
    "check_plot",
    "finish",
    "headline",
    "is_pale",
    "legend_above",
    "new_axes",
    "plain",
    "rendered",
    "save",
    "svg_text",
    "time_scale",
]

# Okabe and Ito's colours, which people with any kind of colour blindness can distinguish; yellow is too pale on white.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, GREY, PALE = "#56B4E9", "#CC79A7", "#7F7F7F", "#E8E8E8"
BROWN = "#A6761D"
"""What is computed again, in every picture, and nothing else."""
PALETTE = (BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE, "#882255", "#BBBBBB")

_KINDS = ("pdf", "png", "svg")
_DPI = 150
_GROUPED = 10_000
"""From here on, numbers at an axis have commas."""
_TITLE_PT = 10
_NUMBER_AND_UNIT = re.compile(r"(\d) (%|[num]?s\b|[KMGT]?B\b)")
_NOTHING: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None},
    "png": {},
    "svg": {"Creator": None, "Date": None, "Format": None, "Type": None},
}
"""Metadata to leave out: equal pictures are equal files, and an SVG names no address outside itself."""


def check_plot(path: str | None = None) -> None:
    """Raise `InputError`, before long work is done for a picture, if it could not be drawn or written to `path`."""
    if importlib.util.find_spec("matplotlib") is None:
        raise missing_extra("plotting", "matplotlib", "plot")
    if path is None:
        return
    if Path(path).suffix[1:] not in _KINDS:
        raise InputError(f"a plot's file must end in .pdf, .png or .svg, got {path!r}")
    check_writable(path)


def new_axes(width_in: float, height_in: float) -> Axes:
    """Axes on a figure of their own."""
    check_plot()
    from matplotlib.figure import Figure  # not pyplot: no window, and no state that outlives the call

    return Figure(figsize=(width_in, height_in), layout="constrained").add_subplot()


def axis_label(name: str, unit: str = "") -> str:
    """What stands at an axis: a column or title in words, with its unit if it has one."""
    return name.replace("_", " ") + (f" ({unit})" if unit else "")


def finish(ax: Axes, grid: bool = False, legend: str = "") -> Axes:
    """Nothing at the top and on the right of the axes, numbers without offsets; maybe a pale grid, and a legend that is
    "inside" or "beside" the axes.
    """
    from matplotlib.ticker import ScalarFormatter, StrMethodFormatter

    ax.spines[["top", "right"]].set_visible(False)
    for axis in (ax.xaxis, ax.yaxis):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, ScalarFormatter) and axis.get_scale() == "linear":
            low, high = sorted(map(abs, axis.get_view_interval()))
            if max(low, high) >= _GROUPED:  # in full, as a person writes it, not as a number to be multiplied
                axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            else:
                formatter.set_useOffset(False)
    if grid:
        ax.grid(alpha=0.3)
    if legend:
        beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if legend == "beside" else {}
        ax.legend(fontsize=8, frameon=False, **beside)
    return ax


def legend_above(ax: Axes, colours: Iterable[tuple[str, str]] | None = None) -> None:
    """A legend in columns above the right end of the axes: of colours and what they are for, or of all with a label."""
    from matplotlib.patches import Patch

    patches = [Patch(color=colour, label=label) for colour, label in colours or ()]
    given = {} if colours is None else {"handles": patches, "handlelength": 1.2, "columnspacing": 1.2}
    ax.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, fontsize=7.5, frameon=False, borderaxespad=0.2, **given
    )


def headline(ax: Axes, text: str) -> None:
    """The title of a picture, at the left and above a legend that stands above the axes: they never overlap.

    What is too long for one line stands on several.
    """
    from matplotlib.text import Text

    figure, legend, pad_pt = ax.figure, ax.get_legend(), 6.0
    figure.figure.draw_without_rendering()
    if legend is not None and (above_px := legend.get_window_extent().y1 - ax.get_window_extent().y1) > 0:
        pad_pt += above_px * 72 / figure.dpi

    def width_px(line: str) -> float:
        return float(Text(0, 0, line, fontsize=_TITLE_PT, figure=figure).get_window_extent().width)

    text = _NUMBER_AND_UNIT.sub("\\1\u00a0\\2", text)  # which stay on one line
    for _ in range(2):  # axes of equal scales move when the title takes room
        room_px = 0.93 * (figure.bbox.width - max(ax.get_window_extent().x0, 0.0))
        letters = max(int(room_px * len(text) / max(width_px(text), 1.0)), 20)
        widest_px = max(map(width_px, fill(text, letters).splitlines()), default=0.0)
        if widest_px > room_px:  # of letters that are wider than most
            letters = max(int(letters * room_px / widest_px), 20)
        ax.set_title(fill(text, letters).replace("\u00a0", " "), loc="left", fontsize=_TITLE_PT, pad=pad_pt)
        figure.figure.draw_without_rendering()


def is_pale(colour: str) -> bool:
    """Whether black is easier to read on it than white."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue > 0.5


def plain(text: str, most: int = 40) -> str:
    """A name from a file as a picture shows it: on one line, not too long, and never a formula."""
    text = " ".join(text.split())
    short = text if len(text) <= most else f"{text[: most // 2]}\u2026{text[-(most - most // 2 - 1) :]}"
    return short.replace("$", r"\$")


def amounts() -> ListedColormap:
    """A colour map for amounts: one hue, the darker the more, never as pale as `PALE`."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    return ListedColormap(matplotlib.colormaps["Blues"]([0.3 + 0.7 * k / 255 for k in range(256)]))


def save(figure: Figure | SubFigure, path: str) -> None:
    """Write a figure into a file, whole or not at all; its ending says the kind."""
    write_bytes(path, rendered(figure, path))


def rendered(figure: Figure | SubFigure, path: str) -> bytes:
    """What a file of this name holds of a figure."""
    return _bytes_of(figure, Path(path).suffix[1:])


def svg_text(figure: Figure | SubFigure, name: str) -> str:
    """A figure as an `<svg>` element to stand in a page; `name` keeps the ids of several pictures on one page apart."""
    text = _bytes_of(figure, "svg", name).decode("utf-8")
    return text[text.index("<svg") :]


def _bytes_of(figure: Figure | SubFigure, kind: str, salt: str = "gapless") -> bytes:
    import matplotlib

    data = io.BytesIO()
    settings = {"svg.hashsalt": salt, "svg.fonttype": "none", "font.family": ["DejaVu Sans", "sans-serif"]}
    with matplotlib.rc_context(settings):
        figure.figure.savefig(data, format=kind, dpi=_DPI, metadata=_NOTHING[kind])
    return data.getvalue()


def time_scale(span_s: float) -> tuple[float, str]:
    """Seconds in the unit that fits a span, and the unit's name: 1,300 ms rather than 1.3 s."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if span_s >= 2 * scale:
            return scale, unit
    return (1e-9, "ns") if span_s > 0 else (1.0, "s")


def bytes_scale(most_bytes: float) -> tuple[float, str]:
    """Bytes in the unit that fits the largest, and the unit's name."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if most_bytes >= scale:
            return scale, unit
    return 1.0, "B"
