"""Schedules of all nine collectives made by hand, as tests of the lowering need them, each in rounds of one second."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from gapless.ir.collective import (
    Collective,
    allgather,
    allreduce,
    alltoall,
    broadcast,
    gather,
    inverse,
    reduce,
    reducescatter,
    scatter,
    sendrecv,
)
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.topologies.topology import Link, Topology

Move = tuple[int, int, Sequence[int], bool]
"""(source, target, chunks, whether it reduces)."""
Case = tuple[Collective, Schedule]


def in_rounds(collective: Collective, moves: Sequence[Move]) -> Schedule:
    """Each move in the first round in which its link is free and nothing else uses its copies."""
    ranks = range(collective.rank_count)
    links = tuple(Link(a, b, alpha_s=1.0, beta_s_per_byte=0.0) for a in ranks for b in ranks if a != b)
    number = {(link.source, link.target): index for index, link in enumerate(links)}
    free: dict[tuple[int, ...], int] = {}
    events = []
    for source, target, chunks, reduces in moves:
        link = number[source, target]
        used = [(0, link), *((1, chunk, rank) for chunk in chunks for rank in (source, target))]
        at = max(free.get(each, 0) for each in used)
        free.update(dict.fromkeys(used, at + 1))
        events.append(Event(EventKind.TRANSFER, at, at + 1.0, place=link, moves=tuple(chunks), reduces=reduces))
    topology = Topology("complete", node_of_device=(0,) * collective.rank_count, links=links)
    return schedule_from_events(collective.graph(1), topology, events)


def ring_allgather(ranks: int, parts: int = 1) -> Case:
    collective = allgather(ranks, parts)
    return collective, in_rounds(collective, _ring_copies(collective.inputs, ranks))


def ring_reducescatter(ranks: int, parts: int = 1) -> Case:
    collective = reducescatter(ranks, parts)
    return collective, in_rounds(collective, _ring_sums(collective.outputs, ranks))


def ring_allreduce(ranks: int, parts: int = 1) -> Case:
    collective, shares = allreduce(ranks, parts), allgather(ranks, parts).inputs
    return collective, in_rounds(collective, _ring_sums(shares, ranks) + _ring_copies(shares, ranks))


def _ring_sums(shares: Sequence[Sequence[int]], ranks: int) -> list[Move]:
    """Rank r's share starts behind rank r and is summed on its way round to it."""
    return [
        (rank, (rank + 1) % ranks, shares[(rank - 1 - at) % ranks], True)
        for at in range(ranks - 1)
        for rank in range(ranks)
    ]


def _ring_copies(shares: Sequence[Sequence[int]], ranks: int) -> list[Move]:
    return [
        (rank, (rank + 1) % ranks, shares[(rank - at) % ranks], False)
        for at in range(ranks - 1)
        for rank in range(ranks)
    ]


def pairs_reducescatter(ranks: int, parts: int = 1) -> Case:
    """Everyone sends everyone their part."""
    collective = reducescatter(ranks, parts)
    return collective, in_rounds(collective, _pairs(collective.outputs, ranks, True))


def pairs_allreduce(ranks: int, parts: int = 1) -> Case:
    collective, shares = allreduce(ranks, parts), allgather(ranks, parts).inputs
    copies = [(rank, (rank + at) % ranks, shares[rank], False) for at in range(1, ranks) for rank in range(ranks)]
    return collective, in_rounds(collective, _pairs(shares, ranks, True) + copies)


def pairs_alltoall(ranks: int, parts: int = 1) -> Case:
    collective = alltoall(ranks, parts * ranks)
    moves = [
        (rank, peer, sorted(set(collective.inputs[rank]) & set(collective.outputs[peer])), False)
        for at in range(1, ranks)
        for rank in range(ranks)
        for peer in [(rank + at) % ranks]
    ]
    return collective, in_rounds(collective, moves)


def relayed_alltoall(ranks: int) -> Case:
    """Two nodes: within the node to the partner's neighbour first, then across between partners."""
    collective, half = alltoall(ranks), ranks // 2
    near, far = [], []
    for rank in range(ranks):
        for peer in range(ranks):
            chunks = [chunk for chunk in collective.inputs[rank] if chunk in collective.outputs[peer]]
            relay = rank // half * half + peer % half
            near += [(rank, relay, chunks, False)] if relay != rank else []
            far += [(relay, peer, chunks, False)] if relay != peer else []
    return collective, in_rounds(collective, near + far)


def _pairs(shares: Sequence[Sequence[int]], ranks: int, reduces: bool) -> list[Move]:
    return [
        (rank, (rank + at) % ranks, shares[(rank + at) % ranks], reduces)
        for at in range(1, ranks)
        for rank in range(ranks)
    ]


