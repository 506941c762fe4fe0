"""Rounds of a backward and a forward on every rank where ranks have two stages in a V, as zero-bubble V's scheduler has
them (Qi et al., "Zero bubble pipeline parallelism", 2024, section 6).

A rank may also wait for less than a weight gradient takes as long as it has waited less, in the order that was made
before, than the rank that waited most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from gapless.encodings.pipeline.order.orders import Order, plain
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.placement.named import rank_of_stages
from gapless.encodings.pipeline.schedules.rules.rounds import Rounds

__all__ = ["VRoundRules", "all_v_round_rules", "in_v_rounds", "is_v"]

F, I = Kind.FORWARD, Kind.BACKWARD  # noqa: E741, the field's letters


@dataclass(frozen=True)
class VRoundRules:
    """Whether a weight gradient goes into a wait that is shorter than it, where the rank has waited less than another:
    before a forward, and before a backward of the rank's second stage; before one of its first stage it does.
    """

    fills_forward: bool
    fills_backward: bool


def all_v_round_rules() -> Iterator[VRoundRules]:
    """All four sets, those that win most often first."""
    return (VRoundRules(forward, backward) for backward, forward in product((True, False), (False, True)))


def is_v(stages: Stages) -> bool:
    """Whether there are two stages a rank, down the ranks and up again, and gradients are split."""
    is_one = stages.copies == stages.slices == 1 and stages.splits and stages.count == 2 * stages.ranks
    return is_one and np.array_equal(stages.rank, rank_of_stages("v", stages.ranks, 2))


def in_v_rounds(stages: Stages, rules: VRoundRules) -> Order | None:
    """The order that the rules give, made again with what ranks waited in it as long as that gains; None where memory
    has no room for them, and where ranks have no two stages in a V.
    """
    best: _VRounds | None = None
    while is_v(stages):
        rounds = _VRounds(stages, rules, [] if best is None else best.waited_s)
        if not rounds.run() or (best is not None and max(rounds.waited_s) >= max(best.waited_s)):
            break
        best = rounds
    return None if best is None else plain(stages, best.sequences)


class _VRounds(Rounds):
    """Of stages s and S - 1 - s on the rank of place s. `known_s`: what each rank waited in the order before."""

    def __init__(self, stages: Stages, rules: VRoundRules, known_s: list[float]) -> None:
        super().__init__(stages, [min(stage, stages.count - 1 - stage) for stage in range(stages.count)])
        self.rules, self.ranks = rules, stages.ranks
        self.spared_s = [max(known_s) - known for known in known_s] or [0.0] * stages.ranks

    def run(self) -> bool:
        """Whether memory had room for all of it."""
        if not self._warm_up() or not self._level():
            return False
        for _ in range(2 * self.micro_batches):
            if not self._backwards() or not self._forwards():
                return False
        return all(self.run_weight(rank) for rank in range(self.ranks) for _ in range(len(self.late[rank])))

    def _second(self, rank: int) -> int:
        return self.last - rank

    def _warm_up(self) -> bool:
        """The first micro-batch down and up; before it comes up, as many more go down as fit into the wait for it."""
        if not all(self.run_op(F, rank) for rank in range(self.ranks)):
            return False
        for rank in range(self.ranks - 1, -1, -1):
            stage, ahead = self._second(rank), rank + 1
            due_s = self.arrived_s[F][stage][0] if rank < self.ranks - 1 else -math.inf
            most = self.room[rank] - ahead * (self.takes[F][rank] + self.takes[F][stage])
            while (
                self.kept[rank] <= most
                and self.end_s[rank] + self.own_s[F][rank] <= due_s
                and self.done[F][rank] < self.micro_batches
            ):
                if not all(self.run_op(F, other) for other in range(ahead)):
                    return False
            if not self.run_op(F, stage):
                return False
        return True

    def _level(self) -> bool:
        """Forwards of first and of second stages in turns, from the last rank up, until each rank has run as many as
        the one before it."""
        is_second = False
        for rank in range(1, self.ranks):
            while self._is_behind(rank):
                for other in range(self.ranks - 1, rank - 1, -1):
                    stage = self._second(other) if is_second else other
                    if self.done[F][stage] < self.micro_batches and not self.run_op(F, stage):
                        return False
                is_second = not is_second
        return True

    def _is_behind(self, rank: int) -> bool:
        forwards = self.done[F]
        here, before = forwards[self._second(rank)], forwards[self._second(rank - 1)]
        return forwards[rank] + here < forwards[rank - 1] + before or here <= before < self.micro_batches

    def _backwards(self) -> bool:
        """One on each rank, of its first stage where that is there; those of first stages first, from the last rank up,
        then those of second stages, from the first rank down."""
        first = [rank for rank in range(self.ranks) if self._is_first_next(rank)]
        turns = [(rank, True) for rank in reversed(first)]
        turns += [(self._second(rank), self.rules.fills_backward) for rank in range(self.ranks) if rank not in first]
        return all(self._run_filled(I, stage, fills) for stage, fills in turns)

    def _is_first_next(self, rank: int) -> bool:
        at, then = self.done[I][rank], self.done[I][self._second(rank)]
        is_there = rank == self.ranks - 1 or len(self.arrived_s[I][rank]) > at
        return at < then and (is_there or then == self.micro_batches)

    def _forwards(self) -> bool:
        """One on each rank where one is there, of its second stage if it can be."""
        for rank in range(self.ranks):
            there = [stage for stage in (self._second(rank), rank) if self._is_there(stage)]
            if there and not self._run_filled(F, there[0], self.rules.fills_forward):
                return False
        return True

    def _is_there(self, stage: int) -> bool:
        return self.done[F][stage] < min(self.micro_batches, len(self.arrived_s[F][stage]))

    def _run_filled(self, kind: Kind, stage: int, fills: bool) -> bool:
        rank = self.place[stage]
        spared_s = max(*self.waited_s, self.spared_s[rank]) - self.waited_s[rank] if fills else math.inf
        return self.run_filled(kind, stage, spared_s)
