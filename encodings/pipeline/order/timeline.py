"""The timeline of an order: every op, message and sum as early as the order allows."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.pipeline.order.offload import Engine, Offloads
from gapless.encodings.pipeline.order.orders import Order, Posts, Timeline, durations
from gapless.encodings.pipeline.order.room import held_bytes, offloads_at, peak_bytes, posts_of
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.steady import Flow, Link, Offsets, begins_s, end_s, longest_paths_s, offsets_s

__all__ = ["has_room", "steps_of", "timed"]

_TURNS = 2
"""How often copies to the host are planned for an order, each time by the times that came out before."""
_RESERVES = (0, 2, 4)
"""Messages for which room is kept where copies to the host are planned."""


def timed(stages: Stages, order: Order, needs_room: bool = True) -> Timeline | None:
    """Every op, message and sum as early as the order allows; None where ranks wait for each other forever.

    Messages on one directed link go one at a time, in the order that the plan gives them, or else as their rank
    computed them. Where ranks have no room for all of them, they leave as `order.room` says, unless `needs_room` is
    false: then it is as if there were room.
    """
    timeline = _timed(stages, order, None) if stages.keeps_turns(order.sequences) else None
    can_wait = needs_room and (stages.counts_messages or stages.offloads)
    if timeline is None or not can_wait or has_room(stages, order, timeline):
        return timeline
    if stages.offloads:
        return _offloaded(stages, order, timeline)
    posts = order.posts or posts_of(stages, order.sequences, order.hop_modes, order.messages)
    return _timed(stages, order, posts)


def _offloaded(stages: Stages, order: Order, timeline: Timeline) -> Timeline | None:
    """With copies to the host, and room for them and for messages; twice, since the first copies make ops later."""
    found: Timeline | None = None
    for messages in _RESERVES if stages.is_pressed else _RESERVES[:1]:
        about = timeline
        for _ in range(_TURNS):
            offloads = offloads_at(stages, order.sequences, order.hop_modes, messages, about.start_s, about.end_s)
            made = None if offloads is None else _timed(stages, order, None, offloads=offloads)
            if offloads is not None and made is not None and not has_room(stages, order, made):
                posts = posts_of(stages, order.sequences, order.hop_modes, order.messages, offloads)
                made = _timed(stages, order, posts, offloads=offloads)
            if made is None or not has_room(stages, order, made):
                break
            found, about = min([*([] if found is None else [found]), made], key=lambda one: one.rank), made
    return found


def has_room(stages: Stages, order: Order, timeline: Timeline) -> bool:
    """Whether each rank has room for what micro-batches keep and, where they count, for messages."""
    if not stages.counts_messages and timeline.offloaded_s is None:
        return bool((peak_bytes(stages, timeline.program) <= stages.room_bytes).all())
    return bool((held_bytes(stages, order.hop_modes, timeline) <= stages.room_bytes).all())


def _timed(
    stages: Stages, order: Order, posts: Posts | None, offloads: Sequence[Offloads] = ()
) -> Timeline | None:  # fmt: skip
    walk = _walked(stages, order, posts, offloads=offloads)
    if walk is None or not stages.is_repeated:
        return None if walk is None else walk.timeline(order)
    flow = walk.flow(order)
    paths_s = longest_paths_s(stages, flow, flow.waiting(stages))
    again = _walked(stages, order, posts, offsets_s(stages, flow, paths_s))
    assert again is not None, "it went on before"
    run_s = None if stages.by_span else end_s(paths_s, stages.steps)
    return replace(again.timeline(order, flow.sums), run_s=run_s)


def steps_of(stages: Stages, order: Order) -> list[Timeline]:
    """The timelines of all steps that follow one another, each as early as it goes."""
    walk = _walked(stages, order, None)
    assert walk is not None, "an order that can be timed"
    flow = walk.flow(order)
    begins = begins_s(stages, flow, longest_paths_s(stages, flow, flow.waiting(stages)))
    walks = (_walked(stages, order, None, begin) for begin in islice(begins, stages.steps))
    return [own.timeline(order, flow.sums) for own in walks if own is not None]


def _walked(
    stages: Stages, order: Order, posts: Posts | None, offsets: Offsets | None = None,
    offloads: Sequence[Offloads] = (),
) -> _Walk | None:  # fmt: skip
    walk = _Walk(stages, order, posts, offloads)
    if offsets is not None:
        walk.free_s[:] = offsets[0].tolist()
        walk.link_free_s.update(offsets[1])
    waiting = list(range(stages.ranks))
    while waiting:
        waiting = sorted({woken for rank in waiting for woken in walk.advance(rank)})
    return walk if walk.is_done else None


class _Walk:
    """The ranks' positions in their sequences, and all that is known of times."""

    def __init__(self, stages: Stages, order: Order, posts: Posts | None, offloads: Sequence[Offloads]) -> None:
        count, micro_batches = stages.count, stages.micro_batches
        self.per_kind = count * micro_batches
        self.stages, self.micro_batches = stages, micro_batches
        self.rank, self.firsts, self.lasts = (
            stages.rank.tolist(),
            set(stages.firsts.tolist()),
            set(stages.lasts.tolist()),
        )
        self.duration_s = durations(stages, order).tolist()
        self.start_s = [-1.0] * len(self.duration_s)
        self.end_s = [-1.0] * len(self.duration_s)
        self.arrived_s = [-1.0] * (2 * self.per_kind)  # of the message that a forward or a backward waits for
        self.sent_s = [0.0] * (2 * max(count - 1, 0) * micro_batches)  # by message
        forward_s = np.broadcast_to(stages.forward_hop_s[:, None], order.hop_modes.shape)
        modes = np.arange(count - 1)[:, None]
        self.hop_s = np.stack([forward_s, stages.hop_s[order.hop_modes, modes]]).reshape(-1).tolist()
        self.to = [self._to(kind, stage) for kind in Kind for stage in range(count)]
        self.link_free_s = defaultdict[Link, float](float)
        self.sends = defaultdict[Link, list[int]](list)
        queues = posts.queues if posts is not None else order.messages if not stages.blocks else ()
        self.queues = [deque(queue.tolist()) for queue in queues]
        self.sequences = [sequence.tolist() for sequence in order.sequences]
        self.before = {} if posts is None else posts.before
        self.after = [] if posts is None else posts.after.tolist()
        self.behind = {} if posts is None else posts.behind
        self.unlocks: dict[int, list[int]] = {}
        for message, others in self.behind.items():
            for other in others:
                self.unlocks.setdefault(other, []).append(message)
        self.lets: dict[int, list[int]] = {}
        for message, op in enumerate(self.after):
            if op >= 0:
                self.lets.setdefault(op, []).append(message)
        self.queue_of = {message: queue for queue in self.queues for message in queue}
        self.cells = order.cells
        self.offloaded_s = np.full((2, self.per_kind), np.nan)
        self.engines = [Engine(stages, own, self.offloaded_s) for own in offloads]
        self.posted_s: dict[int, float] = {}
        self.position = [0] * stages.ranks
        self.program: list[int] = []
        self.passed: list[int] = []
        self.passed_at: list[int] = []
        self.free_s = [0.0] * stages.ranks
        for stage in self.firsts:  # whose forwards wait for nobody
            self.arrived_s[stage * micro_batches : (stage + 1) * micro_batches] = [0.0] * micro_batches

    @property
    def is_done(self) -> bool:
        return all(at == len(sequence) for at, sequence in zip(self.position, self.sequences, strict=True))

    def advance(self, rank: int) -> set[int]:
        """Run what the rank can run; the ranks that have got a message."""
        woken: set[int] = set()
        sequence, per_kind, size = self.sequences[rank], self.per_kind, self.micro_batches
        arrived_s, end_s, duration_s, tos = self.arrived_s, self.end_s, self.duration_s, self.to
        at, last, free_s = self.position[rank], len(sequence), self.free_s
        while at < last:
            op = sequence[at]
            if self.cells and op in self.cells:
                other = sequence[at + 1]
                if min(arrived_s[op], arrived_s[other]) < 0:
                    break
                self._cell(rank, op, other, woken)
                at += 2
                continue
            at_s = end_s[op - per_kind] if op >= 2 * per_kind else arrived_s[op]
            if at_s < 0:
                break
            if self.before and op in self.before:
                gone_s = [self._arrival_s(message) for message in self.before[op]]
                if min(gone_s) < 0:
                    break
                at_s = max(at_s, *gone_s)
            if free_s[rank] > at_s:
                at_s = free_s[rank]
            if self.engines:
                at_s = max(at_s, self.engines[rank].begin_s(at, op - per_kind, free_s[rank], end_s))
            self.start_s[op] = at_s
            free_s[rank] = end_s[op] = done_s = at_s + duration_s[op]
            at += 1
            self.program.append(op)
            for message in self.lets.get(op, ()) if self.lets else ():
                self._leave(self.queue_of[message], woken)
            to = tos[op // size]
            if to is not None:
                self._ended(op, to, done_s, woken)
        self.position[rank] = at
        woken.discard(rank)
        return woken

    def _to(self, kind: Kind, stage: int) -> tuple[int, bool, Link] | None:
        """Of an op: how far it is to the number of the op that waits for it, whether by a message, and from which rank
        to which; None where none waits but its own weight gradient."""
        rank, size = self.rank[stage], self.micro_batches
        if kind == Kind.FORWARD and stage in self.lasts:
            return self.per_kind, False, (rank, rank)
        if kind == Kind.WEIGHT or (kind == Kind.BACKWARD and stage in self.firsts):
            return None
        step = 1 if kind == Kind.FORWARD else -1
        return step * size, True, (rank, self.rank[stage + step])

    def _cell(self, rank: int, forward: int, backward: int, woken: set[int]) -> None:
        """Run both at once; `woken` gets the ranks that have got a message."""
        own = self.duration_s[forward], self.duration_s[backward]
        start_s = max(self.arrived_s[forward], self.arrived_s[backward], self.free_s[rank])
        end_s = self.free_s[rank] = start_s + self.stages.cell_s(*own).item()
        for op in (forward, backward):
            self.start_s[op], self.end_s[op] = start_s, end_s
            self.program.append(op)
        for op in (forward, backward):
            to = self.to[op // self.micro_batches]
            if to is not None:
                self._ended(op, to, end_s, woken)

    def _ended(self, op: int, to: tuple[int, bool, Link], end_s: float, woken: set[int]) -> None:
        """What waits for an op's message, or for the op itself, can go on; `woken` gets the ranks that have got a
        message."""
        far, is_message, _ = to
        if not is_message:
            self.arrived_s[op + far] = end_s
            return
        message = op if op < self.per_kind else op - 2 * self.micro_batches
        queue = self.queue_of.get(message) if self.queue_of else None
        if queue is None:
            woken.add(self._send(message, op, to, end_s))
            return
        self.posted_s[message] = end_s
        self._leave(queue, woken)

    def _leave(self, queue: deque[int], woken: set[int]) -> None:
        """Send the first messages of a link that are there and have room at their receiver; `woken` gets the ranks
        that wait."""
        while queue and queue[0] in self.posted_s:
            first = queue[0]
            let = self.after[first] if self.after else -1
            gone_s = [self._arrival_s(message) for message in self.behind.get(first, ())]
            if (let >= 0 and self.end_s[let] < 0) or min(gone_s, default=0.0) < 0:
                break
            queue.popleft()
            op = first if first < self.per_kind - self.micro_batches else first + 2 * self.micro_batches
            to = self.to[op // self.micro_batches]
            assert to is not None, "an op that makes a message"
            ready_s = max(self.posted_s[first], self.end_s[let] if let >= 0 else 0.0, *gone_s)
            woken.add(self._send(first, op, to, ready_s))
            if self.after:
                woken.add(to[2][0])
            for waiting in self.unlocks.get(first, ()):
                self._leave(self.queue_of[waiting], woken)

    def _arrival_s(self, message: int) -> float:
        """When a message has arrived, -1 as long as that isn't known."""
        kind_hop, micro_batch = divmod(message, self.micro_batches)
        kind, hop = divmod(kind_hop, self.stages.count - 1)
        return self.arrived_s[kind * self.per_kind + (hop + 1 - kind) * self.micro_batches + micro_batch]

    def _send(self, message: int, op: int, to: tuple[int, bool, Link], end_s: float) -> int:
        """A message leaves; the rank that gets it."""
        far, _, link = to
        start_s = at_s = end_s
        if link[0] != link[1]:
            self.sends[link].append(message)
            self.passed.append(message)
            self.passed_at.append(len(self.program))
            if self.link_free_s[link] > start_s:
                start_s = self.link_free_s[link]
            at_s = self.link_free_s[link] = start_s + self.hop_s[message]
            if self.stages.blocks:
                self.free_s[link[0]] = at_s
        self.sent_s[message] = start_s
        self.arrived_s[op + far] = at_s
        return link[1]

    def flow(self, order: Order) -> Flow:
        """As it ran."""
        hop_s = np.array(self.hop_s).reshape(2, *order.hop_modes.shape)
        reduce_s = self.stages.reduce_s[order.reduce_modes, np.arange(self.stages.count)]
        return Flow(self.program, self.duration_s, hop_s, reduce_s, self.sends, self.sums())

    def _ready_s(self) -> Floats:
        """When all copies and slices of a stage are done with it, float of shape (S,)."""
        stages = self.stages
        done_s = np.array(self.end_s[stages.last * self.per_kind :]).reshape(-1, stages.depth, stages.micro_batches)
        return np.tile(done_s.max(axis=(0, 2)), len(done_s))

    def sums(self) -> list[int]:
        """The stages in the order in which they are ready; a stage of slices once."""
        ready_s = self._ready_s()[: self.stages.weighted]
        return [int(s) for s in np.lexsort((np.arange(len(ready_s)) % self.stages.depth, ready_s))]

    def timeline(self, order: Order, sums: Sequence[int] | None = None) -> Timeline:
        """With the sums among copies and replicas, each after its stage's last gradient, one at a time on a rank.

        All copies of a stage are summed at once, and ranks that share a sum share all of them, in one order: `sums`, by
        default as they are ready.
        """
        stages, start_s, end_s = self.stages, np.array(self.start_s), np.array(self.end_s)
        ready_s = self._ready_s()
        reduced_s, finish_s = np.zeros(stages.count), np.array(self.free_s)
        network_s = np.zeros(stages.ranks)
        for stage in self.sums() if sums is None else sums:
            rank = self.rank[stage]
            begin_s = max(ready_s[stage], network_s[rank])
            network_s[rank] = begin_s + stages.reduce_s[order.reduce_modes[stage], stage]
            reduced_s[stage :: stages.weighted] = network_s[rank]
        finish_s = np.maximum(finish_s, network_s)
        if stages.embedding_s:
            ends = [self.rank[0], self.rank[-1]]
            finish_s[ends] = np.maximum(finish_s[ends], network_s[ends].max() + stages.embedding_s)
        first_s = stages.first_s(start_s)
        span_s = max(float((finish_s - first_s).max()), self._link_span_s(self.flow(order).hop_s))
        program = np.array(self.program, dtype=np.int64)
        passed = np.array([self.passed, self.passed_at], dtype=np.int64)
        sent_s = np.array(self.sent_s).reshape(2, *order.hop_modes.shape)
        offloaded_s = self.offloaded_s.reshape(2, stages.count, stages.micro_batches) if self.engines else None
        return Timeline(start_s, end_s, sent_s, reduced_s, finish_s, float(finish_s.max()), program, span_s,
                        passed, stages.by_span, offloaded_s=offloaded_s)  # fmt: skip

    def _link_span_s(self, hop_s: Floats) -> float:
        """The longest span of a link, from its first message until the last is there; 0 where none sends by itself."""
        sent_s = np.array(self.sent_s)
        there_s = sent_s + hop_s.reshape(-1)
        return max((float(there_s[own].max() - sent_s[own].min()) for own in self.sends.values()), default=0.0)
