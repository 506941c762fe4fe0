"""Exchanges: the sum of all on every rank, sent whole, among any number of classes of ranks that take turns.

A copy is not sent while it is added to, so two ranks can't exchange sums at once. A rank adds what it gets if nothing
is added twice, or takes it over if that holds all it has. Classes are the orbits of ranks under some of a topology's
rotations. Of two, one half sends, then the other, and sums grow like Fibonacci's numbers. Four let pairs of ranks meet
while others wait, and where nothing rotates each rank is a class. Whenever links
are free, the orbit of links that brings most goes first, or by chance another; most constructions go on from somewhere
in the best one. A torus of 4 x 4 and a hypercube of 16 take 7 rounds, where halving and doubling take 8, a ring of 8
takes 6 or 7.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.ordering.sends import Transfer
from gapless.encodings.taccl.symmetry.rotations import find_rotations, image_of, image_table, lanes_of
from gapless.options import Deadline
from gapless.topologies.topology import Topology

__all__ = ["exchange_transfers"]

Ranks = tuple[int, ...]

_GOLDEN = (1 + math.sqrt(5)) / 2
"""By which the largest sum grows in a round at most."""
_GROUPS_OF_A_SIZE = 3
"""Groups of rotations of one size that are tried, the largest first."""
_MOST_PAIRED = 32
"""Rotations up to which any two generate a group; of more, each by itself: there are thousands of pairs."""
_RESTART_SHARE = 0.6
_NOISE = (0.3, 0.6, 1.0)
_SKIPS = (0.0, 0.0, 0.1, 0.3)
_ADDING = (0.5, 1.0, 1.0, 2.0)
_AGAIN = (0.0, 0.0, 0.1, 0.3, 1.0)
"""What preferences are taken from: how far from the most a choice may lie; the share of chances that are let pass; how
much more adding is worth than taking over; how often a rank adds that has given its sum away already.
"""


@dataclass(frozen=True)
class _Send:
    """An orbit of links, which all carry a copy at once. The first rank of class `receiver` gets what `element` makes
    of what the first rank of class `sender` has.
    """

    sender: int
    element: int
    receiver: int
    duration_s: float
    links: tuple[int, ...]
    clocks: tuple[int, ...]


@dataclass(frozen=True)
class _Classes:
    """`group[g]`: where element g takes each rank; `firsts[c]`: the first rank of class c."""

    group: list[Ranks]
    firsts: Ranks
    sends: tuple[_Send, ...]

    @cached_property
    def _tables(self) -> list[list[list[int]]]:
        return [image_table(images) for images in self.group]

    def image(self, element: int, mask: int) -> int:
        """The ranks that an element makes of some; element 0 moves none."""
        return image_of(self._tables[element], mask) if element else mask


@dataclass(frozen=True)
class _Preferences:
    noise: float
    skips: float
    adding: float
    again: float


@dataclass(frozen=True)
class _Made:
    """The sends of a construction, each with whether it adds; `choices`: also where it let time pass, None."""

    end_s: float
    sends: list[tuple[_Send, bool]]
    choices: list[_Send | None]


def exchange_transfers(
    problem: Chunked, deadline: Deadline, seed: int, limit_s: float, looks: int
) -> list[Transfer] | None:
    """The transfers of the fastest exchange found that ends before `limit_s`, None where there is none.

    There is none but for an ALLREDUCE of all ranks that may take all links. `looks`: how often a link is looked at.
    """
    topology = problem.logical.topology
    buffer_bytes = problem.collective.chunk_count * problem.chunk_bytes
    least_s = float((topology.alpha_s + topology.beta_s_per_byte * buffer_bytes).min())
    if not problem.sums_for_all or least_s * math.log(topology.device_count, _GOLDEN) >= limit_s:
        return None
    best: _Made | None = None
    networks = [found for group in _groups(topology) if (found := _classes(topology, group, buffer_bytes)).sends]
    for classes in networks:
        made = _search(classes, topology.device_count, random.Random(seed), limit_s, looks // len(networks))
        if made is not None:
            best, limit_s = made, made.end_s
        if deadline.over:
            break
    chunks = tuple(range(problem.collective.chunk_count))
    return None if best is None else [Transfer(link, chunks, adds) for send, adds in best.sends for link in send.links]


def _search(classes: _Classes, ranks: int, chance: random.Random, limit_s: float, looks: int) -> _Made | None:
    best: _Made | None = None
    while looks > 0:
        again = best is not None and chance.random() < _RESTART_SHARE
        prefix = best.choices[: chance.randrange(len(best.choices))] if again and best is not None else []
        preferences = _Preferences(*(chance.choice(values) for values in (_NOISE, _SKIPS, _ADDING, _AGAIN)))
        run = _Run(classes, ranks, preferences, chance, limit_s * (1 - 1e-9))
        made = run.work(prefix)
        looks -= run.looks + 1
        if made is not None:
            best, limit_s = made, made.end_s
    return best


class _Run:
    """One construction. `has[c]`: what the first rank of class c holds; `gave[c]`: whether that is elsewhere, too.

    `read_s`, `written_s`: until when copies are read and added to.
    """

    def __init__(
        self, classes: _Classes, ranks: int, preferences: _Preferences, chance: random.Random, limit_s: float
    ) -> None:
        self.classes, self.preferences, self.chance, self.limit_s = classes, preferences, chance, limit_s
        count = len(classes.firsts)
        self.everything = (1 << ranks) - 1
        self.has = [1 << rank for rank in classes.firsts]
        self.gave = [False] * count
        self.read_s, self.written_s, self.clock_s = [0.0] * count, [0.0] * count, dict[int, float]()
        self.now_s, self.end_s, self.looks = 0.0, 0.0, 0
        self.arrivals: list[tuple[float, int, int]] = []
        self.made: list[tuple[_Send, bool]] = []

    def work(self, prefix: list[_Send | None]) -> _Made | None:
        """The construction whose first choices are given; None where it leads nowhere, or not in time."""
        given, choices = iter(prefix), list[_Send | None]()
        while any(held != self.everything for held in self.has):
            chosen = next(given, self)
            send = self._choose() if chosen is self else chosen
            assert send is None or isinstance(send, _Send)
            choices.append(send)
            if send is not None:
                self._start(send)
                if self.end_s > self.limit_s:
                    return None
            elif self.arrivals:
                self._advance()
            else:
                return None
        return _Made(self.end_s, self.made, choices)

    def _choose(self) -> _Send | None:
        preferences, chance = self.preferences, self.chance.random
        best, best_key = None, 0.0
        self.looks += len(self.classes.sends)
        for send, content in self._ready():
            there = self.has[send.receiver]
            if content & there:
                gain = float((content & ~there).bit_count())
            elif self.gave[send.receiver] and chance() >= preferences.again:
                continue
            else:
                gain = preferences.adding * content.bit_count()
            key = gain * (1 - preferences.noise * chance()) + 1e-6 * chance()
            if key > best_key:
                best, best_key = send, key
        return None if self.arrivals and preferences.skips and chance() < preferences.skips else best

    def _ready(self) -> Iterator[tuple[_Send, int]]:
        """The sends that could start now and would bring something, each with what that is."""
        now_s, has, read_s, written_s, clock_s = self.now_s, self.has, self.read_s, self.written_s, self.clock_s
        for send in self.classes.sends:
            to = send.receiver
            if written_s[send.sender] > now_s or written_s[to] > now_s or read_s[to] > now_s:
                continue
            if has[to] == self.everything or any(clock_s.get(clock, 0.0) > now_s for clock in send.clocks):
                continue
            content = self.classes.image(send.element, has[send.sender])
            if content != has[to] and (not content & has[to] or not has[to] & ~content):
                yield send, content

    def _start(self, send: _Send) -> None:
        content = self.classes.image(send.element, self.has[send.sender])
        end_s = self.now_s + send.duration_s
        self.made.append((send, not content & self.has[send.receiver]))
        heapq.heappush(self.arrivals, (end_s, send.receiver, content | self.has[send.receiver]))
        self.end_s = max(self.end_s, end_s)
        self.gave[send.sender] = True
        self.read_s[send.sender] = max(self.read_s[send.sender], end_s)
        self.written_s[send.receiver] = end_s
        for clock in send.clocks:
            self.clock_s[clock] = end_s

    def _advance(self) -> None:
        latest_s = self.arrivals[0][0] * (1 + 1e-12)
        while self.arrivals and self.arrivals[0][0] <= latest_s:
            end_s, receiver, held = heapq.heappop(self.arrivals)
            self.now_s = max(self.now_s, end_s)
            self.has[receiver] = held


def _groups(topology: Topology) -> list[list[Ranks]]:
    """Subgroups of the topology's rotations whose elements move every rank, the largest first, and last the one that
    moves none.
    """
    elements = [tuple(row) for row in find_rotations(topology).ranks.tolist()]
    everyone, nothing = range(topology.device_count), tuple(range(topology.device_count))
    moving = [one for one in elements if all(one[rank] != rank for rank in everyone)]
    free, found = {nothing, *moving}, {frozenset([nothing]): None}
    for number, one in enumerate(moving):
        for other in moving[number:] if len(moving) <= _MOST_PAIRED else [one]:
            group = _closure(one, other)
            if len(group) < len(nothing) and group <= free:
                found.setdefault(group)
    sizes: dict[int, list[list[Ranks]]] = {}
    for group in found:
        sizes.setdefault(len(group), []).append(sorted(group))
    return [group for size in sorted(sizes, reverse=True) for group in sizes[size][:_GROUPS_OF_A_SIZE]]


def _closure(one: Ranks, other: Ranks) -> frozenset[Ranks]:
    """The group that two permutations generate."""
    identity = tuple(range(len(one)))
    group, front = {identity}, [identity]
    while front:
        element = front.pop()
        for generator in (one, other):
            product = tuple(generator[rank] for rank in element)
            if product not in group:
                group.add(product)
                front.append(product)
    return frozenset(group)


def _classes(topology: Topology, group: list[Ranks], buffer_bytes: int) -> _Classes:
    """The orbits of ranks and of links under a group; the identity sorts first. Of links in an orbit none may exclude
    another, and they go from one class to another.
    """
    class_of, element_of, firsts = [-1] * topology.device_count, [0] * topology.device_count, list[int]()
    for rank in range(topology.device_count):
        if class_of[rank] < 0:
            for element, images in enumerate(group):
                class_of[images[rank]], element_of[images[rank]] = len(firsts), element
            firsts.append(rank)
    durations_s = (topology.alpha_s + topology.beta_s_per_byte * buffer_bytes).tolist()
    ends = list(zip(topology.link_source.tolist(), topology.link_target.tolist(), durations_s, strict=True))
    number: dict[tuple[int, int, float], list[int]] = {}
    for link, key in enumerate(ends):
        number.setdefault(key, []).append(link)
    lanes, sends = lanes_of(topology), list[_Send]()
    for source, target, duration_s in number:
        if target not in firsts or class_of[source] == class_of[target]:
            continue
        links = [number.get((moved[source], moved[target], duration_s), [-1])[0] for moved in group]
        clocks = [clock for link in links for clock in lanes[link]]
        if -1 not in links and len(set(clocks)) == len(clocks):
            ends_of = class_of[source], element_of[source], class_of[target]
            sends.append(_Send(*ends_of, duration_s, tuple(links), tuple(clocks)))
    return _Classes(group, tuple(firsts), tuple(sends))
