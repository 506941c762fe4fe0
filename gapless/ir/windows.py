"""Windows: a plan that is too long for one schedule, which is replayed and looked at part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.ir.schedule import Schedule

__all__ = ["Windows"]


class Windows(Protocol):
    """A long plan. It is made of `count` parts, which go by the name of `unit`."""

    @property
    def count(self) -> int:
        """How many parts there are."""

    @property
    def unit(self) -> str:
        """What they are called: batches, say."""

    def replay(self) -> Report:
        """What the checker finds, in memory that doesn't grow with the parts."""

    def excerpt(self, first: int, stop: int) -> Schedule:
        """The events of some parts, to be looked at. Raises `InputError` for parts that aren't there, or too many."""