def _tree(ranks: int, root: int) -> list[tuple[int, int]]:
    """(parent, child) of a binary tree over the ranks, parents first."""
    return [((root + (at - 1) // 2) % ranks, (root + at) % ranks) for at in range(1, ranks)]


def tree_reduce(ranks: int, parts: int = 1, root: int = 0) -> Case:
    collective = reduce(ranks, parts, root)
    return collective, in_rounds(collective, _tree_sums(ranks, parts, root))


def tree_broadcast(ranks: int, parts: int = 1, root: int = 0) -> Case:
    collective = broadcast(ranks, parts, root)
    return collective, in_rounds(collective, _tree_copies(ranks, parts, root))


def tree_allreduce(ranks: int, parts: int = 1, root: int = 0) -> Case:
    """Summed up a tree, chunk by chunk, then copied down it."""
    collective = allreduce(ranks, parts)
    chunks = collective.chunk_count
    return collective, in_rounds(collective, _tree_sums(ranks, chunks, root) + _tree_copies(ranks, chunks, root))


def _tree_sums(ranks: int, parts: int, root: int) -> list[Move]:
    edges = _tree(ranks, root)[::-1]
    return [(child, parent, [part], True) for part in range(parts) for parent, child in edges]


def _tree_copies(ranks: int, parts: int, root: int) -> list[Move]:
    return [(parent, child, [part], False) for part in range(parts) for parent, child in _tree(ranks, root)]


def chain_broadcast(ranks: int, parts: int = 1, root: int = 0) -> Case:
    collective = broadcast(ranks, parts, root)
    moves = [
        ((root + at) % ranks, (root + at + 1) % ranks, [part], False)
        for part in range(parts)
        for at in range(ranks - 1)
    ]
    return collective, in_rounds(collective, moves)


def chain_reduce(ranks: int, parts: int = 1, root: int = 0) -> Case:
    collective = reduce(ranks, parts, root)
    moves = [
        ((root + at) % ranks, (root + at + 1) % ranks, [part], True) for part in range(parts) for at in range(1, ranks)
    ]
    return collective, in_rounds(collective, moves)


def chain_gather(ranks: int, parts: int = 1, root: int = 0) -> Case:
    """Every rank's data goes down the chain to the root, by way of all ranks between."""
    collective = gather(ranks, parts, root)
    moves: list[Move] = [
        ((root + hop) % ranks, (root + hop - 1) % ranks, collective.inputs[(root + at) % ranks], False)
        for at in range(1, ranks)
        for hop in range(at, 0, -1)
    ]
    return collective, in_rounds(collective, moves)


def chain_scatter(ranks: int, parts: int = 1, root: int = 0) -> Case:
    collective = scatter(ranks, parts, root)
    moves: list[Move] = [
        ((root + hop) % ranks, (root + hop + 1) % ranks, collective.outputs[(root + at) % ranks], False)
        for at in range(ranks - 1, 0, -1)
        for hop in range(at)
    ]
    return collective, in_rounds(collective, moves)


def relayed_sendrecv(ranks: int, parts: int = 1) -> Case:
    """From rank 0 to the last one through all the others."""
    collective = sendrecv(ranks, parts)
    moves = [(rank, rank + 1, [part], False) for part in range(parts) for rank in range(ranks - 1)]
    return collective, in_rounds(collective, moves)


def gathering_inverse(ranks: int) -> Case:
    """The inverse of a gather: the root's chunks are not summed, only handed out, since each has one contributor."""
    collective = inverse(gather(ranks), "custom")
    moves: list[Move] = [(0, rank, [rank], False) for rank in range(1, ranks)]
    return collective, in_rounds(collective, moves)


def random_allreduce(ranks: int, parts: int, chance: random.Random, is_scattered: bool = False) -> Case:
    """Each chunk is summed along a random tree to a random rank, then copied along another or kept there."""
    collective = reducescatter(ranks, parts) if is_scattered else allreduce(ranks, parts)
    sums: list[list[Move]] = []
    for chunk in range(collective.chunk_count):
        root = collective.destinations[chunk][0] if is_scattered else chance.randrange(ranks)
        edges = _random_tree(ranks, root, chance)
        way: list[Move] = [(child, parent, [chunk], True) for parent, child in reversed(edges)]
        if not is_scattered:
            way += [(parent, child, [chunk], False) for parent, child in _random_tree(ranks, root, chance)]
        sums.append(way)
    moves = []
    while sums:
        way = chance.choice(sums)
        moves.append(way.pop(0))
        sums = [each for each in sums if each]
    return collective, in_rounds(collective, moves)


def _random_tree(ranks: int, root: int, chance: random.Random) -> list[tuple[int, int]]:
    rest = [rank for rank in range(ranks) if rank != root]
    chance.shuffle(rest)
    reached, edges = [root], []
    for rank in rest:
        edges.append((chance.choice(reached), rank))
        reached.append(rank)
    return edges


CASES: dict[str, Callable[[], Case]] = {
    "allgather-ring": lambda: ring_allgather(5, 2),
    "reducescatter-ring": lambda: ring_reducescatter(5, 2),
    "reducescatter-pairs": lambda: pairs_reducescatter(4, 2),
    "reducescatter-random": lambda: random_allreduce(5, 2, random.Random(3), is_scattered=True),
    "allreduce-ring": lambda: ring_allreduce(4, 2),
    "allreduce-pairs": lambda: pairs_allreduce(4),
    "allreduce-tree": lambda: tree_allreduce(6, 1, root=2),
    "allreduce-random": lambda: random_allreduce(5, 2, random.Random(1)),
    "alltoall-pairs": lambda: pairs_alltoall(4, 2),
    "alltoall-relayed": lambda: relayed_alltoall(6),
    "broadcast-tree": lambda: tree_broadcast(6, 3, root=1),
    "broadcast-chain": lambda: chain_broadcast(4, 3, root=3),
    "reduce-tree": lambda: tree_reduce(6, 3, root=1),
    "reduce-chain": lambda: chain_reduce(4, 3, root=3),
    "gather-chain": lambda: chain_gather(4, 2, root=2),
    "scatter-chain": lambda: chain_scatter(4, 2, root=2),
    "sendrecv-relayed": lambda: relayed_sendrecv(3, 2),
    "inverse-gather": lambda: gathering_inverse(4),
}
"""Every collective, most of them twice."""


def taker(name: str, placement: str = "out-of-place") -> str:
    """Whose files a collective can be written in: both runtimes' where they agree, else one's."""
    if name in ("sendrecv", "custom"):
        return "original"
    agreed = name in ("allgather", "allreduce", "broadcast", "reduce")
    return "both" if agreed or (name, placement) == ("alltoall", "out-of-place") else "executor"
