"""The p-median problem of a layer, for every count of heads whose keys are kept; and bounds on all layers at once.

For a count k: choose k key heads, so that the charges of all heads, each at the cheapest that is chosen, are least. A
bound from prices mostly proves what exchanges have found; else a linear programme does, or a MILP.

With prices u of its heads, no k key heads of a layer are charged less than the sum of u and of the k least
r_g = sum_h min(0, D_hg - u_h): Lagrange's relaxation of "each head uses one" (Cornuejols, Fisher and Nemhauser, 1977).
So one vector of prices bounds every count. Subgradients make those good that are near the counts that the budget
allows, where one more head kept lowers the error by `price`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.model import Model
from gapless.options import Deadline
from gapless.solution import PROVEN_GAP
from gapless.solvers.proofs import solve_proven

__all__ = ["LayerMedians", "encode_median", "exchanged", "guessed", "price_bounds", "proven", "proven_at", "ranked"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHOSEN = 0.5
_ROUNDING = 1e-9
"""An exchange gains more than this share: sums in another order differ by less."""


@dataclass(frozen=True)
class LayerMedians:
    """Of one layer, by count - 1: the `errors` found and `bounds` on them, float, and the key heads `kept`.

    `milps`: for how many counts a MILP was needed.
    """

    errors: Floats
    bounds: Floats
    kept: tuple[tuple[int, ...], ...]
    milps: int = 0

    def is_proven(self, count: int) -> bool:
        """Whether no key heads so many are charged less."""
        error = float(self.errors[count - 1])
        return error - float(self.bounds[count - 1]) <= PROVEN_GAP * error

    def bounded(self, bounds: Floats) -> LayerMedians:
        """The same with these bounds where they say more."""
        return replace(self, bounds=np.minimum(np.maximum(self.bounds, bounds), self.errors))


def guessed(cost: Floats) -> LayerMedians:
    """Good key heads of a layer for every count, by exchanges. `cost`: float, shape (heads, key heads).

    They are the best of one head, and of all but one: exchanges look at every choice of those.
    """
    kept = exchanged(cost)
    errors = np.array([_charge(cost, each) for each in kept])
    number = np.arange(len(kept))
    bounds = np.where((number == 0) | (number >= len(kept) - 2), errors, 0.0)
    return LayerMedians(errors, bounds, tuple(kept))


def ranked(cost: Floats) -> LayerMedians:
    """Some key heads of a layer for every count, in a time that grows with the size of `cost`: the first ones in the
    order of what dropping each alone would cost.
    """
    near, first, second = _two_nearest(cost, list(range(cost.shape[1])))
    order = np.argsort(-np.bincount(near, second - first, cost.shape[1]), kind="stable")
    errors = np.minimum.accumulate(cost[:, order], axis=1).sum(axis=0)
    kept = tuple(tuple(sorted(order[: count + 1].tolist())) for count in range(len(order)))
    return LayerMedians(errors, np.zeros(len(order)), kept)


def proven(cost: Floats, guess: LayerMedians, deadline: Deadline) -> LayerMedians:
    """The best key heads for every count, from good ones; after the deadline, counts keep what they have."""
    for count in range(1, len(guess.kept) + 1):
        if not guess.is_proven(count) and not deadline.over:
            guess = proven_at(cost, guess, count, deadline)
    return guess


def proven_at(cost: Floats, guess: LayerMedians, count: int, deadline: Deadline) -> LayerMedians:
    """The best key heads for one count, from good ones, or what is known of them in time."""
    k, bounds, errors, kept, milps = count - 1, guess.bounds.copy(), guess.errors.copy(), list(guess.kept), guess.milps
    bound, values = _solved(cost, count, deadline, None)
    if errors[k] - bound > PROVEN_GAP * errors[k]:
        milps += 1
        bound, values = _solved(cost, count, deadline, kept[k])
    found = () if values is None else tuple(np.flatnonzero(values > _CHOSEN).tolist())
    if 0 < len(found) <= count and (error := _charge(cost, found)) < errors[k]:
        kept[k], errors[k] = found, error
    bounds[k] = max(bounds[k], bound)
    return LayerMedians(errors, np.minimum(bounds, errors), tuple(kept), milps)


def _charge(cost: Floats, kept: tuple[int, ...]) -> float:
    return float(cost[:, list(kept)].min(axis=1).sum())


def exchanged(cost: Floats) -> list[tuple[int, ...]]:
    """Good key heads for every count, fewest first: one more is dropped at a time, then exchanges gain."""
    chosen, found = list(range(cost.shape[1])), []
    while chosen:
        chosen = _exchange(cost, chosen)
        found.append(tuple(sorted(chosen)))
        near, first, second = _two_nearest(cost, chosen)
        del chosen[int(np.bincount(near, second - first, len(chosen)).argmin())]
    return found[::-1]


def _two_nearest(cost: Floats, chosen: list[int]) -> tuple[Ints, Floats, Floats]:
    """Of each head: the place of the cheapest that is chosen, its charge, and that of the next one (what any other
    would cost at most where there is none).
    """
    offered, heads = cost[:, chosen], np.arange(len(cost))
    near = offered.argmin(axis=1)
    first = offered[heads, near]
    offered[heads, near] = np.inf
    second = offered.min(axis=1)
    return near, first, np.where(np.isfinite(second), second, cost.max(axis=1))


def _exchange(cost: Floats, chosen: list[int]) -> list[int]:
    """One chosen for one that is not, the best of all such pairs, while that gains."""
    chosen = list(chosen)
    charge = _charge(cost, tuple(chosen))
    while True:
        near, first, second = _two_nearest(cost, chosen)
        kept = np.minimum(cost, first[:, None])  # of heads whose cheapest stays
        order = np.argsort(near, kind="stable")
        places, starts = np.unique(near[order], return_index=True)
        extra = (np.minimum(cost, second[:, None]) - kept)[order]  # of those whose cheapest goes
        charges = np.broadcast_to(kept.sum(axis=0), (len(chosen), cost.shape[1])).copy()
        charges[places] += np.add.reduceat(extra, starts, axis=0)
        charges[:, chosen] = np.inf
        place, other = divmod(int(charges.argmin()), cost.shape[1])
        swapped = [*chosen[:place], other, *chosen[place + 1 :]]
        if other in chosen or (after := _charge(cost, tuple(swapped))) >= charge * (1 - _ROUNDING):
            return chosen
        chosen, charge = swapped, after


def _solved(cost: Floats, count: int, deadline: Deadline, start: tuple[int, ...] | None) -> tuple[float, Floats | None]:
    """A bound on a count's error, and the columns `y` of the solution: of the MILP with a start, else relaxed."""
    scale = float(cost.max()) or 1.0
    model, kept, used = encode_median(cost / scale, count, is_integer=start is not None)
    values = None
    if start is not None:
        values = np.zeros(model.column_count)
        values[kept[list(start)]] = 1.0
        nearest = np.array(start)[cost[:, list(start)].argmin(axis=1)]
        values[used[np.arange(len(cost)), nearest]] = 1.0
    solution = solve_proven(model, replace(deadline.stage(), on_progress=None, gap=0.0), "highs", values)
    bound = 0.0 if solution.bound is None else scale * solution.bound
    return bound, None if solution.values is None else solution.values[kept]


