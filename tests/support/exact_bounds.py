"""A random tiny question's bounds, the optimum of an independent model, and the plan that is found; in ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from exact_model import least_ticks
from random_networks import TICK_S, Question, question

import gapless
from gapless import SolveOptions
from gapless.encodings.taccl.bounds.bounds import bounds_of

__all__ = ["Compared", "compare", "compared"]

_ROUNDING = 1e-9
_MOST_MESSAGES = {False: 4, True: 3}
"""A link's, by whether chunks are added up: more make no schedule shorter that has been seen, and the model slow."""


@dataclass(frozen=True)
class Compared:
    """`best`: of the model's schedule and the plan. `proven`: whether the model has found that none is shorter.

    `asked`: the largest bound of all for plans in these chunks.
    """

    collective: str
    any_chunking: float
    any_grouping: float
    asked: float
    best: float
    plan: float
    proven: bool

    @property
    def in_order(self) -> bool:
        """Whether no bound is above a schedule that exists, nor above that of a narrower class."""
        grouped, asked = self.any_grouping * (1 - _ROUNDING), self.asked * (1 - _ROUNDING)
        in_classes = self.any_chunking * (1 - _ROUNDING) <= self.any_grouping and grouped <= self.asked
        return in_classes and asked <= self.best <= self.plan + 1e-6


def compare(seed: int, work: float) -> Compared:
    """The question of this seed; `work`: the deterministic time of CP-SAT, after which its best counts as one plan."""
    return compared(question(seed), work)


def compared(asked: Question, work: float) -> Compared:
    """What is found of a question."""
    result = gapless.solve(asked.problem, SolveOptions(threads=1, gap=0.0))
    assert result.valid
    assert result.report is not None
    plan, bounds = result.report.makespan_s / TICK_S, bounds_of(asked.problem)
    messages = min(asked.collective.chunk_count, _MOST_MESSAGES[asked.collective.reduces])
    found = least_ticks(asked.wires, asked.collective, math.floor(plan + 1e-6), messages, work)
    return Compared(
        collective=asked.collective.name,
        any_chunking=bounds.any_chunking_s / TICK_S,
        any_grouping=bounds.any_grouping_s / TICK_S,
        asked=bounds.asked_s / TICK_S,
        best=plan if found.ticks is None else found.ticks,
        plan=plan,
        proven=found.proven,
    )
