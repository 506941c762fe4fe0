"""What a searcher may tune, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.question.parameters import with_work

__all__ = ["DEFAULTS", "METHODS", "Parameters"]

METHODS = ("descent", "messages", "windows", "relaxation", "exact", "prices")
"""The methods by name, in the order in which they are tried."""
_WORK = (
    "descent_rounds", "message_rounds", "windows_per_node", "elimination_entries", "relaxation_columns",
    "vertex_columns", "milp_columns", "milp_steps", "branches", "exact_entries", "price_rounds",
)  # fmt: skip
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
    """How many windows are set anew, for each node that presolve left, 20,000 at most. The search ends there, or at the
    time limit."""

    exact_entries: int = 20_000
    """Open pairs of choices, and choices at time points, of which there may be so many for the exact model: CP-SAT
    takes seconds for some thousands of them, and ends nowhere with far more."""

    relaxation_columns: int = 150_000
    """Choices, open pairs of them and time points of which there may be so many for the linear relaxation to be solved:
    half of them take 10 CPU s and 300 MB, and both grow faster than they do."""

    vertex_columns: int = 500_000
    """The same where memory decides nothing: 280,000 take 4 CPU s by simplex."""

    milp_columns: int = 60_000
    """Of those that the relaxation doesn't rule out, how many there may be for a MILP to look for the best plan."""

    milp_steps: int = 2_000
    """How often the MILP looks up before it ends with what it has, about once a linear program."""

    branches: int = 500
    """Relaxations that are branched on until a plan is proven the cheapest."""

    price_rounds: int = 2_000
    """Rounds of messages and prices for the bound alone, where the relaxation hasn't closed the question. A round of
    60,000 choices takes 12 ms; the bound still rises slowly after thousands."""

    methods: MethodChoice = field(default_factory=MethodChoice)
    """Which methods may be tried: descent, messages, windows, relaxation, exact, prices."""

    def __post_init__(self) -> None:
        self.methods.check(METHODS)
        for name, value in vars(self).items():
            if isinstance(value, int | float) and not value > 0:
                raise InputError(f"{name}: must be > 0, got {value}")

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        return with_work(self, _WORK, share)


DEFAULTS = Parameters()
