"""Matching: a greedy plan for chunks that many ranks want, link by link as time goes on (TACOS, arXiv 2304.05301).

Whenever a link and its resources are free it takes a chunk that its sender has and its receiver lacks. Two rules are
added. A chunk comes into a bottleneck set (a node, or a set of ranks that the bandwidth bound found narrow) once: the
links into it are what is scarce, and its other ranks get the chunk from inside. Where such a link is idle all the same,
and until a given time, it may bring a chunk a second time. And of several chunks the one that most ranks lack goes
first.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

import numpy as np

from gapless.array_types import Floats, Mask
from gapless.encodings.taccl.bounds.bandwidth.bottlenecks import BottleneckSet
from gapless.encodings.taccl.ordering.sends import Routing
from gapless.encodings.taccl.symmetry.quotient import QuotientProblem

__all__ = ["match"]


def match(
    quotient: QuotientProblem,
    sets: Sequence[BottleneckSet],
    spare_until_s: float = 0.0,
    seed: int = 0,
    one_at_a_time: bool = False,
    allowed: Mask | None = None,
) -> tuple[Routing, Floats] | None:
    """Sends of the quotient problem's chunks in the order of their starts, and these; the same ones for the same seed.

    `sets`: the bottleneck sets, which a chunk enters once; a second time only by a send that ends by `spare_until_s`,
    or where a rank gets it in no other way. `one_at_a_time`: whether a rank sends a chunk to one rank only at a
    time, see `greedy.py`. `allowed[c, l]`: whether the quotient's c-th chunk may take link l, where not all may. None
    where the links do not bring every chunk to every rank.
    """
    state = _State(quotient, sets, spare_until_s, random.Random(seed), one_at_a_time, allowed)
    now_s = state.work()
    if not state.complete:
        state.spare_until_s = np.inf
        state.arrivals = [
            (now_s, chunk, rank)
            for chunk, lacks in enumerate(state.lacks)
            for rank in np.flatnonzero(~np.array(lacks)).tolist()
        ]
        state.work()
    return state.result() if state.complete else None


class _State:
    """Who has what and who waits for what; times in seconds.

    `brought_by[c][r]`: the send that brings chunk c to rank r, -1 at the owner and where there is none. `free_s[g]`:
    until when clock g is taken. `waiting[g]`: a heap of (priority, tie, chunk, link) that wait for it; `spare[g]`:
    likewise, sends into bottleneck sets that have the chunk.
    """

    def __init__(
        self,
        quotient: QuotientProblem,
        sets: Sequence[BottleneckSet],
        spare_until_s: float,
        rng: random.Random,
        one_at_a_time: bool,
        allowed: Mask | None,
    ) -> None:
        topology = quotient.topology
        self.allowed = None if allowed is None else allowed.tolist()
        self.quotient, self.rng, self.spare_until_s, self.one_at_a_time = quotient, rng, spare_until_s, one_at_a_time
        self.sets_of: list[set[int]] = [set() for _ in range(topology.device_count)]
        for number, ranks in enumerate(sets):
            for rank in ranks:
                self.sets_of[rank].add(number)
        self.source, self.target = topology.link_source.tolist(), topology.link_target.tolist()
        self.duration_s = quotient.duration_s.tolist()
        self.brought_by = [[-1] * topology.device_count for _ in quotient.owner]
        self.lacks = [[True] * topology.device_count for _ in quotient.owner]
        self.entered = [set(self.sets_of[owner]) for owner in quotient.owner]
        self.missing = [topology.device_count - 1] * len(quotient.owner)
        self.free_s: dict[int, float] = {}
        self.waiting: dict[int, list[tuple[float, float, int, int]]] = {}
        self.spare: dict[int, list[tuple[float, float, int, int]]] = {}
        self.arrivals = [(0.0, chunk, owner) for chunk, owner in enumerate(quotient.owner)]
        self.freed: list[tuple[float, int]] = []
        self.sends: list[tuple[int, int, int, float]] = []
        for chunk, owner in enumerate(quotient.owner):
            self.lacks[chunk][owner] = False

    @property
    def complete(self) -> bool:
        """Whether every rank has every chunk."""
        return max(self.missing) == 0

    def work(self) -> float:
        """Event by event until nothing moves; returns the time of the last."""
        now_s = 0.0
        while self.arrivals or self.freed:
            now_s = min(events[0][0] for events in (self.arrivals, self.freed) if events)
            clocks: set[int] = set()
            while self.arrivals and self.arrivals[0][0] <= now_s:
                _, chunk, rank = heapq.heappop(self.arrivals)
                self.offer(chunk, rank, clocks)
            while self.freed and self.freed[0][0] <= now_s:
                clocks.add(heapq.heappop(self.freed)[1])
            for clock in sorted(clocks):
                self.serve(clock, now_s)
        return now_s

    def offer(self, chunk: int, rank: int, clocks: set[int]) -> None:
        """A chunk has arrived: put it up at the links out of its rank."""
        for link in self.quotient.links_of[rank]:
            if self.lacks[chunk][self.target[link]] and (self.allowed is None or self.allowed[chunk][link]):
                clock = self.quotient.groups[link][0]
                self.wait(clock, chunk, link)
                clocks.add(clock)

    def is_first(self, chunk: int, link: int) -> bool:
        """Whether the chunk is new to every bottleneck set that the link leads into."""
        inside, entered = self.sets_of[self.source[link]], self.entered[chunk]
        return not any(one in entered and one not in inside for one in self.sets_of[self.target[link]])

    def clocks(self, chunk: int, link: int) -> tuple[int, ...]:
        """All that the send holds."""
        groups = self.quotient.groups[link]
        if not self.one_at_a_time:
            return groups
        return (*groups, self.quotient.group_count + chunk * len(self.sets_of) + self.source[link])

    def wait(self, clock: int, chunk: int, link: int) -> None:
        """Wait for a clock; the chunk that most ranks lack goes first."""
        queues = self.waiting if self.is_first(chunk, link) else self.spare
        if queues is self.waiting or self.spare_until_s > 0:
            heapq.heappush(queues.setdefault(clock, []), (-self.missing[chunk], self.rng.random(), chunk, link))

    def serve(self, clock: int, now_s: float) -> None:
        """Start what waits for a clock until it is taken; what another clock holds up goes on to wait for that one."""
        for queue in (self.waiting.get(clock, []), self.spare.get(clock, [])):
            while queue and self.free_s.get(clock, 0.0) <= now_s:
                _, _, chunk, link = heapq.heappop(queue)
                if not self.lacks[chunk][self.target[link]]:
                    continue
                latest = max(self.clocks(chunk, link), key=lambda held: self.free_s.get(held, 0.0))
                if self.free_s.get(latest, 0.0) > now_s:
                    self.wait(latest, chunk, link)
                elif self.is_first(chunk, link) or now_s + self.duration_s[link] <= self.spare_until_s:
                    self.send(chunk, link, now_s)
                elif queue is self.waiting.get(clock):
                    self.wait(clock, chunk, link)  # its bottleneck set has the chunk by now

    def send(self, chunk: int, link: int, now_s: float) -> None:
        """Start a send, and with it its images under the rotations."""
        target, end_s = self.target[link], now_s + self.duration_s[link]
        self.lacks[chunk][target] = False
        self.missing[chunk] -= 1
        self.entered[chunk] |= self.sets_of[target]
        self.sends.append((chunk, link, self.brought_by[chunk][self.source[link]], now_s))
        self.brought_by[chunk][target] = len(self.sends) - 1
        heapq.heappush(self.arrivals, (end_s, chunk, target))
        for clock in self.clocks(chunk, link):
            self.free_s[clock] = end_s
            heapq.heappush(self.freed, (end_s, clock))

    def result(self) -> tuple[Routing, Floats]:
        """The sends as columns."""
        chunk, link, parent, start_s = zip(*self.sends, strict=True)
        columns = (np.array(column, dtype=np.int64) for column in (chunk, link, parent))
        return Routing(*columns), np.array(start_s)
