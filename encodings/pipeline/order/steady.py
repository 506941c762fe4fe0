"""Steady state: steps that follow one another without waiting for each other, so that a step takes its longest span.

The span of a rank, or of a link, is the time from the first thing that it does in a step to the end of the last. Where
steps start T apart, the next one finds each of them free if no span is longer than T. An order's shortest T is the
largest mean of a cycle through what ranks and links do from one step to the next (Karp, 1978).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.pipeline.order.stages import Kind, Stages

__all__ = ["Flow", "Link", "Offsets", "begins_s", "end_s", "largest_mean_s", "longest_paths_s", "offsets_s"]

Link = tuple[int, int]
"""Source and target."""
Offsets = tuple[Floats, dict[Link, float]]
"""When each rank, float of shape (P,), and each link that may wait begins at the earliest."""
_ROUNDING = 1e-12
"""Ends that grow alike but for this share do so for good."""


@dataclass(frozen=True)
class Flow:
    """An order as it runs. `program`: numbers of ops, each behind those that it waits for. `duration_s`: by number of
    op. `hop_s`: float, shape (2, S - 1, M). `reduce_s`: float, shape (S,). `sends`: of each link the numbers of its
    messages in the order in which they leave. `sums`: stages in the order of their sums.
    """

    program: Sequence[int]
    duration_s: Sequence[float]
    hop_s: Floats
    reduce_s: Floats
    sends: Mapping[Link, Sequence[int]]
    sums: Sequence[int]

    def waiting(self, stages: Stages) -> list[Link]:
        """The links whose span may be longer than that of the rank that sends: on others no message is longer than the
        shortest op that makes one."""
        return [] if stages.blocks else sorted(link for link, own in self.sends.items() if self._may_wait(stages, own))

    def _may_wait(self, stages: Stages, messages: Sequence[int]) -> bool:
        kind_hop, micro_batch = np.divmod(np.array(messages), stages.micro_batches)
        kind, hop = np.divmod(kind_hop, stages.count - 1)
        makers = (kind * stages.count + hop + kind) * stages.micro_batches + micro_batch
        return bool(self.hop_s[kind, hop, micro_batch].max() > np.asarray(self.duration_s)[makers].min())


def offsets_s(stages: Stages, flow: Flow, paths_s: Floats) -> Offsets:
    """The earliest, so that no span is longer than the order's largest mean."""
    links = flow.waiting(stages)
    period_s, found = largest_mean_s(paths_s), np.full(len(paths_s), -np.inf)
    found[stages.rank[0]] = 0.0
    for _ in range(len(paths_s)):
        after = np.maximum(found, (paths_s + found).max(axis=1) - period_s)
        after[stages.rank[0]] = 0.0  # but for rounding errors
        if (after == found).all():
            break
        found = after
    found = found - found[stages.rank[stages.firsts]].min()  # where copies of the model begin
    return found[: stages.ranks], dict(zip(links, found[stages.ranks :].tolist(), strict=True))


def largest_mean_s(paths_s: Floats) -> float:
    """Of all cycles, the largest mean of `paths_s[to, from]`, float of shape (n, n), -inf where there is no path."""
    count = len(paths_s)
    longest = np.zeros((count + 1, count))
    for k in range(count):
        longest[k + 1] = (paths_s + longest[k]).max(axis=1)
    steps = (count - np.arange(count))[:, None]
    means = ((longest[count] - longest[:count]) / steps).min(axis=0)
    return float(means.max())


def begins_s(stages: Stages, flow: Flow, paths_s: Floats) -> Iterator[Offsets]:
    """Of steps without end, each as early as it goes: a rank or a link begins when it is through with the last one."""
    links, begin = flow.waiting(stages), np.zeros(len(paths_s))
    while True:
        yield begin[: stages.ranks], dict(zip(links, begin[stages.ranks :].tolist(), strict=True))
        begin = (paths_s + begin).max(axis=1)


