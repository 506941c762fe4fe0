"""What is asked of a network on which gradients are added up: numbers, or a topology."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from gapless.question import Asked, asked
from gapless.question.fields import Bandwidth, Object, Seconds, Text, Whole
from gapless.topologies.names import topology_names

if TYPE_CHECKING:
    from gapless.topologies.topology import Topology

__all__ = [
    "AGGREGATION", "DECODED", "INNER_LATENCY_S", "LATENCY_S", "RING_OR_TREE", "TOGETHER", "NetworkQuestion",
    "aggregation_names",
]  # fmt: skip

LATENCY_S = 10e-6
"""Of one step of a network that numbers describe: about what the figures of *Utility of gradient compression* need."""
INNER_LATENCY_S = 1e-6
"""Of one step inside a node that numbers describe; machines of `gapless list topologies` have about that."""
AGGREGATION = "ring"
RING_OR_TREE = "ring-or-tree"
"""Whichever is faster at a size, as NCCL chooses."""
TOGETHER = "together"
DECODED = (TOGETHER, "one-by-one")
"""How gathered messages are decoded: all before they are added up, as the implementations of *Utility of gradient
compression* needed memory for, or each added as it is decoded, as our hook does."""
_GROUP = "network"


def aggregation_names() -> list[str]:
    """How gradients may be added up."""
    return [AGGREGATION, "tree", "server", RING_OR_TREE]


@dataclass(frozen=True, repr=False)
class NetworkQuestion(Asked):
    """The network that numbers describe, or that of the ranks of a topology."""

    _: KW_ONLY
    ranks: int | None = asked(Whole(2, 10**6), "number of workers", metavar="N", group=_GROUP)
    bandwidth: float | None = asked(
        Bandwidth(), "bandwidth out of a rank, or of a node: 10Gbps, 1.25GB/s", metavar="B", group=_GROUP
    )
    latency: float | None = asked(
        Seconds(), "latency of one step of a collective", otherwise=LATENCY_S, metavar="T", group=_GROUP
    )
    aggregation: str | None = asked(
        Text(), "how gradients are added up: ring, tree, server, ring-or-tree", otherwise=AGGREGATION, metavar="NAME",
        names=aggregation_names, group=_GROUP,
    )  # fmt: skip
    ranks_per_node: int | None = asked(
        Whole(1, 10**6), "for two levels: ranks of a node, inside which gradients are plain", metavar="N", group=_GROUP
    )
    inner_bandwidth: float | None = asked(
        Bandwidth(), "bandwidth out of a rank inside a node", metavar="B", group=_GROUP
    )
    inner_latency: float | None = asked(
        Seconds(), "latency of one step inside a node", otherwise=INNER_LATENCY_S, metavar="T", group=_GROUP
    )
    topology: str | Topology | None = asked(
        Object(("gapless.topologies.topology.Topology",)),
        "instead of ranks and bandwidth: a topology, such as ndv2 or torus:4x4", metavar="NAME",
        names=topology_names, group=_GROUP,
    )  # fmt: skip
    nodes: int | None = asked(Whole(1, 10**6), "number of the topology's nodes", otherwise=1, metavar="N", group=_GROUP)
    levels: int | None = asked(
        Whole(1, 2), "2: rings inside its nodes, and between them; 1: a ring through all ranks",
        otherwise="2 where there are several nodes", metavar="N", group=_GROUP,
    )  # fmt: skip
