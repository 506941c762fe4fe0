"""Start: a plan that is there already, from which a search for another limit of memory, or with more work, begins."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gapless.encodings.pipeline.placement.named import Placement
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.io.plan import given_plan
from gapless.io.record import Record

__all__ = ["Start", "start_of"]


@dataclass(frozen=True)
class Start:
    """What a plan decides, and of which question: `layers`, `ranks`, `micro_batches`, `placement` and `chunks` as a
    `Step` has them, and the limit that it keeps to, bytes of a rank (inf for none) or micro-batches in flight.
    """

    decision: PipelineDecision
    layers: int
    ranks: int
    micro_batches: int
    placement: Placement
    chunks: int
    memory_bytes: float = math.inf
    in_flight: int | None = None


def start_of(plan: object) -> Start:
    """Of the plan that is given, a `SavedPlan` or a `Result`, or in a file. Raises `InputError` for another kind."""
    name, saved = given_plan(plan, "pipeline", "from_plan")
    asked, decision = Record(dict(saved.problem), f"{name}: problem"), PipelineDecision.of(saved, name)
    is_listed = isinstance(asked.raw("placement"), list)
    return Start(
        decision,
        asked.integer("layers", 1),
        asked.integer("ranks", 1),
        asked.integer("micro_batches", 1),
        asked.integers("placement", 0) if is_listed else asked.text("placement"),
        asked.integer("chunks", 1),
        asked.number("memory_bytes", 0) if "memory_bytes" in saved.problem else math.inf,
        asked.integer("in_flight", 1) if "in_flight" in saved.problem else None,
    )
