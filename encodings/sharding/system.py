"""Sharding as the rest of gapless sees it."""

from __future__ import annotations

from gapless.encodings.sharding import decision, parameters, problem, solve
from gapless.encodings.sharding.execution.command import RUN
from gapless.encodings.sharding.instances import parameter_memory
from gapless.encodings.sharding.question import Question
from gapless.encodings.sharding.views import audit, export, picture, summary
from gapless.lazy import lazy
from gapless.system import Export, System

__all__ = ["SYSTEM"]

SYSTEM = System(
    name="sharding",
    what="a layout for each operator, within the memory of devices",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: parameter_memory.solve_beside),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve sharding --instance drawn:nodes=30,choices=4 -o plan.json
  gapless solve sharding --instance drawn:nodes=24,choices=3 --gap 0.01 -o plan.json
""",
    summary=("method", "left_nodes"),
    headline=("{instance}: a choice for each of {nodes} nodes", "{usage_limit_bytes} of memory"),
    lighter="fewer nodes",
    exports=(
        Export("iopddl", "the list of choices that the ASPLOS 2025 contest wants", lazy(lambda: export.write_iopddl)),
    ),
    view=lazy(lambda: summary.render),
    pictures=("usage",),
    drawers={"usage": lazy(lambda: summary.draw_usage), "layouts": lazy(lambda: picture.draw_layouts)},
    runs=(RUN,),
    device_names=lambda plan: (plan.schedule.topology.name,),
    budgets=lambda plan: plan.schedule.topology.memory_bytes,
    decision=lambda: decision.ShardingDecision,
    model=lazy(lambda: solve.model_of),
    cost=lazy(lambda: solve.cost),
    audit=lazy(lambda: audit.audit),
    package="gapless.encodings.sharding",
)
