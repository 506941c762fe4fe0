"""What a searcher may tune, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.encodings.oktopk.question import METHODS
from gapless.methods import MethodChoice
from gapless.question.parameters import check_least, with_work

__all__ = ["DEFAULTS", "Parameters"]

_WORK = ("owner_rounds", "owner_regions", "joint_rounds")
"""What counts work."""


@dataclass(frozen=True)
class Parameters:
    """Of the searches for cuts and owners, and of the orders that are tried. Numbers are whole, >= 1."""

    owner_rounds: int = 8
    """Times that owners are matched to regions, and cuts found for those owners, as long as that is better."""

    owner_regions: int = 1024
    """Searches begin with several orders of owners, the ranks in turn from another first one: so many that they have at
    most so many regions, each counted in every recorded step."""

    joint_rounds: int = 60
    """Moves of the search over received and sent load, each away from the busiest rank."""

    milp_bins: int = 24
    """Places between which the MILP cuts, at most; its columns grow with the square."""

    flood_transfers: int = 1200
    """The list schedule is tried where there are at most so many transfers; it takes a millisecond for ten."""

    methods: MethodChoice = field(default_factory=MethodChoice)
    """Which methods `auto` may try. For recorded steps: averaged, even, exact, joint; with held-out ones: robust. What
    `only` names is tried for any steps, the MILP too."""

    def __post_init__(self) -> None:
        self.methods.check(METHODS[1:])
        check_least(self)

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        return with_work(self, _WORK, share)


DEFAULTS = Parameters()
