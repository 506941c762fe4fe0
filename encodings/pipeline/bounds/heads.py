"""Heads and tails of ops: longest paths from the step's start and to its end.

The head of an op is a time before which it can't start, its tail what has to pass between its end and the step's.
Micro-batches are alike, so of each kind and stage they go first in, first out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.pipeline.order.stages import Kind, Stages, rooms

__all__ = ["Heads", "heads_and_tails"]


@dataclass(frozen=True)
class Heads:
    """Of each op, shape (kinds, S, M): `head_s`, the least start; `tail_s`, the least from its end to the step's.

    `own_s`, `held_s`: shape (kinds, S), how long it takes and how long it holds its rank, in its cheapest mode.
    """

    stages: Stages
    head_s: Floats
    tail_s: Floats
    own_s: Floats
    held_s: Floats

    @cached_property
    def path_s(self) -> float:
        """The longest chain of ops of which each waits for the one before it."""
        return float((self.head_s + self.own_s[:, :, None] + self.tail_s).max())


def heads_and_tails(
    stages: Stages, remembers: bool = True, rank: int | None = None, is_last: bool = False
) -> Heads:  # fmt: skip
    """Longest paths along what has to wait. `rank`: those of its span, from its first op to its own end; -inf where
    there is none. `is_last`: from its first op to the end of the step, the last one.

    `remembers`: with memory, whose K micro-batches of a stage make the forward of micro-batch m + K wait for the
    backward of micro-batch m, and for its weight gradient those for which there is room until then.
    """
    paths = _Paths(stages, remembers, rank)
    ends = _Paths(stages, remembers, None) if is_last else paths
    return Heads(stages, paths.heads(), ends.tails(), paths.own_s, paths.held_s)


class _Paths:
    """What has to pass between ops, in their cheapest modes. `rooms`: for how many micro-batches of a stage there is
    room, by the kind of op that makes some, where there isn't for all. `before`: of each stage the least head of its
    ops, and the least tail."""

    def __init__(self, stages: Stages, remembers: bool, rank: int | None) -> None:
        self.stages, self.end = stages, stages.micro_batches
        self.follows = np.isin(np.arange(stages.count), stages.hops + 1).tolist()  # the stage before, which is there
        self.lasts = stages.lasts.tolist()
        own_s = np.stack([stages.forward_s, stages.backward_s, stages.weight_s][: 3 if stages.splits else 2]).copy()
        own_s[Kind.BACKWARD, :-1] += stages.decode_s.min(axis=0)
        own_s[Kind.BACKWARD, 1:] += stages.encode_s.min(axis=0)
        hops_s = stages.forward_hop_s, stages.hop_s.min(axis=0)
        self.own_s, self.held_s = own_s, own_s.copy()
        if stages.blocks:
            self.held_s[Kind.FORWARD, :-1] += hops_s[0]
            self.held_s[Kind.BACKWARD, 1:] += hops_s[1]
        self.own, self.held = own_s.tolist(), self.held_s.tolist()
        self.hops = [hop_s.tolist() for hop_s in hops_s]
        own, ends = np.full(stages.count, rank is None) | (stages.rank == rank), stages.rank[[0, -1]]
        exchanges = np.isin(stages.rank, ends) & (stages.embedding_s > 0 and rank in ends.tolist())
        last_s = stages.reduce_s.min(axis=0) + stages.exchange_s
        self.before = np.where(own, 0.0, -np.inf)
        self.last = np.where(own | exchanges, last_s, -np.inf).tolist()
        self.rooms = [(int(kind), most.tolist()) for kind, most in (rooms(stages) if remembers else {}).items()]

    def heads(self) -> Floats:
        """Longest paths to the starts of ops."""
        count, own, held, each = self.stages.count, self.own, self.held, self.stages.weighted
        head = np.tile(self.before[:, None], (len(own), 1, self.end)).tolist()
        forward, backward, last = head[0], head[1], head[-1]
        for m in range(self.end):
            for kind in range(len(head)) if m else ():
                for s in range(count):
                    head[kind][s][m] = max(head[kind][s][m], head[kind][s][m - 1] + held[kind][s])
            for s in range(count):
                for kind, most in self.rooms:
                    if m >= most[s]:
                        forward[s][m] = max(forward[s][m], head[kind][s][m - most[s]] + held[kind][s])
                if self.follows[s]:
                    forward[s][m] = max(forward[s][m], forward[s - 1][m] + own[0][s - 1] + self.hops[0][s - 1])
                if s >= each:
                    forward[s][m] = max(forward[s][m], forward[s - each][m] + held[0][s - each])
            for s in self.lasts:
                backward[s][m] = max(backward[s][m], forward[s][m] + own[0][s])
            for s in range(count - 1, -1, -1):
                if s + 1 < count and self.follows[s + 1]:
                    backward[s][m] = max(backward[s][m], backward[s + 1][m] + own[1][s + 1] + self.hops[1][s])
                if s + each < count:
                    backward[s][m] = max(backward[s][m], backward[s + each][m] + held[1][s + each])
            for s in range(count) if self.stages.splits else ():
                last[s][m] = max(last[s][m], backward[s][m] + held[1][s])
        return np.array(head)

    def tails(self) -> Floats:
        """Longest paths from the ends of ops, before their messages, to the step's end."""
        count, own, each = self.stages.count, self.own, self.stages.weighted
        late = (self.held_s - self.own_s).tolist()
        tail = np.tile(self.before[:, None], (len(own), 1, self.end)).tolist()
        forward, backward, last = tail[0], tail[1], tail[-1]
        for m in range(self.end - 1, -1, -1):
            for kind in range(len(tail)):
                for s in range(count):
                    after = own[kind][s] + tail[kind][s][m + 1] if m + 1 < self.end else self.before[s]
                    tail[kind][s][m] = max(tail[kind][s][m], late[kind][s] + after)
            for s in range(count):
                last[s][m] = max(last[s][m], self.last[s])
                for kind, most in self.rooms:
                    if m + most[s] < self.end:
                        there = late[kind][s] + own[0][s] + forward[s][m + most[s]]
                        tail[kind][s][m] = max(tail[kind][s][m], there)
                if self.stages.splits:
                    backward[s][m] = max(backward[s][m], late[1][s] + own[2][s] + last[s][m])
                if self.follows[s]:
                    there = self.hops[1][s - 1] + own[1][s - 1] + backward[s - 1][m]
                    backward[s][m] = max(backward[s][m], there)
                if s >= each:
                    backward[s][m] = max(backward[s][m], late[1][s] + own[1][s - each] + backward[s - each][m])
            for s in self.lasts:
                forward[s][m] = max(forward[s][m], own[1][s] + backward[s][m])
            for s in range(count - 1, -1, -1):
                if s + 1 < count and self.follows[s + 1]:
                    forward[s][m] = max(forward[s][m], self.hops[0][s] + own[0][s + 1] + forward[s + 1][m])
                if s + each < count:
                    forward[s][m] = max(forward[s][m], late[0][s] + own[0][s + each] + forward[s + each][m])
        return np.array(tail)
