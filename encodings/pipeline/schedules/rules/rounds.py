"""Rounds of a forward and a backward on every rank, as zero-bubble's schedulers have them; here of one stage a rank.

A rank keeps its weight gradients for when it would wait, or when memory needs them. It may wait for less than one of
them takes as long as another rank has waited longer in all (Qi et al., "Zero bubble pipeline parallelism", 2024,
section 3.1). Times within are ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from gapless.encodings.pipeline.order.orders import Order, number, plain
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.schedules.squeeze import changes

__all__ = ["RoundRules", "Rounds", "all_round_rules", "in_rounds"]


@dataclass(frozen=True)
class RoundRules:
    """`delays_first`: whether a warm-up takes a forward that delays the first backward. `skips`: whether a rank leaves
    out its forward where it is two ahead of the next rank, which has enough to do. `fills`: whether a weight gradient
    goes into a wait that is shorter than it where the rank has waited less than another.
    """

    delays_first: bool
    skips: bool
    fills: bool


def all_round_rules() -> Iterator[RoundRules]:
    """All eight sets, those that win most often first."""
    return (RoundRules(delays, skips, fills) for fills, delays, skips in product((False, True), repeat=3))


def in_rounds(stages: Stages, rules: RoundRules) -> Order | None:
    """The order that the rules give; None where memory has no room for them, and where a rank has several stages or
    gradients aren't split.
    """
    if stages.count != stages.ranks or not stages.splits:
        return None
    rounds = _LineRounds(stages, rules)
    return plain(stages, rounds.sequences) if rounds.run() else None


class Rounds:
    """What each rank has run so far, by its place in the line. `done[kind][s]` counts micro-batches of a stage.

    `late[p]`: the stages of the backwards whose weight gradients wait. `waited_s[p]`: since the rank's first forward.
    """

    def __init__(self, stages: Stages, places: Sequence[int]) -> None:
        self.stages, self.place, self.last = stages, places, stages.count - 1
        self.micro_batches, line = stages.micro_batches, range(max(places) + 1)
        self.own_s = [stages.forward_s.tolist(), stages.backward_s.tolist(), stages.weight_s.tolist()]
        self.hop_s = [stages.forward_hop_s.tolist(), stages.hop_s[0].tolist()]
        self.arrived_s: list[list[list[float]]] = [[[] for _ in places] for _ in range(2)]
        self.arrived_s[0][0] = [0.0] * self.micro_batches
        self.done = [[0] * stages.count for _ in Kind]
        self.end_s, self.waited_s, self.kept = ([0.0] * len(line) for _ in range(3))
        takes, leaves = changes(stages)
        self.takes, self.leaves, self.nets = takes.tolist(), leaves.tolist(), (takes - leaves).tolist()
        self.room = [float(stages.room_bytes[stages.rank[place]]) for place in line]
        self.late: list[deque[int]] = [deque() for _ in line]
        self.by_place: list[list[int]] = [[] for _ in line]

    @property
    def sequences(self) -> list[list[int]]:
        """By rank."""
        at = {rank: place for place, rank in enumerate(self.stages.rank[: len(self.by_place)].tolist())}
        return [self.by_place[at[rank]] for rank in range(self.stages.ranks)]

    def run_filled(self, kind: Kind, stage: int, least_s: float) -> bool:
        """An op after those weight gradients that memory needs, those that fit into the wait for it, and one more where
        the wait that is left is longer than `least_s`.
        """
        place, arrived_s = self.place[stage], self.arrived_s[kind][stage]
        while self.kept[place] + self.takes[kind][stage] > self.room[place]:
            if not self.run_weight(place):
                return False
        if len(arrived_s) <= self.done[kind][stage]:
            return False
        due_s = arrived_s[self.done[kind][stage]]
        while self.late[place] and self.end_s[place] + self.own_s[Kind.WEIGHT][self.late[place][0]] <= due_s:
            self.run_weight(place)
        if due_s - self.end_s[place] > least_s:
            self.run_weight(place)
        return self.run_op(kind, stage)

    def run_weight(self, place: int) -> bool:
        """The weight gradient that has waited longest, if there is one."""
        return bool(self.late[place]) and self.run_op(Kind.WEIGHT, self.late[place].popleft())

    def run_op(self, kind: Kind, stage: int) -> bool:
        """Run a stage's next op of a kind, if there is one whose input is there, and room."""
        place, micro_batch, begin_s = self.place[stage], self.done[kind][stage], self.end_s[self.place[stage]]
        if micro_batch == self.micro_batches or self.kept[place] + self.takes[kind][stage] > self.room[place]:
            return False
        if kind is not Kind.WEIGHT:
            if len(self.arrived_s[kind][stage]) <= micro_batch:
                return False
            begin_s = max(begin_s, self.arrived_s[kind][stage][micro_batch])
        if self.by_place[place]:
            self.waited_s[place] += begin_s - self.end_s[place]
        end_s = self.end_s[place] = begin_s + self.own_s[kind][stage]
        self.kept[place] += self.nets[kind][stage]
        self.done[kind][stage] += 1
        self.by_place[place].append(number(self.stages, kind, stage, micro_batch))
        self._send(kind, stage, end_s)
        return True

    def _send(self, kind: Kind, stage: int, end_s: float) -> None:
        """Note what can come next, and when."""
        to = stage + 1 - 2 * kind
        if kind is Kind.BACKWARD:
            self.late[self.place[stage]].append(stage)
        if kind is Kind.FORWARD and stage == self.last:
            self.arrived_s[Kind.BACKWARD][stage].append(end_s)
        elif kind is not Kind.WEIGHT and to >= 0:
            self.arrived_s[kind][to].append(end_s + self.hop_s[kind][min(stage, to)])


