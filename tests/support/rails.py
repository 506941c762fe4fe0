"""Clusters of nodes behind a switch, with a NIC a rank and rails: NIC i of a node reaches NIC i of the others only."""

from __future__ import annotations

from itertools import permutations

from gapless.topologies.topology import Link, Topology


def rails(
    nodes: int,
    ranks: int = 8,
    switch_gbs: float = 450,
    nic_gbs: float = 50,
    switch_us: float = 0.7,
    nic_us: float = 1.7,
    every: int | None = None,
) -> Topology:
    """By default H100-like nodes. `every` k: rails that are k apart meet (2: odd NICs and even NICs)."""
    count = nodes * ranks
    links = [
        Link(node * ranks + a, node * ranks + b, switch_us * 1e-6, 1e-9 / switch_gbs,
             (node * ranks + a, count + node * ranks + b))
        for node in range(nodes) for a, b in permutations(range(ranks), 2)
    ]  # fmt: skip
    for source, target in permutations(range(nodes), 2):
        for a in range(ranks):
            for b in [a] if every is None else range(a % every, ranks, every):
                ends = source * ranks + a, target * ranks + b
                links.append(Link(*ends, nic_us * 1e-6, 1e-9 / nic_gbs, (2 * count + ends[0], 3 * count + ends[1])))
    names = tuple(f"{side}{rank}" for side in ("out", "in", "nic_out", "nic_in") for rank in range(count))
    node_of_device = tuple(node for node in range(nodes) for _ in range(ranks))
    return Topology(f"rails x {nodes}", node_of_device, tuple(links), names)
