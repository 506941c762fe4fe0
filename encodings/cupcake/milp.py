"""A second opinion: the fusion problem as a path through the cuts, for any cost functions.

A grouping is a path from cut 0 to cut N, an arc (i, j) a group of the gradients i..j-1. Unrolled, a step ends with the
latest of "group m is compressed, then it and all later groups are sent", so with x(i, j) for the arcs taken::

    end >= R_j + sum over arcs (a, b) with b <= j of h(a, b) x(a, b) + sum over arcs with b >= j of g(a, b) x(a, b)

for every cut j. At a cut inside a group this says less than at the group's end, so it may stand for all cuts: there is
no big-M. The two sums are columns of their own that run from cut to cut, so that arcs and entries grow with N^2: meant
for N up to some hundreds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.cupcake.fusion import Costs, Fusion, Timeline
from gapless.model import Model

__all__ = ["Encoding", "decode", "encode", "point"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Encoding:
    """The model, its columns, and the seconds that a unit of its objective stands for.

    `arc[a]`: binary of arc a; `start[a]`, `end[a]`: its cuts, int64. `compressed[j - 1]`, `to_send[j - 1]`: the sums of
    cut j. `step_end`: the end of the step.
    """

    model: Model
    start: Ints
    end: Ints
    arc: Ints
    compressed: Ints
    to_send: Ints
    step_end: np.int64
    unit_s: float


def encode(costs: Costs, unit_s: float) -> Encoding:
    """The model; `unit_s` scales times: the end of a good fusion, so that numbers are near 1."""
    start, end = np.triu_indices(costs.count + 1, k=1)
    sizes = costs.prefix_bytes[end] - costs.prefix_bytes[start]
    model = Model("cupcake")
    arc = model.binaries("arc", len(start))
    compressed, to_send = model.continuous("compressed", costs.count), model.continuous("to send", costs.count)
    encoding = Encoding(model, start, end, arc, compressed, to_send, model.continuous("end", ()), unit_s)
    _one_path(encoding, costs)
    _running_sum(encoding, "compressed", compressed, -1, costs.compression(sizes) / unit_s)
    _running_sum(encoding, "to send", to_send, 1, costs.communication(sizes) / unit_s)
    _step_ends_last(encoding, costs)
    model.minimize((1.0, encoding.step_end))
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


def _running_sum(encoding: Encoding, name: str, total: Ints, step: int, cost: Floats) -> None:
    """The sum of a cut is that of the next one in direction `step`, and the costs of the groups that end here."""
    cuts = np.arange(len(total))
    inner = cuts[(cuts + step >= 0) & (cuts + step < len(total))]
    encoding.model.add_sparse(
        name,
        len(total),
        np.concatenate([cuts, inner, encoding.end - 1]),
        np.concatenate([total, total[inner + step], encoding.arc]),
        np.concatenate([np.ones(len(cuts)), -np.ones(len(inner)), -cost]),
        lower=0.0,
        upper=0.0,
    )


def _step_ends_last(encoding: Encoding, costs: Costs) -> None:
    """The step ends after each group's compression and all collectives from it on."""
    columns = np.stack([np.full(costs.count, encoding.step_end), encoding.compressed, encoding.to_send], axis=1)
    encoding.model.add(
        "step ends last",
        (np.array([1.0, -1.0, -1.0]), columns),
        lower=costs.ready_s[1:] / encoding.unit_s,
        cite="Cupcake, equation 1, unrolled",
    )


def decode(encoding: Encoding, values: Floats) -> Fusion:
    """The groups of a point."""
    return Fusion(tuple(sorted(encoding.end[values[encoding.arc] > 0.5].tolist())))


def point(encoding: Encoding, fusion: Fusion, times: Timeline) -> Floats:
    """The point of a fusion with its time line."""
    values = np.zeros(encoding.model.column_count)
    ends = np.array(fusion.ends)
    starts, cuts = np.append(0, ends[:-1]), len(encoding.compressed)
    # Arcs lie in the order of their first cut, then of their last.
    values[encoding.arc[starts * cuts - starts * (starts - 1) // 2 + ends - starts - 1]] = 1.0
    sums = np.zeros((2, cuts))
    sums[:, ends - 1] = times.compress_s, times.send_s
    values[encoding.compressed] = np.cumsum(sums[0]) / encoding.unit_s
    values[encoding.to_send] = np.cumsum(sums[1, ::-1])[::-1] / encoding.unit_s
    values[encoding.step_end] = times.end_s / encoding.unit_s
    return values
