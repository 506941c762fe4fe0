"""Lower bounds on what partitions move: transport optima of a relaxation, improved round by round.

**Fetches and the largest load.** Write `used[e, j]` for 1 where some example on trainer j uses id e, and take rates r
for receivers and s for senders. The rows that move, at these rates, are worth the sum over e and j != owner(e) of (r[j]
+ s[owner(e)]) used[e, j]: with r = 1 and s = 0 the fetches; with r = s of sum 1 a mean of the loads, which the largest
load is never below.

Let `w[e, j, i] >= 0` be weights of the examples i that use e, adding up to at most 1 for each e and j. Then

    used[e, j] >= max over i of x[i, j] >= sum over i of w[e, j, i] x[i, j],

so a transportation problem whose cost of i on j is the sum over the ids e of i of (r[j] + s[owner(e)]) w[e, j, i] has
an optimum that no partition beats, whatever weights and rates. An id that one example uses has weight 1: there the
bound is exact. The best weights give the optimum of the MILP's linear relaxation. They are sought as a game: the
weights lean towards examples that are assigned to a trainer, prices of places even out the trainers, and the rates lean
towards loaded ones. Whatever the game comes to, the bound is computed from it in whole numbers, by an exact transport.

Of an id's examples only the few that their unshared ids assign to each trainer most clearly get weight.

**Rows synchronised at once** before a batch, given who used them in the batch before. A row that several trainers used
then is synchronised whatever the partition. Of a row e that its root r(e) alone used, write away[e] for 1 where an
example on another trainer uses it. With weights `w[e, i] >= 0` that add up to at most 1 for each e,

    away[e] >= max over i of (1 - x[i, r(e)]) >= sum over i of w[e, i] (1 - x[i, r(e)]),

so the transportation problem whose cost of i on j is the sum of w[e, i] over the rows e of i whose root isn't j has an
optimum that no partition beats, whatever the weights. They are sought in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Floats, Ints
from gapless.encodings.bagpipe.parameters import Bound
from gapless.encodings.bagpipe.partition.batch import Sharing, pair_costs
from gapless.encodings.bagpipe.partition.transport import transport
from gapless.options import Deadline
from gapless.profiles.traces.bags import Lookups, lookups

__all__ = ["away_bound", "fetches_bound", "max_load_bound"]

Rate: TypeAlias = "NDArray[np.number]"

_MOST_WEIGHTS = 2**24
"""Weights in all; where there would be more, fewer lean, and of the last ids none: the bound is weaker, and holds."""

_WEIGHT_UNIT = 2**16
_RATE_UNIT = 2**12


def fetches_bound(sharing: Sharing, capacity: Ints, parameters: Bound, deadline: Deadline) -> int:
    """What every partition fetches at least."""
    game = _FetchGame(sharing, capacity, parameters)
    ones, zeros = np.ones(sharing.trainers), np.zeros(sharing.trainers)
    for _ in _rounds(parameters, deadline):
        game.play(ones, zeros)
    return -(-game.bound(ones.astype(np.int64), zeros.astype(np.int64)) // _WEIGHT_UNIT)


def max_load_bound(sharing: Sharing, capacity: Ints, parameters: Bound, deadline: Deadline) -> int:
    """What the busiest trainer of every partition receives and sends at least."""
    game = _FetchGame(sharing, capacity, parameters)
    rate = np.ones(sharing.trainers)
    for _ in _rounds(parameters, deadline):
        game.play(rate, rate)
        load = game.loads()
        rate = rate * np.exp(parameters.rate_step * (load / max(load.mean(), 1e-9) - 1))
        rate /= rate.mean()
    whole = np.floor(rate * _RATE_UNIT).astype(np.int64)
    return -(-game.bound(whole, whole) // (_WEIGHT_UNIT * int(whole.sum())))


def away_bound(index: Lookups, root: Ints, capacity: Ints, parameters: Bound, deadline: Deadline) -> int:
    """How many rows that have a root are used elsewhere too at least, in every partition.

    `index`: the places of the examples' rows, none twice in an example. `root`: int64 (n,), -1 for none.
    """
    game = _CutGame(index, root, capacity, parameters)
    for _ in _rounds(parameters, deadline):
        game.play()
    return game.bound()


def _rounds(parameters: Bound, deadline: Deadline) -> Iterator[int]:
    """Numbers of the rounds for which there is time."""
    for number in range(parameters.rounds):
        if deadline.over:
            return
        yield number


class _Prices:
    """Prices of the trainers' places, which rise where examples crowd; where the examples were assigned last."""

    def __init__(self, capacity: Ints, step: float) -> None:
        self.capacity, self._step = capacity, step
        self.price = np.where(capacity > 0, 0.0, 1e9)  # no example is assigned to a trainer without places
        self.assigned: Floats | None = None

    def assign(self, worth: Floats, temperature: float) -> Floats:
        """Examples over trainers by what each is worth there, softly; returns where they are going, one step ahead."""
        utility = (worth - self.price) / temperature
        assigned = np.exp(utility - utility.max(axis=1, keepdims=True))
        assigned /= assigned.sum(axis=1, keepdims=True)
        is_open = self.capacity > 0
        crowding = assigned.sum(axis=0)[is_open] / self.capacity[is_open]
        self.price[is_open] += self._step * temperature * np.log(np.maximum(crowding, 1e-9))
        ahead = assigned if self.assigned is None else 2 * assigned - self.assigned
        self.assigned = assigned
        return np.asarray(ahead)


