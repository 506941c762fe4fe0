"""Randomised construction: every block to every rank, in messages that hold all that the receiver lacks.

Whenever a link is free, a rank may send on it all the blocks that it has and the receiver neither has nor is about to
get. Which link goes first, and whether it pays to wait until there is more to send, is decided at random, many times;
the best construction so far is made again from somewhere in its middle.

It is done on a quotient network, as `symmetry/quotient.py` has it for chunks: a block is all that a rank has.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gapless.array_types import Ids, Mask
from gapless.encodings.taccl.symmetry.rotations import (
    Rotations,
    find_rotations,
    image_of,
    image_table,
    no_rotations,
    resources_of,
)
from gapless.topologies.topology import Topology

__all__ = ["Construction", "Message", "Preferences", "QuotientNetwork", "quotient_network", "spread"]

_WAIT = -1
"""In a construction's choices: nothing more starts at this time."""


@dataclass(frozen=True)
class Message:
    """Blocks (a bit mask) that start on a link at a time."""

    start_s: float
    link: int
    blocks: int


@dataclass(frozen=True)
class QuotientNetwork:
    """Ranks, links by orbit, and blocks: block b is all that rank b has at the start.

    `owners`: the ranks that have a block. Of each orbit k of links, one goes from `source[k]` to `target[k]` and takes
    `alpha_s[k]`, and `beta_s[k]` a block; `clocks[k]`: the orbits of what it holds exclusively; `images[k][g]`: the
    link that rotation g (`ranks[g]`) makes of it; `allowed[k]`: the blocks that may travel on it, as a mask.
    `one_at_a_time`: a rank sends a block to one rank at a time, see `reduction`.
    """

    topology: Topology
    owners: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]
    alpha_s: tuple[float, ...]
    beta_s: tuple[float, ...]
    clocks: tuple[tuple[int, ...], ...]
    images: tuple[tuple[int, ...], ...]
    allowed: tuple[int, ...]
    ranks: Ids
    one_at_a_time: bool

    @property
    def everything(self) -> int:
        """The mask of all blocks."""
        return sum(1 << owner for owner in self.owners)

    @cached_property
    def has_nodes(self) -> bool:
        """Whether there are several nodes of several ranks."""
        return 1 < self.topology.node_count < self.topology.device_count

    @property
    def copies(self) -> int:
        """The number of rotations, the identity included."""
        return len(self.ranks)

    @cached_property
    def clock_count(self) -> int:
        """Clocks are numbered below this."""
        return 1 + max(max(clocks) for clocks in self.clocks)

    @cached_property
    def rank_images(self) -> list[list[int]]:
        """`rank_images[g][r]`: where rotation g takes rank r."""
        table: list[list[int]] = self.ranks.tolist()
        return table

    @cached_property
    def _tables(self) -> list[list[list[int]]]:
        return [image_table(images) for images in self.rank_images]

    def image(self, rotation: int, mask: int) -> int:
        """The blocks that a rotation makes of some."""
        return image_of(self._tables[rotation], mask) if rotation else mask

    def unfolded(self, messages: list[Message]) -> list[Message]:
        """All images of messages, whose `link` is the number of an orbit, on links, in order of their starts."""
        every = [
            Message(message.start_s, self.images[message.link][g], self.image(g, message.blocks))
            for message in messages
            for g in range(self.copies)
        ]
        return sorted(every, key=lambda message: message.start_s)


def quotient_network(
    topology: Topology,
    owners: tuple[int, ...],
    block_bytes: int,
    allowed: Mask | None = None,
    one_at_a_time: bool = False,
    rotations: Rotations | None = None,
) -> QuotientNetwork:
    """The quotient network for blocks of equal size; `allowed[b, l]`, where not all may travel everywhere.

    Rotations are used where every rank has a block and all of them may go everywhere.
    """
    count = topology.device_count
    if allowed is not None or len(owners) < count:
        rotations = no_rotations(topology)
    elif rotations is None:
        rotations = find_rotations(topology)
    held = resources_of(topology)
    first = np.unique(rotations.link_orbit, return_index=True)[1]
    resource_count = len(topology.resources)
    clocks: list[tuple[int, ...]] = []
    for k, link in enumerate(first.tolist()):
        orbits = sorted(set(rotations.resource_orbit[held[link]].tolist()))
        clocks.append(tuple(orbits) if orbits else (resource_count + k,))
    all_blocks = sum(1 << owner for owner in owners)
    masks = [all_blocks] * len(first)
    if allowed is not None:
        masks = [sum(1 << owner for owner in owners if allowed[owner, link]) for link in first.tolist()]
    return QuotientNetwork(
        topology=topology,
        owners=owners,
        source=tuple(topology.link_source[first].tolist()),
        target=tuple(topology.link_target[first].tolist()),
        alpha_s=tuple(topology.alpha_s[first].tolist()),
        beta_s=tuple((topology.beta_s_per_byte[first] * block_bytes).tolist()),
        clocks=tuple(clocks),
        images=tuple(map(tuple, rotations.link_images(first).T.tolist())),
        allowed=tuple(masks),
        ranks=rotations.ranks,
        one_at_a_time=one_at_a_time,
    )


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
