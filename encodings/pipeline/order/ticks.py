"""Stages in ticks: whole numbers for all durations, as models of whole numbers need them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.pipeline.order.messages import waiting_links
from gapless.encodings.pipeline.order.stages import ROUNDING, Stages

__all__ = ["Ticked", "in_ticks", "refined"]

_COLUMNS = ("forward_s", "backward_s", "weight_s", "forward_hop_s", "hop_s", "encode_s", "decode_s", "reduce_s")
_FINEST = 4096
"""Parts of the shortest duration that are tried as a common unit."""
_MOST_MEAN = 10
"""Ranks and links over which means are whole numbers of parts of a tick: 2520 parts."""
_TICKS = 2.0**28
"""Ticks of a step where durations have no common unit: each op loses less than one, all together less than 1e-6."""


@dataclass(frozen=True)
class Ticked:
    """`stages`: the same in ticks, whole numbers in all fields that end in `_s`. `tick_s`: a tick in seconds.
    `is_exact`: whether nothing was lost; otherwise durations are rounded down, so that bounds still hold.
    """

    stages: Stages
    tick_s: float
    is_exact: bool


def refined(ticked: Ticked, cost_s: float) -> tuple[Ticked, int]:
    """For models whose times are whole: ticks so fine that the longest span of every order is a whole number of them,
    and by how many ticks more than that the least of whole numbers may be.

    A span is the mean of a cycle through some of the ranks and links, so a whole number over how many they are.
    """
    stages = ticked.stages
    if not stages.by_span:
        return ticked, 0
    machines = stages.ranks + len(waiting_links(stages))
    parts, is_whole = math.lcm(*range(1, min(machines, _MOST_MEAN) + 1)), machines <= _MOST_MEAN
    if not ticked.is_exact or cost_s / ticked.tick_s * parts > _TICKS:
        return ticked, 1
    columns = {name: getattr(stages, name) * parts for name in (*_COLUMNS, "embedding_s")}
    return replace(ticked, stages=replace(stages, **columns), tick_s=ticked.tick_s / parts), int(not is_whole)


def in_ticks(stages: Stages, step_s: float) -> Ticked:
    """`step_s`: about how long a step takes, which sets the size of a tick where there is no common unit."""
    columns = {name: np.asarray(getattr(stages, name)) for name in (*_COLUMNS, *(["offload_s"] * stages.offloads))}
    columns["embedding_s"] = np.asarray(stages.embedding_s)
    cells = [*stages.least_s, stages.cell_s(stages.forward_s[:, None], stages.backward_s)] if stages.has_cells else []
    durations_s = np.concatenate([column.reshape(-1) for column in (*columns.values(), *cells)])
    unit_s = _common_unit_s(durations_s[durations_s > 0])
    tick_s = step_s / _TICKS if unit_s is None else unit_s
    whole = {name: np.floor(column / tick_s * (1 + ROUNDING) + ROUNDING) for name, column in columns.items()}
    changes: dict[str, Any] = {**whole, "embedding_s": float(whole["embedding_s"]), "is_whole": True}
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
        if (np.abs(multiples - np.round(multiples)) <= ROUNDING * multiples).all():
            return float(durations_s.min()) / part
    return None
