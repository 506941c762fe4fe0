"""NodeTemplate: one machine as its file describes it, and the cluster of any number of such nodes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.topologies.building import MOST_LINKS, LinkBuilder, refuse_too_many
from gapless.topologies.congestion import Congestion, Slowdown
from gapless.topologies.topology import Nic, Switch, Topology

__all__ = ["Fabric", "LocalLink", "NicTemplate", "NodeTemplate", "SwitchTemplate"]

_MOST_LANES = 2**31 - 1


@dataclass(frozen=True)
class LocalLink:
    """A directed link between two ranks of a node; `resources` are names of what it shares with other links."""

    source: int
    target: int
    alpha_s: float
    beta_s_per_byte: float
    resources: tuple[str, ...] = ()


@dataclass(frozen=True)
class SwitchTemplate:
    """A non-blocking switch: every pair of its ranks is joined; a rank sends, and receives, one transfer at a time.

    `congestion`: of each rank's ports, one out and one in.
    """

    ranks: tuple[int, ...]
    alpha_s: float
    beta_s_per_byte: float
    congestion: Slowdown | None = None


@dataclass(frozen=True)
class NicTemplate:
    """A network interface and the ranks that share it; it sends, and receives, one transfer at a time.

    `congestion`: of its two sides, out and in.
    """

    ranks: tuple[int, ...]
    alpha_s: float
    beta_s_per_byte: float
    congestion: Slowdown | None = None


@dataclass(frozen=True)
class Fabric:
    """The network between nodes. Raises `InputError` naming the field.

    With `rails`, NIC i of a node reaches NIC i of the others only (each rail is a network of its own); without, every
    NIC. Without `nodes_per_leaf` the network is non-blocking. With it, that many consecutive nodes hang on one leaf
    switch (one a rail, with rails), which has `uplinks_per_leaf` lanes up to the spine and as many down.

    A lane is an exclusive resource like any other: it carries one transfer at a time. An uplink that is as wide as k
    NICs is therefore k lanes, not one resource of capacity k. Routing is static, as InfiniBand's for fat trees: a
    transfer to NIC number d (node number d, with rails) takes lane d modulo `uplinks_per_leaf`, up from its own leaf
    and down to the target's. So the checker enforces the oversubscription, and the load of a lane bounds every plan.

    `alpha_s` is added to the latency of what passes the spine; `beta_s_per_byte` is a lane's own inverse bandwidth, and
    the slowest of NICs and lane sets the pace.
    """

    rails: bool = False
    nodes_per_leaf: int | None = None
    uplinks_per_leaf: int = 0
    alpha_s: float = 0.0
    beta_s_per_byte: float = 0.0

    def __post_init__(self) -> None:
        if self.nodes_per_leaf is None:
            if self.uplinks_per_leaf or self.alpha_s or self.beta_s_per_byte:
                raise InputError("fabric: uplinks must come with nodes_per_leaf, got none")
            return
        for field, value in (("nodes_per_leaf", self.nodes_per_leaf), ("uplinks_per_leaf", self.uplinks_per_leaf)):
            if value < 1:
                raise InputError(f"fabric: {field} must be >= 1, got {value}")
            if value > _MOST_LANES:
                raise InputError(f"fabric: {field} must be <= {_MOST_LANES}, got {value}")
        for field, cost in (("alpha_s", self.alpha_s), ("beta_s_per_byte", self.beta_s_per_byte)):
            if not (cost >= 0 and math.isfinite(cost)):
                raise InputError(f"fabric: {field} must be finite and >= 0, got {cost}")


@dataclass(frozen=True)
class NodeTemplate:
    """One node: ranks 0 .. ranks_per_node - 1, links, switches, NICs. Raises `InputError` naming the field.

    Ranks of different nodes reach each other through the NICs of both, as `fabric` says.
    """

    name: str
    ranks_per_node: int
    links: tuple[LocalLink, ...] = ()
    switches: tuple[SwitchTemplate, ...] = ()
    nics: tuple[NicTemplate, ...] = ()
    source: str = ""
    fabric: Fabric = Fabric()

    def __post_init__(self) -> None:
        groups = [("switches", switch.ranks) for switch in self.switches] + [("nics", nic.ranks) for nic in self.nics]
        for title, ranks in [*groups, *(("links", (link.source, link.target)) for link in self.links)]:
            for rank in ranks:
                if not 0 <= rank < self.ranks_per_node:
                    raise InputError(f"{self.name}: {title}: ranks must be in 0..{self.ranks_per_node - 1}, got {rank}")
            if len(set(ranks)) != len(ranks):
                raise InputError(f"{self.name}: {title}: ranks must differ, got {list(ranks)}")
        for switch in self.switches:
            if len(switch.ranks) < 2:
                raise InputError(
                    f"{self.name}: switches: a switch must join at least 2 ranks, got {list(switch.ranks)}"
                )
        for rank, count in Counter(rank for nic in self.nics for rank in nic.ranks).items():
            if count > 1:
                raise InputError(f"{self.name}: nics: a rank must use at most one NIC, rank {rank} uses two")

    def cluster(self, nodes: int) -> Topology:
        """`nodes` copies of this node, joined through their NICs.

        Rank `local` of node `n` is number `n * ranks_per_node + local`.
        """
        if nodes < 1:
            raise InputError(f"nodes: must be >= 1, got {nodes}")
        if nodes > 1 and not self.nics:
            raise InputError(f"{self.name}: nics: must hold at least one to join {nodes} nodes, got none")
        self._refuse_too_many(nodes)
        builder = LinkBuilder()
        names = _add_nodes(builder, self, nodes)
        if nodes > 1:
            names += _join_nodes(builder, self, nodes)
        links, keys = builder.finish()
        resources = tuple(names[key] for key in keys.tolist())
        return Topology(
            name=f"{self.name} x {nodes}",
            node_of_device=tuple(np.repeat(np.arange(nodes), self.ranks_per_node).tolist()),
            links=links,
            resources=resources,
            nics=tuple(Nic(node, self._globals(node, nic.ranks)) for node in range(nodes) for nic in self.nics),
            switches=tuple(Switch(n, self._globals(n, switch.ranks)) for n in range(nodes) for switch in self.switches),
            congestion=tuple(self._congestion(resources)),
        )

    def _refuse_too_many(self, nodes: int) -> None:
        if nodes * self.ranks_per_node > MOST_LINKS:
            got = nodes * self.ranks_per_node
            raise InputError(f"{self.name} x {nodes}: must have at most {MOST_LINKS:,} ranks, would have {got:,}")
        sizes = [len(nic.ranks) for nic in self.nics]
        joined = sum(size**2 for size in sizes) if self.fabric.rails else sum(sizes) ** 2
        local = len(self.links) + sum(len(switch.ranks) * (len(switch.ranks) - 1) for switch in self.switches)
        total = nodes * local + nodes * (nodes - 1) * joined
        way_out = "ask for fewer nodes" if self.fabric.rails else "ask for fewer nodes, or for rails"
        refuse_too_many(f"{self.name} x {nodes}", total, way_out)

    def _congestion(self, resources: tuple[str, ...]) -> Iterator[Congestion]:
        """The tables of switches and NICs, with the sides that are in use, by their names."""
        tables = [(f"switch{number}", switch.congestion) for number, switch in enumerate(self.switches)]
        tables += [(f"nic{number}", nic.congestion) for number, nic in enumerate(self.nics)]
        for title, table in tables:
            if table is not None:
                side = re.compile(rf"node\d+:{title}:(out|in)\d*")
                yield Congestion(tuple((k,) for k, name in enumerate(resources) if side.fullmatch(name)), table)

    def _globals(self, node: int, ranks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(node * self.ranks_per_node + rank for rank in ranks)


def _add_nodes(builder: LinkBuilder, template: NodeTemplate, nodes: int) -> list[str]:
    """The links inside all nodes; returns the names of their resources, by key."""
    names: dict[tuple[str, int | None], int] = {}  # name, and the rank that follows it, as the cluster numbers it
    rows: list[tuple[int, int, float, float, list[int]]] = []
    for link in template.links:
        held = [names.setdefault((name, None), len(names)) for name in link.resources]
        rows.append((link.source, link.target, link.alpha_s, link.beta_s_per_byte, held))
    for number, switch in enumerate(template.switches):
        for source, target in permutations(switch.ranks, 2):
            sides = ((f"switch{number}:out", source), (f"switch{number}:in", target))
            held = [names.setdefault(side, len(names)) for side in sides]
            rows.append((source, target, switch.alpha_s, switch.beta_s_per_byte, held))
    first = builder.keys(nodes * len(names))
    if rows:
        width = max(len(row[4]) for row in rows)
        local = np.array([[*row[4], *[-1] * (width - len(row[4]))] for row in rows], dtype=np.int64)
        keys = first + np.arange(nodes)[:, None, None] * len(names) + local
        base = np.repeat(np.arange(nodes) * template.ranks_per_node, len(rows))
        from_rank, to_rank, alpha_s, beta_s = (np.tile(np.array([row[k] for row in rows]), nodes) for k in range(4))
        keys = np.where(local < 0, -1, keys).reshape(nodes * len(rows), width)
        builder.add(base + from_rank, base + to_rank, alpha_s, beta_s, keys)
    return [
        f"node{node}:{name}" + ("" if rank is None else str(node * template.ranks_per_node + rank))
        for node in range(nodes)
        for name, rank in names
    ]


def _join_nodes(builder: LinkBuilder, template: NodeTemplate, nodes: int) -> list[str]:
    """The links between nodes; returns the names of their resources, by key. NICs are numbered node after node.

    A link holds the NIC that it leaves by first, the NIC that it comes in by last.
    """
    count, fabric = len(template.nics), template.fabric
    nic = np.arange(nodes * count)
    joined = nic[:, None] // count != nic // count
    if fabric.rails:
        joined &= nic[:, None] % count == nic % count
    source, target = np.nonzero(joined)
    first = builder.keys(2 * len(nic))
    nic_out, nic_in = first + 2 * source, first + 2 * target + 1
    # The slower side sets the pace.
    alpha_s, beta_s = (
        np.maximum(cost[source % count], cost[target % count])
        for cost in np.array([(spec.alpha_s, spec.beta_s_per_byte) for spec in template.nics]).T
    )
    names = [f"node{n // count}:nic{n % count}:{side}" for n in range(len(nic)) for side in ("out", "in")]
    lanes: list[NDArray[np.int64]] = []
    if fabric.nodes_per_leaf is not None:
        lanes, lane_names = _lanes(builder, fabric, count, source, target)
        names += lane_names
        passes = lanes[0] >= 0
        alpha_s = np.where(passes, alpha_s + fabric.alpha_s, alpha_s)
        beta_s = np.where(passes, np.maximum(beta_s, fabric.beta_s_per_byte), beta_s)
    pair, from_rank, to_rank = _rank_pairs(template, source, target)
    builder.add(from_rank, to_rank, alpha_s[pair], beta_s[pair], np.stack([nic_out, *lanes, nic_in], axis=1)[pair])
    return names


def _lanes(
    builder: LinkBuilder, fabric: Fabric, count: int, source: NDArray[np.int64], target: NDArray[np.int64]
) -> tuple[list[NDArray[np.int64]], list[str]]:
    """Keys of the lanes up and down that each pair of NICs takes, -1 under one leaf; and the lanes' names."""
    per_leaf, rails = fabric.nodes_per_leaf or 1, count if fabric.rails else 1
    ends = [(nic // count // per_leaf) * rails + nic % rails for nic in (source, target)]  # leaf switches
    number = target // count if fabric.rails else target
    lanes = min(fabric.uplinks_per_leaf, int(number.max()) + 1)  # more than there are targets would stay unused
    lane = number % lanes
    leaves = int(ends[0].max()) + 1
    first = builder.keys(2 * leaves * lanes)
    keys = [
        np.where(ends[0] == ends[1], -1, first + 2 * (leaf * lanes + lane) + side) for side, leaf in enumerate(ends)
    ]
    names = [
        (f"rail{leaf % rails}:" if fabric.rails else "") + f"leaf{leaf // rails}:{side}{k}"
        for leaf in range(leaves)
        for k in range(lanes)
        for side in ("up", "down")
    ]
    return keys, names


def _rank_pairs(
    template: NodeTemplate, source: NDArray[np.int64], target: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """All (sender, receiver) behind pairs of NICs, and the number of their pair."""
    count, per_node = len(template.nics), template.ranks_per_node
    size = np.array([len(nic.ranks) for nic in template.nics], dtype=np.int64)
    start = np.cumsum(size) - size
    rank = np.array([rank for nic in template.nics for rank in nic.ranks], dtype=np.int64)
    pairs = size[source % count] * size[target % count]
    pair = np.repeat(np.arange(len(source)), pairs)
    offset = np.arange(len(pair)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    ends, width = (source[pair], target[pair]), size[target[pair] % count]
    local = (offset // width, offset % width)
    sender, receiver = (
        nic // count * per_node + rank[start[nic % count] + k] for nic, k in zip(ends, local, strict=True)
    )
    return pair, sender, receiver
