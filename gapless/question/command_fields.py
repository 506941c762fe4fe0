"""Fields that many commands have: said once, so that they mean the same and read alike everywhere."""

from __future__ import annotations

from gapless.question.fields import Field, Seconds, Text, Whole

__all__ = ["MODEL", "PLAN", "REPEATS", "STEPS", "WAIT", "WAIT_FOR_EACH", "output", "plot"]

MODEL = Field(
    "model", Text(), "or FILE.py:FACTORY, with options of its own; see below", is_required=True,
    metavar="MODULE:FACTORY[,OPTION=N]",
)  # fmt: skip
PLAN = Field("plan", Text(), "the plan", is_required=True, metavar="FILE")
REPEATS = Field("repeats", Whole(1, 10**6), "runs of which the median is taken", 9, metavar="N")
STEPS = Field("steps", Whole(1, 10**6), "steps of the model that are timed", 20, metavar="N")
WAIT_FOR_EACH = Field("wait", Seconds(), "the longest that a process waits for another", 120.0, metavar="T")
WAIT = Field(
    "wait", Seconds(), f"{WAIT_FOR_EACH.help}; all may take ten times that", WAIT_FOR_EACH.default, metavar="T"
)


def output(what: str) -> Field:
    """The file that a command writes."""
    return Field("output", Text(), what, is_required=True, metavar="FILE", short="-o")


def plot(what: str = "it") -> Field:
    """The picture that a command draws."""
    return Field(
        "plot", Text(), f"draw {what}: .pdf, .png, .svg (needs the extra `plot`)", metavar="FILE", extra="plot"
    )
