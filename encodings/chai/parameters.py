"""What a searcher may tune, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.encodings.chai.question import METHODS
from gapless.methods import MethodChoice
from gapless.model.knapsack import MOST_WORK
from gapless.question.parameters import check_least, with_work

__all__ = ["Parameters"]

_WORK = ("most_work",)
"""What counts work."""


@dataclass(frozen=True)
class Parameters:
    """Of the dynamic programme over layers, the baselines and the swaps. Numbers are whole, >= 1."""

    most_work: int = MOST_WORK
    """Layers times counts times steps of the budget that the dynamic programme looks at; 80 layers of 64 heads need
    13 million."""

    price_rounds: int = 300
    """Rounds of subgradient steps for the bounds of all layers; 32 layers of 32 heads are left with a gap of 2e-10."""

    k_means_rounds: int = 50
    """Rounds of Lloyd's algorithm in the baseline `elbow`, unless it ends by itself; a few suffice for 64 heads."""

    front_points: int = 200
    """Budgets that the plan's front holds at most, evenly spread over those at which the least error falls."""

    baseline_points: int = 12
    """Budgets, evenly spread, at which the plan has the baselines beside its front."""

    swap_sequence: int = 128
    """Tokens of a sequence on which swaps are measured."""

    swap_sequences: int = 16
    """Sequences of the calibration text on which swaps are measured, at most."""

    methods: MethodChoice = field(default_factory=MethodChoice)
    """Which searches are tried: prices, exchanges, proofs; and which baselines stand beside the plan: uniform, elbow,
    random. What `--method` names is always made."""

    def __post_init__(self) -> None:
        self.methods.check(("prices", "exchanges", "proofs", *METHODS[1:]))
        check_least(self)

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        return with_work(self, _WORK, share)
