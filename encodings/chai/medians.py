"""The p-median problem of a layer, for every count of heads whose keys are kept.

For a count k: choose k key heads, so that the charges of all heads, each at the cheapest that is chosen, are least. A
linear programme's bound mostly proves what exchanges have found; where it doesn't, a MILP does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.model import Model
from gapless.options import Deadline
from gapless.solution import PROVEN_GAP
from gapless.solvers.proofs import solve_proven

__all__ = ["LayerMedians", "encode_median", "exchanged", "guessed", "proven"]

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


def guessed(cost: Floats) -> LayerMedians:
    """Good key heads of a layer for every count, by exchanges. `cost`: float, shape (heads, key heads).

    They are the best of one head, and of all but one: exchanges look at every choice of those.
    """
    kept = exchanged(cost)
    errors = np.array([_charge(cost, each) for each in kept])
    number = np.arange(len(kept))
    bounds = np.where((number == 0) | (number >= len(kept) - 2), errors, 0.0)
    return LayerMedians(errors, bounds, tuple(kept))


def proven(cost: Floats, guess: LayerMedians, deadline: Deadline) -> LayerMedians:
    """The best key heads for every count, from good ones; after the deadline, counts keep what they have."""
    kept, errors, bounds, milps = list(guess.kept), guess.errors.copy(), guess.bounds.copy(), 0
    for k, each in enumerate(guess.kept):
        if errors[k] == bounds[k] or deadline.over:
            continue
        bounds[k], values = _solved(cost, k + 1, deadline, None)
        if errors[k] - bounds[k] > PROVEN_GAP * errors[k]:
            milps += 1
            bounds[k], values = _solved(cost, k + 1, deadline, each)
        found = () if values is None else tuple(np.flatnonzero(values > _CHOSEN).tolist())
        if 0 < len(found) <= k + 1 and (error := _charge(cost, found)) < errors[k]:
            kept[k], errors[k] = found, error
    return LayerMedians(errors, np.minimum(bounds, errors), tuple(kept), milps)


def _charge(cost: Floats, kept: tuple[int, ...]) -> float:
    return float(cost[:, list(kept)].min(axis=1).sum())


def exchanged(cost: Floats) -> list[tuple[int, ...]]:
    """Good key heads for every count, fewest first: one more is dropped at a time, then exchanges gain."""
    chosen, found = list(range(cost.shape[1])), []
    while chosen:
        chosen = _exchange(cost, chosen)
        found.append(tuple(sorted(chosen)))
        del chosen[int(np.argmin([_rest(cost, chosen, place).sum() for place in range(len(chosen))]))]
    return found[::-1]


def _rest(cost: Floats, chosen: list[int], place: int) -> Floats:
    """What each head is charged without one of those chosen, float, shape (heads,)."""
    return np.asarray(cost[:, chosen[:place] + chosen[place + 1 :]].min(axis=1, initial=np.inf))


def _exchange(cost: Floats, chosen: list[int]) -> list[int]:
    """One chosen for one that is not, the best of all such pairs, while that gains."""
    chosen = list(chosen)
    while True:
        best = _charge(cost, tuple(chosen)) * (1 - _ROUNDING)
        swap = None
        for place in range(len(chosen)):
            charges = np.minimum(_rest(cost, chosen, place)[:, None], cost).sum(axis=0)
            other = int(charges.argmin())
            if charges[other] < best and other not in chosen:
                best, swap = float(charges[other]), (place, other)
        if swap is None:
            return chosen
        chosen[swap[0]] = swap[1]


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
