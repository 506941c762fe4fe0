"""What notebooks show of a result: a small table, and a small picture where matplotlib is installed."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from gapless.errors import InputError
from gapless.installation.extras import install_line
from gapless.report.headline import claimed, is_timed, narrower_of, wider_of
from gapless.report.short_repr import card_html, facts, one_line
from gapless.report.text import described
from gapless.units import UNITS, format_bytes, format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gapless.checker import Report

Drawn = TypeVar("Drawn", "Axes", "Figure")

__all__ = ["picture_html", "result_card", "shown_in_notebooks"]

_MOST_SVG_BYTES = 100_000
"""Of a picture in a cell; a larger one is sent as pixels, so that the notebook stays small."""
_MOST_PIXELS = 1_000_000
_WIDTH_PX = 720


def result_card(system: str, data: Mapping[str, Any], report: Report | None, every: str, picture: str) -> str:
    """A result: question, answer, bound, gap, verdict and replay; the picture; `every`, a table that opens by a click.

    `data`: what is asked and claimed, as `Result.data` has it. `every` and `picture` are HTML.
    """
    asked = "; ".join(f"{name} {value}" for name, value in facts(data["asked"]))
    unit = next((unit for unit in UNITS if f"objective_{unit}" in data), "s")
    said_of = {name: described(name, data.get(name)) for name in (f"objective_{unit}", f"bound_{unit}", "gap")}
    answer, bound, gap = said_of.values()
    replayed = "nothing to replay"
    is_good = report is not None and report.valid
    if report is not None:
        makespan = described("makespan_s", report.makespan_s)
        if answer == "-":
            answer = makespan
        elif answer != makespan and is_timed(data):
            answer = f"{answer}; the plan takes {makespan}"
        found = "valid" if is_good else f"NOT valid: {one_line(next(iter(report.violations)).message)}"
        count = format_count(report.event_count)
        replayed = f"{found}; {count} events, peak {format_bytes(max(report.peak_bytes, default=0))}"
    rows = [
        ("question", one_line(asked, 240)),
        ("answer", "no plan" if report is None else answer),
        ("bound", "none proven" if bound == "-" else f"{bound} for any plan of this question"),
        ("gap", "unknown" if gap == "-" else gap),
        *(("narrower bound", f"{least}: {said}") for least, said in narrower_of(data)),
        *([("wider question", said)] if (said := wider_of(data)) else []),
        ("verdict", f"{claimed('status', data['status'])}: {claimed('stop_reason', data['stop_reason'])}"),
        ("replay", replayed),
    ]
    more = f"<details><summary>all of it</summary>{every}</details>" if every else ""
    return card_html(f"{system}: {claimed('status', data['status'])}", rows, is_good, picture + more)


def picture_html(draw: Callable[[], Axes], caption: str) -> str:
    """What `draw` draws (it returns axes) as an image that stands in the page; a line on why where there is none.

    An image of its own: its styles and ids meet none of the page's, and it stays white in a dark page.
    """
    if find_spec("matplotlib") is None:
        return f"<div><i>pictures: {escape(install_line('plot'))}</i></div>"
    try:
        figure = draw().figure.figure
    except InputError as error:
        return f"<div><i>{escape(str(error))}</i></div>"
    return _image(figure, caption)


def _image(figure: Figure, caption: str) -> str:
    from gapless.plot.style import svg_text

    content, kind = svg_text(figure, "notebook").encode("utf-8"), "svg+xml"
    width_in, height_in = figure.get_size_inches()
    if len(content) > _MOST_SVG_BYTES:
        data = io.BytesIO()
        figure.savefig(data, format="png", dpi=min(100.0, math.sqrt(_MOST_PIXELS / (width_in * height_in))))
        content, kind = data.getvalue(), "png"
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"
    style = f"width: {min(_WIDTH_PX, round(72 * width_in))}px; max-width: 100%; background: #fff; margin: .4rem 0"
    box = "max-height: 32rem; overflow: auto"  # a tall one is looked at through a window of its own
    return f'<div style="{box}"><img alt="{escape(caption)}" src="{source}" style="{style}"></div>'


def shown_in_notebooks(drawn: Drawn, caption: str) -> Drawn:
    """Axes, or a figure, which a notebook shows as a picture when a cell ends with them."""
    figure = drawn.figure.figure  # a figure's is itself
    vars(drawn)["_repr_html_"] = lambda: _image(figure, caption)
    return drawn
