"""What the methods may be tuned by. The defaults are those that the tables of docs/monet.md were measured with."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gapless.errors import InputError

__all__ = ["Bounding", "Cooling", "Moves", "Parameters"]


@dataclass(frozen=True)
class Bounding:
    """How much time the lower bound gets, and when the integer program is tried."""

    start_s: float = 3.0
    """Seconds for each relaxation that is to suggest a start; its bound with one window comes in 0.1 to 3 s."""
    start_gap: float = 0.003
    """Gap at which such a relaxation ends: a start needs no proof."""
    tighter_budgets: tuple[float, ...] = (0.9, 0.8)
    """Starts come from relaxations at these shares of the budget too, as a relaxation holds less than a plan has to."""
    relaxation_s: float = 12.0
    """Seconds for the relaxation of one list of cuts on a large graph; more cuts gain more than more time."""
    small_relaxation_s: float = 60.0
    """The same on a small graph, where single stages are windows: VGG-16's gap closes in one of these."""
    share: float = 0.3
    """On one thread, the part of the time that the bound gets before the search begins; the search needs more."""
    most_s: float = 90.0
    """The most of it, in seconds: later lists of cuts gain little."""
    small_cells: int = 10_000
    """Forward times backward nodes up to which single stages are windows: UNet has 7,740, ResNet-50 51,754."""
    lists_before_exact: int = 3
    """The integer program has a first try after so many lists of cuts: where memory is ample, it soon knows better
    plans than the search. It has the rest of the time after the last list."""
    exact_s: float = 15.0
    """Seconds for that first try."""

    def __post_init__(self) -> None:
        for name in ("start_s", "relaxation_s", "small_relaxation_s", "most_s", "exact_s"):
            _check(f"bounding.{name}", getattr(self, name), 0.0)
        _check("bounding.start_gap", self.start_gap, 0.0)
        _check("bounding.share", self.share, 0.0, 1.0)
        for share in self.tighter_budgets:
            _check("bounding.tighter_budgets", share, 0.0, 1.0)
        _check("bounding.small_cells", self.small_cells, 0)
        _check("bounding.lists_before_exact", self.lists_before_exact, 0)


@dataclass(frozen=True)
class Cooling:
    """The rounds of simulated annealing. Temperatures are shares of the forward pass."""

    hot: float = 0.01
    """Where a round from a start begins: moves that cost a percent are taken every third time."""
    warm: float = 0.003
    """Where a round from the best plan begins, which is not to lose it."""
    cold: float = 0.0002
    """Where a round ends: hardly anything worse is taken."""
    overflow_share: float = 0.05
    """Passing the budget by this share of it costs as much as a whole forward pass, so that a search may pass through
    plans that don't fit."""
    cells_per_s: float = 3000.0
    """The first round lasts a second for so many forward times backward nodes."""
    least_round_s: float = 4.0
    """The least of that, in seconds."""
    growth: float = 1.5
    """By how much the next two rounds are longer: a longer round ends lower, a shorter one sooner."""

    def __post_init__(self) -> None:
        if not 0 < self.cold <= self.warm <= self.hot:
            raise InputError(f"cooling: must have 0 < cold <= warm <= hot, got {self.cold}, {self.warm}, {self.hot}")
        for name in ("overflow_share", "cells_per_s", "least_round_s"):
            _check(f"cooling.{name}", getattr(self, name), 1e-9)
        _check("cooling.growth", self.growth, 1.0)


@dataclass(frozen=True)
class Moves:
    """What a move of the search changes. Shares of the moves; the rest choose another variant of a backward node."""

    keep: float = 0.3
    """Keep a tensor after the forward pass, or not."""
    drop: float = 0.15
    """Drop a tensor over its longest gap, or not."""
    lead: float = 0.25
    """Recompute a tensor some stages before it is needed: worth 1 % at UNet's 5 GiB."""
    mean_lead: float = 4.0
    """Of the leads that moves try, in stages."""

    def __post_init__(self) -> None:
        for name in ("keep", "drop", "lead"):
            _check(f"moves.{name}", getattr(self, name), 0.0, 1.0)
        if self.keep + self.drop + self.lead > 1:
            total = self.keep + self.drop + self.lead
            raise InputError(f"moves: keep, drop and lead must be at most 1 together, got {total}")
        _check("moves.mean_lead", self.mean_lead, 1e-9)


@dataclass(frozen=True)
class Parameters:
    """All of them."""

    bounding: Bounding = field(default_factory=Bounding)
    """The lower bound and the integer program."""
    cooling: Cooling = field(default_factory=Cooling)
    """The rounds of the search."""
    moves: Moves = field(default_factory=Moves)
    """The steps of the search."""
    least_budget_s: float = 5.0
    """Seconds to look for the least budget that a plan fits in, where the one that was given is impossible."""

    def __post_init__(self) -> None:
        _check("least_budget_s", self.least_budget_s, 0.0)


def _check(name: str, value: float, least: float, most: float = math.inf) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        rule = f">= {least:g}" if math.isinf(most) else f"in {least:g}..{most:g}"
        raise InputError(f"{name} must be {rule}, got {value}")
