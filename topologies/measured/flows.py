"""Flows: the transfers that an experiment times, and what carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Flow", "Prober", "Sample"]


@dataclass(frozen=True)
class Flow:
    """`chunks` chunks of `size_bytes` from a rank to another: all `at_once`, or each once the last was acknowledged.

    Time ends when the last is acknowledged, by an empty message. `warm_bytes` go first: they use up what a shaped
    network lets pass in a burst, and open a connection's window. Time then begins when they are acknowledged. Chunks
    that go at once follow them without a pause, so that no latency is in their time.
    """

    source: int
    target: int
    chunks: int
    size_bytes: int
    at_once: bool
    warm_bytes: int = 0

    @property
    def latencies(self) -> int:
        """How often alpha is in the time: there and back, whenever something is acknowledged."""
        return 2 * (not self.follows) if self.at_once else 2 * self.chunks

    @property
    def follows(self) -> bool:
        """Whether what is timed comes right behind the warm part."""
        return self.at_once and self.warm_bytes > 0

    @property
    def sent_bytes(self) -> int:
        """What is timed."""
        return self.chunks * self.size_bytes


class Prober(Protocol):
    """Carries out flows between the ranks of a machine."""

    @property
    def rank_count(self) -> int:
        """The number of ranks."""

    def time(self, flows: Sequence[Flow]) -> NDArray[np.float64]:
        """Seconds that each flow takes, all begun together once all are warm: float, shape (flows,)."""


@dataclass(frozen=True)
class Sample:
    """What a flow took that was alone in the machine."""

    flow: Flow
    time_s: float
