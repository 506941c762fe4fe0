"""What a searcher may tune, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.encodings.fsdp.question import METHODS
from gapless.methods import MethodChoice
from gapless.question.parameters import check_least, with_work

__all__ = ["DEFAULTS", "Parameters"]

_WORK = ("most_extensions",)
"""What counts work."""


@dataclass(frozen=True)
class Parameters:
    """Of the label search and of the groups that it is tried in. All numbers are whole and >= 1."""

    most_extensions: int = 100_000
    """Times that a label gets one more collective, about two seconds, in each of three searches: with groups of any
    kind, for a bound, and with shared groups. So many labels are kept of as many layers gathered and scattered as this
    allows."""

    most_labels: int = 300
    """Labels that are kept at once, at most: more gain less than 0.1 % on models of 18 layers."""

    most_layers: int = 8
    """Layers of a group that labels are extended by; what is larger pays only where a collective's latency is most of
    it, and baselines have such groups."""

    methods: MethodChoice = field(default_factory=MethodChoice)
    """Which methods `auto` tries: the baselines, then labels from the best of them."""

    def __post_init__(self) -> None:
        self.methods.check(METHODS[1:])
        check_least(self)

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        return with_work(self, _WORK, share)


DEFAULTS = Parameters()
