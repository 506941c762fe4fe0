"""What modes cost by their question, for whoever challenges a plan: no replay knows errors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gapless.encodings.ranks.problem import Problem
from gapless.encodings.ranks.solve import is_allowed
from gapless.errors import InputError
from gapless.io.record import Record

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["cost"]


def cost(problem: Problem, plan: SavedPlan, report: Report) -> float:
    """The error of the plan's modes, inf where they break a limit. Raises `InputError` for modes that aren't there."""
    trace = problem.trace
    number = {mode: place for place, mode in enumerate(trace.modes)}
    rows: list[list[int]] = []
    for phase in Record(dict(plan.details), "details").records("phases"):
        row = phase.array("modes")
        if len(row) != trace.layer_count or not set(map(str, row)) <= set(number):
            raise InputError("details: phases must have a mode of the trace for each layer")
        rows += [[number[str(mode)] for mode in row]] * phase.integer("epochs", 1)
    if len(rows) != trace.epoch_count:
        raise InputError(f"details: phases must have {trace.epoch_count} epochs, got {len(rows)}")
    modes = np.array(rows, dtype=np.int64)
    return problem.spoiled(modes) if is_allowed(problem, modes) else math.inf
