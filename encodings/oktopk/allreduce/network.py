"""The network: flat ones from numbers, routes between ranks, and how fast data can enter or leave some ranks; and what
ranks take to add up what they receive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.topologies.links import LinkBuilder
from gapless.topologies.topology import Nic, Topology

__all__ = ["ENTRY_BYTES", "Adding", "Network", "flat_topology"]

ENTRY_BYTES = 8
"""A value and an index of 4 bytes each: two words."""


def flat_topology(ranks: int, bytes_per_s: float, alpha_s: float) -> Topology:
    """Ranks behind one switch: a link for each pair, which holds the sender's output and the receiver's input."""
    source, target = np.nonzero(~np.eye(ranks, dtype=np.bool_))
    builder = LinkBuilder()
    builder.keys(2 * ranks)
    builder.add(source, target, alpha_s, 1 / bytes_per_s, np.stack([2 * source, 2 * target + 1], axis=1))
    links, used = builder.finish()
    names = tuple(f"rank{key // 2}:{'in' if key % 2 else 'out'}" for key in used.tolist())
    nics = tuple(Nic(rank, (rank,)) for rank in range(ranks))
    return Topology(f"flat:{ranks}", tuple(range(ranks)), links, names, nics)


@dataclass(frozen=True)
class Adding:
    """What a rank takes to add received entries to its sums: for each time that it does, and for each entry."""

    start_s: float = 0.0
    entry_s: float = 0.0

    @property
    def is_free(self) -> bool:
        """Whether it takes no time."""
        return not (self.start_s or self.entry_s)

    def time_s(self, entries: int) -> float:
        """Of so many entries at once."""
        return self.start_s + self.entry_s * entries if entries else 0.0


@dataclass(frozen=True, eq=False)
class Network:
    """A topology with its routes; `size_bytes`: of a typical message, by which routes are chosen."""

    topology: Topology
    size_bytes: float = 0.0
    adding: Adding = field(default_factory=Adding)

    @cached_property
    def paths(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """The links of the fastest route of each ordered pair of ranks. Raises `InputError` where there is none."""
        found, count = dict(self._direct), self.topology.device_count
        if len(found) == count * (count - 1):
            return found
        graph = self.topology.to_networkx(self.size_bytes)
        for source, targets in nx.all_pairs_dijkstra_path(graph, weight="duration_s"):
            for target, path in targets.items():
                if target != source and (source, target) not in found:
                    found[source, target] = tuple(graph.edges[hop]["link"] for hop in pairwise(path))
        if len(found) < count * (count - 1):
            raise InputError(f"topology {self.topology.name!r}: every rank must reach every other one along its links")
        return found

    @property
    def _direct(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """The pairs whose fastest route is their link, since it takes no more than any two links."""
        columns = self.topology.columns
        took_s = columns.alpha_s + columns.beta_s_per_byte * self.size_bytes
        order = np.argsort(-took_s[::-1], kind="stable")  # of parallel links the fastest stays, and of those the first
        links = len(took_s) - 1 - order
        links = links[took_s[links] <= 2 * took_s.min(initial=np.inf)].tolist()
        return {(int(columns.source[link]), int(columns.target[link])): (link,) for link in links}

    def is_direct(self, source: int, target: int) -> bool:
        """Whether the route is a single link."""
        return len(self.paths[source, target]) == 1

    @cached_property
    def rates_of_ranks(self) -> list[tuple[float, float]]:
        """`rate` into and out of each rank."""
        return self._rates_of(np.arange(self.topology.device_count))

    @cached_property
    def rates_of_nodes(self) -> list[tuple[float, float]]:
        """`rate` into and out of each node."""
        return self._rates_of(np.array(self.topology.node_of_device))

    def _rates_of(self, group: NDArray[np.int64]) -> list[tuple[float, float]]:
        groups = [group == number for number in range(int(group.max()) + 1)]
        return [(self.rate(inside, into=True), self.rate(inside, into=False)) for inside in groups]

    @cached_property
    def receiving_s_per_byte(self) -> NDArray[np.float64]:
        """Seconds a byte that enters each rank, over all of its links, float (P,)."""
        return 1 / np.array([into for into, _ in self.rates_of_ranks])

    @cached_property
    def sending_s_per_byte(self) -> NDArray[np.float64]:
        """Seconds a byte that leaves each rank, over all of its links, float (P,)."""
        return 1 / np.array([out for _, out in self.rates_of_ranks])

    def rate(self, inside: NDArray[np.bool_], into: bool) -> float:
        """The most bytes a second that enter (or leave) a set of ranks, bool (P,): no plan moves them faster.

        Of links that hold the same resource only one sends at a time, so that each resource, and each link that shares
        none, counts once, with its fastest link. Infinite where links cost nothing.
        """
        columns, topology = self.topology.columns, self.topology
        enters = inside[columns.target] & ~inside[columns.source]
        leaves = inside[columns.source] & ~inside[columns.target]
        links = np.flatnonzero(enters if into else leaves)
        held = [topology.held[topology.held_start[link] : topology.held_start[link + 1]] for link in links.tolist()]
        shared = np.bincount(np.concatenate([*held, np.empty(0, dtype=np.int64)]).astype(np.int64))
        with np.errstate(divide="ignore"):
            rates = 1 / columns.beta_s_per_byte[links]
        fastest: dict[int, float] = {}
        for link, resources, rate in zip(links.tolist(), held, rates.tolist(), strict=True):
            key = ~link if not len(resources) else int(resources[np.argmax(shared[resources])])
            fastest[key] = max(fastest.get(key, 0.0), rate)
        return sum(fastest.values())

    @cached_property
    def engines(self) -> dict[int, int]:
        """The first engine of each device."""
        return {device: number for number, (device, _) in reversed(list(enumerate(self.topology.engines)))}
