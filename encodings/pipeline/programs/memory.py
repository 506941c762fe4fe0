"""What ranks hold in truth: what micro-batches keep, and messages until they are sent or used."""

from __future__ import annotations

import numpy as np

from gapless.array_types import Floats
from gapless.checker import check
from gapless.checker.timeline import RELATIVE_TOLERANCE
from gapless.encodings.pipeline.compression.modes import Spoiling, compressor_bytes
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import Kind, Order, Timeline, durations
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.programs.lowering import to_schedule

__all__ = ["held_bytes"]


def held_bytes(
    problem: Problem, stages: Stages, order: Order, timeline: Timeline, spoiling: Spoiling | None = None
) -> Floats:
    """The most that each rank holds at once besides its states, float of shape (P,); compressors' errors are in it.

    A message is held by its sender from the op that makes it until it has arrived, and by its receiver from when it
    leaves until the op that uses it ends. Never less than the replay finds, at most a little more: a gradient counts
    from the start of its op, what is decoded or run again before it included. Where something takes no time, instants
    don't say what comes first: then it is what the replay finds.
    """
    if _has_ties(stages, order, timeline):
        replayed = check(to_schedule(problem, stages, order, timeline, spoiling))
        states = np.bincount(stages.rank, weights=stages.state_bytes, minlength=stages.ranks)
        return np.array(replayed.peak_bytes, dtype=np.float64) - states
    count, micro_batches = stages.count, stages.micro_batches
    start_s, end_s = (column.reshape(-1, count, micro_batches) for column in (timeline.start_s, timeline.end_s))
    ledger = _Ledger(stages.ranks)
    for span in stages.spans:
        for stage, (rank, size) in enumerate(zip(stages.rank.tolist(), span.size_bytes.tolist(), strict=True)):
            ledger.hold(rank, start_s[span.begin, stage], end_s[span.end, stage], float(size))
    for hop in range(count - 1):
        _messages(ledger, problem, stages, order, timeline, hop)
    peaks = ledger.peaks()
    if stages.embedding_s:  # at the end, when nothing else is kept
        ends = stages.rank[[0, -1]]
        peaks[ends] = np.maximum(peaks[ends], problem.profile.embedding_bytes)
    return peaks + np.bincount(stages.rank, compressor_bytes(problem, stages, order), stages.ranks)


def _has_ties(stages: Stages, order: Order, timeline: Timeline) -> bool:
    """Whether an op, a part of one, or a send that blocks takes no time."""
    shortest_s = [durations(stages, order).min(), stages.forward_s.min()]
    if stages.recomputes.any():
        shortest_s.append((stages.backward_s - stages.forward_s)[stages.recomputes].min())
    hops = np.flatnonzero(stages.crosses)
    used = [(mode, hop) for hop in hops.tolist() for mode in np.unique(order.hop_modes[hop]).tolist()]
    for mode, hop in used:
        if mode:
            shortest_s += [stages.encode_s[mode, hop], stages.decode_s[mode, hop], stages.backward_s.min()]
        if stages.blocks:
            shortest_s += [stages.hop_s[mode, hop], stages.forward_hop_s[hop]]
    return bool(min(shortest_s) <= RELATIVE_TOLERANCE * timeline.step_s)


def _messages(ledger: _Ledger, problem: Problem, stages: Stages, order: Order, timeline: Timeline, hop: int) -> None:
    """Of one boundary, in both directions."""
    shape = (-1, stages.count, stages.micro_batches)
    start_s, end_s = (column.reshape(*shape) for column in (timeline.start_s, timeline.end_s))
    below, above = int(stages.rank[hop]), int(stages.rank[hop + 1])
    size = float(stages.boundary_bytes[hop])
    begun_s = {False: start_s[Kind.FORWARD, hop], True: start_s[Kind.BACKWARD, hop + 1]}
    used_s = {False: end_s[Kind.FORWARD, hop + 1], True: end_s[Kind.BACKWARD, hop]}
    if below == above:
        for is_backward in (False, True):
            ledger.hold(below, begun_s[is_backward], used_s[is_backward], size)
        return
    sent_s = timeline.sent_s[0, hop]
    arrived_s = sent_s + stages.forward_hop_s[hop]
    ledger.hold(below, begun_s[False], arrived_s, size)
    there_s = ledger.post(stages, below, sent_s, arrived_s, size)
    ledger.hold(above, there_s, used_s[False], size)
    modes, sent_s = order.hop_modes[hop], timeline.sent_s[1, hop]
    arrived_s = sent_s + stages.hop_s[modes, hop]
    sizes = problem.sent_bytes(size)[modes]
    there_s = ledger.post(stages, above, sent_s, arrived_s, sizes)
    is_plain = modes == 0
    ledger.hold(above, begun_s[True], np.where(is_plain, arrived_s, end_s[Kind.BACKWARD, hop + 1]), size)
    coding_s = stages.encode_s[modes, hop]
    ledger.hold(above, end_s[Kind.BACKWARD, hop + 1] - coding_s, arrived_s, np.where(is_plain, 0.0, sizes))
    decoded_s = start_s[Kind.BACKWARD, hop] + stages.decode_s[modes, hop]
    ledger.hold(below, there_s, np.where(is_plain, used_s[True], decoded_s), sizes)
    ledger.hold(below, start_s[Kind.BACKWARD, hop], used_s[True], np.where(is_plain, 0.0, size))


class _Ledger:
    """What comes and goes, by rank."""

    def __init__(self, ranks: int) -> None:
        self.changes: list[list[tuple[Floats, Floats]]] = [[] for _ in range(ranks)]

    def hold(self, rank: int, from_s: Floats, until_s: Floats, size_bytes: float | Floats) -> None:
        """So many bytes each, while they are held."""
        sizes = np.broadcast_to(size_bytes, from_s.shape)
        self.changes[rank] += [(from_s, sizes), (until_s, -sizes)]

    def post(self, stages: Stages, rank: int, sent_s: Floats, arrived_s: Floats, size_bytes: float | Floats) -> Floats:
        """From when the receiver holds a message; where sends block, the sender holds a second copy until then."""
        if not stages.blocks:
            return sent_s
        self.hold(rank, sent_s, arrived_s, size_bytes)
        return arrived_s

    def peaks(self) -> Floats:
        """The most at once; what ends at an instant ends first."""
        return np.array([_peak(changes) for changes in self.changes])


def _peak(changes: list[tuple[Floats, Floats]]) -> float:
    at_s, change = (np.concatenate(column) for column in zip(*changes, strict=True))
    return float(np.cumsum(change[np.lexsort((change, at_s))]).max(initial=0.0))
