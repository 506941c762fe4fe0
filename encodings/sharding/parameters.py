"""What a searcher may tune, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.question.parameters import with_work

__all__ = ["DEFAULTS", "METHODS", "Parameters"]

METHODS = ("descent", "messages", "windows", "exact")
"""The methods by name, in the order in which they are tried."""
_WORK = ("descent_rounds", "message_rounds", "windows_per_node", "elimination_entries", "exact_entries")
"""What counts work."""


@dataclass(frozen=True)
class Parameters:
    """Of the searches and bounds. Numbers are > 0."""

    descent_rounds: int = 60
    """How often prices of memory and of forbidden pairs are raised, and all nodes chosen anew, until a plan fits; a
    round looks at each node a few times. With too few, tight questions have no plan to begin with."""

    message_rounds: int = 600
    """How often costs are passed from node to node and back, and prices of memory take a step. With too few, the prices
    aren't those of the tightest bound, and plans that are decoded lie far from the best."""

    elimination_entries: int = 10_000
    """What the largest table of an elimination may have. With more, fewer hubs are fixed in a move, and it takes
    longer; far more pays nowhere, as tables grow by a factor for each hub that goes free."""

    windows_per_node: int = 20
    """How many windows are set anew, for each node that presolve left. The search ends there, or at the time limit;
    large instances need all of their time."""

    exact_entries: int = 20_000
    """Open pairs of choices, and choices at time points, of which there may be so many for the exact model: CP-SAT
    takes seconds for some thousands of them, and ends nowhere with far more."""

    methods: MethodChoice = field(default_factory=MethodChoice)
    """Which methods may be tried: descent, messages, windows, exact."""

    def __post_init__(self) -> None:
        self.methods.check(METHODS)
        for name, value in vars(self).items():
            if isinstance(value, int | float) and not value > 0:
                raise InputError(f"{name}: must be > 0, got {value}")

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        return with_work(self, _WORK, share)


DEFAULTS = Parameters()
