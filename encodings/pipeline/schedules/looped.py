"""Schedules of the field that go around all ranks as often as a rank has stages."""

from __future__ import annotations

from gapless.encodings.pipeline.order.orders import Order, number, plain
from gapless.encodings.pipeline.order.stages import Kind, Stages

__all__ = ["interleaved", "interleaved_zb", "looped_bfs"]

F, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT  # noqa: E741, the field's letters


def interleaved(stages: Stages) -> Order:
    """1F1B over several chunks a rank, in groups of P micro-batches: depth first (Megatron-LM's interleaved one)."""
    sequences = []
    for rank in range(stages.ranks):
        forwards, backwards = _turns(stages, F, rank), _turns(stages, I, rank)
        first = min(2 * (stages.ranks - 1 - rank) + stages.count - stages.ranks, len(forwards))
        ops = forwards[:first]
        for step, backward in enumerate(backwards):
            ops += [*forwards[first + step : first + step + 1], backward]
        sequences.append(ops)
    return plain(stages, sequences)


def interleaved_zb(stages: Stages) -> Order:
    """The same with half the forwards ahead, and weight gradients so late that bubbles at the end are filled (torch's
    interleaved zero bubble; with one chunk it is ZB-H1)."""
    sequences = []
    for rank in range(stages.ranks):
        forwards, backwards, weights = (_turns(stages, kind, rank) for kind in (F, I, W))
        first, done = min(stages.count - 1 - rank, len(forwards)), 0
        ops = forwards[:first]
        for step, backward in enumerate(backwards):
            ops += [*forwards[first + step : first + step + 1], backward]
            if step + 1 - done > rank:
                ops.append(weights[done])
                done += 1
        sequences.append(ops + weights[done:])
    return plain(stages, sequences)


def looped_bfs(stages: Stages) -> Order:
    """All micro-batches of a chunk before the next chunk's: breadth first (Lamy-Poirier, 2023)."""
    sequences = []
    for rank in range(stages.ranks):
        here = range(rank, stages.count, stages.ranks)
        ops = [(F, stage, m) for stage in here for m in range(stages.micro_batches)]
        ops += [(I, stage, m) for stage in reversed(here) for m in range(stages.micro_batches)]
        sequences.append([number(stages, kind, stage, m) for kind, stage, m in ops])
    return plain(stages, sequences)


def _turns(stages: Stages, kind: Kind, rank: int) -> list[int]:
    """A rank's ops of a kind: P micro-batches go through all of its chunks before the next P do."""
    here = range(rank, stages.count, stages.ranks)
    groups = range(0, stages.micro_batches, stages.ranks)
    return [
        number(stages, kind, stage, m)
        for begin in groups
        for stage in (here if kind is F else reversed(here))
        for m in range(begin, min(begin + stages.ranks, stages.micro_batches))
    ]
