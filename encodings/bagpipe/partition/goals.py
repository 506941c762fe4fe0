"""What a partition beyond the paper's is judged by, and what a row more or less on a trainer is worth to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.partition.sharing import Sharing, Traffic

__all__ = ["Fetches", "Goal", "MaxLoad", "Rates"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """What a row costs its receiver and its sender, one rate per trainer each; a server sends for nothing."""

    receive: Floats
    send: Floats

    def of_pairs(self, sharing: Sharing) -> Floats:
        """What it costs that trainer j uses id e, ids x trainers; nothing where it owns the id."""
        is_owned = sharing.owner >= 0
        sent = np.where(is_owned, self.send[sharing.owner], 0.0)
        cost: Floats = self.receive + sent[:, None]
        owned = np.flatnonzero(is_owned)
        cost[owned, sharing.owner[owned]] = 0.0
        return cost


class Fetches:
    """Fewest rows that reach a trainer, each id once per trainer and batch."""

    def value(self, traffic: Traffic) -> int:
        """All fetches."""
        return traffic.fetches

    def smooth(self, traffic: Traffic) -> float:
        """The same."""
        return float(traffic.fetches)

    def rates(self, traffic: Traffic) -> Rates:
        """1 a row for its receiver."""
        trainers = len(traffic.sent)
        return Rates(np.ones(trainers), np.zeros(trainers))


@dataclass(frozen=True)
class MaxLoad:
    """Fewest rows that the busiest trainer receives and sends. `power`: as `Search.load_power`."""

    power: int

    def value(self, traffic: Traffic) -> int:
        """The largest load."""
        return traffic.max_load

    def smooth(self, traffic: Traffic) -> float:
        """The norm of the loads to a high power."""
        largest = max(traffic.max_load, 1)
        return float(largest * ((traffic.load / largest) ** self.power).sum() ** (1 / self.power))

    def rates(self, traffic: Traffic) -> Rates:
        """Rows of busy trainers count most; the mean rate is 1."""
        share = (traffic.load / max(traffic.max_load, 1)) ** (self.power - 1) + 1e-3
        rate = share / share.mean()
        return Rates(rate, rate)


Goal: TypeAlias = Fetches | MaxLoad
"""What to make small: `value` counts in the end, the search descends along `smooth`, `rates` says how that grows."""
