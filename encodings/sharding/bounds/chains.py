"""What messages prove: a sweep's bound on all plans, computed anew in whole numbers.

After a sweep, a node keeps a part of what it and the messages to it make its choices cost; each edge to a later node
has the rest. Those edges cost nothing at least, so that the least of all nodes together is the sweep's bound. As
multipliers, that goes to `proof`, and no rounding of the sweep counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.bounds.dual import Multipliers, proof
from gapless.encodings.sharding.bounds.pairs import pairs_of
from gapless.encodings.sharding.methods import Found, ShardingSearch
from gapless.encodings.sharding.presolve.reduced import Reduced
from gapless.encodings.sharding.search.arrays import arrays_of, ranges
from gapless.encodings.sharding.search.kernels import sweep
from gapless.encodings.sharding.search.messages import LAST_TARGET, Pace, Tuning, tuning_of
from gapless.encodings.sharding.search.messages import METHOD as MESSAGES
from gapless.encodings.sharding.search.moves import Moves

__all__ = ["METHOD", "first_bound", "multipliers_of", "prices", "proven"]

METHOD = "prices"

Floats = NDArray[np.float64]

_PACE = Pace(patience=40, nearer=0.7, smoothing=0.3, worth=1e-5, is_averaged=True)
_FIRST_TARGET = 0.02
"""Of the target where rounds for the bound alone begin."""
_AGAIN_TARGET = 0.01
"""Of the target where rounds begin anew; half of it the next time."""
_LEAST_TARGET = 1e-4
_REPORTED = 200
"""Rounds from one bound to the next."""


def multipliers_of(left: Reduced, tuning: Tuning) -> Multipliers:
    """The multipliers of the best bound of messages."""
    assert tuning.kept is not None, "there was a round"
    arrays, (memory, kept) = tuning.arrays, tuning.kept
    messages, costs = kept.copy(), arrays.priced(memory)
    sweep(arrays, tuning.kept_order, costs, tuning.tables, tuning.starts, messages, tuning.choices.copy())
    rank = np.empty(arrays.node_count, dtype=np.int64)
    rank[tuning.kept_order] = np.arange(arrays.node_count)
    owner = np.repeat(np.arange(arrays.node_count), np.diff(arrays.slot_starts))
    is_later = rank[arrays.other] > rank[owner]
    later, slots = (np.bincount(owner, weights, arrays.node_count) for weights in (is_later, None))
    share = 1.0 / np.maximum(np.maximum(later, slots - later), 1.0)
    counts = arrays.sizes[owner]
    slot, choice = np.repeat(np.arange(len(owner)), counts), np.repeat(arrays.starts[owner], counts) + ranges(counts)
    total = costs + np.bincount(choice, messages, len(costs))
    paid = np.where(is_later[slot], messages - share[owner[slot]] * total[choice], messages)
    return Multipliers(memory, *(_of_ends(left, tuning, paid, side) for side in (0, 1)))


def _of_ends(left: Reduced, tuning: Tuning, paid: Floats, side: int) -> Floats:
    """What the choices of the edges' first or second nodes pay, edge by edge."""
    nodes = left.ends[:, side]
    order = np.argsort(left.ends.T.reshape(-1), kind="stable")
    slot_of = np.empty(len(order), dtype=np.int64)
    slot_of[order] = np.arange(len(order))
    slots, counts = slot_of[side * len(nodes) : (side + 1) * len(nodes)], left.sizes[nodes]
    found: Floats = paid[np.repeat(tuning.starts[slots], counts) + ranges(counts)]
    return found


def proven(left: Reduced, tuning: Tuning) -> int:
    """What no plan costs less than."""
    return proof(left, pairs_of(left), multipliers_of(left, tuning)).bound


def first_bound(search: ShardingSearch) -> Iterator[Found]:
    """What the messages prove that plans were decoded from."""
    if isinstance(search.tuning, Tuning) and search.tuning.kept is not None:
        yield Found(MESSAGES, bound=proven(search.left, search.tuning))


def prices(search: ShardingSearch) -> Iterator[Found]:
    """Bounds from further rounds; where they stand still, the target goes up again."""
    left, random = search.left, np.random.default_rng(search.options.seed)
    tuning = search.tuning if isinstance(search.tuning, Tuning) else _begun(search, random)
    tuning.pace, tuning.target, tuning.waited = _PACE, max(tuning.target, _FIRST_TARGET), 0
    direction: Floats = np.zeros(len(tuning.arrays.room))
    reported, again = -np.inf, _AGAIN_TARGET
    for number in range(search.parameters.price_rounds):
        if search.is_over:
            break
        if tuning.target < LAST_TARGET:
            tuning.target, tuning.waited, again = again, 0, max(again / 2, _LEAST_TARGET)

        direction = tuning.round(direction)
        if number % _REPORTED == _REPORTED - 1 and tuning.bound > reported:
            reported = tuning.bound
            yield Found(METHOD, bound=proven(left, tuning))
    if tuning.kept is not None and tuning.bound > reported:
        yield Found(METHOD, bound=proven(left, tuning))


def _begun(search: ShardingSearch, random: np.random.Generator) -> Tuning:
    arrays = arrays_of(search.left)
    moves = Moves(arrays, search.parameters.elimination_entries, random, lambda: search.is_over)
    choices = np.zeros(arrays.node_count, dtype=np.int64) if search.choices is None else search.choices
    return tuning_of(moves, choices, np.zeros(len(arrays.room)) if search.prices is None else search.prices)
