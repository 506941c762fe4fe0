"""Received and sent load together: a local search that moves work away from the busiest rank.

A rank sends all it selected but what lies in its own region, so that a larger region, or another one, sends less and
receives more. A move shifts an end of the busiest rank's region to where it costs least, or exchanges two owners; the
owners are matched anew where no move helps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.cuts.boundaries import Boundaries, matched_owners, owner_costs
from gapless.encodings.oktopk.cuts.loads import Loads, received_of, sent_of
from gapless.options import Deadline

__all__ = ["joint_cost", "joint_search"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_PLACES = 32
"""Places for a cut that a move looks at, and again between the best one's neighbours."""


def joint_cost(counts: Ints, owners: Ints, receiving: Floats, sending: Floats) -> Floats:
    """The cost of each region's owner, of what it receives and sends the dearer, float (steps, regions)."""
    received, sent = received_of(counts, owners), sent_of(counts, owners)
    return np.asarray(np.maximum(received * receiving[owners], sent * sending[owners]))


def joint_search(
    loads: Loads, start: Boundaries, receiving: Floats, sending: Floats, rounds: int, deadline: Deadline
) -> Boundaries:
    """From `start`, at most `rounds` moves, each to lower the largest cost of all."""
    state = _State(loads, start.cuts, start.owners, receiving, sending)
    for _ in range(rounds):
        if deadline.over or not (state.shift() or state.match()):
            break
    return Boundaries(state.cuts, state.owners, state.cost)


class _State:
    """Cuts, owners, and the costs of them."""

    def __init__(self, loads: Loads, cuts: Ints, owners: Ints, receiving: Floats, sending: Floats) -> None:
        self.loads, self.receiving, self.sending = loads, receiving, sending
        self.set(cuts, owners)

    def set(self, cuts: Ints, owners: Ints) -> None:
        self.cuts, self.owners = cuts, owners
        self.counts = self.loads.counts(cuts)
        self.costs = joint_cost(self.counts, owners, self.receiving, self.sending).max(axis=0)
        self.cost = float(self.costs.max())

    def shift(self) -> bool:
        """Shift an end of the busiest region to where it and its neighbour cost less; whether one could."""
        busiest = int(self.costs.argmax())
        for cut in (busiest, busiest + 1):
            if 0 < cut < len(self.owners):
                found = self._best_place(cut)
                if found is not None:
                    cuts = self.cuts.copy()
                    cuts[cut] = found
                    self.set(cuts, self.owners)
                    return True
        return False

    def match(self) -> bool:
        """Match owners to regions anew; whether the largest cost fell."""
        before = self.cost
        owners = matched_owners(owner_costs(self.counts, self.receiving, self.sending), self.owners)
        if not np.array_equal(owners, self.owners):
            self.set(self.cuts, owners)
        return self.cost < before * (1 - 1e-12)

    def _best_place(self, cut: int) -> int | None:
        """Where between its neighbours a cut makes the dearer of its two regions cheapest; None if that is no gain."""
        low, high = int(self.cuts[cut - 1]), int(self.cuts[cut + 1])
        best, place = float(self.costs[cut - 1 : cut + 1].max()) * (1 - 1e-12), None
        while True:
            places = np.unique(np.linspace(low, high, _PLACES).astype(np.int64))
            costs = self._costs_at(cut, places)
            least = int(costs.argmin())
            if costs[least] < best:
                best, place = float(costs[least]), int(places[least])
            low, high = int(places[max(least - 1, 0)]), int(places[min(least + 1, len(places) - 1)])
            if len(places) < _PLACES or high - low < 2:
                return place

    def _costs_at(self, cut: int, places: Ints) -> Floats:
        """The dearer of the two regions beside a cut, for each place of it."""
        first, last = self.cuts[cut - 1], self.cuts[cut + 1]
        pair = self.owners[cut - 1 : cut + 1]
        left = self.loads.counts(np.concatenate([[first], places]))
        left = np.cumsum(left, axis=2)  # entries of each rank from `first` to each place
        whole = self.loads.counts(np.array([first, last]))
        sides = np.stack([left, whole - left])  # (2, steps, ranks, places)
        held = np.array([[sum(map(len, parts)) for parts in group] for group in self.loads.groups])
        worst = np.zeros(len(places))
        for side, owner in zip(sides, pair.tolist(), strict=True):
            own = side[:, owner]
            cost = np.maximum(
                (side.sum(axis=1) - own) * self.receiving[owner], (held[:, owner, None] - own) * self.sending[owner]
            )
            worst = np.maximum(worst, cost.max(axis=0))
        return worst