class _LineRounds(Rounds):
    """Of one stage a rank, whose place is its number."""

    def __init__(self, stages: Stages, rules: RoundRules) -> None:
        super().__init__(stages, range(stages.count))
        self.rules, self.count = rules, stages.count

    def run(self) -> bool:
        """Whether memory had room for all of it."""
        if not self._warm_up():
            return False
        for _ in range(1, self.micro_batches):
            if not self._forwards() or not self._backwards():
                return False
        return all(self.run_weight(stage) for stage in range(self.count) for _ in range(len(self.late[stage])))

    def _warm_up(self) -> bool:
        """The first forward everywhere; as many more as fit into the wait for the first backward; that backward."""
        if not all(self.run_op(Kind.FORWARD, stage) for stage in range(self.count)):
            return False
        extra, first_s = [0] * self.count, self.end_s[self.last] + self.own_s[1][self.last]
        for stage in range(self.last - 1, -1, -1):
            due_s, at_s, forward_s = first_s + self.hop_s[1][stage], self.end_s[stage], self.own_s[0][stage]
            most, net = self.room[stage] - self.takes[0][stage], self.nets[0][stage]
            while 1 + extra[stage] < self.micro_batches and (1 + extra[stage]) * net <= most:
                if at_s >= due_s if self.rules.delays_first else at_s + forward_s > due_s:
                    break
                at_s += forward_s
                extra[stage] += 1
            first_s = max(at_s, due_s) + self.own_s[1][stage]
        for stage in range(1, self.count):
            extra[stage] = min(extra[stage], max(extra[stage - 1] - 1, 0))
        for stage in range(self.count):
            if not all(self.run_op(Kind.FORWARD, stage) for _ in range(extra[stage])):
                return False
        return all(self.run_op(Kind.BACKWARD, stage) for stage in range(self.last, -1, -1))

    def _forwards(self) -> bool:
        """A forward on each rank that has one left, but for what is skipped, and on none whose next rank has none."""
        goes = [self.done[0][s] < self.micro_batches and not self._skips(s) for s in range(self.count)]
        for stage in range(self.last - 1, -1, -1):
            goes[stage] = goes[stage] and (goes[stage + 1] or self.done[0][stage + 1] == self.micro_batches)
        return all(self._run_filled(Kind.FORWARD, stage) for stage in range(self.count) if goes[stage])

    def _backwards(self) -> bool:
        for stage in range(self.last, -1, -1):
            if stage == 0 and self.done[0][0] == self.micro_batches:
                while self.run_weight(0):
                    pass
            if not self._run_filled(Kind.BACKWARD, stage):
                return False
        return True

    def _run_filled(self, kind: Kind, stage: int) -> bool:
        return self.run_filled(kind, stage, 0.0 if self.rules.fills else max(self.waited_s) - self.waited_s[stage])

    def _skips(self, stage: int) -> bool:
        """Whether the next rank has enough to do without this forward, and nobody waits longer than somebody does."""
        if not self.rules.skips or stage == self.last or self.done[0][stage] < self.done[0][stage + 1] + 2:
            return False
        then_s = self.end_s[stage + 1] + self.own_s[0][stage + 1] + self.own_s[1][stage + 1] + self.hop_s[1][stage]
        ready_s, weights = self.end_s[stage], 0
        if ready_s >= then_s:
            return True
        kept = self.kept[stage] + self.takes[0][stage]
        while kept > self.room[stage] and weights < len(self.late[stage]):
            kept -= self.leaves[2][stage]
            ready_s += self.own_s[2][stage]
            weights += 1
        if ready_s + self.own_s[0][stage] <= then_s:
            return False
        return bool(then_s - self.end_s[stage] <= max(self.waited_s) - self.waited_s[stage])
