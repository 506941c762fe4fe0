"""Time of a gradient's collective, as a function of the bytes before compression.

**Flat networks** join p ranks that are all alike; a step takes `alpha_s`, and a rank sends at `bytes_per_s`. An
all-reduce of n bytes is one of Table 4.2 of *Utility of gradient compression*:

| aggregation | latency | bandwidth |
|---|---|---|
| ring | 2 alpha (p - 1) | 2 n (p - 1) / (p BW), equation 4.1 |
| tree | 2 alpha log2 p | 2 n log2 p / BW |
| server, a parameter server | 2 alpha | 2 n (p - 1) / BW |
| ring-or-tree | of whichever is faster at this size | as NCCL chooses; it gathers along rings |

What can't be added up as it passes is all-gathered: `alpha (p - 1) + n (p - 1) / BW` along a ring, in log2 p steps of
doubling messages by a tree. A server decodes, adds up, and answers with a compressed sum, so that everything takes the
same two steps; what it decodes is charged as if the ranks did. The all-reduce of a ring is close to constant in p, an
all-gather grows with p: at ratio r it moves fewer bytes than an all-reduce of the raw gradient only while r > p / 2.

**Two levels**: M nodes of L ranks each. Inside a node gradients stay plain: a ring reduce-scatter leaves every rank
with the node's sum of its share, an L-th of the bytes. Each share is encoded, exchanged among the M ranks that hold it,
one a node, and decoded; a ring all-gather inside the node brings the shares together. So a rank encodes an L-th, and
decodes M messages of an L-th, not L M whole ones. All three parts are charged to the group's collective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.profiles.compressors.compressor import Compressor
from gapless.profiles.gradients.cost_functions import FREE, AffineCost, CostFunction, least_cost
from gapless.profiles.gradients.network_question import (
    AGGREGATION,
    DECODED,
    INNER_LATENCY_S,
    LATENCY_S,
    RING_OR_TREE,
    TOGETHER,
    NetworkQuestion,
    aggregation_names,
)
from gapless.question import from_question
from gapless.topologies.files import load_topology
from gapless.topologies.links import Link
from gapless.topologies.ring import fastest_ring
from gapless.topologies.topology import Topology

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "FlatNetwork", "Network", "OuterChanges", "TwoLevelNetwork", "aggregation_names",
    "all_gather_cost", "all_reduce_cost", "buffer_bytes", "communication_cost", "compression_cost", "find_network",
    "gathered_bytes", "in_messages", "network_of", "ring_network", "side_by_side", "two_level_network",
]  # fmt: skip

_Passes: TypeAlias = Callable[[int], tuple[float, float]]
"""Of a number of ranks: how many steps a collective takes, and how often the bytes pass the slowest of them."""


def _ring(ranks: int) -> tuple[float, float]:
    return 2 * (ranks - 1), 2 * (ranks - 1) / ranks


def _tree(ranks: int) -> tuple[float, float]:
    return 2 * math.log2(ranks), 2 * math.log2(ranks)


def _server(ranks: int) -> tuple[float, float]:
    return 2, 2 * (ranks - 1)


def _ring_gather(ranks: int) -> tuple[float, float]:
    return ranks - 1, ranks - 1


_Choices: TypeAlias = dict[str, tuple[_Passes, ...]]
"""By aggregation, algorithms of which the fastest is taken."""

_ALL_REDUCE: _Choices = {
    AGGREGATION: (_ring,), "tree": (_tree,), "server": (_server,), RING_OR_TREE: (_ring, _tree)
}  # fmt: skip
_ALL_GATHER: _Choices = {
    AGGREGATION: (_ring_gather,), "tree": (lambda ranks: (math.log2(ranks), ranks - 1),), "server": (_server,),
    RING_OR_TREE: (_ring_gather,),
}  # fmt: skip


class OuterChanges(TypedDict, total=False):
    """What may be another value between those that exchange compressed messages."""

    ranks: int
    bytes_per_s: float
    alpha_s: float
    aggregation: str


@dataclass(frozen=True)
class FlatNetwork:
    """`ranks` that are all alike, the bandwidth out of a rank, `alpha_s`, the latency of one step, and how they add up.

    Raises `InputError` for fewer than one rank, a bandwidth that isn't > 0, a latency that isn't finite and >= 0, an
    aggregation that isn't one of `aggregation_names`.
    """

    ranks: int
    bytes_per_s: float
    alpha_s: float = 0.0
    aggregation: str = "ring"

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise InputError(f"ranks: must be >= 1, got {self.ranks}")
        if not self.bytes_per_s > 0:
            raise InputError(f"bandwidth: must be > 0, got {self.bytes_per_s}")
        if not (math.isfinite(self.alpha_s) and self.alpha_s >= 0):
            raise InputError(f"latency: must be finite and >= 0, got {self.alpha_s}")
        check_known("aggregation", self.aggregation, _ALL_REDUCE)

    @property
    def outer(self) -> FlatNetwork:
        """What joins those that exchange compressed messages: here, all ranks."""
        return self

    @property
    def ranks_per_node(self) -> int:
        """Ranks that add up plain gradients before anything is compressed."""
        return 1

    def with_outer(self, **changes: Unpack[OuterChanges]) -> FlatNetwork:
        """The same network with other values between those that exchange compressed messages."""
        return replace(self, **changes)

    def at_ranks(self, ranks: int) -> FlatNetwork:
        """The same network of other ranks."""
        return replace(self, ranks=ranks)

    def inside_cost(self) -> AffineCost:
        """Of collectives inside a node, as a function of the plain bytes."""
        return FREE

    def cost(self, passes: _Passes) -> AffineCost:
        """Of a collective, as a function of the bytes that a rank sends."""
        if self.ranks == 1:
            return FREE
        steps, sent = passes(self.ranks)
        return AffineCost(steps * self.alpha_s, sent / self.bytes_per_s)


@dataclass(frozen=True)
class TwoLevelNetwork:
    """Nodes of equally many ranks: `inner` joins those of one node, `outer` the nodes.

    The bandwidth of `outer` is out of a whole node, whose ranks share it. Raises `InputError` unless `inner` is a ring.
    """

    inner: FlatNetwork
    outer: FlatNetwork

    def __post_init__(self) -> None:
        if self.inner.aggregation != "ring":
            raise InputError(f"inner: must be a ring, got {self.inner.aggregation}")

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.inner.ranks * self.outer.ranks

    @property
    def ranks_per_node(self) -> int:
        """Ranks that add up plain gradients before anything is compressed."""
        return self.inner.ranks

    def with_outer(self, **changes: Unpack[OuterChanges]) -> TwoLevelNetwork:
        """The same nodes with other values of the network between them."""
        return replace(self, outer=replace(self.outer, **changes))

    def at_ranks(self, ranks: int) -> TwoLevelNetwork:
        """More nodes or fewer. Raises `InputError` where the ranks don't fill nodes."""
        if ranks % self.inner.ranks:
            raise InputError(f"ranks: must be a multiple of the {self.inner.ranks} ranks of a node, got {ranks}")
        return self.with_outer(ranks=ranks // self.inner.ranks)

    def inside_cost(self) -> AffineCost:
        """Reduce-scatter before the exchange and all-gather after it: together, an all-reduce of the plain bytes."""
        return self.inner.cost(_ring)


Network: TypeAlias = FlatNetwork | TwoLevelNetwork


def all_reduce_cost(network: Network, ratio: float = 1.0) -> CostFunction:
    """An all-reduce of gradients that are `ratio` times smaller than the bytes given (Table 4.2), plain in nodes."""
    return _cost(network, _ALL_REDUCE, ratio)


def all_gather_cost(network: Network, ratio: float = 1.0) -> CostFunction:
    """An all-gather of gradients that are `ratio` times smaller than the bytes given; plain inside nodes."""
    return _cost(network, _ALL_GATHER, ratio)


def in_messages(cost: CostFunction, count: int) -> CostFunction:
    """The same bytes in so many messages: each begins anew."""
    return cost.plus(AffineCost((count - 1) * float(cost(0.0)), 0.0))


def communication_cost(network: Network, compressor: Compressor) -> CostFunction:
    """The collective that a compressor can use: all-reduce where its messages can be added, else all-gather."""
    collective = all_reduce_cost if compressor.all_reducible else all_gather_cost
    return collective(network, compressor.ratio)


def compression_cost(network: Network, compressor: Compressor, speed: float = 1.0) -> CostFunction:
    """Encode and decode of a group on a rank: of its share of the bytes, and of one message from every node.

    `speed`: how much faster than a V100 the device runs them.
    """
    return compressor.cost(network.outer.ranks, speed).at_ratio(network.ranks_per_node)


def gathered_bytes(network: Network, compressor: Compressor, size_bytes: float) -> float:
    """What a rank holds of the messages of all nodes before it decodes them; nothing where they are added up instead.

    `size_bytes`: of the group before compression.
    """
    if compressor.all_reducible or network.outer.aggregation == "server":
        return 0.0
    return network.outer.ranks * size_bytes / network.ranks_per_node / compressor.ratio


def buffer_bytes(network: Network, compressor: Compressor, size_bytes: float, decoded: str = TOGETHER) -> float:
    """What a rank holds beside its gradient while it exchanges a group: the messages of all nodes, and what is decoded
    of them; nothing where messages are added up as they pass.

    `size_bytes`: of the group before compression. `decoded`: one of `DECODED`.
    """
    check_known("decoded", decoded, DECODED)
    messages = gathered_bytes(network, compressor, size_bytes)
    copies = network.outer.ranks if decoded == TOGETHER else 1
    return messages + copies * size_bytes / network.ranks_per_node if messages else 0.0


def _cost(network: Network, collectives: _Choices, ratio: float) -> CostFunction:
    costs = [network.outer.cost(passes).at_ratio(ratio) for passes in collectives[network.outer.aggregation]]
    between: CostFunction = costs[0] if len(costs) == 1 else least_cost(*costs)
    return between.plus(network.inside_cost())


def ring_network(topology: Topology) -> FlatNetwork:
    """The fastest ring found through all ranks of a topology; each of its steps takes as long as on the slowest link.

    Links of the ring that share a resource (a network interface, a bus) take turns. Latency and inverse bandwidth are
    the largest on the ring, each by itself. Raises `InputError` where no ring is found.
    """
    links = [topology.links[number] for number in fastest_ring(topology)]
    alpha_s, beta_s_per_byte = _in_turns(links)
    return FlatNetwork(topology.device_count, _inverse(beta_s_per_byte), alpha_s)


def side_by_side(topology: Topology, groups: Sequence[Sequence[int]]) -> FlatNetwork:
    """The fastest rings found through equally large groups of ranks, all in use at once; the slowest step counts.

    Links that share a resource take turns, those of different rings too. Raises `InputError` where a group has no ring.
    """
    alone = [_alone(topology, list(ranks)) for ranks in groups]
    links = [each.links[number] for each in alone for number in fastest_ring(each)]
    alpha_s, beta_s_per_byte = _in_turns(links)
    return FlatNetwork(len(groups[0]), _inverse(beta_s_per_byte), alpha_s)


def two_level_network(topology: Topology) -> TwoLevelNetwork:
    """Rings inside the nodes of a topology, and rings through the nodes: one for each rank of a node, side by side.

    The k-th rank of each node is in the k-th ring; node follows node in order. Rings that share a resource (a network
    interface) take turns, so the bandwidth out of a node is that of all rings together. Inside, the slowest node
    counts. Raises `InputError` unless there are two nodes or more of equally many ranks, joined by such links.
    """
    nodes = _nodes(topology)
    where = f"topology {topology.name!r}"
    if len(nodes) < 2 or len({len(ranks) for ranks in nodes}) > 1:
        counts = ", ".join(str(len(ranks)) for ranks in nodes)
        raise InputError(f"{where}: two levels need nodes of equally many ranks, got {counts}; take one level")
    fastest: dict[tuple[int, int], Link] = {}
    for link in sorted(topology.links, key=lambda link: (link.beta_s_per_byte, link.alpha_s)):
        fastest.setdefault((link.source, link.target), link)
    hops = [
        hop for here, there in zip(nodes, [*nodes[1:], nodes[0]], strict=True) for hop in zip(here, there, strict=True)
    ]
    for source, target in hops:
        if (source, target) not in fastest:
            raise InputError(f"{where}: two levels need a link from rank {source} to rank {target}; take one level")
    alpha_s, beta_s_per_byte = _in_turns([fastest[hop] for hop in hops])
    rings = [ring_network(_alone(topology, ranks)) for ranks in nodes]
    inner = FlatNetwork(len(nodes[0]), min(ring.bytes_per_s for ring in rings), max(ring.alpha_s for ring in rings))
    return TwoLevelNetwork(inner, FlatNetwork(len(nodes), _inverse(beta_s_per_byte / inner.ranks), alpha_s))


def _nodes(topology: Topology) -> list[list[int]]:
    """The ranks of each node."""
    of = topology.node_of_device
    return [[rank for rank, node in enumerate(of) if node == which] for which in sorted(set(of))]


def _alone(topology: Topology, ranks: list[int]) -> Topology:
    """Some ranks with the links between them, from 0 on."""
    place = {rank: number for number, rank in enumerate(ranks)}
    links = tuple(
        replace(link, source=place[link.source], target=place[link.target])
        for link in topology.links
        if link.source in place and link.target in place
    )
    return Topology(topology.name, (0,) * len(ranks), links, topology.resources)


def _in_turns(links: list[Link]) -> tuple[float, float]:
    """Latency and inverse bandwidth of a step in which all these links move a message, each by itself."""
    turns = [[link] for link in links]
    turns += [
        [link for link in links if resource in link.resources]
        for resource in sorted({resource for link in links for resource in link.resources})
    ]
    return (
        max((math.fsum(link.alpha_s for link in turn) for turn in turns), default=0.0),
        max((math.fsum(link.beta_s_per_byte for link in turn) for turn in turns), default=0.0),
    )


def _inverse(beta_s_per_byte: float) -> float:
    return 1 / beta_s_per_byte if beta_s_per_byte > 0 else math.inf


def network_of(asked: NetworkQuestion) -> Network:
    """The network that numbers describe, or that of the ranks of a topology: two rings where its nodes have several.

    Raises `InputError` that names an argument which is missing or doesn't go with the others.
    """
    if asked.topology is not None:
        for name in ("ranks", "bandwidth", "latency", *_INSIDE):
            if getattr(asked, name) is not None:
                raise InputError(f"{name}: give it or topology, not both")
        named = asked.topology
        topology = load_topology(named, asked.nodes) if isinstance(named, str) else named
        return _network_of(topology, asked.levels).with_outer(aggregation=asked.aggregation or AGGREGATION)
    for name in ("nodes", "levels"):
        if getattr(asked, name) is not None:
            raise InputError(f"{name}: goes with topology")
    if asked.ranks is None or asked.bandwidth is None:
        name = "ranks" if asked.ranks is None else "bandwidth"
        raise InputError(f"{name}: must be given, or a topology (`gapless list topologies`)")
    latency_s = LATENCY_S if asked.latency is None else asked.latency
    return _in_nodes(FlatNetwork(asked.ranks, asked.bandwidth, latency_s, asked.aggregation or AGGREGATION), asked)


find_network = from_question(NetworkQuestion)(network_of)
"""`network_of` the question that the arguments ask."""


_INSIDE = ("ranks_per_node", "inner_bandwidth", "inner_latency")


def _in_nodes(flat: FlatNetwork, asked: NetworkQuestion) -> Network:
    """The same ranks in nodes, where there are so many to a node."""
    if asked.ranks_per_node is None:
        for name in _INSIDE[1:]:
            if getattr(asked, name) is not None:
                raise InputError(f"{name}: goes with `ranks_per_node`")
        return flat
    if asked.inner_bandwidth is None:
        raise InputError("inner_bandwidth: must be given with `ranks_per_node`")
    if flat.ranks % asked.ranks_per_node:
        raise InputError(f"ranks_per_node: must divide the {flat.ranks} ranks, got {asked.ranks_per_node}")
    latency_s = INNER_LATENCY_S if asked.inner_latency is None else asked.inner_latency
    inner = FlatNetwork(asked.ranks_per_node, asked.inner_bandwidth, latency_s)
    return TwoLevelNetwork(inner, replace(flat, ranks=flat.ranks // asked.ranks_per_node))


def _network_of(topology: Topology, levels: int | None) -> Network:
    """The network of a topology's ranks; `levels`: None for two where there are several nodes of several ranks."""
    if levels is None:
        counts = {len(ranks) for ranks in _nodes(topology)}
        levels = 2 if len(counts) == 1 and 1 < max(counts) < topology.device_count else 1
    if levels not in (1, 2):
        raise InputError(f"levels: must be 1 or 2, got {levels}")
    return ring_network(topology) if levels == 1 else two_level_network(topology)
