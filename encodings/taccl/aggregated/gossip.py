"""Gossip: the sum of all on every rank, where every message holds a rank's whole buffer; for few bytes.

A rank adds what it gets to what it has if nothing is added twice, or takes it over if that holds all it has. A copy is
not sent while it is added to, so nobody exchanges: in turn, one half sends and the other receives. Sums grow like
Fibonacci's numbers, less than doubling, but nothing has to be spread in the end: 7 rounds for 16 ranks, where
halving and doubling take 8.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from planwright.encodings.taccl.aggregated.ground import Ground

__all__ = ["Exchange", "Gossip", "gossip"]

_WAIT = -1


@dataclass(frozen=True)
class Exchange:
    """Whole buffers that start on all links of an orbit at a time; `reduces`: they are added, else taken over."""

    start_s: float
    link: int
    reduces: bool


@dataclass
class Gossip:
    """One way, by the choices that lead there."""

    exchanges: list[Exchange] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    end_s: float = 0.0
    complete: bool = False


def gossip(ground: Ground, rng: random.Random, prefix: list[int], noise: float, skips: float, limit_s: float) -> Gossip:
    """One draw, on a ground whose blocks are whole buffers; the first choices may be given."""
    return _Run(ground, rng, noise, skips, limit_s).run(prefix)


class _Run:
    def __init__(self, ground: Ground, rng: random.Random, noise: float, skips: float, limit_s: float) -> None:
        self.ground, self.rng, self.noise, self.skips, self.limit_s = ground, rng, noise, skips, limit_s
        count = ground.topology.device_count
        self.has = [1 << rank for rank in range(count)]
        self.full = (1 << count) - 1
        self.clock = [0.0] * ground.clock_count
        self.read_s, self.written_s = [0.0] * count, [0.0] * count
        self.events: list[tuple[float, int, int]] = []
        self.now_s = 0.0
        self.draw = Gossip()
        orbit = ground.ranks.min(axis=0).tolist()
        self.links = [
            link for link, (by, to) in enumerate(zip(ground.source, ground.target, strict=True)) if orbit[by] != orbit[to]
        ]

    def run(self, prefix: list[int]) -> Gossip:
        given = iter(prefix)
        while any(has != self.full for has in self.has):
            link = next(given, None)
            if link is None or (link != _WAIT and not self._gain(link)):
                link = self._choose()
            self.draw.choices.append(link)
            if link != _WAIT:
                self._commit(link)
            elif not self.events:
                return self.draw
            else:
                self._advance()
            if self.draw.end_s >= self.limit_s:
                return self.draw
        self.draw.complete = True
        return self.draw

    def _gain(self, link: int) -> int:
        """What the receiver would get that it lacks; 0 where it may not."""
        ground, now_s = self.ground, self.now_s
        by, to = ground.source[link], ground.target[link]
        if self.written_s[by] > now_s or self.written_s[to] > now_s or self.read_s[to] > now_s:
            return 0
        if any(self.clock[key] > now_s for key in ground.clocks[link]):
            return 0
        mine, its = self.has[by], self.has[to]
        fresh = mine & ~its
        if not fresh or (mine & its and its & ~mine):
            return 0
        return fresh.bit_count()

    def _choose(self) -> int:
        rng = self.rng.random
        if self.events and self.skips and rng() < self.skips:
            return _WAIT
        best, best_key = _WAIT, 0.0
        for link in self.links:
            gain = self._gain(link)
            if gain:
                key = gain * (1.0 - self.noise * rng()) + 1e-6 * rng()
                if key > best_key:
                    best, best_key = link, key
        return best

    def _commit(self, link: int) -> None:
        ground = self.ground
        by, to = ground.source[link], ground.target[link]
        end_s = self.now_s + ground.alpha_s[link] + ground.beta_s[link]
        self.draw.exchanges.append(Exchange(self.now_s, link, not self.has[by] & self.has[to]))
        self.draw.end_s = max(self.draw.end_s, end_s)
        for key in ground.clocks[link]:
            self.clock[key] = end_s
        for images in ground.rank_images:
            sender, receiver = images[by], images[to]
            self.read_s[sender] = max(self.read_s[sender], end_s)
            self.written_s[receiver] = end_s
            heapq.heappush(self.events, (end_s, receiver, self.has[sender]))

    def _advance(self) -> None:
        self.now_s = self.events[0][0]
        latest_s = self.now_s * (1 + 1e-12)
        while self.events and self.events[0][0] <= latest_s:
            end_s, receiver, parts = heapq.heappop(self.events)
            self.now_s = max(self.now_s, end_s)
            self.has[receiver] |= parts
