"""A bound on all choices of what stages run again: every stage has some policy, whatever the others do."""

from __future__ import annotations

import math
from collections.abc import Callable

from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.cut.policies import StagePolicy, relaxed_of
from gapless.encodings.pipeline.order.stages import Cut
from gapless.encodings.pipeline.problem import Problem

__all__ = ["any_policy_s"]


def any_policy_s(problem: Problem, cut: Cut, splits: bool, enough_s: float) -> float:
    """Seconds that no order of a cut takes less, nor its longest span, whatever stages run again.

    Of each stage in turn the best of its policies, beside others that keep least and run nothing again. Once it is
    above `enough_s` the other stages aren't looked at.
    """
    relaxed = relaxed_of(problem, cut, splits)
    least = [StagePolicy(min(one.kept_bytes for one in own), 0.0, min(one.working_bytes for one in own), own[-1].layers)
             for own in relaxed]  # fmt: skip

    def bound_s(choice: list[StagePolicy]) -> float:
        return max(bounds_of(stages_of(problem, cut, tuple(choice), splits)).values())

    found_s = bound_s(least)
    for stage, own in enumerate(relaxed):
        if found_s >= enough_s:
            break
        found_s = max(found_s, _least_s(own, stage, least, bound_s, found_s))
    return found_s


def _least_s(
    own: list[StagePolicy], stage: int, least: list[StagePolicy], bound_s: Callable[[list[StagePolicy]], float],
    known_s: float,
) -> float:  # fmt: skip
    """The least of a stage's policies; no more are looked at where one is no more than what is known."""
    best_s = math.inf
    for policy in own:
        best_s = min(best_s, bound_s([*least[:stage], policy, *least[stage + 1 :]]))
        if best_s <= known_s:
            break
    return best_s