def end_s(paths_s: Floats, steps: int) -> float:
    """When the last of so many steps ends: the heaviest of all walks of so many paths (max-plus powers)."""
    begin = np.zeros(len(paths_s))
    for step in range(steps):
        end = (paths_s + begin).max(axis=1)
        grown_s = end - begin
        if np.ptp(grown_s) <= _ROUNDING * end.max():  # and so it goes on
            return float(end.max() + (steps - step - 1) * grown_s.max())
        begin = end
    return float(begin.max())


def longest_paths_s(stages: Stages, flow: Flow, links: Sequence[Link]) -> Floats:
    """From the start of each rank, and then of each of the links, to the end of each, float of shape (n, n)."""
    return _Paths(stages, flow, links).run()


class _Paths:
    """Of what is there, the longest path to it from each start: float of shape (n,) each."""

    def __init__(self, stages: Stages, flow: Flow, links: Sequence[Link]) -> None:
        self.stages, self.flow = stages, flow
        starts = np.full((stages.ranks + len(links),) * 2, -np.inf)
        np.fill_diagonal(starts, 0.0)
        self.free = list(starts[: stages.ranks])
        self.link_free = dict(zip(links, starts[stages.ranks :], strict=True))
        self.left = {link: list(reversed(flow.sends[link])) for link in links}
        self.never = np.full(len(starts), -np.inf)
        self.arrived: dict[int, Floats] = {}
        self.posted: dict[int, Floats] = {}

    def run(self) -> Floats:
        stages, per_kind = self.stages, self.stages.count * self.stages.micro_batches
        done = [self.never] * stages.count
        rank, last = stages.rank.tolist(), int(stages.last)
        for op in self.flow.program:
            kind, (stage, micro_batch) = op // per_kind, divmod(op % per_kind, stages.micro_batches)
            here = rank[stage]
            begin = self.free[here]
            if op in self.arrived:
                begin = np.maximum(begin, self.arrived.pop(op))
            self.free[here] = end = begin + self.flow.duration_s[op]
            if kind == last:
                done[stage] = end
            if kind == Kind.FORWARD and stage == stages.count - 1:
                self.arrived[per_kind + op] = end
            elif kind == Kind.FORWARD or (kind == Kind.BACKWARD and stage > 0):
                self._send(kind, stage - kind, micro_batch, end)
        return np.stack([*self._ends(done), *self.link_free.values()])

    def _send(self, kind: int, hop: int, micro_batch: int, end: Floats) -> None:
        stages = self.stages
        link = int(stages.rank[hop + kind]), int(stages.rank[hop + 1 - kind])
        message = (kind * (stages.count - 1) + hop) * stages.micro_batches + micro_batch
        if link not in self.left:
            there = self._arrive(message, end)
            if stages.blocks and link[0] != link[1]:
                self.free[link[0]] = there
            return
        self.posted[message] = end
        left = self.left[link]
        while left and left[-1] in self.posted:
            first = left.pop()
            self.link_free[link] = self._arrive(first, np.maximum(self.posted.pop(first), self.link_free[link]))

    def _arrive(self, message: int, sent: Floats) -> Floats:
        stages = self.stages
        kind_hop, micro_batch = divmod(message, stages.micro_batches)
        kind, hop = divmod(kind_hop, stages.count - 1)
        there = sent + self.flow.hop_s[kind, hop, micro_batch]
        self.arrived[(kind * stages.count + hop + 1 - kind) * stages.micro_batches + micro_batch] = there
        return np.asarray(there)

    def _ends(self, done: list[Floats]) -> list[Floats]:
        """Of each rank, with its sums among replicas, one at a time, and a shared embedding's exchange."""
        stages, network = self.stages, [self.never] * self.stages.ranks
        for stage in self.flow.sums:
            ready = np.max(done[stage % stages.depth :: stages.depth], axis=0)  # of all copies
            rank = int(stages.rank[stage])
            network[rank] = np.maximum(ready, network[rank]) + self.flow.reduce_s[stage]
        ends = [np.maximum(free, own) for free, own in zip(self.free, network, strict=True)]
        if stages.embedding_s:
            first, last = stages.rank[[0, -1]].tolist()
            exchanged = np.maximum(network[first], network[last]) + stages.embedding_s
            ends[first], ends[last] = np.maximum(ends[first], exchanged), np.maximum(ends[last], exchanged)
        return ends
