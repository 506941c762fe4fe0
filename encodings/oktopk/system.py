"""Ok-Topk as the rest of gapless sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.encodings.oktopk import decision, parameters, problem, report, solve
from gapless.encodings.oktopk.commands.options import ADVICE, PROFILE, RUN, SCALING, SELECTION, VALIDATION
from gapless.encodings.oktopk.question import Question
from gapless.lazy import lazy
from gapless.system import System

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["SYSTEM"]


def _rank_names(plan: SavedPlan) -> tuple[str, ...]:
    return tuple(f"rank {rank}" for rank in range(plan.schedule.topology.device_count))


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
    drawers={"loads": lazy(lambda: report.draw_loads), "density": lazy(lambda: report.draw_density)},
    advice=(ADVICE, SCALING),
    runs=(RUN,),
    profiles=(PROFILE,),
    validations=(VALIDATION, SELECTION),
    decision=lambda: decision.SparseDecision,
    package="gapless.encodings.oktopk",
)
