"""That a linear program has no solution, proven in whole numbers, whatever the solver's accuracy (Farkas' lemma)."""

from __future__ import annotations

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.model.arrays import ModelArrays

__all__ = ["refutes"]

_PRICE_BITS = 40
"""Of the largest price, in whole numbers."""
_SIDE_BITS = 20
"""Sides of columns and rows are whole multiples of 2^-20; others prove nothing."""


def refutes(arrays: ModelArrays, prices: Floats) -> bool:
    """Whether the rows, each at most its upper side, are impossible together: summed up with these prices, of either
    sign, they ask for less than the columns' sides allow.

    `prices`: float, one per row. False where a coefficient isn't whole, or a side that counts isn't exact.
    """
    return any(_proves(arrays, np.maximum(sign * np.nan_to_num(prices), 0.0)) for sign in (1.0, -1.0))


def _proves(arrays: ModelArrays, prices: Floats) -> bool:
    largest = float(prices.max(initial=0.0))
    if not largest or not np.isfinite(arrays.row_upper[prices > 0]).all():
        return False
    price = _whole(np.floor(prices / largest * 2.0**_PRICE_BITS))
    upper, low, high = (_whole(side * 2.0**_SIDE_BITS) for side in (arrays.row_upper, arrays.lower, arrays.upper))
    value = _whole(arrays.value)
    if price is None or value is None or upper is None or low is None or high is None:
        return False
    total = np.zeros(len(arrays.cost), dtype=object)
    np.add.at(total, arrays.index, value * price[arrays.row_of_entry])
    least = np.where(total > 0, total * low, total * high)
    return bool(least.sum() > (price * upper).sum())


def _whole(numbers: Floats) -> Ints | None:
    """As Python's whole numbers, None where one isn't whole."""
    if not (np.isfinite(numbers) & (numbers == np.round(numbers))).all():
        return None
    return np.array([int(number) for number in numbers.tolist()], dtype=object)
