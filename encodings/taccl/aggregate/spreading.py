"""Spreading: every block to every rank, in messages that hold all that the receiver lacks; tries on an orbit's clocks.

Whenever a link is free, a rank may send on it all the blocks that it has and the receiver neither has nor is about to
get. Which link goes first, and whether it pays to wait until there is more to send, is drawn by lot, many times; the
best draw so far is drawn again from somewhere in its middle.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field

from gapless.encodings.taccl.symmetry.quotient_network import Message, QuotientNetwork

__all__ = ["Draw", "Taste", "spread"]

_WAIT = -1
"""In a draw's choices: nothing more starts at this time."""


@dataclass(frozen=True)
class Taste:
    """How a draw prefers. `least`: for each latency (ascending) the fewest blocks worth a message while more may come.

    `noise`: how far from the most blocks a choice may lie, 0 for never. `depth`: a block is handed on at most so many
    times. `skips`: the share of chances to send that are let pass. `once`: a block is brought to a node once, by the
    first of its ranks that gets it. `most`: blocks in a message between nodes.
    """

    least: tuple[int, ...] = ()
    noise: float = 0.0
    depth: int | None = None
    skips: float = 0.0
    once: bool = False
    most: int | None = None


@dataclass
class Draw:
    """One way to spread: messages on the first link of each orbit, and the choices that lead there."""

    messages: list[Message] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    end_s: float = 0.0
    complete: bool = False


def spread(
    ground: QuotientNetwork,
    taste: Taste,
    rng: random.Random,
    prefix: list[int] | None = None,
    limit_s: float = math.inf,
) -> Draw:
    """One draw; the first choices may be given. It is left incomplete once it takes longer than `limit_s`."""
    return _Run(ground, taste, rng, limit_s).run(prefix or [])


class _Run:
    def __init__(self, ground: QuotientNetwork, taste: Taste, rng: random.Random, limit_s: float) -> None:
        self.ground, self.taste, self.rng, self.limit_s = ground, taste, rng, limit_s
        count = ground.topology.device_count
        self.has = [0] * count
        for owner in ground.owners:
            self.has[owner] = 1 << owner
        self.coming = list(self.has)
        depth = taste.depth
        self.deep = depth is not None
        self.levels = [list(self.has)] + [[0] * count for _ in range((depth or 1) - 1)]  # by hops so far
        self.sending = [0] * count
        self.clock = [0.0] * ground.clock_count
        self.events: list[tuple[float, int, int, int]] = []
        self.now_s = 0.0
        self.draw = Draw()
        self.open: list[int] | None = None
        node_of = ground.topology.node_of_device
        self.limited = taste.once or taste.most is not None
        self.door = [
            node_of[to] if node_of[to] != node_of[by] and ground.has_nodes else -1
            for by, to in zip(ground.source, ground.target, strict=True)
        ]
        self.entered = [0] * ground.topology.node_count
        for owner in ground.owners:
            self.entered[node_of[owner]] |= 1 << owner
        self.missing = len(ground.owners) * count - len(ground.owners)
        kinds = sorted(set(ground.alpha_s))
        least = taste.least or (1,) * len(kinds)
        self.least = [least[min(kinds.index(alpha_s), len(least) - 1)] for alpha_s in ground.alpha_s]

    def run(self, prefix: list[int]) -> Draw:
        given = iter(prefix)
        while self.missing:
            link = next(given, None)
            if link is None or (link != _WAIT and not (self._is_free(link) and self._content(link))):
                link = self._choose()
            self.draw.choices.append(link)
            if link == _WAIT:
                if not self.events:
                    return self.draw
                self._advance()
            else:
                self._commit(link)
                if self.draw.end_s > self.limit_s:
                    return self.draw
        self.draw.complete = True
        return self.draw

    def _is_free(self, link: int) -> bool:
        now_s, clock = self.now_s, self.clock
        return all(clock[key] <= now_s for key in self.ground.clocks[link])

    def _content(self, link: int) -> int:
        ground = self.ground
        source = ground.source[link]
        blocks = self.has[source] & ~self.coming[ground.target[link]] & ground.allowed[link]
        if self.deep:
            young = 0
            for level in self.levels:
                young |= level[source]
            blocks &= young
        if ground.one_at_a_time:
            blocks &= ~self.sending[source]
        if self.limited and self.door[link] >= 0:
            if self.taste.once:
                blocks &= ~self.entered[self.door[link]]
            most = self.taste.most
            if most is not None:
                while blocks.bit_count() > most:
                    blocks &= blocks - 1
        return blocks

    def _choose(self) -> int:
        best, best_key = _WAIT, 0.0
        fallback, fallback_key = _WAIT, 0.0
        rng, noise = self.rng.random, self.taste.noise
        for link, gain in self._ready():
            key = gain * (1.0 - noise * rng()) + 1e-6 * rng()
            if gain >= self.least[link]:
                if key > best_key:
                    best, best_key = link, key
            elif key > fallback_key:
                fallback, fallback_key = link, key
        if best != _WAIT and self.events and self.taste.skips and rng() < self.taste.skips:
            return _WAIT
        return best if best != _WAIT or self.events else fallback

    def _ready(self) -> list[tuple[int, int]]:
        """The links that could start now, each with the number of blocks that it would carry."""
        if self.open is None:
            self.open = list(range(len(self.ground.source)))
        ready = []
        ground, clock, now_s = self.ground, self.clock, self.now_s
        clocks, allowed, has, coming = ground.clocks, ground.allowed, self.has, self.coming
        source, target = ground.source, ground.target
        plain = not (self.deep or self.limited or ground.one_at_a_time)
        for link in self.open:
            for key in clocks[link]:
                if clock[key] > now_s:
                    break
            else:
                blocks = has[source[link]] & ~coming[target[link]] & allowed[link]
                if blocks and not plain:
                    blocks = self._content(link)
                if blocks:
                    ready.append((link, blocks.bit_count()))
        self.open = [link for link, _ in ready]  # until time goes on, no other becomes free or gets something to carry
        return ready

    def _commit(self, link: int) -> None:
        ground = self.ground
        blocks = self._content(link)
        source, target, now_s = ground.source[link], ground.target[link], self.now_s
        end_s = now_s + ground.alpha_s[link] + ground.beta_s[link] * blocks.bit_count()
        self.draw.messages.append(Message(now_s, link, blocks))
        self.draw.end_s = max(self.draw.end_s, end_s)
        for key in ground.clocks[link]:
            self.clock[key] = end_s
        for g in range(ground.copies):
            images = ground.rank_images[g]
            moved = ground.image(g, blocks)
            to, by = images[target], images[source]
            fresh = moved & ~self.coming[to]
            self.missing -= fresh.bit_count()
            self.coming[to] |= moved
            if self.door[link] >= 0:
                self.entered[ground.topology.node_of_device[to]] |= moved
            if ground.one_at_a_time:
                self.sending[by] |= moved
            heapq.heappush(self.events, (end_s, by, to, moved))

    def _advance(self) -> None:
        self.open = None
        self.now_s = self.events[0][0]
        latest_s = self.now_s * (1 + 1e-12)
        while self.events and self.events[0][0] <= latest_s:
            end_s, by, to, moved = heapq.heappop(self.events)
            self.now_s = max(self.now_s, end_s)
            self.has[to] |= moved
            self.sending[by] &= ~moved
            if self.deep:
                for k in range(len(self.levels) - 2, -1, -1):
                    self.levels[k + 1][to] |= self.levels[k][by] & moved
