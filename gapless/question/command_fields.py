"""Fields that many commands have: said once, so that they mean the same and read alike everywhere."""

from __future__ import annotations

from gapless.question.fields import Field, Seconds, Text, Whole

__all__ = ["MODEL", "PLAN", "PLOT", "REPEATS", "STEPS", "WAIT", "output"]

MODEL = Field(
    "model", Text(), "or FILE.py:FACTORY, with options of its own; see below", is_required=True,
    metavar="MODULE:FACTORY[,OPTION=N]",
)  # fmt: skip
PLAN = Field("plan", Text(), "the plan", is_required=True, metavar="FILE")
PLOT = Field("plot", Text(), "draw it: .pdf, .png, .svg (needs the extra `plot`)", metavar="FILE", extra="plot")
REPEATS = Field("repeats", Whole(1, 10**6), "runs of which the median is taken", 9, metavar="N")
STEPS = Field("steps", Whole(1, 10**6), "steps of the model that are timed", 20, metavar="N")
WAIT = Field(
    "wait", Seconds(), "the longest that a process waits for another; all may take ten times that", 120.0, metavar="T"
)


def output(what: str) -> Field:
    """The file that a command writes."""
    return Field("output", Text(), f"the {what} to write", is_required=True, metavar="FILE", short="-o")
