"""Cuts beside the best one: boundaries between stages are moved, as long as that gains.

Of several stages a rank little is known of a cut before it is whole, so that the first ones that are tried are guesses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol

from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.cut.policies import Choice, rerun
from gapless.encodings.pipeline.order.stages import Cut
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.search.case import Case
from gapless.options import Deadline

__all__ = ["move_boundaries", "nearby"]

_FARTHEST = 2
"""Layers that one boundary is moved by at most."""


class Searched(Protocol):
    """A search over cuts. `cases`: those that were ordered. `rest_s`: no plan of a cut that wasn't takes less."""

    problem: Problem
    parameters: Parameters
    deadline: Deadline
    cases: list[Case]
    rest_s: float

    @property
    def case_of_best(self) -> Case | None:
        """The case of the best order so far."""

    def is_beaten(self, bound_s: float) -> bool:
        """Whether what is bounded so can't be enough better than the best."""

    def order(self, cut: Cut, choice: Choice, splits: bool, bound_s: float) -> None:
        """Quick orders of a case, unless its bound says that it is no better."""


def move_boundaries(search: Searched) -> None:
    """From the best case on to a cut beside it that is faster, that of the lowest bound first; until none is, or the
    work is done: a bound counts as the part of a quick order that its ops are."""
    problem, quick_ops = search.problem, search.parameters.quick_ops
    left, tried = float(search.parameters.moved_cuts), {case.cut for case in search.cases}
    bounds_s: dict[tuple[Cut, bool], float] = {}
    while (best := search.case_of_best) is not None and math.isfinite(search.rest_s):
        splits, ops = best.stages.splits, (2 + best.stages.splits) * best.stages.count * best.stages.micro_batches
        if ops > quick_ops:  # a cut has one order, which says little of it
            return
        choices = {cut: _alike(search, best, cut) for cut in nearby(best.cut, problem.profile.layer_count)}
        choices = {cut: choice for cut, choice in choices.items() if cut not in tried}
        for cut, choice in choices.items():
            if (cut, splits) not in bounds_s and left > 0:
                bounds_s[cut, splits] = max(bounds_of(stages_of(problem, cut, choice, splits)).values())
                left -= ops / quick_ops
        bounded = sorted((bounds_s[cut, splits], cut) for cut in choices if (cut, splits) in bounds_s)
        for bound_s, cut in bounded:
            if left <= 0 or search.deadline.over or search.is_beaten(bound_s):
                return
            tried.add(cut)
            left -= 1
            search.order(cut, choices[cut], splits, search.rest_s)
            if search.case_of_best is not best:
                break
        else:
            return


def _alike(search: Searched, case: Case, cut: Cut) -> Choice:
    """The same stages run again as in the case, from their input alone."""
    return rerun(search.problem, cut, [policy.recomputes for policy in case.choice])


def nearby(cut: Cut, layers: int) -> Iterator[Cut]:
    """Cuts with one boundary moved by a layer or two, or several in a row by one; each stage keeps a layer."""
    for first in range(len(cut)):
        for last in range(first, len(cut)):
            for step in (-_FARTHEST, -1, 1, _FARTHEST) if first == last else (-1, 1):
                moved = (*cut[:first], *(end + step for end in cut[first : last + 1]), *cut[last + 1 :])
                if all(a < b for a, b in pairwise((0, *moved, layers))):
                    yield moved
