"""What a question of memory says, and what its curve and its run with PyTorch ask."""

from __future__ import annotations

from collections.abc import Iterable

from gapless.encodings.monet.method_names import METHODS
from gapless.fields import Choice, Field, Listed, Object, SizeOrShare, Text, Whole
from gapless.torch.close_kinds import CLOSE

__all__ = ["CURVE", "QUESTION", "RUN"]


def _networks() -> Iterable[str]:
    from gapless.profiles.training.networks import network_names

    return network_names()


def _devices() -> Iterable[str]:
    from gapless.profiles.devices import device_names

    return device_names()


_GRAPH = (
    Field(
        "graph", Object(("gapless.profiles.training.graph.TrainingGraph",)), "`gapless list profiles`, or a file",
        is_required=True, metavar="NAME|FILE", names=_networks,
    ),
    Field("batch", Whole(1), "batch size of a named network", metavar="N"),
    Field(
        "device", Text(), "p100 (default), v100, a100, h100: costs of a named network", metavar="NAME", names=_devices
    ),
)  # fmt: skip
_OBJECTIVE = Field(
    "objective", Choice(("time", "energy")),
    "least time (default), or least energy, for graphs whose power is known", "time",
)  # fmt: skip
_METHOD_HELP = f"what decides, alone or to compare with: {', '.join(METHODS)}; docs/monet.md says what each is"
_OUTPUT = Field("output", Text(), "the plan to write", metavar="FILE", short="-o")

QUESTION = (
    *_GRAPH,
    Field("budget", SizeOrShare(), "8GiB, 8GB (10^9), or 0.5x", is_required=True, metavar="SIZE"),
    _OBJECTIVE,
    Field("method", Choice(tuple(METHODS)), _METHOD_HELP, "auto", metavar="NAME"),
)

CURVE = (
    *_GRAPH,
    Field("budgets", Listed(SizeOrShare()), "such as 5GiB,6GB,0.5x", is_required=True, metavar="B,B,..."),
    _OBJECTIVE,
    Field(
        "methods", Listed(Choice(tuple(METHODS))), "curves to overlay: " + _METHOD_HELP, ("auto",), metavar="M,M,..."
    ),
    Field("output", Text(), "folder for the plans and the table", is_required=True, metavar="DIR", short="-o"),
    Field("plot", Text(), "draw the curve: .pdf, .png, .svg (needs the extra `plot`)", metavar="FILE"),
    Field("workers", Whole(0), "budgets at once, N x threads <= cores", 0, metavar="N", group="processes"),
)

RUN = (
    Field("model", Text(), "or FILE.py:FACTORY; see below", is_required=True, metavar="MODULE:FACTORY"),
    Field(
        "budget", SizeOrShare(), "8GiB, 8GB (10^9), or 0.5x: of eager's peak; above parameters and inputs",
        is_required=True, metavar="SIZE",
    ),
    Field("cache", Text(), "times of operators, read and written", metavar="FILE"),
    Field(
        "close", Listed(Choice((*CLOSE, "all"))),
        "implementations that may be off by rounding: attention, loss, norm, or all (default: none)", (),
        metavar="KINDS",
    ),
    Field("steps", Whole(1), "steps to time (default: 5)", 5, metavar="N"),
    _OUTPUT,
)  # fmt: skip
