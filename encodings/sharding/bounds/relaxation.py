"""A bound by the linear relaxation, whose duals are proven in whole numbers, and what it rules out, again and again.

Interior points without a vertex find duals of this degenerate relaxation in seconds, accurate to some 1e-8 of the cost.
What they rule out leaves a smaller instance, with what its plans cost alike paid off, so that the next duals are as
accurate beside the gap that is left.

Where memory decides nothing, the relaxation is often whole: simplex ends at a vertex, which is a plan then, in a fifth
of the time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.sharding.bounds.dual import Multipliers, proof
from gapless.encodings.sharding.bounds.model import built
from gapless.encodings.sharding.bounds.pairs import Pairs, pairs_of
from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.presolve.reduced import Narrowing, Reduced, narrowed
from gapless.options import Deadline
from gapless.solvers.registry import solve_model

Floats = NDArray[np.float64]

__all__ = ["Relaxed", "relaxed", "size_of"]

_WORTH = 0.1
"""The share of the pairs that a round has to rule out for another one to follow."""


@dataclass(frozen=True, repr=False)
class Relaxed:
    """`bound`: no plan costs less, or none that is cheaper than asked for; a whole number. `reduced`: the last instance
    that the relaxation was solved for, `shares` how much of each choice it takes, `charges` what each pays for memory,
    float, shape (choices,), and `narrowing` what cheaper plans can have in it. `left`: what they are within, None where
    there is none.
    """

    bound: int
    reduced: Reduced
    shares: Floats
    charges: Floats
    narrowing: Narrowing
    left: Reduced | None

    @property
    def nearest(self) -> Ints:
        """The choice of each node that the relaxation has most of, int64, shape (nodes,), counted from 0."""
        starts = self.reduced.starts
        spans = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        return np.array([int(self.shares[start:stop].argmax()) for start, stop in spans], dtype=np.int64)


def size_of(reduced: Reduced) -> int:
    """Columns of the relaxation, which its time grows with."""
    return len(reduced.costs) + int(reduced.factors.is_open(reduced.tables).sum()) + len(reduced.points.room)


def relaxed(reduced: Reduced, below: int | None, deadline: Deadline) -> Relaxed:
    """The relaxation's bound on plans cheaper than `below`, on all plans where that is None."""
    bound = reduced.offset
    while True:
        found = _round(reduced, below, deadline)
        bound = max(bound, found.bound)
        left = found.left
        if left is None and below is not None:
            return replace(found, bound=below)
        if left is None or below is None or deadline.over or size_of(left) >= (1 - _WORTH) * size_of(reduced):
            return replace(found, bound=bound)
        if not left.node_count:
            return replace(found, bound=max(bound, left.offset))
        reduced = left


def _round(reduced: Reduced, below: int | None, deadline: Deadline) -> Relaxed:
    pairs = pairs_of(reduced)
    multipliers, shares = _multipliers(reduced, pairs, below, deadline)
    shown = proof(reduced, pairs, multipliers, below)
    left = None if shown.is_closed else narrowed(reduced, shown.narrowing)
    return Relaxed(shown.bound, reduced, shares, _charges(reduced, multipliers), shown.narrowing, left)


def _charges(reduced: Reduced, multipliers: Multipliers) -> Floats:
    """What each choice pays for memory."""
    points, before = reduced.points, np.concatenate([[0.0], np.cumsum(multipliers.memory)])
    paid = (before[points.end] - before[points.first]) * points.used
    return np.bincount(points.choice, paid, len(reduced.costs)).astype(np.float64)


def _multipliers(reduced: Reduced, pairs: Pairs, below: int | None, deadline: Deadline) -> tuple[Multipliers, Floats]:
    """The relaxation's duals, all zero where it has none, and how much of each choice it takes."""
    for is_elastic in (False, True):  # without a feasible point, duals say nothing: then memory may be bought
        model = built(reduced, pairs, below, is_integer=False, is_elastic=is_elastic)
        options = replace(
            deadline.stage(),
            threads=1,
            interior=bool(len(reduced.points.room)),
            on_progress=None,
            on_point=None,
            step_limit=None,
        )
        found = solve_model(model.model, options)
        if found.row_prices is not None and found.values is not None:
            multipliers = model.multipliers(pairs, len(reduced.points.room), found.row_prices)
            return multipliers, found.values[model.choices]
        if deadline.over:
            break
    zero = Multipliers(
        np.zeros(len(reduced.points.room)), np.zeros(len(pairs.row_choice)), np.zeros(len(pairs.column_choice))
    )
    return zero, np.repeat(1.0 / reduced.sizes, reduced.sizes)
