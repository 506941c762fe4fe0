"""A lower bound on the rows that are synchronised at once before a batch, given who used them in the batch before.

A row that several trainers used then is synchronised whatever the partition. Of a row e that its root r(e) alone used,
write away[e] for 1 where an example on another trainer uses it. Let `w[e, i] >= 0` be weights of the examples i that
use e, adding up to at most 1 for each e. Then

    away[e] >= max over i of (1 - x[i, r(e)]) >= sum over i of w[e, i] (1 - x[i, r(e)]),

so the transportation problem whose cost of i on j is the sum of w[e, i] over the rows e of i whose root isn't j has an
optimum that no partition beats, whatever the weights. The best weights give the optimum of the MILP's linear
relaxation; they are sought as in `bounds.py`, and the bound is computed from them in whole numbers.
"""

from __future__ import annotations

import numpy as np

from gapless.encodings.bagpipe.parameters import Bound
from gapless.encodings.bagpipe.partition.bounds import respond
from gapless.encodings.bagpipe.partition.cuts import Floats, Ints
from gapless.encodings.bagpipe.partition.transport import transport
from gapless.options import Deadline
from gapless.profiles.traces.bags import Lookups, lookups

__all__ = ["away_bound"]

_WEIGHT_UNIT = 2**16


def away_bound(index: Lookups, root: Ints, capacity: Ints, parameters: Bound, deadline: Deadline) -> int:
    """How many rows that have a root are used elsewhere too at least, in every partition.

    `index`: the places of the examples' rows, none twice in an example. `root`: int64 (n,), -1 for none.
    """
    game = _Game(index, root, capacity, parameters)
    for _ in range(parameters.rounds):
        if deadline.over:
            break
        game.play()
    return game.bound()


class _Game:
    """Weights that lean towards examples that are assigned elsewhere, prices that even out the trainers."""

    def __init__(self, index: Lookups, root: Ints, capacity: Ints, parameters: Bound) -> None:
        example, row = lookups(index)
        self.parameters, self.capacity, self.examples = parameters, capacity, len(index)
        kept = np.flatnonzero(root[row] >= 0)
        kept = kept[np.argsort(row[kept], kind="stable")]
        self.example = example[kept]
        self.root = root[row[kept]]
        is_first = np.ones(len(kept), dtype=np.bool_)
        is_first[1:] = np.diff(row[kept]) != 0
        self.first = np.flatnonzero(is_first)
        self.group = np.cumsum(is_first) - 1
        self.preference = np.zeros(len(kept))
        self.price = np.where(capacity > 0, 0.0, 1e9)  # no example is assigned to a trainer without places
        self.assigned: Floats | None = None

    def play(self) -> None:
        """One round."""
        temperature = self.parameters.temperature
        held = self._held(self._weights())
        utility = (held - self.price) / temperature  # the cost is what isn't held
        assigned = respond(utility, self.price, self.capacity, self.parameters.price_step * temperature)
        ahead = assigned if self.assigned is None else 2 * assigned - self.assigned  # where the examples are going
        self.assigned = assigned
        self.preference += 1.0 - ahead[self.example, self.root]

    def bound(self) -> int:
        """The bound with the weights of now."""
        if not len(self.example):
            return 0
        weight = np.floor(self._weights() * _WEIGHT_UNIT)
        held = np.rint(self._held(weight)).astype(np.int64)  # sums of whole numbers below 2^53
        cost = held.sum(axis=1, keepdims=True) - held
        return -(-transport(cost, self.capacity).cost // _WEIGHT_UNIT)

    def _weights(self) -> Floats:
        """Weights that grow exponentially with the preference and add up to 1 over the uses of each row."""
        if not len(self.preference):
            return self.preference
        weight = np.exp(self.preference - np.maximum.reduceat(self.preference, self.first)[self.group])
        normed: Floats = weight / np.add.reduceat(weight, self.first)[self.group]
        return normed

    def _held(self, weight: Floats) -> Floats:
        """By example and trainer, the weights of its rows that have their root there."""
        trainers = len(self.capacity)
        cell = self.example * trainers + self.root
        held: Floats = np.bincount(cell, weights=weight, minlength=self.examples * trainers).astype(np.float64)
        return held.reshape(self.examples, trainers)
