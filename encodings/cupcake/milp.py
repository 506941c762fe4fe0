"""A second opinion: the fusion problem as a path through the cuts, for any cost functions.

A grouping is a path from cut 0 to cut N, an arc (i, j) a group of the gradients i..j-1. Unrolled, a step ends with the
latest of "group m is compressed, then it and all later groups are sent", so with x(i, j) for the arcs taken::

    end >= R_j + sum over arcs (a, b) with b <= j of h(a, b) x(a, b) + sum over arcs with b >= j of g(a, b) x(a, b)

for every cut j. At a cut inside a group this says less than at the group's end, so it may stand for all cuts: there is
no big-M. Arcs grow with N^2 and entries with N^3: meant for N up to some dozens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.cupcake.fusion import Costs, Fusion
from gapless.model import Model

__all__ = ["Encoding", "decode", "encode", "point"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Encoding:
    """The model, its columns, and the seconds that a unit of its objective stands for.

    `arc[a]`: binary of arc a; `start[a]`, `end[a]`: its cuts, int64. `step_end`: the end of the step.
    """

    model: Model
    start: Ints
    end: Ints
    arc: Ints
    step_end: np.int64
    unit_s: float


def encode(costs: Costs, unit_s: float) -> Encoding:
    """The model; `unit_s` scales times, a step's being a good choice."""
    start, end = np.triu_indices(costs.count + 1, k=1)
    sizes = costs.prefix_bytes[end] - costs.prefix_bytes[start]
    model = Model("cupcake")
    arc = model.binaries("arc", len(start))
    step_end = model.continuous("end", ())
    encoding = Encoding(model, start, end, arc, step_end, unit_s)
    _one_path(encoding, costs)
    _step_ends_last(encoding, costs, costs.compression(sizes) / unit_s, costs.communication(sizes) / unit_s)
    model.minimize((1.0, step_end))
    return encoding


def _one_path(encoding: Encoding, costs: Costs) -> None:
    """Every gradient is in exactly one group: one arc leaves the first cut, and what arrives at a cut leaves it."""
    cuts, ones = costs.count + 1, np.ones(len(encoding.arc))
    balance = np.zeros(cuts)
    balance[0], balance[-1] = 1.0, -1.0
    encoding.model.add_sparse(
        "one path",
        cuts,
        np.concatenate([encoding.start, encoding.end]),
        np.concatenate([encoding.arc, encoding.arc]),
        np.concatenate([ones, -ones]),
        lower=balance,
        upper=balance,
    )


def _step_ends_last(encoding: Encoding, costs: Costs, compress: Floats, send: Floats) -> None:
    """The step ends after each group's compression and all collectives from it on."""
    cuts = np.arange(1, costs.count + 1)
    before, after = encoding.end[None, :] <= cuts[:, None], encoding.end[None, :] >= cuts[:, None]
    row, column = np.nonzero(before | after)
    value = compress[column] * before[row, column] + send[column] * after[row, column]
    encoding.model.add_sparse(
        "step ends last",
        len(cuts),
        np.concatenate([cuts - 1, row]),
        np.concatenate([np.full(len(cuts), encoding.step_end), encoding.arc[column]]),
        np.concatenate([np.ones(len(cuts)), -value]),
        lower=costs.ready_s[1:] / encoding.unit_s,
        cite="Cupcake, equation 1, unrolled",
    )


def decode(encoding: Encoding, values: Floats) -> Fusion:
    """The groups of a point."""
    return Fusion(tuple(sorted(encoding.end[values[encoding.arc] > 0.5].tolist())))


def point(encoding: Encoding, fusion: Fusion, end_s: float) -> Floats:
    """The point of a fusion whose time line ends at `end_s`."""
    values = np.zeros(encoding.model.column_count)
    chosen = {(first, last + 1) for first, last in fusion.groups}
    arcs = zip(encoding.start.tolist(), encoding.end.tolist(), strict=True)
    values[encoding.arc] = [float(arc in chosen) for arc in arcs]
    values[encoding.step_end] = end_s / encoding.unit_s
    return values
