"""The bandwidth at which compression stops paying: by bisection, for any model of what it saves."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["crossover_bytes_per_s"]

_DECADES = tuple(10.0**exponent / 8 for exponent in range(6, 14))
"""1 Mb/s to 10 Tb/s."""


def crossover_bytes_per_s(saved_s: Callable[[float], float], precision: float = 1e-6) -> float:
    """The highest bandwidth up to which `saved_s(bytes_per_s)` is positive, to a relative `precision`.

    inf: it still is at 10 Tb/s; 0: it is at no power of ten from 1 Mb/s on. What is saved may rise again:
    the search starts at the highest decade where it is positive.
    """
    paying = [decade for decade in _DECADES if saved_s(decade) > 0]
    if not paying:
        return 0.0
    if paying[-1] == _DECADES[-1]:
        return math.inf
    low, high = paying[-1], 10 * paying[-1]
    while high / low > 1 + precision:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if saved_s(middle) > 0 else (low, middle)
    return math.sqrt(low * high)
