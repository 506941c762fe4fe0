"""Ranks as the rest of gapless sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.encodings.ranks import decision, parameters, problem, report, solve
from gapless.encodings.ranks.commands import ADVICE, PROFILE, RUN
from gapless.encodings.ranks.question import Question
from gapless.lazy import lazy
from gapless.system import System
from gapless.units import format_floats, format_seconds

__all__ = ["SYSTEM"]


def _remarks(details: Mapping[str, Any]) -> tuple[str, ...]:
    """What any choice of modes needs, where there is none within the limits."""
    if "least_floats" not in details:
        return ()
    least, step = format_floats(details["least_floats"]), format_seconds(details["cheapest_step_s"])
    return (
        f"the modes that send least send {least} in all, {step} a step: allow more, or record modes that send less",
    )


SYSTEM = System(
    name="ranks",
    what="how strongly each layer's gradient is compressed, and when",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve ranks --trace trace.npz --data 0.3x -o plan.json
  gapless solve ranks --trace trace.npz --data 1571.8Mfloats --phases epoch --switches 2
  gapless solve ranks --trace trace.npz --step-time 10ms --workers 8 --bandwidth 1Gbps
""",
    summary=("method", "sent_floats", "error", "switch_count", "least_floats", "cheapest_step_s"),
    lighter="fewer epochs or modes",
    view=lazy(lambda: report.render),
    remarks=_remarks,
    headline=("{trace}: ranks of a compressor", "sending {data_floats}", "a step in {step_time_s}"),
    pictures=("modes", "gantt"),
    drawers={"modes": lazy(lambda: report.draw_modes)},
    advice=(ADVICE,),
    runs=(RUN,),
    profiles=(PROFILE,),
    cost=lazy(lambda: solve.cost),
    decision=lambda: decision.ModeDecision,
    package="gapless.encodings.ranks",
)  # fmt: skip
