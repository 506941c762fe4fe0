"""Cases: what a search tries, each with the orders that are known of it, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.encodings.pipeline.compression.modes import fastest_modes
from gapless.encodings.pipeline.cut.policies import Choice
from gapless.encodings.pipeline.order.orders import Candidate
from gapless.encodings.pipeline.order.stages import Cut, Stages
from gapless.encodings.pipeline.order.timeline import timed

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

    def rank(self) -> tuple[float, float]:
        """Of the fastest order; there must be one."""
        assert self.best is not None
        return self.best.rank

    def moded_rank(self) -> tuple[float, float]:
        """By the best order as it is and in its fastest modes: what a budget buys lies between."""
        best = self.best
        assert best is not None
        fastest = timed(best.stages, fastest_modes(best.stages, best.order)) or best.timeline  # or messages lack room
        return best.timeline.cost_s + fastest.cost_s, fastest.cost_s
