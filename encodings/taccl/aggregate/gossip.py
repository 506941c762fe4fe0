"""Gossip: the sum of all on every rank by messages that hold a whole buffer, for few bytes.

A rank adds what it gets to what it has, if nothing is added twice, or takes it over, if that holds all it has. A copy
is not sent while it is added to, so two ranks can't exchange: in turn one half of the ranks sends and the other
receives. Sums then grow like Fibonacci's numbers, less than doubling, but nothing has to be spread in the end: 7 rounds
for 16 ranks and 6 for 10, where halving and doubling take 8.

The halves are the two orbits of ranks under half of a topology's rotations, and in each round all links of one orbit
carry a message. So two sets say all: what the first rank of each half has. A beam search goes from round to round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.ordering.sends import Transfer
from gapless.encodings.taccl.symmetry.groups import image_of, image_table
from gapless.encodings.taccl.symmetry.rotations import find_rotations
from gapless.options import Deadline
from gapless.topologies.topology import Topology

__all__ = ["GOLDEN", "closure", "gossip_transfers", "sums_for_all"]

Ranks = tuple[int, ...]

_WIDTH = 3_000
"""States that are kept after a round."""
_MOST_HALVINGS = 8
GOLDEN = (1 + math.sqrt(5)) / 2
"""By which the largest sum grows in a round at most."""


@dataclass(frozen=True)
class _Halves:
    """`group[g]`: where element g takes each rank. `half_of[r]`, `element_of[r]`: rank r is this element's image of its
    half's first rank.
    """

    first: tuple[int, int]
    group: tuple[Ranks, ...]
    half_of: Ranks
    element_of: Ranks

    @cached_property
    def _tables(self) -> list[list[list[int]]]:
        return [image_table(images) for images in self.group]

    def image(self, element: int, mask: int) -> int:
        """The ranks that an element makes of some."""
        return image_of(self._tables[element], mask)


@dataclass(frozen=True)
class _Round:
    """All links from one half to the other that bring the first receiver what `element` makes of the first sender's."""

    receiver: int
    element: int
    duration_s: float
    links: tuple[int, ...]


@dataclass(frozen=True)
class _State:
    """What the halves' first ranks have, and how that came: (round, whether it added) and the state before."""

    has: tuple[int, int]
    time_s: float
    made: tuple[_Round, bool, _State] | None = None


@dataclass
class _Work:
    """How many states may still be looked at from one to the next, and until when."""

    left: int
    deadline: Deadline

    def is_over(self) -> bool:
        """Whether there is nothing left."""
        return self.left <= 0 or self.deadline.over


def gossip_transfers(
    problem: Chunked, deadline: Deadline, limit_s: float = math.inf, states: int = 300_000
) -> list[Transfer] | None:
    """The transfers of the fastest gossip found that ends before `limit_s`.

    None where there is none, and unless it is an ALLREDUCE on ranks with such halves.
    """
    if not sums_for_all(problem):
        return None
    collective, topology = problem.collective, problem.logical.topology
    buffer_bytes = collective.chunk_count * problem.chunk_bytes
    duration_s = float((topology.alpha_s + topology.beta_s_per_byte * buffer_bytes).min())
    best: _State | None = None
    if duration_s * math.log(topology.device_count, GOLDEN) >= limit_s:
        return None
    work = _Work(states, deadline)
    for halves in _all_halves(topology):
        if work.is_over():
            break
        found = _search(_rounds(topology, halves, buffer_bytes), halves, limit_s, work)
        if found is not None:
            best, limit_s = found, found.time_s
    return None if best is None else _transfers(best, tuple(range(collective.chunk_count)))


def sums_for_all(problem: Chunked) -> bool:
    """Whether it is an ALLREDUCE of all ranks, in which every chunk may take every link."""
    collective, everybody = problem.collective, tuple(range(problem.collective.rank_count))
    wanted = all(ranks == everybody for ranks in (*collective.contributors, *collective.destinations))
    return collective.reduces and wanted and bool(problem.logical.allowed.all())


def _search(rounds: list[_Round], halves: _Halves, limit_s: float, work: _Work) -> _State | None:
    """The faster of two searches: by all rounds; or by the shortest as far as these lead, and then by all."""
    if not rounds:
        return None
    everything = (1 << len(halves.half_of)) - 1
    begin = _State((1 << halves.first[0], 1 << halves.first[1]), 0.0)
    least_s = min(turn.duration_s for turn in rounds)
    short = [turn for turn in rounds if turn.duration_s <= least_s * (1 + 1e-9)]
    within = _closed(short, halves, begin.has)
    best: _State | None = None
    if within != (everything, everything):
        first = _beam(begin, within, short, halves, limit_s, work)
        if first is not None:
            best = _beam(first, (everything, everything), rounds, halves, limit_s, work)
    limit_s = limit_s if best is None else best.time_s
    return _beam(begin, (everything, everything), rounds, halves, limit_s, work) or best


def _closed(rounds: list[_Round], halves: _Halves, has: tuple[int, int]) -> tuple[int, int]:
    """All that the halves' first ranks could have by these rounds."""
    while True:
        more = list(has)
        for turn in rounds:
            more[turn.receiver] |= halves.image(turn.element, more[1 - turn.receiver])
        if (more[0], more[1]) == has:
            return has
        has = more[0], more[1]


