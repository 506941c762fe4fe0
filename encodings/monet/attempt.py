"""What a method came to: decisions with what is proven beside them, for `solve` to spell out as a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gapless.encodings.monet.decisions import Decisions
from gapless.options import SolveOptions
from gapless.solution import StopReason

__all__ = ["SOLVER", "SOLVER_TOLERANCE", "Attempt", "stopped"]

SOLVER = "highs"
"""Solves the models where the options name no other backend."""
SOLVER_TOLERANCE = 5e-7
"""A MILP solver keeps rows to about 1e-6: its bound is lowered by what that can be worth, so that it stays a bound."""


@dataclass(frozen=True)
class Attempt:
    """Decisions on the problem's graph, None where none were found, and what holds for every answer to the question.

    `bound_s`: every plan costs at least that. `is_infeasible`: no plan fits the budget. `class_bound_s`: what every
    plan of the method's own class costs at least, None where nothing is known of it beside `bound_s`. `stop_reason`:
    why there is no better plan. `solver`: who found it.
    """

    decisions: Decisions | None
    stop_reason: StopReason
    solver: str
    bound_s: float = 0.0
    is_infeasible: bool = False
    class_bound_s: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)


def stopped(options: SolveOptions) -> StopReason:
    """Why a search that could go on has stopped."""
    return StopReason.INTERRUPTED if options.stop.is_set() else StopReason.TIME_LIMIT
