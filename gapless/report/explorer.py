"""The time line of a report that can be explored in a browser: its data as HTML, and the script that draws them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from gapless.checker.inspection import Inspection
from gapless.ir.schedule import Schedule
from gapless.plot.gantt import kind_colours
from gapless.plot.lanes import lanes_of, taking_time
from gapless.units import format_count

__all__ = ["MOST_EVENTS", "explorer_html", "explorer_script"]

MOST_EVENTS = 300_000
"""Of more events than this a page would be too large; a trace for a viewer has no such limit."""

_MARKUP = """\
<h2>Time line</h2>
<div id="explorer-root" class="explorer" hidden>
<div class="tools">
<label>rows with <input id="explorer-filter" type="search" placeholder="rank, link, stream"></label>
<span id="explorer-count"></span>
<button id="explorer-in" type="button">zoom in</button>
<button id="explorer-out" type="button">zoom out</button>
<button id="explorer-all" type="button">all</button>
<label><input id="explorer-critical" type="checkbox"> critical path</label>
</div>
<div class="legend">{legend}</div>
<div id="explorer-scroll" class="rows" style="height: {height_px}px">
<canvas id="explorer-canvas" tabindex="0" aria-label="{label}"></canvas><div id="explorer-spacer"></div>
</div>
<div id="explorer-tip" class="tip" hidden></div>
<div id="explorer-about" class="about" aria-live="polite"></div>
<button id="explorer-cause" type="button" disabled>go to what it waits for</button>
<p class="hint">Drag to move, Ctrl and the wheel to zoom; with the keyboard: arrows, + and -.</p>
</div>
<noscript>The time line needs scripts; the pictures below don't.</noscript>
<script type="application/json" id="explorer-data">{data}</script>
"""
_ROW_PX, _MOST_PX = 18, 480


def explorer_html(schedule: Schedule, seen: Inspection, device_names: Sequence[str] = ()) -> str:
    """The time line of a replayed schedule, to stand in a page that runs `explorer_script`.

    `seen`: what its replay has to show. `device_names`: by device, numbers if empty. A row for each engine and link in
    use; of each event what it is, when, what it waits for, and whether it is on the critical path. Empty for a schedule
    in which nothing takes time.
    """
    lanes = lanes_of(schedule, device_names)
    if not lanes.names:
        return ""
    order = np.lexsort((lanes.start_s, lanes.row))
    found = seen.waits
    numbers = taking_time(schedule)[order]
    replayed_as = _inverse(seen.numbers, len(schedule))[numbers]
    shown_as = _inverse(numbers, len(schedule))
    cause = found.cause[replayed_as]
    shown_cause = np.where(cause >= 0, shown_as[seen.numbers[cause]], -1)
    colours = kind_colours(lanes.kinds)
    data: dict[str, object] = {
        "rows": lanes.names,
        "kinds": lanes.kinds,
        "colours": colours,
        "names": [lanes.label[event] for event in order.tolist()],
        "until_s": lanes.span_s,
        "start": _packed(lanes.start_s[order], "<f8"),
        "end": _packed(lanes.end_s[order], "<f8"),
        "idle": _packed(found.idle_s[replayed_as], "<f8"),
        "kind": _packed(lanes.kind[order], "u1"),
        "reason": _packed(found.reason[replayed_as], "u1"),
        "critical": _packed(found.is_critical[replayed_as], "u1"),
        "cause": _packed(shown_cause, "<i4"),
        "first": _packed(np.searchsorted(lanes.row[order], np.arange(len(lanes.names) + 1)), "<i4"),
    }
    legend = "".join(
        f'<span><i style="background: {colour}"></i>{escape(kind)}</span>'
        for kind, colour in zip(lanes.kinds, colours, strict=True)
    )
    return _MARKUP.format(
        legend=legend,
        height_px=min(_ROW_PX * (len(lanes.names) + 2), _MOST_PX),
        label=f"time line of {format_count(len(order))} events",
        data=json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
    )


@cache
def explorer_script() -> str:
    """The script that draws time lines."""
    return files("gapless.report").joinpath("explorer.js").read_text(encoding="utf-8")


def _inverse(numbers: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Where each of `count` things stands in a list of some, -1 for nowhere."""
    place = np.full(count, -1)
    place[numbers] = np.arange(len(numbers))
    return place


def _packed(values: NDArray[np.generic], kind: str) -> str:
    """A column for the script: whole numbers and doubles in little-endian bytes, in base 64."""
    return base64.b64encode(values.astype(kind).tobytes()).decode("ascii")
