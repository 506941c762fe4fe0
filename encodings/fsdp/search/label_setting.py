"""Label setting: labels are extended stage by stage, each stage with the best that no other beats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gapless.encodings.fsdp.step.costs import Order
from gapless.options import Deadline

__all__ = ["Found", "Searched", "set_labels"]

_LOOKED_AT = 6
"""Times as many labels as are kept are compared; those with greater bounds are left out."""

_SHARE_AHEAD = 0.6
"""Of the labels that are kept, at most, are as far ahead with gathers: those that are far ahead look good until memory
is full."""


class Bounded(Protocol):
    """`bound_s`: what follows it ends no sooner. `at`: positions that are gathered."""

    bound_s: float
    over_s: float
    at: int


_Label = TypeVar("_Label", bound=Bounded)


@dataclass(frozen=True)
class Searched:
    """`order`: the best, None where none was found below the end that was given; `bound_s`: where gradients take no
    memory, no plan ends sooner, but for that given end. `step_s`: when the order ends. `labels`: how many were made."""

    order: Order | None
    step_s: float
    bound_s: float
    labels: int


@dataclass(frozen=True)
class Found(Generic[_Label]):
    """The same with the label of the order, `best`."""

    best: _Label | None
    step_s: float
    bound_s: float
    labels: int

    def with_order(self, order_of: Callable[[_Label], Order]) -> Searched:
        """What the label stands for."""
        return Searched(None if self.best is None else order_of(self.best), self.step_s, self.bound_s, self.labels)


def set_labels(
    first: _Label, last: int, stage_of: Callable[[_Label], int], extended: Callable[[_Label], Iterable[_Label]],
    alike: Callable[[_Label], Hashable], beats: Callable[[_Label, _Label], bool], most: int, best_s: float,
    deadline: Deadline,
) -> Found[_Label]:  # fmt: skip
    """The best label that ends before `best_s`.

    `first`: of stage 0. A label of stage `last` is whole, and ends at its bound; `extended` are all of later stages.
    `most`: kept of a stage. `alike`, `beats`: as `_undominated` takes them.
    """
    stages: list[list[_Label]] = [[] for _ in range(last)]
    stages[0].append(first)
    best: _Label | None = None
    dropped_s, made = math.inf, 0
    for stage in range(last):
        there = [label for label in stages[stage] if label.bound_s < best_s]
        labels, left_s = _undominated(there, most, alike, beats)
        stages[stage] = []
        dropped_s = min(dropped_s, left_s)
        for label in labels:
            if deadline.over:
                dropped_s = min(dropped_s, label.bound_s)
                continue
            for longer in extended(label):
                made += 1
                if longer.bound_s >= best_s:
                    continue
                if stage_of(longer) == last:
                    best, best_s = longer, longer.bound_s
                else:
                    stages[stage_of(longer)].append(longer)
    return Found(best, best_s, min(dropped_s, best_s), made)


def _undominated(
    labels: list[_Label], most: int, alike: Callable[[_Label], Hashable], beats: Callable[[_Label, _Label], bool]
) -> tuple[list[_Label], float]:
    """As many as `most` that no other beats, best bound first, of one number of gathers no more than a share of them;
    and the least bound of what is left out. `alike`: what labels must have in common to be compared by `beats`."""
    labels.sort(key=lambda label: (label.bound_s, label.over_s))
    kept: list[_Label] = []
    others_of: dict[Hashable, list[_Label]] = {}
    counts: Counter[int] = Counter()
    left_s = math.inf
    for number, label in enumerate(labels):
        if len(kept) == most or number == _LOOKED_AT * most:
            return kept, min(left_s, label.bound_s)
        if counts[label.at] >= max(2, _SHARE_AHEAD * most):
            left_s = min(left_s, label.bound_s)
            continue
        others = others_of.setdefault(alike(label), [])
        if not any(beats(other, label) for other in others):
            others.append(label)
            kept.append(label)
            counts[label.at] += 1
    return kept, left_s
