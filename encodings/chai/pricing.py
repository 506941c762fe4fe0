"""Bounds on all layers at once, from prices: of a kept head, and of what each head pays to be served.

With prices u of its heads, no k key heads of a layer are charged less than the sum of u and of the k least
r_g = sum_h min(0, D_hg - u_h): Lagrange's relaxation of "each head uses one" (Cornuejols, Fisher and Nemhauser, 1977).
So one vector of prices bounds every count. Subgradients make those good that are near the counts that the budget
allows, where one more head kept lowers the error by `price`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.options import Deadline

__all__ = ["price_bounds"]

Floats = NDArray[np.float64]

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
