"""What a searcher may tune, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.question.parameters import with_work

__all__ = ["DEFAULTS", "METHODS", "Parameters"]

METHODS = ("descent", "exact")
"""The methods by name, in the order in which they are tried."""
_WORK = ("descent_rounds", "exact_entries")
"""What counts work."""


@dataclass(frozen=True)
class Parameters:
    """Of the searches and bounds. Numbers are > 0."""

    descent_rounds: int = 60
    """How often prices of memory and of forbidden pairs are raised, and all nodes chosen anew, until a plan fits; a
    round looks at each node a few times. With too few, tight questions have no plan to begin with."""

    exact_entries: int = 20_000
    """Open pairs of choices, and choices at time points, of which there may be so many for the exact model: CP-SAT
    takes seconds for some thousands of them, and ends nowhere with far more."""

    methods: MethodChoice = field(default_factory=MethodChoice)
    """Which methods may be tried: descent, exact."""

    def __post_init__(self) -> None:
        self.methods.check(METHODS)
        for name, value in vars(self).items():
            if isinstance(value, int | float) and not value > 0:
                raise InputError(f"{name}: must be > 0, got {value}")

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        return with_work(self, _WORK, share)


DEFAULTS = Parameters()