@dataclass(frozen=True)
class _Shared:
    """The uses of ids that several examples use and that may get weight, sorted by id.

    `first[k]`: where the uses of the k-th such id begin, `group` its k for each use. `by_example` sorts the uses by
    example; there those of `examples[k]` begin at `example_first[k]`.
    """

    example: Ints
    owner: Ints
    first: Ints
    group: Ints
    by_example: Ints
    examples: Ints
    example_first: Ints

    @classmethod
    def of(cls, sharing: Sharing, preferred: Ints, strength: Ints, most: int) -> _Shared:
        """The uses by the examples that prefer each trainer most strongly, at most so many of each id and trainer."""
        example, id_ = _lookups_of(sharing, sharing.uses > 1)
        pair = id_ * sharing.trainers + preferred[example]
        span = int(strength.max(initial=0)) + 1
        order = np.argsort(pair * span + (span - 1 - strength[example]), kind="stable")
        starts = _starts(pair[order])
        rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
        kept = order[rank < _most_uses(rank, sharing.trainers, most)][: _MOST_WEIGHTS // sharing.trainers]
        id_, example = id_[kept], example[kept]
        first, group = _grouped(id_)
        by_example = np.argsort(example, kind="stable")
        example_first = _starts(example[by_example])
        return cls(
            example=example,
            owner=sharing.owner[id_],
            first=first,
            group=group,
            by_example=by_example,
            examples=example[by_example][example_first],
            example_first=example_first,
        )


class _FetchGame:
    """The weights, the prices of places, and the fractional assignment of examples that follows."""

    def __init__(self, sharing: Sharing, capacity: Ints, parameters: Bound) -> None:
        self.temperature = parameters.temperature
        self.prices = _Prices(capacity, parameters.price_step)
        self.trainers = sharing.trainers
        self.unshared = _unshared_by_owner(sharing)
        alone = self.unshared[:, 1:]
        ranked = np.sort(alone, axis=1)
        strength = ranked[:, -1] - ranked[:, -2] if self.trainers > 1 else ranked[:, 0]
        self.shared = _Shared.of(sharing, alone.argmax(axis=1), strength, parameters.examples)
        self.preference = np.zeros((len(self.shared.example), self.trainers))
        self._weight = self.preference
        self._rates: tuple[Floats, Floats] | None = None

    def play(self, receive: Floats, send: Floats) -> None:
        """One round at these rates."""
        self._weight = self._weights()
        unshared, pairs = self._costs(receive, send)
        cost = unshared + self._shared_cost(self._weight * pairs)
        ahead = self.prices.assign(
            -np.asarray(cost, dtype=np.float64), self.temperature * float((receive + send).mean())
        )
        self.preference += ahead[self.shared.example]

    def bound(self, receive: Ints, send: Ints) -> int:
        """The bound at whole rates and the weights of now, in units of 1 / `_WEIGHT_UNIT` of a row at a rate of 1."""
        weight = np.floor(self._weights() * _WEIGHT_UNIT).astype(np.int64)
        over = np.add.reduceat(weight, self.shared.first, axis=0) if len(weight) else weight
        assert (over <= _WEIGHT_UNIT).all()
        cost = self._unshared_cost(receive, send) * _WEIGHT_UNIT
        cost = cost + self._shared_cost(weight * pair_costs(self.shared.owner, receive, send))
        return transport(
            np.asarray(cost, dtype=np.int64), self.prices.capacity, self._whole_prices(float(receive.mean()))
        ).cost

    def _costs(self, receive: Floats, send: Floats) -> tuple[Rate, Rate]:
        """Of unshared ids and of the uses of shared ones at these rates, computed again only when they change."""
        if self._rates is None or not all(map(np.array_equal, self._rates, (receive, send))):
            self._rates = receive, send
            self._known = self._unshared_cost(receive, send), pair_costs(self.shared.owner, receive, send)
        return self._known

    def _whole_prices(self, rate: float) -> Ints:
        """The prices in the unit of `bound`; only a start for the exact transport."""
        is_open = self.prices.capacity > 0
        return np.where(is_open, np.rint(self.prices.price * _WEIGHT_UNIT * rate), 0).astype(np.int64)

    def _weights(self) -> Floats:
        """Weights that grow exponentially with the preference and add up to 1 over the uses of each id."""
        if not len(self.preference):
            return self.preference
        first, group = self.shared.first, self.shared.group
        weight = _exponentials(self.preference, first, group)
        normed: Floats = weight * (1 / np.add.reduceat(weight, first, axis=0))[group]
        return normed

    def _unshared_cost(self, receive: Rate, send: Rate) -> Rate:
        """What the unshared ids of each example cost on each trainer, exactly."""
        held = self.unshared[:, 1:]
        total = self.unshared.sum(axis=1, keepdims=True)
        cost: Rate = (total - held) * receive + (held @ send)[:, None] - held * send
        return cost

    def _shared_cost(self, cost_of_use: Rate) -> Rate:
        """The costs of uses added up by example, examples x trainers."""
        shared = self.shared
        cost: Rate = np.zeros((len(self.unshared), self.trainers), cost_of_use.dtype)
        if len(cost_of_use):
            cost[shared.examples] = np.add.reduceat(cost_of_use[shared.by_example], shared.example_first, axis=0)
        return cost

    def loads(self) -> Floats:
        """Rows that each trainer would receive and send if examples were split as they were assigned last."""
        weight, assigned = self._weight, self.prices.assigned
        assert assigned is not None, "a round was played"
        held, total = self.unshared[:, 1:], self.unshared.sum(axis=1, keepdims=True)
        received = ((total - held) * assigned).sum(axis=0)
        sent = (held * (1 - assigned)).sum(axis=0)
        used = weight * assigned[self.shared.example]
        owner = self.shared.owner
        owned = np.flatnonzero(owner >= 0)
        used[owned, owner[owned]] = 0.0
        loads: Floats = (
            received + sent + used.sum(axis=0)
            + np.bincount(owner[owned], weights=used[owned].sum(axis=1), minlength=self.trainers)
        )  # fmt: skip
        return loads


class _CutGame:
    """Weights that lean towards examples that are assigned elsewhere."""

    def __init__(self, index: Lookups, root: Ints, capacity: Ints, parameters: Bound) -> None:
        example, row = lookups(index)
        self.temperature, self.examples = parameters.temperature, len(index)
        self.prices = _Prices(capacity, parameters.price_step)
        kept = np.flatnonzero(root[row] >= 0)
        kept = kept[np.argsort(row[kept], kind="stable")]
        self.example, self.root = example[kept], root[row[kept]]
        self.first, self.group = _grouped(row[kept])
        self.preference = np.zeros(len(kept))

    def play(self) -> None:
        """One round; the cost is what isn't held."""
        ahead = self.prices.assign(self._held(self._weights()), self.temperature)
        self.preference += 1.0 - ahead[self.example, self.root]

    def bound(self) -> int:
        """The bound with the weights of now."""
        if not len(self.example):
            return 0
        weight = np.floor(self._weights() * _WEIGHT_UNIT)
        held = np.rint(self._held(weight)).astype(np.int64)  # sums of whole numbers below 2^53
        cost = held.sum(axis=1, keepdims=True) - held
        return -(-transport(cost, self.prices.capacity).cost // _WEIGHT_UNIT)

    def _weights(self) -> Floats:
        """Weights that grow exponentially with the preference and add up to 1 over the uses of each row."""
        if not len(self.preference):
            return self.preference
        weight = _exponentials(self.preference, self.first, self.group)
        normed: Floats = weight / np.add.reduceat(weight, self.first)[self.group]
        return normed

    def _held(self, weight: Floats) -> Floats:
        """By example and trainer, the weights of its rows that have their root there."""
        trainers = len(self.prices.capacity)
        cell = self.example * trainers + self.root
        held: Floats = np.bincount(cell, weights=weight, minlength=self.examples * trainers).astype(np.float64)
        return held.reshape(self.examples, trainers)


def _unshared_by_owner(sharing: Sharing) -> Ints:
    """How many ids that no other example uses each example has, by owner: column 0 none, column 1 + j trainer j."""
    width = sharing.trainers + 1
    example, id_ = _lookups_of(sharing, sharing.uses == 1)
    bins = example * width + 1 + sharing.owner[id_]
    return np.bincount(bins, minlength=sharing.examples * width).reshape(sharing.examples, width).astype(np.int64)


def _lookups_of(sharing: Sharing, wanted: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Example and id of the lookups of some ids."""
    example, id_ = lookups(sharing.index)
    kept = np.flatnonzero(wanted[id_])
    return example[kept], id_[kept].astype(np.int64)


def _most_uses(rank: Ints, trainers: int, most: int) -> int:
    """How many uses per id and trainer may get weight, at most `most`, for there not to be too many weights in all."""
    uses = np.cumsum(np.bincount(np.minimum(rank, most), minlength=most + 1))[:most]
    return max(1, int((uses * trainers <= _MOST_WEIGHTS).sum()))


def _starts(values: NDArray[np.integer]) -> Ints:
    """Where runs of equal values begin."""
    return np.flatnonzero(np.r_[True, np.diff(values) != 0][: len(values)])


def _grouped(values: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """Where runs of equal values begin, and of which run each value is."""
    first = _starts(values)
    return first, np.repeat(np.arange(len(first)), np.diff(np.r_[first, len(values)]))


def _exponentials(preference: Floats, first: Ints, group: Ints) -> Floats:
    """Numbers that grow exponentially with the preference, the largest of each group 1."""
    grown: Floats = np.exp(preference - np.maximum.reduceat(preference, first, axis=0)[group])
    return grown
