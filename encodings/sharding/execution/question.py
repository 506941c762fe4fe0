"""What is asked of a plan of layouts that is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gapless.question import Asked, asked, said
from gapless.question.command_fields import PLAN, WAIT
from gapless.question.fields import Bandwidth, Listed, Number, Seconds, Text, Whole

__all__ = ["RunQuestion"]


@dataclass(frozen=True, repr=False)
class RunQuestion(Asked):
    """A model's step by the layouts of a plan, in a process for each device, beside one process."""

    plan: str = said(PLAN)
    model: str | None = asked(
        Text(), "the planned model, MODULE:FACTORY or FILE.py:FACTORY", otherwise="what the plan names", metavar="NAME"
    )
    processes: int | None = asked(
        Whole(1, 1024), "must be those of the plan's mesh", otherwise="as many", metavar="P"
    )  # fmt: skip
    steps: int = asked(Whole(1, 10**6), "of training with AdamW whose losses are compared", 2, metavar="N")
    repeats: int = asked(Whole(1, 10**6), "steps of which the median time is taken", 5, metavar="N")
    tolerance: float = asked(
        Number(0), "the most that losses and gradients may be off, relative to their norm", 1e-4, metavar="X"
    )
    bandwidth: Sequence[float] | None = asked(
        Listed(Bandwidth()), "out of a process, along each axis of the mesh or along all", metavar="B,B,...",
        group="emulated wire",
    )  # fmt: skip
    latency: float | None = asked(
        Seconds(), "of one step of a ring", otherwise="10us", metavar="T", group="emulated wire"
    )
    wait: float = said(WAIT)
