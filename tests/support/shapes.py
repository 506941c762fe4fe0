"""Small topologies for the tests of TACCL's stages."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from gapless.topologies.node import LocalLink, NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.topology import Topology

Costs = Callable[[int], tuple[float, float]]
"""Alpha in seconds and beta in seconds per byte of the k-th connection."""


def even(_: int) -> tuple[float, float]:
    """A microsecond and 10 GB/s, on every link."""
    return 1e-6, 1e-10


def two_way(name: str, ranks: int, pairs: list[tuple[int, int]], costs: Costs) -> Topology:
    """One node whose connections are links in both directions."""
    links = [LocalLink(s, t, *costs(k)) for k, pair in enumerate(pairs) for s, t in (pair, pair[::-1])]
    return NodeTemplate(name, ranks, tuple(links)).cluster(1)


def line(ranks: int, costs: Costs) -> Topology:
    """0 - 1 - 2 - ..."""
    return two_way("line", ranks, list(pairwise(range(ranks))), costs)


def ring(ranks: int, costs: Costs) -> Topology:
    """A line closed to a ring."""
    return two_way("ring", ranks, [*pairwise(range(ranks)), (ranks - 1, 0)], costs)


def star(ranks: int, costs: Costs) -> Topology:
    """Rank 0 in the middle."""
    return two_way("star", ranks, [(0, rank) for rank in range(1, ranks)], costs)


def complete(ranks: int, costs: Costs) -> Topology:
    """A connection between every two ranks, with costs 0 to 5 again and again."""
    pairs = [(s, t) for t in range(ranks) for s in range(t)]
    return two_way("complete", ranks, pairs, lambda k: costs(k % 6))


def switch(ranks: int, costs: Costs) -> Topology:
    """All behind one switch, which has the costs of connection 0."""
    return NodeTemplate("switch", ranks, switches=(SwitchTemplate(tuple(range(ranks)), *costs(0)),)).cluster(1)


def pairs_of_nodes(nodes: int, costs: Costs) -> Topology:
    """Nodes of two linked ranks that share a NIC (connection 1)."""
    links = (LocalLink(0, 1, *costs(0)), LocalLink(1, 0, *costs(0)))
    return NodeTemplate("pair", 2, links, nics=(NicTemplate((0, 1), *costs(1)),)).cluster(nodes)


def single_nodes(nodes: int, costs: Costs) -> Topology:
    """Nodes of one rank, each with a NIC of its own."""
    return NodeTemplate("single", 1, nics=(NicTemplate((0,), *costs(0)),)).cluster(nodes)


SHAPES = {"line": line, "ring": ring, "star": star, "switch": switch}
