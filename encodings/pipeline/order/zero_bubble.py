"""The zero-bubble heuristic with memory: list scheduling of forwards, gradients of inputs and gradients of weights.

At any moment an idle rank picks an op by a few rules; several sets of rules are tried, the best order is kept. What a
rank keeps follows from the order of its own ops alone, so memory is a matter of which forward may be admitted.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.pipeline.order.orders import Order, Timeline, durations, number, plain
from gapless.encodings.pipeline.order.room import op_message_bytes
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.timeline import has_room, timed
from gapless.options import Deadline

__all__ = ["RESERVES", "Rules", "fits", "list_schedule", "zero_bubble"]


RESERVES = (0, 1, 2, 4, 8)
"""Messages for which ranks keep room besides those of their ops, until an order can be played."""
_HOPELESS = 1.25
"""So much longer than a known order no later set of rules has made up for: the best was at most 1.08 ahead of the first
in six questions of 8 to 16 ranks, lines, loops and V."""


@dataclass(frozen=True)
class Rules:
    """What an idle rank does where more than one op is ready.

    `forward_first`: a forward before a gradient of the input. `deep_first`: of several stages that of the later number
    first. `ahead`: for each stage below, so many more forwards than backwards at most. `forward_patience`,
    `weight_patience`: the share of its own duration by which a forward, a gradient of weights, may delay a gradient of
    the input that is known to arrive. `frees_first`: where memory keeps a forward that is there from running, a
    gradient of weights goes before one of the input.
    """

    forward_first: bool
    deep_first: bool
    ahead: float
    forward_patience: float
    weight_patience: float
    frees_first: bool


def all_rules(stages: Stages) -> Iterator[Rules]:
    """The sets of rules in the order in which they are tried, those that win most often first."""
    splits, is_chunked = stages.splits, stages.count > stages.ranks
    choices = product(
        (1.0, 0.5, 0.0), (0.5, 0.0, 1.0) if splits else (1.0,), (True, False), (True, False) if splits else (False,),
        (True, False) if is_chunked else (True,), (2.0, math.inf, 1.5, 0.75, 1.0),
    )  # fmt: skip
    for forward, weight, forward_first, frees_first, deep_first, ahead in choices:
        yield Rules(forward_first, deep_first, ahead, forward, weight, frees_first)


def fits(stages: Stages) -> bool:
    """Whether every rank has room for one micro-batch, so that there is an order at all."""
    return bool((_least_bytes(stages) <= stages.room_bytes).all())


def _least_bytes(stages: Stages) -> Floats:
    """What one micro-batch needs on each rank, float of shape (P,)."""
    messages, least_bytes = _plain_messages(stages), np.zeros(stages.ranks)
    needs = np.maximum(stages.full_bytes - stages.kept_bytes + messages[Kind.BACKWARD], messages[Kind.FORWARD])
    for model in stages.models:
        rank, grown_bytes = stages.rank[model], np.zeros(stages.ranks)
        np.maximum.at(grown_bytes, rank, needs[model])
        one_bytes = np.bincount(rank, weights=stages.kept_bytes[model], minlength=stages.ranks)
        least_bytes = np.maximum(least_bytes, one_bytes + grown_bytes)
    return np.asarray(least_bytes)


def _plain_messages(stages: Stages) -> Floats:
    """What a plain op of a kind and stage uses and makes, shape (2, S)."""
    return op_message_bytes(stages, np.zeros((stages.count - 1, 1), dtype=np.int64))[:, :, 0]


def zero_bubble(
    stages: Stages, most_ops: int, deadline: Deadline | None = None, known_s: float = math.inf, goal_s: float = 0.0
) -> tuple[Order, Timeline] | None:
    """The best order of as many sets of rules as `most_ops` list-scheduled ops allow, at least one; None where a rank
    has no room for one micro-batch. `known_s`: of an order that is known; where the first set falls far behind it, the
    others do. `goal_s`: no more sets are tried once an order takes no more.
    """
    if not fits(stages):
        return None
    best: tuple[Order, Timeline] | None = None
    ops, left = (3 if stages.splits else 2) * stages.count * stages.micro_batches, most_ops
    reserves = RESERVES if stages.is_pressed else RESERVES[:1]
    for rules in all_rules(stages):
        ends = best is not None and (best[1].step_s > _HOPELESS * known_s or best[1].cost_s <= goal_s)
        if best is not None and (ends or left <= 0 or (deadline is not None and deadline.over)):
            break
        for messages in reserves:  # how many messages wait elsewhere is known when an order is timed
            left -= ops
            made = _played(stages, list_schedule(stages, rules, messages))
            if made is not None:
                if best is None or made[1].rank < best[1].rank:
                    best = made
                break
        if best is None and left <= 0:
            break
    return best or _played(stages, one_by_one(stages))


def _played(stages: Stages, order: Order) -> tuple[Order, Timeline] | None:
    """The order and its times, None where it isn't whole, or ranks lack room for messages."""
    kinds = 3 if stages.splits else 2
    is_whole = sum(map(len, order.sequences)) == kinds * stages.count * stages.micro_batches
    timeline = timed(stages, order) if is_whole else None
    return None if timeline is None or not has_room(stages, order, timeline) else (order, timeline)


