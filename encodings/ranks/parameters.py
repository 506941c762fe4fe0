"""What a searcher may tune, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.encodings.ranks.question import METHODS
from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.profiles.compression.control import Detection
from gapless.question.parameters import with_work

__all__ = ["DEFAULTS", "Parameters"]

_WORK = ("most_work", "regret_work", "multipliers")
"""What counts work."""


@dataclass(frozen=True)
class Parameters:
    """Of the searches and of the rules that stand beside them. Numbers are > 0."""

    most_work: int = 50_000_000
    """Items times modes times steps of the budget that the dynamic programme looks at; where exact costs need more, it
    rounds them up, or Dantzig's choice is taken, and the bound says how far the plan may be from the best."""

    regret_work: int = 5_000_000
    """The same for the choices that rules are compared with."""

    multipliers: int = 40
    """Prices of a byte that are tried to place a limited number of switches, by bisection."""

    detection_threshold: float = 0.5
    """Accordion's eta: the share by which a gradient's norm must change for a phase of training to be critical."""

    detection_epochs: int = 10
    """How many epochs lie between Accordion's looks at the norms."""

    detection_warm_up: int | None = None
    """So many first epochs are critical in any case; without it, all until two looks can be compared."""

    hand_first_epochs: int = 20
    """The hand-written schedule of Accordion's Figure 3.1: so many first epochs have the mode that sends most."""

    hand_decay_epochs: int = 10
    """The same after each decay of the learning rate."""

    deviation_drop: float = 0.2
    """AdaQS: by which share the ratio of mean to deviation must fall for the next, more exact mode; a hyper-parameter
    that the paper leaves to its reader."""

    methods: MethodChoice = field(default_factory=MethodChoice)
    """Which methods `auto` may try: budget where data is the only limit, else prices, where switches are limited, and
    milp. A rule is tried where `only` names it."""

    def __post_init__(self) -> None:
        self.methods.check((*METHODS[1:], "prices"))
        for name, value in vars(self).items():
            if isinstance(value, int | float) and not value > 0:
                raise InputError(f"{name}: must be > 0, got {value}")

    @property
    def detection(self) -> Detection:
        """Accordion's."""
        return Detection(self.detection_threshold, self.detection_epochs, self.detection_warm_up)

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        return with_work(self, _WORK, share)


DEFAULTS = Parameters()
