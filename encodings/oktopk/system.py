"""Ok-Topk as the rest of gapless sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.encodings.oktopk import advice, decision, parameters, problem, report, solve
from gapless.encodings.oktopk.commands import PROFILE, RUN, VALIDATION
from gapless.encodings.oktopk.question import Question
from gapless.lazy import lazy
from gapless.question import picked
from gapless.question.command_fields import plot
from gapless.question.fields import Field, Listed, Number
from gapless.system import Command, System, answering_in_time, drawn

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["SYSTEM"]


def _rank_names(plan: SavedPlan) -> tuple[str, ...]:
    return tuple(f"rank {rank}" for rank in range(plan.schedule.topology.device_count))


ADVICE = (
    *picked(Question, "indices", "ranks"),
    Field(
        "densities", Listed(Number(0, strict=True, maximum=1)), "at which plans are made",
        otherwise="the recorded one and shares of it", metavar="D,D,...",
    ),
    *picked(Question, "selection", "topology", "nodes", "bandwidth", "latency"),
    plot(),
)  # fmt: skip

_ADVICE_HELP = """\
The last recorded step is planned at each density by exact boundaries, and replayed beside the averaged rule, TopkA and
a dense ring. Fill-in is the share of the gradient in the union of the ranks' sets. Stale boundaries: how the busiest
rank's load grows with the boundaries' age, over all recorded steps, and how often new ones pay.

example:
  gapless advise sparse --indices grads.npz --topology ndv2 --nodes 2
  gapless advise sparse --indices drifting:elements=100000,steps=12 --ranks 16 --densities 0.001,0.01,0.1
"""

SYSTEM = System(
    name="oktopk",
    what="sparse allreduce in regions of balanced load",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve oktopk --indices uniform:steps=1,overlap=0 --ranks 16 --density 0.02 --selection all --latency 1us
  gapless solve oktopk --indices grads.npz --selection all --bandwidth 1Gbps --held-out 5 -o plan.json
""",
    summary=("method", "order", "gather", "balances"),
    lighter="fewer steps, or a lower density",
    device_names=_rank_names,
    view=lazy(lambda: report.render),
    headline=("allreduce of {indices}", "density {density}", "on {topology}"),
    pictures=("loads", "density", "gantt"),
    drawers={
        "loads": lazy(lambda: report.draw_loads),
        "density": lazy(lambda: report.draw_density),
    },
    advice=(
        Command(
            "sparse",
            "below which density a sparse allreduce pays, fill-in, how stale boundaries may be",
            ADVICE,
            drawn(
                answering_in_time(lambda: advice.advise),
                lambda: report.draw_advice,
            ),
            _ADVICE_HELP,
            is_limited=True,
        ),
    ),
    runs=(RUN,),
    profiles=(PROFILE,),
    validations=(VALIDATION,),
    decision=lambda: decision.SparseDecision,
    package="gapless.encodings.oktopk",
)
