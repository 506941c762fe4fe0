"""Squeezing: ops of given sequences move up into the time in which their ranks would wait.

The sequences say what may go first where more than one op is ready. An op overtakes those before it in its rank's
sequence where it delays none of them that is known to arrive, and where memory has room for it until its own turn
would have come. So what is left can always go on as the sequences say, and no rank waits forever (Qi et al., "Pipeline
parallelism with controllable memory", 2024, squeeze the forwards of a warm-up like that).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.pipeline.order.orders import Order, Timeline, durations, plain
from gapless.encodings.pipeline.order.room import op_message_bytes
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.timeline import has_room, timed
from gapless.encodings.pipeline.order.zero_bubble import RESERVES
from gapless.options import Deadline

__all__ = ["Base", "best_squeezed", "changes", "kept_peaks", "squeezed"]

Base = tuple[Sequence[Sequence[int]], bool]
"""Sequences of ops by rank, and whether gradients of weights go last."""

_FAR = 24
"""Ops of a rank that are looked at for each of its stages: those that can overtake all of them gain nothing more."""


def kept_peaks(stages: Stages, sequences: Sequence[Sequence[int]]) -> Floats:
    """The most that each rank keeps in its sequence, with the messages of its ops, bytes, float of shape (P,)."""
    takes, leaves = changes(stages)
    peaks = np.zeros(stages.ranks)
    for rank, sequence in enumerate(sequences):
        kind, stage = np.divmod(np.array(sequence, dtype=np.int64) // stages.micro_batches, stages.count)
        taken, left = takes[kind, stage], leaves[kind, stage]
        peaks[rank] = (np.cumsum(taken) - np.cumsum(left) + left).max(initial=0.0)
    return peaks


def changes(stages: Stages) -> tuple[Floats, Floats]:
    """Bytes that an op of a kind and stage takes when it starts, and leaves when it ends, float of shape (3, S), the
    messages that it uses and makes among them."""
    takes, leaves = stages.changes
    own = op_message_bytes(stages, np.zeros((stages.count - 1, 1), dtype=np.int64))[:, :, 0]
    takes[: Kind.WEIGHT] += own
    leaves[: Kind.WEIGHT] += own
    return takes, leaves


def squeezed(
    stages: Stages, sequences: Sequence[Sequence[int]], weights_last: bool, room_bytes: Floats | None = None
) -> Order | None:
    """The order that comes of the sequences; None where they let ranks wait forever, or don't fit into memory.

    `weights_last`: of what is ready, gradients of weights go last. `room_bytes`: of each rank, by default the stages'.
    """
    room_bytes = stages.room_bytes if room_bytes is None else room_bytes
    if (kept_peaks(stages, sequences) > room_bytes).any():
        return None
    squeezing = _Squeezing(stages, sequences, weights_last, room_bytes)
    made = squeezing.run()
    return plain(stages, made) if sum(map(len, made)) == sum(map(len, sequences)) else None


def best_squeezed(
    stages: Stages, bases: Iterable[Base], most_ops: int, deadline: Deadline | None = None, goal_s: float = 0.0
) -> tuple[Order, Timeline] | None:
    """The best order of as many sequences as `most_ops` squeezed ops allow, or the first that takes no more than
    `goal_s`; None where none of them fits.
    """
    best: tuple[Order, Timeline] | None = None
    left, message_bytes = most_ops, float(stages.message_bytes.max(initial=0.0))
    for sequences, weights_last in bases:
        if best is not None and (best[1].cost_s <= goal_s or (deadline is not None and deadline.over)):
            break
        if left <= 0:
            break
        for messages in RESERVES if stages.is_pressed else RESERVES[:1]:
            order = squeezed(stages, sequences, weights_last, stages.room_bytes - messages * message_bytes)
            if order is None:
                break
            left -= sum(map(len, sequences))
            timeline = timed(stages, order)
            if timeline is None or not has_room(stages, order, timeline):
                continue
            if best is None or timeline.rank < best[1].rank:
                best = order, timeline
            break
    return best


class _Pick(NamedTuple):
    """The op at `at` in a rank's sequence, behind `before`."""

    before: int
    at: int


