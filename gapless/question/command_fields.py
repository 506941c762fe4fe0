"""Fields that many commands have, said once: they mean the same and read alike everywhere. What draws for `plot`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gapless.question.fields import Bandwidth, Field, Seconds, Size, Text, Whole

if TYPE_CHECKING:
    from gapless.system import Answer, Session

__all__ = [
    "HOST_MEMORY",
    "MODEL",
    "OFFLOAD",
    "PLAN",
    "REPEATS",
    "STEPS",
    "WAIT",
    "WAIT_FOR_EACH",
    "drawn",
    "output",
    "plot",
]

MODEL = Field(
    "model", Text(), "or FILE.py:FACTORY, with options of its own; see below", is_required=True,
    metavar="MODULE:FACTORY[,OPTION=N]",
)  # fmt: skip
OFFLOAD = Field(
    "offload", Bandwidth(), "tensors may travel to the host and back over a link of so much each way, such as 25GB/s",
    metavar="B",
)  # fmt: skip
HOST_MEMORY = Field(
    "host_memory", Size(1), "with --offload: the most that the host may hold", otherwise="64GB",
    metavar="SIZE",
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


def drawn(
    answer: Callable[[Mapping[str, object], Session], Answer], draw: Callable[[], Callable[[Mapping[str, object]], Any]]
) -> Callable[[Mapping[str, object], Session], Answer]:
    """As `answer`, and drawn too where the field `plot` names a file; `draw` names what makes a figure of the data."""

    def answer_and_draw(values: Mapping[str, Any], session: Session) -> Answer:
        from gapless.plot.style import check_plot, save

        path = values["plot"]
        if path is not None:
            check_plot(path)  # before long work is done for it
        made = answer({name: value for name, value in values.items() if name != "plot"}, session)
        if path is not None:
            save(draw()(made.data), path)
        return replace(made, data={**made.data, "plot": path})

    return answer_and_draw
