"""The zero-bubble paper's own heuristic: rounds of one forward and one backward on every rank, where it has one stage.

A rank keeps its weight gradients for when it would wait, or when memory needs them. It may wait for less than one of
them takes as long as another rank has waited longer in all (Qi et al., "Zero bubble pipeline parallelism", 2024,
section 3.1). Times within are ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.timeline import Order, number, plain

__all__ = ["RoundRules", "all_round_rules", "in_rounds"]


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
    rounds = _Rounds(stages, rules)
    return plain(stages, rounds.sequences) if rounds.run() else None


class _Rounds:
    """What each stage, on the rank of its number in the line, has run so far. `done[kind][s]` counts micro-batches."""

    def __init__(self, stages: Stages, rules: RoundRules) -> None:
        self.stages, self.rules = stages, rules
        self.count, self.last = stages.count, stages.count - 1
        self.own_s = [stages.forward_s.tolist(), stages.backward_s.tolist(), stages.weight_s.tolist()]
        self.hop_s = [stages.forward_hop_s.tolist(), stages.hop_s[0].tolist()]
        self.arrived_s: list[list[list[float]]] = [[[] for _ in range(self.count)] for _ in range(2)]
        self.arrived_s[0][0] = [0.0] * stages.micro_batches
        self.done = [[0] * self.count for _ in Kind]
        self.end_s, self.waited_s = [0.0] * self.count, [0.0] * self.count
        self.kept = [0.0] * self.count
        self.takes, self.leaves = ([[0.0] * self.count for _ in Kind] for _ in range(2))
        for span in stages.spans:
            for stage, size in enumerate(span.size_bytes.tolist()):
                self.takes[span.begin][stage] += size
                self.leaves[span.end][stage] += size
        self.room = stages.room_bytes[stages.rank].tolist()
        self.by_stage: list[list[int]] = [[] for _ in range(self.count)]

    @property
    def sequences(self) -> list[list[int]]:
        """By rank."""
        at = {rank: stage for stage, rank in enumerate(self.stages.rank.tolist())}
        return [self.by_stage[at[rank]] for rank in range(self.stages.ranks)]

    def run(self) -> bool:
        """Whether memory had room for all of it."""
        if not self._warm_up():
            return False
        for _ in range(1, self.stages.micro_batches):
            if not self._forwards() or not self._backwards():
                return False
        for stage in range(self.count):
            while self._run_weight(stage):
                pass
        return True

    def _warm_up(self) -> bool:
        """The first forward everywhere; as many more as fit into the wait for the first backward; that backward."""
        if not all(self._run(Kind.FORWARD, stage) for stage in range(self.count)):
            return False
        extra, first_s = [0] * self.count, self.end_s[self.last] + self.own_s[1][self.last]
        for stage in range(self.last - 1, -1, -1):
            due_s, at_s = first_s + self.hop_s[1][stage], self.end_s[stage]
            forward_s, take = self.own_s[0][stage], self.takes[0][stage]
            while 1 + extra[stage] < self.stages.micro_batches and (2 + extra[stage]) * take <= self.room[stage]:
                if at_s >= due_s if self.rules.delays_first else at_s + forward_s > due_s:
                    break
                at_s += forward_s
                extra[stage] += 1
            first_s = max(at_s, due_s) + self.own_s[1][stage]
        for stage in range(1, self.count):
            extra[stage] = min(extra[stage], max(extra[stage - 1] - 1, 0))
        for stage in range(self.count):
            if not all(self._run(Kind.FORWARD, stage) for _ in range(extra[stage])):
                return False
        return all(self._run(Kind.BACKWARD, stage) for stage in range(self.last, -1, -1))

    def _forwards(self) -> bool:
        """A forward on each rank that has one left, but for what is skipped, and on none whose next rank has none."""
        goes = [self.done[0][s] < self.stages.micro_batches and not self._skips(s) for s in range(self.count)]
        for stage in range(self.last - 1, -1, -1):
            goes[stage] = goes[stage] and (goes[stage + 1] or self.done[0][stage + 1] == self.stages.micro_batches)
        return all(self._filled(Kind.FORWARD, stage) for stage in range(self.count) if goes[stage])

    def _backwards(self) -> bool:
        for stage in range(self.last, -1, -1):
            if stage == 0 and self.done[0][0] == self.stages.micro_batches:
                while self._run_weight(0):
                    pass
            if not self._filled(Kind.BACKWARD, stage):
                return False
        return True

    def _skips(self, stage: int) -> bool:
        """Whether the next rank has enough to do without this forward, and nobody waits longer than somebody does."""
        if not self.rules.skips or stage == self.last or self.done[0][stage] < self.done[0][stage + 1] + 2:
            return False
        then_s = self.end_s[stage + 1] + self.own_s[0][stage + 1] + self.own_s[1][stage + 1] + self.hop_s[1][stage]
        ready_s, weights = self.end_s[stage], 0
        if ready_s >= then_s:
            return True
        kept, waiting = self.kept[stage] + self.takes[0][stage], self.done[1][stage] - self.done[2][stage]
        while kept > self.room[stage] and weights < waiting:
            kept -= self.leaves[2][stage]
            ready_s += self.own_s[2][stage]
            weights += 1
        if ready_s + self.own_s[0][stage] <= then_s:
            return False
        return bool(then_s - self.end_s[stage] <= max(self.waited_s) - self.waited_s[stage])

    def _filled(self, kind: Kind, stage: int) -> bool:
        """An op after those weight gradients that memory needs, and those that fit into the wait for it."""
        while self.kept[stage] + self.takes[kind][stage] > self.room[stage]:
            if not self._run_weight(stage):
                return False
        if (kind == Kind.FORWARD and stage == 0) or (kind == Kind.BACKWARD and stage == self.last):
            return self._run(kind, stage)
        due_s, weight_s = self.arrived_s[kind][stage][self.done[kind][stage]], self.own_s[2][stage]
        while self.end_s[stage] + weight_s <= due_s and self._run_weight(stage):
            pass
        wait_s = due_s - self.end_s[stage]
        if wait_s > 0 and (self.rules.fills or wait_s > max(self.waited_s) - self.waited_s[stage]):
            self._run_weight(stage)
        return self._run(kind, stage)

    def _run_weight(self, stage: int) -> bool:
        return self.done[2][stage] < self.done[1][stage] and self._run(Kind.WEIGHT, stage)

    def _run(self, kind: Kind, stage: int) -> bool:
        """Run a stage's next op of a kind, if there is room."""
        if self.kept[stage] + self.takes[kind][stage] > self.room[stage]:
            return False
        micro_batch, begin_s = self.done[kind][stage], self.end_s[stage]
        if kind != Kind.WEIGHT and not (kind == Kind.BACKWARD and stage == self.last):
            begin_s = max(begin_s, self.arrived_s[kind][stage][micro_batch])
        if self.done[0][stage]:
            self.waited_s[stage] += begin_s - self.end_s[stage]
        end_s = self.end_s[stage] = begin_s + self.own_s[kind][stage]
        self.kept[stage] += self.takes[kind][stage] - self.leaves[kind][stage]
        self.done[kind][stage] += 1
        self.by_stage[stage].append(number(self.stages, kind, stage, micro_batch))
        to = stage + 1 - 2 * kind
        if kind != Kind.WEIGHT and 0 <= to < self.count:
            self.arrived_s[kind][to].append(end_s + self.hop_s[kind][min(stage, to)])
        return True
