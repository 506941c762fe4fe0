"""Cases: what a search tries, each with the orders that are known of it, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.encodings.pipeline.cut.policies import Choice
from gapless.encodings.pipeline.order.orders import Candidate
from gapless.encodings.pipeline.order.stages import Cut, Stages

__all__ = ["Case"]


@dataclass
class Case:
    """One cut, one choice of the stages that recompute, and whether backwards are split. `known`: orders of it
    that stay within memory.

    `bounds_s`: seconds by name, on all of its orders and modes.
    """

    cut: Cut
    stages: Stages
    bounds_s: dict[str, float]
    known: list[Candidate] = field(default_factory=list)
    choice: Choice = ()

    @property
    def bound_s(self) -> float:
        """The highest of the bounds."""
        return max(self.bounds_s.values())

    @property
    def best(self) -> Candidate | None:
        """The fastest order that is known."""
        return min(self.known, key=lambda found: found.rank, default=None)