def _beam(
    begin: _State, wanted: tuple[int, int], rounds: list[_Round], halves: _Halves, limit_s: float, work: _Work
) -> _State | None:
    """From round to round, the states that are promised to end first by the growth that is possible."""
    count = max(mask.bit_count() for mask in wanted)
    least_s = min(turn.duration_s for turn in rounds)

    def promised_s(state: _State) -> tuple[float, int]:
        sizes = [mask.bit_count() for mask in state.has]
        return state.time_s + least_s * math.log(count / max(sizes), GOLDEN), -min(sizes)

    states, known = [begin], {begin.has: begin.time_s}
    best: _State | None = None
    while states and not work.is_over():
        reached: dict[tuple[int, int], _State] = {}
        for state in states:
            if work.is_over():
                break
            work.left -= len(rounds)
            for after in _after(state, rounds, halves):
                if after.time_s >= min(limit_s * (1 - 1e-9), known.get(after.has, math.inf)):
                    continue
                known[after.has] = after.time_s
                if after.has == wanted:
                    best, limit_s = after, after.time_s
                else:
                    reached[after.has] = after
        if states == [begin] and begin.made is None:
            reached = {after.has: after for after in _unlike(list(reached.values()))}
        states = sorted(reached.values(), key=promised_s)[:_WIDTH]
    return best


def _unlike(states: list[_State]) -> list[_State]:
    """Of the states after the first round, one for each receiver and duration: the others differ in names of ranks."""
    kinds: dict[tuple[int, float], _State] = {}
    for state in states:
        assert state.made is not None
        kinds.setdefault((state.made[0].receiver, state.time_s), state)
    return list(kinds.values())


def _after(state: _State, rounds: list[_Round], halves: _Halves) -> Iterator[_State]:
    for turn in rounds:
        there = state.has[turn.receiver]
        brought = halves.image(turn.element, state.has[1 - turn.receiver])
        adds = not brought & there
        if not adds and (there & ~brought or brought == there):
            continue
        has = (there | brought, state.has[1]) if turn.receiver == 0 else (state.has[0], there | brought)
        yield _State(has, state.time_s + turn.duration_s, (turn, adds, state))


def _transfers(state: _State, chunks: tuple[int, ...]) -> list[Transfer]:
    path = []
    while state.made is not None:
        turn, adds, state = state.made
        path.append((turn, adds))
    return [Transfer(link, chunks, adds) for turn, adds in reversed(path) for link in turn.links]


def _rounds(topology: Topology, halves: _Halves, buffer_bytes: int) -> list[_Round]:
    """The orbits of links between the halves; of those that bring the same, the fastest."""
    inverse = [_inverse(images) for images in halves.group]
    number = {images[halves.first[half]]: g for half in (0, 1) for g, images in enumerate(halves.group)}
    links: dict[tuple[int, int, float], list[int]] = {}
    durations_s = topology.alpha_s + topology.beta_s_per_byte * buffer_bytes
    ends = zip(topology.link_source.tolist(), topology.link_target.tolist(), durations_s.tolist(), strict=True)
    for link, (source, target, duration_s) in enumerate(ends):
        receiver = halves.half_of[target]
        if halves.half_of[source] != receiver:
            sender = inverse[halves.element_of[target]][source]
            links.setdefault((receiver, number[sender], duration_s), []).append(link)
    fastest: dict[tuple[int, int], _Round] = {}
    for (receiver, element, duration_s), members in sorted(links.items()):
        if len(members) == len(halves.group):
            fastest.setdefault((receiver, element), _Round(receiver, element, duration_s, tuple(members)))
    return list(fastest.values())


def _all_halves(topology: Topology) -> list[_Halves]:
    """The subgroups of the topology's rotations that leave two orbits of ranks, each with one image for an element."""
    elements = [tuple(row) for row in find_rotations(topology).ranks.tolist()]
    count = topology.device_count
    found: dict[frozenset[Ranks], None] = {}
    if count < 4 or count % 2 or 2 * len(elements) < count:
        return []
    for k, one in enumerate(elements):
        for other in elements[k:]:
            group = closure(one, other)
            if 2 * len(group) == count:
                found.setdefault(group)
    return [_halves(sorted(group)) for group in found][:_MOST_HALVINGS]


def closure(one: Ranks, other: Ranks) -> frozenset[Ranks]:
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


def _halves(group: list[Ranks]) -> _Halves:
    """The identity sorts first, and moves nothing; nor does any other element leave a rank where it is."""
    count = len(group[0])
    orbit = {images[0] for images in group}
    second = min(set(range(count)) - orbit)
    half_of, element_of = [0] * count, [0] * count
    for half, first in enumerate((0, second)):
        for element, images in enumerate(group):
            half_of[images[first]], element_of[images[first]] = half, element
    return _Halves((0, second), tuple(group), tuple(half_of), tuple(element_of))


def _inverse(images: Ranks) -> Ranks:
    inverse = [0] * len(images)
    for rank, image in enumerate(images):
        inverse[image] = rank
    return tuple(inverse)