def encode_median(cost: Floats, count: int, is_integer: bool = True) -> tuple[Model, Ints, Ints]:
    """The p-median model, and the ids of `y[g]`, whether g is kept, and of `z[h, g]`, whether head h uses g."""
    model, (heads, key_heads) = Model("p-median"), cost.shape
    kept = model.binaries("kept", key_heads) if is_integer else model.continuous("kept", key_heads, upper=1.0)
    used = model.continuous("used", (heads, key_heads), upper=1.0)
    model.add("a_head_uses_one", (1.0, used), lower=1.0, upper=1.0)
    model.add("which_is_kept", (1.0, used[..., None]), (-1.0, np.broadcast_to(kept[:, None], (heads, key_heads, 1))),
              upper=0.0)  # fmt: skip
    model.add("so_many_are_kept", (1.0, kept), upper=float(count))
    model.minimize((cost.reshape(-1), used.reshape(-1)))
    return model, kept, used


_UNCHANGED = 8
"""Rounds after which a layer whose bound has not risen takes steps of half the length."""


def price_bounds(cost: Floats, errors: Floats, price: float, rounds: int, deadline: Deadline) -> Floats:
    """What the heads of each layer are charged at least, for every count: float, shape (layers, key heads).

    `cost`: float, shape (layers, heads, key heads). `errors`: as found, float, shape (layers, key heads). `rounds` of
    subgradient steps, fewer after the deadline.
    """
    layers, _, key_heads = cost.shape
    counts = np.arange(1, key_heads + 1)
    goal = (errors + price * counts).min(axis=1)
    paid = np.sort(cost, axis=2)[:, :, min(1, key_heads - 1)]
    best, value = np.zeros((layers, key_heads)), np.full(layers, -np.inf)
    length, since = np.full(layers, 1.0), np.zeros(layers, dtype=np.int64)
    for _ in range(rounds):
        below = np.minimum(cost - paid[:, :, None], 0.0)
        worth = below.sum(axis=1)
        total = paid.sum(axis=1)
        best = np.maximum(best, total[:, None] + np.cumsum(np.sort(worth, axis=1), axis=1))
        is_open = worth < -price
        found = total + np.where(is_open, worth + price, 0.0).sum(axis=1)
        since = np.where(found > value, 0, since + 1)
        value = np.maximum(value, found)
        length = np.where(since >= _UNCHANGED, length / 2, length)
        since[since >= _UNCHANGED] = 0
        served = ((below < 0) & is_open[:, None]).sum(axis=2)
        slope = 1.0 - served
        norm = (slope**2).sum(axis=1)
        if deadline.over or not norm.any():
            break
        step = length * np.maximum(goal - found, 0.0) / np.maximum(norm, 1.0)
        paid = paid + step[:, None] * slope
    return np.maximum.accumulate(best[:, ::-1], axis=1)[:, ::-1]  # more heads are charged no more