def one_by_one(stages: Stages) -> Order:
    """One micro-batch after the other, which needs room for one only."""
    sequences = [list[int]() for _ in range(stages.ranks)]
    backwards = [Kind.BACKWARD, *([Kind.WEIGHT] if stages.splits else [])]
    passes: list[tuple[Kind, int]] = []
    for part in (range(model.start, model.stop) for model in stages.models):  # slice after slice, and back
        passes += [(Kind.FORWARD, stage) for stage in part]
        passes += [(kind, stage) for stage in reversed(part) for kind in backwards]
    for micro_batch in range(stages.micro_batches):
        for kind, stage in passes:
            sequences[stages.rank[stage]].append(number(stages, kind, stage, micro_batch))
    return plain(stages, sequences)


def list_schedule(stages: Stages, rules: Rules, messages: int = 0) -> Order:
    """The order that the rules give; every rank needs room for one micro-batch. `messages`: for how many of them ranks
    keep room besides, as far as they have it."""
    return _ListScheduling(stages, rules, messages).run()


class _ListScheduling:
    """The ranks' states while the clock goes on; `done[kind][s]` counts micro-batches, which go first in, first out."""

    def __init__(self, stages: Stages, rules: Rules, spare_messages: int) -> None:
        self.stages, self.rules = stages, rules
        self.last_kind = Kind.WEIGHT if stages.splits else Kind.BACKWARD
        count, micro_batches = stages.count, stages.micro_batches
        self.rank = stages.rank.tolist()
        chain, depth = np.divmod(np.arange(count), stages.depth)
        by_depth = np.lexsort((chain, -depth if rules.deep_first else depth))
        self.here: list[list[int]] = [by_depth[stages.rank[by_depth] == rank].tolist() for rank in range(stages.ranks)]
        self.parts = [
            [part for model in stages.models if (part := [s for s in stages_here if model.start <= s < model.stop])]
            for stages_here in self.here
        ]
        forth = np.lexsort((-chain, -depth if rules.deep_first else depth))  # an older micro-batch's slices go first
        self.forth = self.here if stages.slices == 1 else [
            forth[stages.rank[forth] == rank].tolist() for rank in range(stages.ranks)
        ]  # fmt: skip
        self.weighted = stages.weighted
        self.firsts, self.lasts = set(stages.firsts.tolist()), set(stages.lasts.tolist())
        plain_order = plain(stages, [])
        self.duration_s = durations(stages, plain_order).reshape(-1, count, micro_batches)[:, :, 0].tolist()
        self.hop_s = (stages.forward_hop_s.tolist(), stages.hop_s[0].tolist() if count > 1 else [])
        self.arrived_s = [[[math.inf] * micro_batches for _ in range(count)] for _ in range(2)]
        for stage in self.firsts:
            self.arrived_s[0][stage] = [0.0] * micro_batches
        self.done = [[0] * count for _ in range(3)]
        kept, deferred = stages.kept_bytes, stages.deferred_bytes
        self.kept, self.low = kept.tolist(), np.minimum(kept, deferred).tolist()
        self.grown, self.added = (stages.full_bytes - kept).tolist(), np.maximum(deferred - kept, 0).tolist()
        messages = _plain_messages(stages)
        turns = np.where(stages.crosses, 0.0, stages.message_bytes[0])  # what a stage makes for its own rank
        made = np.stack([np.append(turns, 0.0), np.insert(turns, 0, 0.0)])
        self.used, self.left = made[::-1].tolist(), (made - made[::-1]).tolist()
        messages = messages - made[::-1]
        self.messages = messages.tolist()
        self.kept_bytes, self.added_bytes = [0] * stages.ranks, [0] * stages.ranks
        reserve_bytes = spare_messages * stages.message_bytes.max(initial=0.0)
        self.room_bytes = np.maximum(stages.room_bytes - reserve_bytes, _least_bytes(stages)).tolist()
        needs = np.maximum(np.array(self.grown) + messages[Kind.BACKWARD], messages[Kind.FORWARD]).tolist()
        self.growth = [max(needs[stage] for stage in stages) for stages in self.here]
        below = (stages.depth - 1 - depth).tolist()
        more = int(stages.slices > 1)  # whose backward comes while the next micro-batch begins
        self.most_ahead = [
            more + (1 + rules.ahead * stages_below / stages.slices if stages_below else 1) for stages_below in below
        ]
        self.free_s = [0.0] * stages.ranks
        self.link_free_s: dict[tuple[int, int], float] = {}
        self.sequences: list[list[int]] = [[] for _ in range(stages.ranks)]
        self.events = [(0.0, rank) for rank in range(stages.ranks)]

    def run(self) -> Order:
        """Let ranks pick ops, at each arrival and at each end, until nothing happens any more."""
        while self.events:
            now_s, rank = heapq.heappop(self.events)
            if self.free_s[rank] <= now_s:
                op = self._pick(rank, now_s)
                if op is not None:
                    self._start(rank, now_s, *op)
        return plain(self.stages, self.sequences)

    def _pick(self, rank: int, now_s: float) -> tuple[int, int] | None:
        """Kind and stage of the rank's next op, None to wait for a message that is under way, or for good."""
        rules, blocked = self.rules, False
        backward = self._backward(rank, now_s)
        forward: int | None = None
        if backward is None or rules.forward_first or rules.frees_first:
            forward, blocked = self._forward(rank, now_s)
        weight = self._weight(rank)
        if weight is not None and blocked and rules.frees_first:
            return Kind.WEIGHT, weight
        if backward is not None and (forward is None or not rules.forward_first):
            return Kind.BACKWARD, backward
        due_s = self._due_s(rank, now_s)
        if forward is not None and self._may(now_s, due_s, self.duration_s[0][forward], rules.forward_patience):
            return Kind.FORWARD, forward
        if weight is not None and self._may(now_s, due_s, self.duration_s[2][weight], rules.weight_patience):
            return Kind.WEIGHT, weight
        return None

    @staticmethod
    def _may(now_s: float, due_s: float, duration_s: float, patience: float) -> bool:
        return now_s + (1 - patience) * duration_s <= due_s

    def _backward(self, rank: int, now_s: float) -> int | None:
        """A stage whose next gradient of the input can start."""
        for stage in self.here[rank]:
            at = self.done[1][stage]
            if stage + self.weighted < self.stages.count and self.done[1][stage + self.weighted] == at:
                continue  # the next slice goes back first
            kept_bytes = self.kept_bytes[rank] + self.added_bytes[rank] + self.grown[stage] + self.messages[1][stage]
            is_there = at < self.stages.micro_batches and self.arrived_s[1][stage][at] <= now_s
            if is_there and kept_bytes <= self.room_bytes[rank]:
                return stage
        return None

    def _forward(self, rank: int, now_s: float) -> tuple[int | None, bool]:
        """A stage whose next forward can start, and whether memory alone keeps one from it."""
        blocked = False
        for stage in self.forth[rank]:
            at = self.done[0][stage]
            if stage >= self.weighted and self.done[0][stage - self.weighted] == at:
                continue  # the slice before goes first
            if at < self.stages.micro_batches and at - self.done[1][stage] < self.most_ahead[stage]:
                is_there = self.arrived_s[0][stage][at] <= now_s
                if not (is_there or self.rules.frees_first):  # nothing asks what keeps it
                    continue
                if not self._is_safe(rank, stage):
                    blocked = True
                elif is_there:
                    return stage, False
        return None, blocked

    def _weight(self, rank: int) -> int | None:
        """The stage that has waited for most gradients of weights."""
        if self.last_kind is not Kind.WEIGHT:
            return None
        waiting = [(self.done[1][stage] - self.done[2][stage], stage) for stage in self.here[rank]]
        most, stage = max(waiting, key=lambda pair: pair[0])
        return stage if most else None

    def _due_s(self, rank: int, now_s: float) -> float:
        """When the next gradient arrives of those that are under way."""
        due_s = math.inf
        for stage in self.here[rank]:
            at = self.done[1][stage]
            if at < self.stages.micro_batches and self.arrived_s[1][stage][at] > now_s:
                due_s = min(due_s, self.arrived_s[1][stage][at])
        return due_s

    def _is_safe(self, rank: int, stage: int) -> bool:
        """Whether with this forward there is room to finish all micro-batches that were begun, one after the other.

        A micro-batch may still need room on later stages of the rank; once it is finished, its own room is free. A
        state that is safe on each rank has no deadlock: the oldest micro-batch can always go on (Dijkstra's banker).
        Of two micro-batches that are as old the first copy's goes first.
        """
        room, here = self.room_bytes[rank], self.here[rank]
        live = self.kept_bytes[rank] + self.kept[stage] - self.used[Kind.FORWARD][stage]
        spare = room - live - max(self.growth[rank], self.added_bytes[rank] + self.messages[0][stage])
        if spare < 0 or len(here) == 1:
            return bool(spare >= 0)
        most = sum(self.kept[s] for s in here)  # that a micro-batch still takes
        if spare >= most:
            return True
        forwards = {s: self.done[0][s] + (s == stage) for s in here}
        backwards, ended = self.done[Kind.BACKWARD], self.done[self.last_kind]
        for micro_batch in range(min(ended[s] for s in here), max(forwards.values())):
            for part in self.parts[rank]:
                if sum(self.kept[s] for s in part if forwards[s] <= micro_batch) > spare:
                    return False
                spare += sum(self.low[s] if micro_batch < backwards[s] else self.kept[s]
                             for s in part if ended[s] <= micro_batch < forwards[s])  # fmt: skip
            if spare >= most:
                return True
        return True

    def _start(self, rank: int, now_s: float, kind: int, stage: int) -> None:
        micro_batch = self.done[kind][stage]
        self.done[kind][stage] += 1
        self.sequences[rank].append(number(self.stages, Kind(kind), stage, micro_batch))
        if kind == Kind.FORWARD:
            self.kept_bytes[rank] += self.kept[stage]
        if kind == Kind.BACKWARD:
            self.kept_bytes[rank] -= self.kept[stage] - self.low[stage]
            self.added_bytes[rank] += self.added[stage]
        if kind == Kind.WEIGHT:
            self.kept_bytes[rank] -= self.low[stage]
            self.added_bytes[rank] -= self.added[stage]
        if kind != Kind.WEIGHT:
            self.kept_bytes[rank] += self.left[kind][stage]
        end_s = now_s + self.duration_s[kind][stage]
        self.free_s[rank] = end_s
        if kind != Kind.WEIGHT:
            self._send(rank, end_s, kind, stage, micro_batch)
        heapq.heappush(self.events, (self.free_s[rank], rank))

    def _send(self, rank: int, end_s: float, kind: int, stage: int, micro_batch: int) -> None:
        """Note when the message of an op is there; a link carries one at a time."""
        if kind == Kind.FORWARD and stage in self.lasts:
            self.arrived_s[1][stage][micro_batch] = end_s
            return
        if kind == Kind.BACKWARD and stage in self.firsts:
            return
        target = stage + (1 if kind == Kind.FORWARD else -1)
        other, there_s = self.rank[target], end_s
        if other != rank:
            sent_s = max(end_s, self.link_free_s.get((rank, other), 0.0))
            there_s = self.link_free_s[rank, other] = sent_s + self.hop_s[kind][min(stage, target)]
            if self.stages.blocks:
                self.free_s[rank] = there_s
            heapq.heappush(self.events, (there_s, other))
        self.arrived_s[kind][target][micro_batch] = there_s
