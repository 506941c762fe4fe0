"""FSDP as the rest of gapless sees it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gapless.encodings.fsdp import decision, parameters, problem, solve, views
from gapless.encodings.fsdp.question import Question
from gapless.lazy import lazy
from gapless.system import System
from gapless.units import format_bytes

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["SYSTEM"]


def _remarks(details: Mapping[str, object]) -> tuple[str, ...]:
    """What a step needs, where there is no plan."""
    least = details.get("least_memory_bytes")
    if not isinstance(least, float):
        return ()
    return (f"a layer's parameters and gradients take {format_bytes(math.ceil(least))}: give at least as much memory",)


def _budgets(plan: SavedPlan) -> Sequence[float]:
    """The bytes that the question allows the rank."""
    most = plan.problem.get("memory_bytes")
    return (float(most),) if isinstance(most, int | float) else ()


SYSTEM = System(
    name="fsdp",
    what="which sharded parameters are gathered together, when, and which are kept",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve fsdp --profile llama-8b --ranks 64 --bandwidth 35GB/s --memory 6GB -o plan.json
  gapless solve fsdp --profile llama-8b --ranks 64 --bandwidth 35GB/s --memory 6GB --gather bf16,fp8 --scatter fp32,bf16
""",
    summary=("method", "exposed_s", "peak_bytes"),
    lighter="a smaller most_extensions in --parameters",
    view=lazy(lambda: views.render),
    remarks=_remarks,
    headline=("{profile} on {ranks} ranks", "{memory_bytes} for parameters and gradients"),
    budgets=_budgets,
    decision=lambda: decision.ShardedDecision,
    package="gapless.encodings.fsdp",
)
