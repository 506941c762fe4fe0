"""Hierarchical: between nodes along rails (rank i of a node to rank i of the others), and inside the nodes.

Backwards and forwards together it is the usual ALLREDUCE of clusters: reduce inside the node, then rail by rail between
the nodes, then spread inside the node.
"""

from __future__ import annotations

from itertools import pairwise

from gapless.encodings.taccl.baselines.cut import Cut
from gapless.encodings.taccl.baselines.transfers import Send

__all__ = ["rail_allgather", "rail_alltoall", "rail_broadcast"]

Rings = list[list[list[int]]]
"""For each node, rings through its ranks."""


def rail_allgather(cut: Cut, nodes: list[list[int]], rings: Rings | None) -> list[Send]:
    """Each block goes to its rail on every node, and from there round the node's rings, or straight to its ranks.

    `nodes[m]`: the ranks of node m. Each ring takes its share of the parts.
    """
    sends = []
    for part in range(cut.parts):
        for distance in range(len(nodes)):
            for owner_node, ranks in enumerate(nodes):
                node = (owner_node + distance) % len(nodes)
                for local, owner in enumerate(ranks):
                    chunks, entry = cut.part(cut.blocks[owner], part), nodes[node][local]
                    if distance:
                        sends.append(Send(part, distance - 1, owner, entry, chunks))
                    for turn, (source, target) in enumerate(_spread(nodes[node], rings, node, part, entry)):
                        sends.append(Send(part, distance + turn, source, target, chunks))
    return sends


def rail_alltoall(cut: Cut, nodes: list[list[int]]) -> list[Send]:
    """What is for rail i goes to rank i of its own node first, and then in one message to each other node."""
    rail = {rank: local for ranks in nodes for local, rank in enumerate(ranks)}
    node_of = {rank: node for node, ranks in enumerate(nodes) for rank in ranks}
    first: dict[tuple[int, int], list[int]] = {}
    second: dict[tuple[int, int], list[int]] = {}
    collective = cut.collective
    for chunk, (owner, targets) in enumerate(zip(collective.owners, collective.destinations, strict=True)):
        for target in targets:
            relay = nodes[node_of[owner]][rail[target]]
            if relay != owner:
                first.setdefault((owner, relay), []).append(chunk)
            if relay != target:
                second.setdefault((relay, target), []).append(chunk)
    sends = []
    for step, pairs in enumerate((first, second)):
        for source, target in sorted(pairs, key=lambda pair: ((pair[1] - pair[0]) % len(rail), pair)):
            for part in range(cut.parts):
                chunks = cut.part(tuple(pairs[source, target]), part)
                if chunks:
                    sends.append(Send(part, step, source, target, chunks))
    return sends


def rail_broadcast(cut: Cut, nodes: list[list[int]], rings: Rings, root: int) -> list[Send]:
    """From node to node along the root's rail, and at once round the rings of each."""
    root_node = next(node for node, ranks in enumerate(nodes) if root in ranks)
    local = nodes[root_node].index(root)
    sends = []
    for part in range(cut.parts):
        chunks = cut.part(cut.blocks[0], part)
        for distance in range(len(nodes)):
            node = (root_node + distance) % len(nodes)
            entry = nodes[node][local]
            if distance:
                sends.append(Send(part, distance - 1, nodes[node - 1][local], entry, chunks))
            for turn, (source, target) in enumerate(_spread(nodes[node], rings, node, part, entry)):
                sends.append(Send(part, distance + turn, source, target, chunks))
    return sends


def _spread(ranks: list[int], rings: Rings | None, node: int, part: int, entry: int) -> list[tuple[int, int]]:
    """The hops that bring a part from its entry to all ranks of the node, in order."""
    if rings is None:
        place = ranks.index(entry)
        return [(entry, rank) for rank in (*ranks[place + 1 :], *ranks[:place])]
    ring = rings[node][part % len(rings[node])]
    place = ring.index(entry)
    around = [*ring[place:], *ring[:place]]
    return list(pairwise(around))