class _Squeezing:
    """The ranks' states while the clock goes on. `following[r][i]`: what is left behind place i of a sequence; the last
    entry is the first that is left."""

    def __init__(
        self, stages: Stages, sequences: Sequence[Sequence[int]], weights_last: bool, room_bytes: Floats
    ) -> None:
        self.stages, self.weights_last = stages, weights_last
        self.micro_batches, self.per_kind = stages.micro_batches, stages.count * stages.micro_batches
        self.rank = stages.rank.tolist()
        self.sequences = [list(sequence) for sequence in sequences]
        self.following = [[*range(1, len(sequence) + 1), 0] for sequence in self.sequences]
        self.duration_s = durations(stages, plain(stages, [])).tolist()
        self.hop_s = (stages.forward_hop_s.tolist(), stages.hop_s[0].tolist() if stages.count > 1 else [])
        self.ready_s, self.comes_s = [math.inf] * len(self.duration_s), [0.0] * len(self.duration_s)
        self.firsts, self.lasts = set(stages.firsts.tolist()), set(stages.lasts.tolist())
        self.slice_ops = stages.weighted * stages.micro_batches
        self.waits = [1] * len(self.duration_s)  # for how much
        back = self.per_kind * Kind.BACKWARD
        for op in range(self.per_kind - self.slice_ops):  # for another slice besides
            self.waits[op + self.slice_ops] += 1
            self.waits[back + op] += 1
        for op in range(0, self.per_kind, stages.depth * stages.micro_batches):
            for first in range(op, op + stages.micro_batches):
                self._comes(first, 0.0)
        takes, leaves = changes(stages)
        self.takes, self.nets = takes.reshape(-1).tolist(), (takes - leaves).reshape(-1).tolist()
        self.kept_bytes, self.room_bytes = [0.0] * stages.ranks, room_bytes.tolist()
        here = np.bincount(stages.rank, minlength=stages.ranks)
        self.far, self.families = (_FAR * here).tolist(), ((3 if stages.splits else 2) * here).tolist()
        self.free_s = [0.0] * stages.ranks
        self.link_free_s: dict[tuple[int, int], float] = {}
        self.made: list[list[int]] = [[] for _ in range(stages.ranks)]
        self.events = [(0.0, rank) for rank in range(stages.ranks)]

    def run(self) -> list[list[int]]:
        """Let ranks pick ops, at each arrival and at each end, until nothing happens any more; what they ran."""
        while self.events:
            now_s, rank = heapq.heappop(self.events)
            if self.free_s[rank] <= now_s:
                pick = self._pick(rank, now_s)
                if pick is not None:
                    self._start(rank, now_s, pick)
        return self.made

    def _pick(self, rank: int, now_s: float) -> _Pick | None:
        """The first op that may go; of each kind and stage only the first in line is looked at."""
        sequence, following, micro_batches = self.sequences[rank], self.following[rank], self.micro_batches
        ready_s, takes, nets = self.ready_s, self.takes, self.nets
        before = end = len(sequence)
        at, families = following[-1], self.families[rank]
        due_s, most_bytes, live_bytes = math.inf, -math.inf, self.kept_bytes[rank]
        seen: set[int] = set()
        weight: _Pick | None = None
        for _ in range(self.far[rank]):
            if at == end:
                break
            op = sequence[at]
            family = op // micro_batches
            if family not in seen:
                seen.add(family)
                at_s = ready_s[op]
                if at_s > now_s:
                    if at_s < due_s:
                        due_s = at_s
                elif now_s + self.duration_s[op] <= due_s and self._has_room(rank, family, most_bytes):
                    if not (self.weights_last and op >= 2 * self.per_kind):
                        return _Pick(before, at)
                    weight = weight or _Pick(before, at)
                if len(seen) == families:
                    break
            peak_bytes = live_bytes + takes[family]
            if peak_bytes > most_bytes:
                most_bytes = peak_bytes
            live_bytes += nets[family]
            before, at = at, following[at]
        if weight is None or now_s + self.duration_s[sequence[weight.at]] > due_s:
            return None
        return weight

    def _has_room(self, rank: int, family: int, most_bytes: float) -> bool:
        """Whether it fits now, and what it overtakes still does beside what it keeps; `most_bytes`: its peak."""
        room_bytes = self.room_bytes[rank]
        is_there = self.kept_bytes[rank] + self.takes[family] <= room_bytes
        return bool(is_there and most_bytes + max(self.nets[family], 0.0) <= room_bytes)

    def _start(self, rank: int, now_s: float, pick: _Pick) -> None:
        op = self.sequences[rank][pick.at]
        following = self.following[rank]
        following[pick.before] = following[pick.at]
        self.made[rank].append(op)
        self.kept_bytes[rank] += self.nets[op // self.micro_batches]
        end_s = self.free_s[rank] = now_s + self.duration_s[op]
        if op < 2 * self.per_kind:
            self._send(rank, end_s, op)
        heapq.heappush(self.events, (self.free_s[rank], rank))

    def _comes(self, op: int, at_s: float) -> None:
        """Something that an op waits for is there at that time; it is ready when all of it is."""
        if at_s > self.comes_s[op]:
            self.comes_s[op] = at_s
        self.waits[op] -= 1
        if not self.waits[op]:
            self.ready_s[op] = self.comes_s[op]

    def _send(self, rank: int, end_s: float, op: int) -> None:
        """Note when what waits for an op can start; a link carries one message at a time."""
        kind, within = divmod(op, self.per_kind)
        stage, micro_batch = divmod(within, self.micro_batches)
        if kind == Kind.BACKWARD and self.stages.splits:
            self._comes(op + self.per_kind, end_s)
        if kind == Kind.FORWARD and stage in self.lasts:
            self._comes(self.per_kind + op, end_s)
        turn = within + (1 - 2 * kind) * self.slice_ops
        if 0 <= turn < self.per_kind:  # the slice whose turn it is
            self._comes(kind * self.per_kind + turn, end_s)
        if stage in (self.firsts if kind else self.lasts):
            return
        target = stage + 1 - 2 * kind
        other, there_s = self.rank[target], end_s
        if other != rank:
            sent_s = max(end_s, self.link_free_s.get((rank, other), 0.0))
            there_s = self.link_free_s[rank, other] = sent_s + self.hop_s[kind][min(stage, target)]
            if self.stages.blocks:
                self.free_s[rank] = there_s
            heapq.heappush(self.events, (there_s, other))
        self._comes(kind * self.per_kind + target * self.micro_batches + micro_batch, there_s)
