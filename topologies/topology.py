"""Topology: the machine. Devices with memory and engines, links with alpha and beta, and what is exclusive."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.report.short_repr import Brief
from gapless.topologies.links import Link, Links
from gapless.topologies.ports.congestion import Congestion, slowdown_of
from gapless.topologies.ports.failures import changed_name, factors_of, groups_left, links_named
from gapless.topologies.ports.switch_groups import SwitchGroup

__all__ = ["Link", "Links", "Nic", "Switch", "Topology"]


@dataclass(frozen=True)
class Nic:
    """A network interface of one node and the ranks that use it."""

    node: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Switch:
    """A non-blocking switch inside one node and the ranks behind it."""

    node: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Topology(Brief):
    """Devices (ranks, where they communicate), links and exclusive resources.

    `node_of_device[d]`: the node (chassis) of device d. `memory_bytes[d]`: its capacity, inf for no limit.
    `engines[e]`: (device, name) of compute stream e; without any, every device has one. `resources`: names of what only
    one transfer may hold at a time; each link and each engine is exclusive besides. `links` may be given as any
    sequence of `Link` or as `Links`, and is held as `Links`: columns for algorithms, rows on demand for people.
    `congestion`: of which resources the bandwidth falls with the number of links through them that a plan uses.
    `switch_groups`: ranks whose switches add up and multicast.
    Raises `InputError` where a number is out of range; the message names link and field.
    """

    name: str
    node_of_device: tuple[int, ...]
    links: Sequence[Link] = ()
    resources: tuple[str, ...] = ()
    nics: tuple[Nic, ...] = ()
    switches: tuple[Switch, ...] = ()
    engines: tuple[tuple[int, str], ...] = ()
    memory_bytes: tuple[float, ...] = ()
    congestion: tuple[Congestion, ...] = ()
    switch_groups: tuple[SwitchGroup, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.node_of_device)
        if not count:
            raise InputError(f"topology {self.name!r}: must have at least one device, got none")
        object.__setattr__(self, "links", Links.of(self.links))
        object.__setattr__(self, "memory_bytes", self.memory_bytes or (math.inf,) * count)
        object.__setattr__(self, "engines", self.engines or tuple((device, "compute") for device in range(count)))
        if len(self.memory_bytes) != count:
            got = len(self.memory_bytes)
            raise InputError(f"topology {self.name!r}: memory_bytes must be {count} numbers, got {got}")
        for device, capacity in enumerate(self.memory_bytes):
            if not capacity >= 0:
                raise InputError(f"device {device}: memory_bytes must be >= 0, got {capacity}")
        self.columns.check(count, len(self.resources))
        for device, engine in self.engines:
            if not 0 <= device < count:
                raise InputError(f"engine {engine!r}: device must be in 0..{count - 1}, got {device}")
        groups: tuple[Nic | Switch, ...] = (*self.nics, *self.switches)
        for group in groups:
            for rank in group.ranks:
                if not 0 <= rank < count:
                    raise InputError(f"{type(group).__name__.lower()}: ranks must be in 0..{count - 1}, got {rank}")
        for resource in (number for one in self.congestion for port in one.ports for number in port):
            if not 0 <= resource < len(self.resources):
                most = len(self.resources) - 1
                raise InputError(f"congestion: ports must hold resources in 0..{most}, got {resource}")
        for switch_group in self.switch_groups:
            switch_group.check(count, len(self.resources))

    def without_switch_groups(self) -> Topology:
        """The same machine, whose switches only pass on."""
        return replace(self, switch_groups=()) if self.switch_groups else self

    @property
    def columns(self) -> Links:
        """The links in columns."""
        return cast("Links", self.links)

    @property
    def device_count(self) -> int:
        """The number of devices."""
        return len(self.node_of_device)

    @property
    def node_count(self) -> int:
        """The number of nodes (chassis)."""
        return max(self.node_of_device) + 1

    @property
    def ranks_per_node(self) -> int:
        """The ranks of each node. Raises `InputError` where nodes differ in it: a sketch says the same of each node."""
        counts = sorted(set(np.bincount(self.node_of).tolist()))
        if len(counts) > 1:
            got = " and ".join(map(str, counts))
            raise InputError(
                f"topology {self.name!r}: a sketch needs nodes of equally many ranks, got {got}; leave it out"
            )
        return int(counts[0])

    @property
    def link_source(self) -> NDArray[np.int64]:
        """Source device of each link, int64."""
        return self.columns.source

    @property
    def link_target(self) -> NDArray[np.int64]:
        """Target device of each link, int64."""
        return self.columns.target

    @property
    def alpha_s(self) -> NDArray[np.float64]:
        """Latency of each link, float."""
        return self.columns.alpha_s

    @property
    def beta_s_per_byte(self) -> NDArray[np.float64]:
        """Inverse bandwidth of each link, float."""
        return self.columns.beta_s_per_byte

    @property
    def held_start(self) -> NDArray[np.int64]:
        """Where each link's resources begin in `held`, int64 of shape (links + 1,)."""
        return self.columns.held_start

    @property
    def held(self) -> NDArray[np.int64]:
        """The resources that the links hold, link after link: numbers into `resources`, int64."""
        return self.columns.held

    @cached_property
    def held_by(self) -> NDArray[np.int64]:
        """The link that each entry of `held` belongs to, int64."""
        return np.repeat(np.arange(len(self.links)), np.diff(self.held_start))

    @cached_property
    def node_of(self) -> NDArray[np.int64]:
        """`node_of_device` as an array, int64."""
        return np.array(self.node_of_device, dtype=np.int64)

    @cached_property
    def is_inter_node(self) -> NDArray[np.bool_]:
        """Whether each link joins two nodes, bool."""
        return np.asarray(self.node_of[self.link_source] != self.node_of[self.link_target])

    def slowed_beta_s(self, used: NDArray[np.int64]) -> NDArray[np.float64]:
        """Inverse bandwidth of each link in a plan that uses these, float: `beta_s_per_byte` without congestion."""
        if not self.congestion:
            return self.beta_s_per_byte
        return self.beta_s_per_byte * slowdown_of(self.congestion, self.columns, len(self.resources), used)

    @cached_property
    def nodes(self) -> list[list[int]]:
        """The devices of each node, ascending."""
        return [self.ranks_of_node(node) for node in range(self.node_count)]

    def ranks_of_node(self, node: int) -> list[int]:
        """The devices of one node, ascending."""
        return [device for device, its_node in enumerate(self.node_of_device) if its_node == node]

    def links_among(self, ranks: Sequence[int]) -> tuple[Links, NDArray[np.int64]]:
        """The links between some ranks, which are numbered anew in their order, and the numbers that these had."""
        place = np.full(self.device_count, -1)
        place[list(ranks)] = np.arange(len(ranks))
        ends = place[self.link_source], place[self.link_target]
        kept = np.flatnonzero((ends[0] >= 0) & (ends[1] >= 0))
        own = self.columns.part(kept)
        source, target = (end[kept] for end in ends)
        return Links(source, target, own.alpha_s, own.beta_s_per_byte, own.held_start, own.held), kept

    def without(
        self, links: Sequence[str] = (), ranks: Sequence[int] = (), degraded: Mapping[str, float] | None = None
    ) -> Topology:
        """The machine after a failure, with the ranks numbered as before.

        `links`: names of links, and of resources whose links are gone (`gapless.topologies.ports.failures`). `ranks`:
        those that have left, with all of their links. `degraded`: the share of its bandwidth that what is named has
        left, in (0, 1]; a link with several has the smallest. Raises `InputError` that says what isn't there.
        """
        degraded = degraded or {}
        if not (len(links) or len(ranks) or degraded):
            return self
        outside = [rank for rank in ranks if not 0 <= rank < self.device_count]
        if outside:
            raise InputError(f"without_ranks: must be in 0..{self.device_count - 1}, got {outside[0]}")
        shares = factors_of(degraded, self.columns, self.resources)
        gone = links_named("without_links", links, self.columns, self.resources)
        gone |= np.isin(self.link_source, list(ranks)) | np.isin(self.link_target, list(ranks))
        kept = np.flatnonzero(~gone)
        own = self.columns.part(kept)
        left = Links(
            own.source, own.target, own.alpha_s, own.beta_s_per_byte / shares[kept], own.held_start, own.held
        )  # fmt: skip
        return replace(
            self,
            name=changed_name(self.name, links, ranks, degraded),
            links=left,
            nics=tuple(replace(one, ranks=_but(one.ranks, ranks)) for one in self.nics),
            switches=tuple(replace(one, ranks=_but(one.ranks, ranks)) for one in self.switches),
            switch_groups=tuple(groups_left(self.switch_groups, self.columns, gone, shares)),
        )

    def link_name(self, link: int) -> str:
        """`3->7`."""
        return f"{self.link_source[link]}->{self.link_target[link]}"

    def to_networkx(self, size_bytes: float = 0.0, links: Sequence[int] | None = None) -> nx.DiGraph[int]:
        """Devices and (some) links; the edge attribute `duration_s` is the time of one transfer of `size_bytes`."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(self.device_count))
        chosen = np.arange(len(self.links)) if links is None else np.asarray(links, dtype=np.int64)
        duration_s = self.alpha_s[chosen] + self.beta_s_per_byte[chosen] * size_bytes
        # The last of parallel edges stays: the fastest, and of equally fast ones the first.
        order = np.lexsort((-np.arange(len(chosen)), -duration_s))
        rows = (self.link_source[chosen], self.link_target[chosen], duration_s, chosen)
        graph.add_edges_from(
            (source, target, {"duration_s": its_s, "link": number})
            for source, target, its_s, number in zip(*(column[order].tolist() for column in rows), strict=True)
        )
        return graph


def _but(ranks: tuple[int, ...], lacking: Sequence[int]) -> tuple[int, ...]:
    return tuple(rank for rank in ranks if rank not in lacking)
