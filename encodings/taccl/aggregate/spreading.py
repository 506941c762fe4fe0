"""Randomised construction: every block to every rank, in messages that hold all that the receiver lacks.

Whenever a link is free, a rank may send on it all the blocks that it has and the receiver neither has nor is about to
get. Which link goes first, and whether it pays to wait until there is more to send, is decided at random, many times;
the best construction so far is made again from somewhere in its middle.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field

from gapless.encodings.taccl.symmetry.quotient import Message, QuotientNetwork

__all__ = ["Construction", "Preferences", "spread"]

_WAIT = -1
"""In a construction's choices: nothing more starts at this time."""


@dataclass(frozen=True)
class Preferences:
    """What a construction prefers. `least`: for each latency (ascending) the fewest blocks worth a message while more
    may come.

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
class Construction:
    """One way to spread: messages on the first link of each orbit, and the choices that lead there."""

    messages: list[Message] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    end_s: float = 0.0
    complete: bool = False


def spread(
    network: QuotientNetwork,
    preferences: Preferences,
    rng: random.Random,
    prefix: list[int] | None = None,
    limit_s: float = math.inf,
) -> Construction:
    """One construction; the first choices may be given. It is left incomplete once it takes longer than `limit_s`."""
    return _Run(network, preferences, rng, limit_s).run(prefix or [])


class _Run:
    def __init__(self, network: QuotientNetwork, preferences: Preferences, rng: random.Random, limit_s: float) -> None:
        self.network, self.preferences, self.rng, self.limit_s = network, preferences, rng, limit_s
        count = network.topology.device_count
        self.has = [0] * count
        for owner in network.owners:
            self.has[owner] = 1 << owner
        self.coming = list(self.has)
        depth = preferences.depth
        self.deep = depth is not None
        self.levels = [list(self.has)] + [[0] * count for _ in range((depth or 1) - 1)]  # by hops so far
        self.sending = [0] * count
        self.clock = [0.0] * network.clock_count
        self.events: list[tuple[float, int, int, int]] = []
        self.now_s = 0.0
        self.construction = Construction()
        self.open: list[int] | None = None
        node_of = network.topology.node_of_device
        self.limited = preferences.once or preferences.most is not None
        self.node_entered = [
            node_of[to] if node_of[to] != node_of[by] and network.has_nodes else -1
            for by, to in zip(network.source, network.target, strict=True)
        ]
        self.entered = [0] * network.topology.node_count
        for owner in network.owners:
            self.entered[node_of[owner]] |= 1 << owner
        self.missing = len(network.owners) * count - len(network.owners)
        kinds = sorted(set(network.alpha_s))
        least = preferences.least or (1,) * len(kinds)
        self.least = [least[min(kinds.index(alpha_s), len(least) - 1)] for alpha_s in network.alpha_s]

    def run(self, prefix: list[int]) -> Construction:
        given = iter(prefix)
        while self.missing:
            link = next(given, None)
            if link is None or (link != _WAIT and not (self._is_free(link) and self._content(link))):
                link = self._choose()
            self.construction.choices.append(link)
            if link == _WAIT:
                if not self.events:
                    return self.construction
                self._advance()
            else:
                self._commit(link)
                if self.construction.end_s > self.limit_s:
                    return self.construction
        self.construction.complete = True
        return self.construction

    def _is_free(self, link: int) -> bool:
        now_s, clock = self.now_s, self.clock
        return all(clock[key] <= now_s for key in self.network.clocks[link])

    def _content(self, link: int) -> int:
        network = self.network
        source = network.source[link]
        blocks = self.has[source] & ~self.coming[network.target[link]] & network.allowed[link]
        if self.deep:
            young = 0
            for level in self.levels:
                young |= level[source]
            blocks &= young
        if network.one_at_a_time:
            blocks &= ~self.sending[source]
        if self.limited and self.node_entered[link] >= 0:
            if self.preferences.once:
                blocks &= ~self.entered[self.node_entered[link]]
            most = self.preferences.most
            if most is not None:
                while blocks.bit_count() > most:
                    blocks &= blocks - 1
        return blocks

    def _choose(self) -> int:
        best, best_key = _WAIT, 0.0
        fallback, fallback_key = _WAIT, 0.0
        rng, noise = self.rng.random, self.preferences.noise
        for link, gain in self._ready():
            key = gain * (1.0 - noise * rng()) + 1e-6 * rng()
            if gain >= self.least[link]:
                if key > best_key:
                    best, best_key = link, key
            elif key > fallback_key:
                fallback, fallback_key = link, key
        if best != _WAIT and self.events and self.preferences.skips and rng() < self.preferences.skips:
            return _WAIT
        return best if best != _WAIT or self.events else fallback

    def _ready(self) -> list[tuple[int, int]]:
        """The links that could start now, each with the number of blocks that it would carry."""
        if self.open is None:
            self.open = list(range(len(self.network.source)))
        ready = []
        network, clock, now_s = self.network, self.clock, self.now_s
        clocks, allowed, has, coming = network.clocks, network.allowed, self.has, self.coming
        source, target = network.source, network.target
        plain = not (self.deep or self.limited or network.one_at_a_time)
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
        network = self.network
        blocks = self._content(link)
        source, target, now_s = network.source[link], network.target[link], self.now_s
        end_s = now_s + network.alpha_s[link] + network.beta_s[link] * blocks.bit_count()
        self.construction.messages.append(Message(now_s, link, blocks))
        self.construction.end_s = max(self.construction.end_s, end_s)
        for key in network.clocks[link]:
            self.clock[key] = end_s
        for g in range(network.copies):
            images = network.rank_images[g]
            moved = network.image(g, blocks)
            to, by = images[target], images[source]
            fresh = moved & ~self.coming[to]
            self.missing -= fresh.bit_count()
            self.coming[to] |= moved
            if self.node_entered[link] >= 0:
                self.entered[network.topology.node_of_device[to]] |= moved
            if network.one_at_a_time:
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
