"""Optimisers of embedding rows: what each keeps beside a row, which moves with it from server to cache and back.

All trainers that hold a row apply the same sum of gradients to the same state: gradients are synchronised, state never.
"""

from __future__ import annotations

from gapless.io.record import check_known

__all__ = ["OPTIMIZERS", "state_values"]

OPTIMIZERS = ("sgd", "rowwise-adagrad", "adagrad", "adam")
"""Plain descent; Adagrad with one sum of squares a row (the mean over its values), and with one a value; Adam."""


def state_values(optimizer: str, dimension: int) -> int:
    """How many fp32 values an optimiser keeps for a row of `dimension` values. Raises `InputError` for an unknown one.

    >>> [state_values(name, 48) for name in OPTIMIZERS]
    [0, 1, 48, 96]
    """
    check_known("optimizer", optimizer, OPTIMIZERS)
    return {"sgd": 0, "rowwise-adagrad": 1, "adagrad": dimension, "adam": 2 * dimension}[optimizer]
