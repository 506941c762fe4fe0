"""What a searcher may tune, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.model.knapsack import MOST_WORK
from gapless.question.parameters import check_least, with_work

__all__ = ["Parameters"]

_WORK = ("most_work",)


@dataclass(frozen=True)
class Parameters:
    """Of the dynamic programmes over heads and layers. Numbers are whole, >= 1."""

    most_work: int = MOST_WORK
    """Items times modes times steps of the budget that a dynamic programme looks at; where its bytes need more, they
    are rounded up to larger units."""

    prices: int = 60
    """Prices of a byte that the bound is looked for at, by bisection: each halves what is left of the interval."""

    front_points: int = 200
    """Budgets that the plan's front holds at most."""

    def __post_init__(self) -> None:
        check_least(self)

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        return with_work(self, _WORK, share)
