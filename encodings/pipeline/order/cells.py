"""Cells: a forward and a backward of other micro-batches that a rank runs at once, at a measured share of their sum.

Without cells, but with forwards and backwards that take that share each, every order with cells can be played as fast:
one op of a cell after the other. So bounds of such costs hold, and orders that are made for them have cells where a
forward and a backward follow one another. They are chosen anew by models of whole numbers (`pairs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.pipeline.order.orders import Candidate, Order, Timeline
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.timeline import has_room, timed

__all__ = ["saved_s", "with_cells"]


def with_cells(candidate: Candidate, stages: Stages, most_ops: int) -> Candidate | None:
    """The candidate's order on stages that overlap, with cells; None where it has no room.

    It starts from the fastest of three choices: cells wherever a forward and a backward follow one another, wherever no
    rank waits between them, or nowhere. Then cells are made and undone one by one, as long as that helps, and until
    `most_ops` have been timed.
    """
    order = replace(candidate.order, messages=(), posts=None)
    plain = timed(stages, order)
    choices = [order, _celled(stages, order, None), *([] if plain is None else [_celled(stages, order, plain)])]
    found = [celled for choice in choices if (celled := _played(candidate, stages, choice)) is not None]
    best = min(found, key=_rank, default=None)
    if best is None:
        return None
    ops = sum(map(len, order.sequences))
    places = [(rank, at) for rank, sequence in enumerate(order.sequences) for at in range(len(sequence) - 1)]
    left, is_better = most_ops // ops, True
    while is_better and left > 0:
        is_better = False
        for rank, at in places[:left]:
            choice = _turned(stages, best.order, rank, at)
            if choice is None:
                continue
            left -= 1
            made = _played(candidate, stages, choice)
            if made is not None and _rank(made) < _rank(best):
                best, is_better = made, True
    return best


def _rank(candidate: Candidate) -> tuple[float, float]:
    """The step, and among equals how early ops end."""
    return candidate.timeline.cost_s, float(candidate.timeline.end_s.sum())


def _played(candidate: Candidate, stages: Stages, order: Order) -> Candidate | None:
    timeline = timed(stages, order)
    if timeline is None or not has_room(stages, order, timeline):
        return None
    return replace(candidate, stages=stages, order=order, timeline=timeline)


def _turned(stages: Stages, order: Order, rank: int, at: int) -> Order | None:
    """With a cell of the two ops at a place of a rank's order, or without the one that is there; None where none is
    possible."""
    ops = order.sequences[rank].tolist()
    first, second = ops[at : at + 2]
    if first in order.cells:
        return replace(order, cells=order.cells - {first})
    is_taken = second in order.cells or (at > 0 and ops[at - 1] in order.cells)
    if is_taken or next(_pairs(stages, [first, second], None), None) is None:
        return None
    ops[at : at + 2] = sorted([first, second])
    sequences = (*order.sequences[:rank], np.array(ops, dtype=np.int64), *order.sequences[rank + 1 :])
    return replace(order, sequences=sequences, cells=order.cells | {ops[at]})


def _celled(stages: Stages, order: Order, timeline: Timeline | None) -> Order:
    """Cells of ops that follow one another, without a wait if there is a timeline; the forward goes first."""
    cells, sequences = set[int](), []
    for sequence in order.sequences:
        ops = sequence.tolist()
        for at in _pairs(stages, ops, timeline):
            ops[at : at + 2] = sorted(ops[at : at + 2])
            cells.add(ops[at])
        sequences.append(np.array(ops, dtype=np.int64))
    return replace(order, sequences=tuple(sequences), cells=frozenset(cells))


def _pairs(stages: Stages, ops: list[int], timeline: Timeline | None) -> Iterator[int]:
    """Places of a rank's ops that are the first of a cell."""
    per_kind, at = stages.count * stages.micro_batches, 0
    while at + 1 < len(ops):
        first, second = ops[at], ops[at + 1]
        kinds = {first // per_kind, second // per_kind}
        waits = timeline is not None and timeline.start_s[second] > timeline.end_s[first]
        if kinds == {Kind.FORWARD, Kind.BACKWARD} and not waits and _are_apart(stages, first, second):
            yield at
            at += 1
        at += 1


def _are_apart(stages: Stages, first: int, second: int) -> bool:
    """Whether two ops are of other micro-batches, so that neither waits for the other one."""
    named = list[int]()
    for op in (first, second):
        stage, micro_batch = divmod(op % (stages.count * stages.micro_batches), stages.micro_batches)
        named.append(stages.names(stage, micro_batch)[1])
    return named[0] != named[1]


def saved_s(stages: Stages, order: Order) -> Floats:
    """Seconds that cells save each rank, float of shape (P,)."""
    saved, per_kind = np.zeros(stages.ranks), stages.count * stages.micro_batches
    for forward, backward in order.partners.items():
        stage = forward // stages.micro_batches
        own = (float(stages.forward_s[stage]), float(stages.backward_s[(backward - per_kind) // stages.micro_batches]))
        saved[stages.rank[stage]] += sum(own) - stages.cell_s(*own).item()
    return saved
