"""Machines to emulate: one cable a node, an uneven ring, a slow NIC."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from gapless.topologies.node import Cluster, NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.topology import Link, Topology


def one_cable(nodes: int, ranks: int, cable_gbs: Sequence[float] = (12.5,), switch_gbs: float = 100) -> Topology:
    """Nodes of ranks behind a switch, with a NIC for all of them; `cable_gbs`: of each node's NIC, or one for all."""
    speeds = [*cable_gbs] * (nodes if len(cable_gbs) == 1 else 1)
    all_ranks = tuple(range(ranks))
    switch = SwitchTemplate(all_ranks, 1e-6, 1e-9 / switch_gbs)
    kinds = (NodeTemplate(f"{speed:g} GB/s", ranks, (), (switch,) if ranks > 1 else (),
                          (NicTemplate(all_ranks, 2e-6, 1e-9 / speed),)) for speed in speeds)  # fmt: skip
    return Cluster(f"{nodes} x {ranks}", tuple(kinds)).topology()


def uneven_ring(gbs: Sequence[float]) -> Topology:
    """A ring, a node a rank: `gbs[k]` is the bandwidth, both ways, of the cable from rank k to the next one."""
    count = len(gbs)
    ends = {(k, (k + 1) % count): speed for k, speed in enumerate(gbs)}
    links = [
        Link(a, b, 2e-6, 1e-9 / ends.get((a, b), ends.get((b, a), 0.0)))
        for a, b in permutations(range(count), 2) if (a, b) in ends or (b, a) in ends
    ]  # fmt: skip
    return Topology(f"uneven ring of {count}", tuple(range(count)), tuple(links))
