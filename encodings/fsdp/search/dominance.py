"""Which labels a search goes on with: of those that have come as far, the best that no other beats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar

__all__ = ["undominated"]

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


def undominated(
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
