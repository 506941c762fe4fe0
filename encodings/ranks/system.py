"""Ranks as the rest of gapless sees them."""

from __future__ import annotations

from gapless.errors import InputError
from gapless.fields import Bandwidth, Choice, Field, Listed, Object, Seconds, Share, SizeOrShare, Text, Whole
from gapless.system import Command, System, answering, drawn, lazy, named
from gapless.units import parse_bytes

__all__ = ["METHODS", "METHODS_BY_EPOCH", "PHASES", "SYSTEM"]

METHODS_BY_EPOCH = ("accordion", "adaqs", "first-epochs", "last-epochs", "random")
"""Rules that need modes by epoch."""
METHODS = ("auto", "budget", "milp", "constant", *METHODS_BY_EPOCH)
"""`auto`: the dynamic programme `budget` where data is the only limit, else `milp`; the others are rules."""
PHASES = ("static", "epoch")

_FLOAT_BYTES = 4


def _data(value: object) -> int | Share:
    """Bytes of a text such as 1571.8Mfloats, a size, or a share."""
    if isinstance(value, str) and value.strip().endswith("floats"):
        try:
            return _FLOAT_BYTES * parse_bytes(value.strip().removesuffix("floats"), "")
        except InputError:
            raise InputError(f"must be a number of floats such as 1571.8Mfloats, got {value!r}") from None
    try:
        return SizeOrShare()(value)
    except InputError as error:
        if isinstance(value, str):
            raise InputError(
                f"must be floats such as 1571.8Mfloats, a size, or a share such as 0.3x, got {value!r}"
            ) from None
        raise error


_TRACE = Field(
    "trace", Object(("gapless.profiles.compression.trace.CompressionTrace",)),
    "what `gapless profile compression` wrote", is_required=True, metavar="FILE",
)  # fmt: skip
_MODES = Field(
    "modes", Listed(Text()), "of the trace (default: all), such as powersgd:1,powersgd:4", metavar="MODE,..."
)
_NETWORK = (
    Field("workers", Whole(1, 10**6), "of a ring", metavar="P", group="network"),
    Field("bandwidth", Bandwidth(), "out of a worker, such as 10Gbps", metavar="B", group="network"),
    Field("latency", Seconds(), "of a message (default 10us)", metavar="T", group="network"),
)

QUESTION = (
    _TRACE,
    Field(
        "data", _data,
        "the most that a worker sends in all: 1571.8Mfloats, 6.3GB, or 0.3x of what the costliest mode sends",
        metavar="DATA",
    ),
    Field("step_time", Seconds(), "the longest that a step takes on the network, such as 10ms", metavar="T"),
    Field("phases", Choice(PHASES), "one mode a layer: static (default), or by epoch", "static"),
    Field("switches", Whole(0), "epochs at most that begin with other modes (default: any)", metavar="N"),
    _MODES,
    Field("method", Choice(METHODS), f"auto (default), {', '.join(METHODS[1:])}", "auto", metavar="NAME"),
    *_NETWORK,
)  # fmt: skip

ADVICE = (
    _TRACE,
    _MODES,
    Field("points", Whole(2, 10_000), "of the front that are shown (default 12)", 12, metavar="N"),
    Field("plot", Text(), "draw the front with the rules: a .png, .svg or .pdf", metavar="FILE"),
)

_ADVICE_HELP = """\
The least error at every budget of data, with modes by layer alone and by layer and epoch, beside what the rules make of
the same training. The regret of a rule is what it spoils beyond the best choice at the same data.

example:
  gapless advise ranks --trace trace.npz --plot front.svg
"""

SYSTEM = System(
    name="ranks",
    what="how strongly each layer's gradient is compressed, and when",
    fields=QUESTION,
    problem=lazy("gapless.encodings.ranks.problem:problem"),
    plan=lazy("gapless.encodings.ranks.solve:solve"),
    parameters=lambda: named("gapless.encodings.ranks.parameters:Parameters"),
    example="""\
  gapless solve ranks --trace trace.npz --data 0.3x -o plan.json
  gapless solve ranks --trace trace.npz --data 1571.8Mfloats --phases epoch --switches 2
  gapless solve ranks --trace trace.npz --step-time 10ms --workers 8 --bandwidth 1Gbps
""",
    summary=("method", "sent_floats", "error", "switch_count", "least_floats", "cheapest_step_s"),
    lighter="fewer epochs or modes",
    view=lazy("gapless.encodings.ranks.view:render"),
    pictures=("modes", "gantt"),
    drawers={"modes": lazy("gapless.encodings.ranks.pictures:draw_modes")},
    advice=(
        Command(
            "ranks", "the front of data and error, beside the rules", ADVICE,
            drawn(answering("gapless.encodings.ranks.advice:advise"), "gapless.encodings.ranks.pictures:draw_front"),
            _ADVICE_HELP,
        ),
    ),
    package="gapless.encodings.ranks",
)  # fmt: skip
