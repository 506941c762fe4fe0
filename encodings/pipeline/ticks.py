"""Costs in whole ticks, as a solver of whole numbers needs them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.pipeline.stages import Stages

__all__ = ["Ticked", "in_ticks"]

Floats = NDArray[np.float64]

_COLUMNS = ("forward_s", "backward_s", "weight_s", "forward_hop_s", "hop_s", "encode_s", "decode_s", "reduce_s")
_FINEST = 4096
"""Parts of the shortest duration that are tried as a common unit."""
_TICKS = 2.0**28
"""Ticks of a step where durations have no common unit: each op loses less than one, all together less than 1e-6."""
_ROUNDING = 1e-9
"""Whole but for the rounding errors of sums and products of floats."""


@dataclass(frozen=True)
class Ticked:
    """`stages`: the same in ticks, whole numbers in all fields that end in `_s`. `tick_s`: a tick in seconds.
    `is_exact`: whether nothing was lost; otherwise durations are rounded down, so that bounds still hold.
    """

    stages: Stages
    tick_s: float
    is_exact: bool


def in_ticks(stages: Stages, step_s: float) -> Ticked:
    """`step_s`: about how long a step takes, which sets the size of a tick where there is no common unit."""
    columns = {name: np.asarray(getattr(stages, name)) for name in _COLUMNS}
    columns["embedding_s"] = np.asarray(stages.embedding_s)
    durations_s = np.concatenate([column.reshape(-1) for column in columns.values()])
    unit_s = _common_unit_s(durations_s[durations_s > 0])
    tick_s = step_s / _TICKS if unit_s is None else unit_s
    whole = {name: np.floor(column / tick_s * (1 + _ROUNDING) + _ROUNDING) for name, column in columns.items()}
    changes: dict[str, Any] = {**whole, "embedding_s": float(whole["embedding_s"])}
    return Ticked(replace(stages, **changes), tick_s, unit_s is not None)


def _common_unit_s(durations_s: Floats) -> float | None:
    """The largest part of the shortest duration of which all are whole multiples, None where none is fine enough."""
    if not len(durations_s):
        return 1.0
    ratios = durations_s / durations_s.min()
    if ratios.max() * _FINEST > _TICKS:
        return None
    for part in range(1, _FINEST + 1):
        multiples = ratios * part
        if (np.abs(multiples - np.round(multiples)) <= _ROUNDING * multiples).all():
            return float(durations_s.min()) / part
    return None
