"""Random networks of three to five ranks, each with a collective in a few chunks, for bounds and exact optima."""

from __future__ import annotations

import random
from dataclasses import dataclass

from exact_model import Wire

from gapless.encodings.taccl import Chunked
from gapless.ir.collective import COLLECTIVES, Collective, collective_by_name, divided
from gapless.topologies.topology import Link, Topology

__all__ = ["TICK_S", "UNIT_BYTES", "Question", "question", "tiny_sum"]

TICK_S = 1e-7
UNIT_BYTES = 1000
_WHOLE = 12
"""What one chunk of a collective in the fewest chunks has: it can be cut in two, three and four."""
_MOST_CHUNKS = {False: 9, True: 4}
"""By whether chunks are added up: a model of sums is larger."""


@dataclass(frozen=True)
class Question:
    """`wires`: the network in ticks; `problem`: the same for the bounds; `parts`: into how many chunks each is cut."""

    wires: list[Wire]
    problem: Chunked
    parts: int

    @property
    def collective(self) -> Collective:
        """In its chunks."""
        return self.problem.collective


def question(seed: int) -> Question:
    """Collectives take turns. Links lack here and there, differ in each direction, and some share a NIC or a switch."""
    chance = random.Random(seed)
    name = sorted(COLLECTIVES)[seed % len(COLLECTIVES)]
    ranks = chance.choice([3, 3, 4] if name == "allreduce" else [3, 3, 4, 4, 5])
    reduces = name in ("allreduce", "reduce", "reducescatter")
    least = collective_by_name(name, ranks).chunk_count
    most = max(1, min(4, _MOST_CHUNKS[reduces] // least))
    parts = chance.randint(1, most)
    cut = parts * ranks if name == "alltoall" else parts
    collective = collective_by_name(name, ranks, cut)
    pairs = _pairs(chance, ranks)
    ends = chance.choice([_nothing, _nothing, _some, _switch, _nodes])(chance, ranks, pairs)
    most_alpha, most_beta = chance.choice([(3, 4), (12, 2), (40, 1), (1, 4)])
    units = _WHOLE // parts
    slow = [(chance.randint(1, most_alpha), chance.randint(1, most_beta)) for _ in pairs]
    if chance.random() < 0.3:
        slow = [slow[0]] * len(pairs)
    wires = [
        Wire(source, target, alpha, beta * units, held)
        for (source, target), (alpha, beta), held in zip(pairs, slow, ends, strict=True)
    ]
    links = tuple(
        Link(wire.source, wire.target, wire.alpha * TICK_S, beta * TICK_S / UNIT_BYTES, wire.resources)
        for wire, (_, beta) in zip(wires, slow, strict=True)
    )
    names = tuple(f"resource {k}" for k in range(1 + max((r for held in ends for r in held), default=0)))
    nodes = tuple(rank // 2 for rank in range(ranks)) if chance.random() < 0.4 else (0,) * ranks
    topology = Topology("random", nodes, links, names)
    return Question(wires, Chunked(topology, collective, UNIT_BYTES * units), parts)


Pairs = list[tuple[int, int]]
Ends = list[tuple[int, ...]]


def _pairs(chance: random.Random, ranks: int) -> Pairs:
    """A ring, a line, a star or a tree of two directions, or a ring of one, with some links more."""
    order = chance.sample(range(ranks), ranks)
    if chance.random() < 0.5:
        base = {(order[k], order[(k + 1) % ranks]) for k in range(ranks)}
    else:
        tree = [(order[chance.randrange(k)], order[k]) for k in range(1, ranks)]
        base = {pair for a, b in tree for pair in ((a, b), (b, a))}
    others = sorted({(a, b) for a in range(ranks) for b in range(ranks) if a != b} - base)
    more = chance.sample(others, chance.randint(0, min(len(others), 10 - len(base))))
    return sorted(base | set(more))


def _nothing(chance: random.Random, ranks: int, pairs: Pairs) -> Ends:
    return [()] * len(pairs)


def _some(chance: random.Random, ranks: int, pairs: Pairs) -> Ends:
    """Anything may share anything: a link that holds two resources holds them in some order."""
    return [tuple(chance.sample(range(3), chance.randint(0, 2))) for _ in pairs]


def _switch(chance: random.Random, ranks: int, pairs: Pairs) -> Ends:
    """Every rank sends one message at a time, and receives one."""
    return [(source, ranks + target) for source, target in pairs]


def _nodes(chance: random.Random, ranks: int, pairs: Pairs) -> Ends:
    """Ranks in twos share a NIC, with one side out and one in, or with one side for both."""
    two_sides = chance.random() < 0.7
    return [
        () if source // 2 == target // 2 else (source // 2, target // 2 + (ranks if two_sides else 0))
        for source, target in pairs
    ]  # fmt: skip


def tiny_sum(seed: int) -> Question:
    """Sums for all of two to four ranks, for some of them, or in two groups; alphas are small beside bytes."""
    chance = random.Random(seed)
    ranks = chance.choice([2, 3, 3, 4])
    wants = [sorted(chance.sample(range(ranks), chance.randint(2, ranks))) for _ in range(chance.choice([1, 1, 2]))]
    holds = [ranks_of if chance.random() < 0.6 else list(range(ranks)) for ranks_of in wants]
    everyone, chunks = range(ranks), range(len(wants))
    buffers = [tuple(tuple(k for k in chunks if rank in ends[k]) for rank in everyone) for ends in (holds, wants)]
    most = max(map(len, buffers[0]))
    parts = chance.choice([1, 2]) if ranks < 4 and len(wants) == 1 else 1
    collective = divided(Collective("sums", ranks, most, *buffers, reduces=True), parts)
    pairs = _pairs(chance, ranks)
    ends = chance.choice([_nothing, _some, _switch, _nodes])(chance, ranks, pairs)
    slow = [chance.randint(1, 4) for _ in pairs]
    wires = [Wire(*pair, 1, 20 // parts * beta, held) for pair, beta, held in zip(pairs, slow, ends, strict=True)]
    links = tuple(
        Link(wire.source, wire.target, TICK_S, 20 * beta * TICK_S / UNIT_BYTES, wire.resources)
        for wire, beta in zip(wires, slow, strict=True)
    )
    names = tuple(f"resource {k}" for k in range(1 + max((r for held in ends for r in held), default=0)))
    topology = Topology("random", (0,) * ranks, links, names)
    return Question(wires, Chunked(topology, collective, UNIT_BYTES // parts), parts)
