"""Schedules of the field with one stage a rank."""

from __future__ import annotations

from collections.abc import Callable

from gapless.encodings.pipeline.order.orders import Order, number, plain
from gapless.encodings.pipeline.order.stages import Kind, Stages

__all__ = ["eager_one_f_one_b", "gpipe", "one_f_one_b", "zb_h1", "zb_h2"]

F, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT  # noqa: E741, the field's letters


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
