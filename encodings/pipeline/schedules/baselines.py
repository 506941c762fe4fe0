"""The schedules that the field runs, by name: each a rule for the order on every rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gapless.encodings.pipeline.order.orders import Order
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.placement.named import Placement
from gapless.encodings.pipeline.schedules.bidirectional import chimera, dualpipe
from gapless.encodings.pipeline.schedules.linear import eager_one_f_one_b, gpipe, one_f_one_b, zb_h1, zb_h2
from gapless.encodings.pipeline.schedules.looped import interleaved, interleaved_zb, looped_bfs
from gapless.encodings.pipeline.schedules.sliced import sequence_one_f_one_b
from gapless.encodings.pipeline.schedules.v import dualpipe_v, hanayo, v_half, v_min, zb_v

__all__ = ["BASELINES", "Baseline", "apart", "suits", "whole"]


@dataclass(frozen=True)
class Baseline:
    """`order(stages)` makes it; `splits`: whether weight gradients are apart; `placement`: the one that it is for.

    `chunks`: stages a rank that it needs, None for any that the placement has; `each_rank`: micro-batches a rank that
    it needs at least. `is_sliced`: whether it is for slices of micro-batches, and for nothing else.
    """

    order: Callable[[Stages], Order]
    splits: bool
    placement: str
    chunks: int | None = None
    each_rank: int = 0
    is_sliced: bool = False


def whole(stages: Stages) -> Stages:
    """The same stages where the gradients of input and weights are one op."""
    if not stages.splits:
        return stages
    none = np.zeros_like(stages.weight_s)
    return replace(stages, backward_s=stages.backward_s + stages.weight_s, weight_s=none, splits=False)


def apart(stages: Stages, order: Order) -> Order:
    """An order of `whole(stages)` where each gradient of weights directly follows that of its input, so that
    no op and no message is later."""
    per_kind = stages.count * stages.micro_batches
    sequences = []
    for sequence in order.sequences:
        behind = sequence[sequence >= per_kind]
        sequences.append(np.insert(sequence, np.flatnonzero(sequence >= per_kind) + 1, behind + per_kind))
    return replace(order, sequences=tuple(sequences))


BASELINES: dict[str, Baseline] = {
    "gpipe": Baseline(gpipe, splits=False, placement="linear"),
    "1f1b": Baseline(one_f_one_b, splits=False, placement="linear"),
    "eager-1f1b": Baseline(eager_one_f_one_b, splits=False, placement="linear"),
    "interleaved-1f1b": Baseline(interleaved, splits=False, placement="looped"),
    "looped-bfs": Baseline(looped_bfs, splits=False, placement="looped"),
    "interleaved-zb": Baseline(interleaved_zb, splits=True, placement="looped"),
    "seq1f1b": Baseline(sequence_one_f_one_b, splits=False, placement="linear", is_sliced=True),
    "zb-h1": Baseline(zb_h1, splits=True, placement="linear"),
    "zb-h2": Baseline(zb_h2, splits=True, placement="linear"),
    "zb-v": Baseline(zb_v, splits=True, placement="v", chunks=2),
    "v-half": Baseline(v_half, splits=True, placement="v", chunks=2),
    "v-min": Baseline(v_min, splits=True, placement="v", chunks=2),
    "dualpipe-v": Baseline(dualpipe_v, splits=True, placement="v", chunks=2, each_rank=2),
    "hanayo": Baseline(hanayo, splits=False, placement="v"),
    "chimera": Baseline(chimera, splits=False, placement="bidirectional"),
    "dualpipe": Baseline(dualpipe, splits=True, placement="bidirectional", each_rank=2),
}
"""By the names that papers and frameworks use."""


def suits(name: str, placement: Placement, stages: Stages) -> bool:
    """Whether a baseline is for these stages."""
    baseline = BASELINES[name]
    chunks, rest = divmod(stages.count, stages.ranks)
    return (
        baseline.placement == placement
        and baseline.is_sliced == (stages.slices > 1)
        and (stages.splits or not baseline.splits)
        and (baseline.chunks is None or (baseline.chunks == chunks and not rest))
        and stages.copies * stages.micro_batches >= baseline.each_rank * stages.ranks
    )
