"""The schedules that the field runs, by name: each a rule for the order on every rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import Kind, Order, number, plain

__all__ = ["BASELINES", "Baseline", "suits", "whole"]

F, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT  # noqa: E741, the field's letters


@dataclass(frozen=True)
class Baseline:
    """`order(stages)` makes it; `splits`: whether weight gradients are apart; `placement`: the one that it is for."""

    order: Callable[[Stages], Order]
    splits: bool
    placement: str


def whole(stages: Stages) -> Stages:
    """The same stages where the gradients of input and weights are one op."""
    if not stages.splits:
        return stages
    none = np.zeros_like(stages.weight_s)
    return replace(stages, backward_s=stages.backward_s + stages.weight_s, weight_s=none, splits=False)


def gpipe(stages: Stages) -> Order:
    """All forwards, then all backwards (GPipe)."""
    return _warm_then_alternate(stages, lambda rank: stages.micro_batches)


def one_f_one_b(stages: Stages) -> Order:
    """As few forwards as the depth below a rank needs, then one backward for each forward (PipeDream-Flush, 1F1B)."""
    return _warm_then_alternate(stages, lambda rank: stages.ranks - 1 - rank)


def eager_one_f_one_b(stages: Stages) -> Order:
    """1F1B with twice the forwards ahead, which hides the hops."""
    return _warm_then_alternate(stages, lambda rank: 2 * (stages.ranks - 1 - rank))


def _warm_then_alternate(stages: Stages, ahead: Callable[[int], int]) -> Order:
    sequences = []
    for rank in range(stages.ranks):
        first = min(ahead(rank), stages.micro_batches)
        ops = [(F, m) for m in range(first)]
        for m in range(stages.micro_batches):
            if first + m < stages.micro_batches:
                ops.append((F, first + m))
            ops.append((I, m))
        sequences.append([number(stages, kind, rank, m) for kind, m in ops])
    return plain(stages, sequences)


def interleaved(stages: Stages) -> Order:
    """1F1B over several chunks a rank, in groups of P micro-batches (Megatron-LM's interleaved schedule)."""
    ranks, micro_batches = stages.ranks, stages.micro_batches
    chunks = stages.count // ranks
    total = chunks * micro_batches

    def at(rank: int, step: int, backwards: bool) -> int:
        group, within = divmod(step, ranks * chunks)
        size = min(ranks, micro_batches - group * ranks)  # the last group may be smaller
        chunk, m = divmod(within, size)
        stage = (chunks - 1 - chunk if backwards else chunk) * ranks + rank
        return number(stages, I if backwards else F, stage, group * ranks + m)

    sequences = []
    for rank in range(ranks):
        first = min(2 * (ranks - 1 - rank) + (chunks - 1) * ranks, total)
        ops = [at(rank, step, False) for step in range(first)]
        for step in range(total):
            if first + step < total:
                ops.append(at(rank, first + step, False))
            ops.append(at(rank, step, True))
        sequences.append(ops)
    return plain(stages, sequences)


def zb_h1(stages: Stages) -> Order:
    """1F1B's forwards and memory, each rank's weight gradients so late that its bubbles at the end are filled."""
    return _split(stages, ahead=lambda rank: stages.ranks - 1 - rank, behind=lambda rank: rank)


def zb_h2(stages: Stages) -> Order:
    """Twice the forwards ahead, and no bubble but for the ramp (Zero bubble pipeline parallelism, ZB-H2)."""
    return _split(stages, ahead=lambda rank: 2 * (stages.ranks - 1 - rank), behind=lambda rank: 2 * rank)


def _split(stages: Stages, ahead: Callable[[int], int], behind: Callable[[int], int]) -> Order:
    """`behind(rank)`: how many weight gradients wait at most once backwards have begun, until no forward is left."""
    micro_batches, sequences = stages.micro_batches, []
    for rank in range(stages.ranks):
        first, done = min(ahead(rank), micro_batches), 0
        ops = [(F, m) for m in range(first)]
        for m in range(micro_batches):
            if first + m < micro_batches:
                ops.append((F, first + m))
            ops.append((I, m))
            if m + 1 - done > behind(rank):
                ops.append((W, done))
                done += 1
        ops += [(W, m) for m in range(done, micro_batches)]
        sequences.append([number(stages, kind, rank, m) for kind, m in ops])
    return plain(stages, sequences)


def zb_v(stages: Stages) -> Order:
    """Two chunks a rank in a V, as much memory as 1F1B, hardly a bubble (ZB-V)."""
    sequences = []
    for rank in range(stages.ranks):
        line = _Line(stages, rank)
        for _ in range(2 * (stages.ranks - rank) - 1):
            line.run(F, 0)
        for _ in range(rank):
            line.run(F, 1)
            line.run(F, 0)
        for _ in range(stages.ranks - rank):
            line.run(F, 1)
            line.run(I, 1)
            line.run(W, 1)
        while line.done[F, 1] < line.done[F, 0] or line.done[F, 0] < stages.micro_batches:
            line.run(F, 0)
            line.run(I, 0)
            line.run(W, 0)
            line.run(F, 1)
            line.run(I, 1)
            line.run(W, 1)
        for _ in range(rank):
            line.run(I, 0)
            line.run(I, 1)
        for _ in range(stages.ranks - rank):
            line.run(I, 0)
            line.run(W, 0)
        for chunk in (1, 0):
            while line.done[W, chunk] < stages.micro_batches:
                line.run(I, chunk)
                line.run(W, chunk)
        sequences.append(line.ops)
    return plain(stages, sequences)


class _Line:
    """A rank's ops in the making: the next micro-batch of a kind and chunk, if there is one left."""

    def __init__(self, stages: Stages, rank: int) -> None:
        self.stages, self.ops = stages, list[int]()
        self.stage = np.flatnonzero(stages.rank == rank).tolist()
        self.done = dict.fromkeys([(kind, chunk) for kind in (F, I, W) for chunk in range(len(self.stage))], 0)

    def run(self, kind: Kind, chunk: int) -> None:
        m = self.done[kind, chunk]
        if m < self.stages.micro_batches and (kind is not W or m < self.done[I, chunk]):
            self.ops.append(number(self.stages, kind, self.stage[chunk], m))
            self.done[kind, chunk] += 1


BASELINES: dict[str, Baseline] = {
    "gpipe": Baseline(gpipe, splits=False, placement="linear"),
    "1f1b": Baseline(one_f_one_b, splits=False, placement="linear"),
    "eager-1f1b": Baseline(eager_one_f_one_b, splits=False, placement="linear"),
    "interleaved-1f1b": Baseline(interleaved, splits=False, placement="looped"),
    "zb-h1": Baseline(zb_h1, splits=True, placement="linear"),
    "zb-h2": Baseline(zb_h2, splits=True, placement="linear"),
    "zb-v": Baseline(zb_v, splits=True, placement="v"),
}
"""By the names that papers and frameworks use."""


def suits(name: str, placement: str, stages: Stages) -> bool:
    """Whether a baseline is for these stages."""
    baseline = BASELINES[name]
    is_double = stages.count == 2 * stages.ranks
    return (
        baseline.placement == placement and (stages.splits or not baseline.splits) and (placement != "v" or is_double)
    )
