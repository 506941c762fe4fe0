"""Fabric: the network between nodes, and the links that it makes of their NICs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ids
from gapless.errors import InputError
from gapless.topologies.links import LinkBuilder
from gapless.topologies.ports.switch_groups import Reduction

__all__ = ["Fabric", "Nics", "join"]


_MOST_LANES = 2**31 - 1


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
    the slowest of NICs and lane sets the pace. `reduction`: what its switches do besides (SHARP) for the ranks of a
    rail, or without rails for all ranks; None for nothing.
    """

    rails: bool = False
    nodes_per_leaf: int | None = None
    uplinks_per_leaf: int = 0
    alpha_s: float = 0.0
    beta_s_per_byte: float = 0.0
    reduction: Reduction | None = None

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
class Nics:
    """All NICs of a cluster, node after node: `node`, `rail` (its number in the node), and what they cost.

    `ranks`: those behind all NICs, NIC after NIC; NIC k's begin at `start[k]`, and are `size[k]`.
    """

    node: Ids
    rail: Ids
    alpha_s: NDArray[np.float64]
    beta_s_per_byte: NDArray[np.float64]
    ranks: Ids
    size: Ids

    @property
    def start(self) -> Ids:
        """Where each NIC's ranks begin in `ranks`."""
        return np.asarray(np.cumsum(self.size) - self.size)


def join(builder: LinkBuilder, nics: Nics, fabric: Fabric) -> list[str]:
    """The links between nodes; returns the names of their resources, by key.

    A link holds the NIC that it leaves by first, the NIC that it comes in by last.
    """
    joined = nics.node[:, None] != nics.node
    if fabric.rails:
        joined &= nics.rail[:, None] == nics.rail
    source, target = np.nonzero(joined)
    first = builder.keys(2 * len(nics.node))
    nic_out, nic_in = first + 2 * source, first + 2 * target + 1
    # The slower side sets the pace.
    alpha_s, beta_s = (np.maximum(cost[source], cost[target]) for cost in (nics.alpha_s, nics.beta_s_per_byte))
    places = zip(nics.node.tolist(), nics.rail.tolist(), strict=True)
    names = [f"node{node}:nic{rail}:{side}" for node, rail in places for side in ("out", "in")]
    lanes: list[Ids] = []
    if fabric.nodes_per_leaf is not None:
        lanes, lane_names = _lanes(builder, fabric, nics, source, target)
        names += lane_names
        passes = lanes[0] >= 0
        alpha_s = np.where(passes, alpha_s + fabric.alpha_s, alpha_s)
        beta_s = np.where(passes, np.maximum(beta_s, fabric.beta_s_per_byte), beta_s)
    pair, from_rank, to_rank = _rank_pairs(nics, source, target)
    builder.add(from_rank, to_rank, alpha_s[pair], beta_s[pair], np.stack([nic_out, *lanes, nic_in], axis=1)[pair])
    return names


def _lanes(
    builder: LinkBuilder, fabric: Fabric, nics: Nics, source: Ids, target: Ids
) -> tuple[list[Ids], list[str]]:  # fmt: skip
    """Keys of the lanes up and down that each pair of NICs takes, -1 under one leaf; and the lanes' names."""
    per_leaf, rails = fabric.nodes_per_leaf or 1, int(nics.rail.max()) + 1 if fabric.rails else 1
    ends = [(nics.node[nic] // per_leaf) * rails + nics.rail[nic] % rails for nic in (source, target)]  # leaf switches
    number = nics.node[target] if fabric.rails else target
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


def _rank_pairs(nics: Nics, source: Ids, target: Ids) -> tuple[Ids, Ids, Ids]:
    """The number of their pair of NICs, sender and receiver, of all pairs of ranks behind pairs of NICs."""
    pairs = nics.size[source] * nics.size[target]
    pair = np.repeat(np.arange(len(source)), pairs)
    offset = np.arange(len(pair)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    ends, width = (source[pair], target[pair]), nics.size[target[pair]]
    local = (offset // width, offset % width)
    sender, receiver = (nics.ranks[nics.start[nic] + k] for nic, k in zip(ends, local, strict=True))
    return pair, sender, receiver
