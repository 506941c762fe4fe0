"""A second opinion: the fusion problem as a path through the cuts, for any cost functions.

A grouping is a path from cut 0 to cut N, an arc (i, j) a group of the gradients i..j-1. Unrolled, a step ends with the
latest of "group m is compressed, then it and all later groups are sent", so with x(i, j) for the arcs taken::

    end >= R_j + sum over arcs (a, b) with b <= j of h(a, b) x(a, b) + sum over arcs with b >= j of g(a, b) x(a, b)

for every cut j. At a cut inside a group this says less than at the group's end, so it may stand for all cuts: there is
no big-M. The two sums are columns of their own that run from cut to cut, so that arcs and entries grow with N^2: meant
for N up to some hundreds. With several modes there is an arc for each.

Decoding after the collective, d, makes it "group m is compressed, then it and all up to a group n are sent, then n and
all later groups are decoded". What that takes more than sending them all is at least the sum of d over arcs with
b >= n, less the sum of g over arcs with b > n, for each n from m on; a column of its own that rises from cut to cut
holds the most of it. Inside a group it says less, again.

Where cores are counted, the step ends no earlier than the backward pass and the work of all arcs taken, over the cores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.model import Model
from gapless.profiles.gradients.fusion import Costs, Fusion, Timeline

__all__ = ["Encoding", "decode", "encode", "point"]


@dataclass(frozen=True)
class Encoding:
    """The model, its columns, and the seconds that a unit of its objective stands for.

    `arc[a]`: binary of arc a; `start[a]`, `end[a]`: its cuts, `mode[a]`: the number of its mode, int64.
    `compressed[j - 1]`, `to_send[j - 1]`, `to_decode[j - 1]`: the sums of cut j, and `behind[j - 1]` what decoding adds
    to sending from there on; the last two are empty where nothing is decoded after. `step_end`: the end of the step.
    """

    model: Model
    names: tuple[str, ...]
    start: Ints
    end: Ints
    mode: Ints
    arc: Ints
    compressed: Ints
    to_send: Ints
    to_decode: Ints
    behind: Ints
    step_end: np.int64
    unit_s: float


def encode(costs: Costs, unit_s: float) -> Encoding:
    """The model; `unit_s` scales times: the end of a good fusion, so that numbers are near 1."""
    count, after = costs.count, any(mode.decodes_after for mode in costs.modes)
    starts, ends = np.triu_indices(count + 1, k=1)
    start, end = (np.tile(cuts, len(costs.modes)) for cuts in (starts, ends))
    model = Model("cupcake")
    encoding = Encoding(
        model, costs.names, start, end, np.repeat(np.arange(len(costs.modes)), len(starts)),
        model.binaries("arc", len(start)), model.continuous("compressed", count), model.continuous("to send", count),
        model.continuous("to decode", count * after), model.continuous("behind", count * after),
        model.continuous("end", ()), unit_s,
    )  # fmt: skip
    compress_s, send_s, decode_s = (
        np.concatenate([getattr(mode, title)(starts, ends) for mode in costs.modes]) / unit_s
        for title in ("compress_s", "send_s", "decode_s")
    )
    _one_path(encoding, costs)
    _running_sum(encoding, "compressed", encoding.compressed, -1, compress_s)
    _running_sum(encoding, "to send", encoding.to_send, 1, send_s)
    if after:
        _running_sum(encoding, "to decode", encoding.to_decode, 1, decode_s)
        _decoding_is_behind(encoding)
    _step_ends_last(encoding, costs)
    if costs.cores:
        _cores_are_through(encoding, costs)
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


def _decoding_is_behind(encoding: Encoding) -> None:
    """From a cut on, decoding adds what it adds from the next one on, or what is to decode less what is sent after."""
    behind, to_decode, to_send = encoding.behind, encoding.to_decode, encoding.to_send
    falling = np.stack([behind[:-1], behind[1:]], axis=1)
    encoding.model.add("behind as the next", (np.array([1.0, -1.0]), falling), lower=0.0)
    inner = np.stack([behind[:-1], to_decode[:-1], to_send[1:]], axis=1)
    encoding.model.add("behind from here", (np.array([1.0, -1.0, 1.0]), inner), lower=0.0)
    last = np.array([[behind[-1], to_decode[-1]]])
    encoding.model.add("behind at the last", (np.array([1.0, -1.0]), last), lower=0.0)


def _step_ends_last(encoding: Encoding, costs: Costs) -> None:
    """The step ends after each group's compression, all collectives from it on, and what decoding adds."""
    ends = [np.full(costs.count, encoding.step_end), encoding.compressed, encoding.to_send]
    columns = np.stack([*ends, encoding.behind] if len(encoding.behind) else ends, axis=1)
    encoding.model.add(
        "step ends last",
        (np.array([1.0, -1.0, -1.0, -1.0])[: columns.shape[1]], columns),
        lower=costs.ready_s[1:] / encoding.unit_s,
        cite="Cupcake, equation 1, unrolled",
    )


def _cores_are_through(encoding: Encoding, costs: Costs) -> None:
    """The step ends no earlier than its processor seconds over the cores."""
    starts, ends = np.triu_indices(costs.count + 1, k=1)
    work_s = np.concatenate([mode.work_s(starts, ends) for mode in costs.modes])
    work = (costs.worked_s(work_s) - costs.worked_s(0.0)) / encoding.unit_s
    columns = np.append(encoding.arc, encoding.step_end)
    lower = float(costs.worked_s(0.0)) / encoding.unit_s
    encoding.model.add("cores", (np.append(-work, 1.0), columns[np.newaxis]), lower=lower)


def decode(encoding: Encoding, values: Floats) -> Fusion:
    """The groups of a point."""
    taken = np.flatnonzero(values[encoding.arc] > 0.5)
    taken = taken[np.argsort(encoding.end[taken])]
    return Fusion(tuple(encoding.end[taken].tolist()), tuple(encoding.names[mode] for mode in encoding.mode[taken]))


def point(encoding: Encoding, fusion: Fusion, times: Timeline) -> Floats:
    """The point of a fusion with its time line."""
    values = np.zeros(encoding.model.column_count)
    ends = np.array(fusion.ends)
    starts, cuts = np.append(0, ends[:-1]), len(encoding.compressed)
    # Arcs lie in the order of their modes, then of their first cut, then of their last.
    first = np.array([encoding.names.index(name) for name in fusion.modes]) * (cuts * (cuts + 1) // 2)
    values[encoding.arc[first + starts * cuts - starts * (starts - 1) // 2 + ends - starts - 1]] = 1.0
    sums = np.zeros((3, cuts))
    sums[:, ends - 1] = times.compress_s, times.send_s, times.decode_s
    sums[0] = np.cumsum(sums[0])
    sums[1:] = np.cumsum(sums[1:, ::-1], axis=1)[:, ::-1]
    sums /= encoding.unit_s
    values[encoding.compressed], values[encoding.to_send] = sums[:2]
    if len(encoding.behind):
        values[encoding.to_decode] = sums[2]
        values[encoding.behind] = np.maximum.accumulate((sums[2] - np.append(sums[1, 1:], 0.0))[::-1])[::-1]
    values[encoding.step_end] = times.end_s / encoding.unit_s
    return values
