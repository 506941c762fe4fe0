"""The exact bandwidth bound: no set of ranks can take in what it wants faster than the narrowest cut around it lets it.

Chunks flow from their owners to a rank, or a set of ranks, that wants them. A cut of the network is crossed by every
chunk that starts on the one side and is wanted on the other, and in a second only so many chunks get over it: the
largest ratio of the two is a lower bound on the time. For ALLGATHER and BROADCAST on links that work at the same time
it is the best possible: that many trees can be packed (Edmonds; for switches ForestColl, arXiv 2402.06787).

The largest ratio is found by Newton's method on cuts (Dinkelbach): take the ratio of some cut, see by a maximum flow
whether that much time is enough, and if not, go on with the cut that the flow could not cross. It ends after a few
steps, at the largest ratio. Flows are whole numbers, so no tolerance decides what is enough.

Bottleneck sets are ranks whose ports are scarce, so that a chunk should come in once and be handed on inside: nodes,
and sets that the bandwidth bound found narrowest. That is TACCL's equation 5.15 for sets that the topology names.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import networkx as nx
import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.symmetry.rotations import Rotations, find_rotations, resources_of
from gapless.errors import InputError
from gapless.solvers.max_flow import max_flow
from gapless.topologies.topology import Topology

__all__ = ["Bottleneck", "BottleneckSet", "Network", "allgather_bottlenecks", "bottleneck", "find_bottleneck_sets"]


_MOST_STEPS = 2**28
"""The fastest arc carries at most this many units: flows of a million chunks over a thousand links fit into int64."""
_DENOMINATOR = 2**20


@dataclass(frozen=True)
class Bottleneck:
    """`time_s`: what `chunks` chunks take to get from `behind`, a set of ranks, to a rank outside of it."""

    time_s: float
    chunks: int
    behind: tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """A topology as arcs. Nodes are the ranks, then two for each resource: what goes in comes out at its rate.

    `tail`, `head`: int64. `rate`: float, chunks a second. `units`: int64, the rates as whole multiples of `unit`; they
    are rates rounded up where no such unit is exact, which makes the bound lower, and so keeps it one.
    """

    node_count: int
    tail: Ids
    head: Ids
    rate: Floats
    units: Ids

    @classmethod
    def of(cls, topology: Topology, occupancy_s: Floats) -> Network:
        """`occupancy_s`: how long one chunk holds each link, float, shape (links,).

        Of links that share a resource the fastest sets its rate. A resource passes what comes from any of its sources
        on to any of its targets, as a NIC or a switch does.
        """
        held, ranks, rate = resources_of(topology), topology.device_count, 1.0 / occupancy_s
        owner, enter = held.owner, ranks + 2 * held.values
        is_first = np.diff(owner, prepend=-1) > 0
        is_last, alone = np.append(is_first[1:], True)[: len(owner)], held.lengths == 0
        before = np.where(is_first, topology.link_source[owner], np.append(0, enter + 1)[:-1])
        tail = [before, enter[is_last] + 1, topology.link_source[alone]]
        head = [enter, topology.link_target[owner[is_last]], topology.link_target[alone]]
        rates = [rate[owner], rate[owner[is_last]], rate[alone]]
        arc, of_arc = np.unique(np.concatenate(tail) * (1 << 32) + np.concatenate(head), return_inverse=True)
        width = np.bincount(of_arc, weights=np.concatenate(rates))
        through = np.zeros(len(topology.resources))
        np.maximum.at(through, held.values, rate[owner])
        numbers = ranks + 2 * np.arange(len(through))
        all_rates = np.concatenate([width, through])
        return cls(
            node_count=ranks + 2 * len(through),
            tail=np.concatenate([arc >> 32, numbers]),
            head=np.concatenate([arc & ((1 << 32) - 1), numbers + 1]),
            rate=all_rates,
            units=_as_units(all_rates),
        )


def allgather_bottlenecks(
    topology: Topology, occupancy_s: Floats, rotations: Rotations | None = None
) -> list[Bottleneck]:
    """The bottleneck in front of one rank of each orbit, where every rank has one chunk that all others want."""
    rotations = rotations or find_rotations(topology)
    network, owned = Network.of(topology, occupancy_s), np.ones(topology.device_count, dtype=np.int64)
    return [bottleneck(network, owned, np.array([rank])) for rank in np.unique(rotations.rank_orbit).tolist()]


def bottleneck(network: Network, owned: Ids, sinks: Ids) -> Bottleneck:
    """The bottleneck in front of a set of ranks that takes in every chunk once, wherever it comes in.

    `owned[r]`: how many of the chunks that the set wants start on rank r. Raises `InputError` where some chunk has no
    path to the set.
    """
    owned = owned.copy()
    owned[sinks] = 0
    inside = np.ones(network.node_count, dtype=np.bool_)
    inside[sinks] = False
    owners, wanted = np.flatnonzero(owned), int(owned.sum())
    source, sink = network.node_count, network.node_count + 1
    tail = np.concatenate([np.full(len(owners), source), network.tail, sinks])
    head = np.concatenate([owners, network.head, np.full(len(sinks), sink)])
    while True:
        ratio = _ratio(network, owned, inside)
        most = wanted * ratio.denominator
        capacity = [owned[owners] * ratio.denominator, network.units * ratio.numerator, np.full(len(sinks), most)]
        cut = max_flow(tail, head, np.concatenate(capacity), network.node_count + 2, source, sink)
        if cut.value == most:
            behind = np.flatnonzero(inside[: len(owned)])
            rate = float(network.rate[_leaves(network, inside)].sum())
            chunks = int(owned[behind].sum())
            return Bottleneck(chunks / rate if chunks else 0.0, chunks, tuple(behind.tolist()))
        inside = cut.inside[: network.node_count]


def _leaves(network: Network, inside: Mask) -> Mask:
    """The arcs that lead out of a set of nodes, bool."""
    return np.asarray(inside[network.tail] & ~inside[network.head])


def _ratio(network: Network, owned: Ids, inside: Mask) -> Fraction:
    """Chunks that must leave a set of nodes, over the units that can at once."""
    units = int(network.units[_leaves(network, inside)].sum())
    chunks = int(owned[inside[: len(owned)]].sum())
    if chunks and not units:
        ranks = np.flatnonzero(inside[: len(owned)] & (owned > 0))
        raise InputError(f"topology: no link leads out of the ranks {_few(ranks)}, whose data are wanted elsewhere")
    return Fraction(chunks, max(units, 1))


def _few(ranks: Ids) -> str:
    return ", ".join(map(str, ranks[:8].tolist())) + (", ..." if len(ranks) > 8 else "")


def _as_units(rate: Floats) -> Ids:
    """Rates as whole numbers: exact multiples of a common unit where there is one, else in fine steps, rounded up."""
    share = rate / rate.max()
    values, place = np.unique(share, return_inverse=True)
    exact = [Fraction(value).limit_denominator(_DENOMINATOR) for value in values.tolist()]
    common = lcm(*(part.denominator for part in exact))
    close = all(abs(float(part) - value) <= 1e-12 * value for part, value in zip(exact, values.tolist(), strict=True))
    if close and common <= _MOST_STEPS:
        units = np.array([int(part * common) for part in exact], dtype=np.int64)
    else:
        units = np.ceil(values * _MOST_STEPS * (1 - 1e-12)).astype(np.int64)
    return np.asarray(units[place])


BottleneckSet = tuple[int, ...]


def find_bottleneck_sets(
    topology: Topology, bottlenecks: list[Bottleneck], rotations: Rotations
) -> list[BottleneckSet]:
    """Sets of two ranks or more, each connected inside, any two of them nested or disjoint; narrowest first."""
    everyone = set(range(topology.device_count))
    narrow = [tuple(sorted(everyone - set(cut.behind))) for cut in sorted(bottlenecks, key=lambda cut: -cut.time_s)]
    nodes = map(tuple, topology.nodes)
    found: list[BottleneckSet] = []
    known: set[BottleneckSet] = set()
    network = topology.to_networkx()
    for ranks in [*dict.fromkeys(narrow), *nodes]:
        if ranks in known or not 1 < len(ranks) < len(everyone):
            continue
        images = sorted({tuple(row) for row in np.sort(rotations.ranks[:, list(ranks)], axis=1).tolist()})
        if _is_laminar(images, found, topology.device_count) and nx.is_strongly_connected(network.subgraph(ranks)):
            found += images
            known |= set(images)
    return found


def _is_laminar(images: list[BottleneckSet], others: list[BottleneckSet], rank_count: int) -> bool:
    """Whether the images are disjoint, and nested in or disjoint from all others."""
    of_rank = np.full(rank_count, -1)
    for number, image in enumerate(images):
        if (of_rank[list(image)] >= 0).any():
            return False
        of_rank[list(image)] = number
    sizes = np.array([len(image) for image in images])
    for ranks in others:
        inside, count = np.unique(of_rank[list(ranks)], return_counts=True)
        apart = inside < 0
        if len(inside) > 1 and (apart.any() or (count != sizes[inside]).any()):
            return False
    return True
