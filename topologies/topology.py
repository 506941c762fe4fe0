"""Topology: the machine. Devices with memory and engines, links with alpha and beta, and what is exclusive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from planwright.errors import InputError

__all__ = ["Link", "Nic", "Switch", "Topology"]


@dataclass(frozen=True)
class Link:
    """A directed link. Moving `n` bytes takes `alpha_s + beta_s_per_byte * n` and holds the link and its `resources`.

    `resources` are numbers into `Topology.resources`: a switch side, a NIC side, an uplink.
    """

    source: int
    target: int
    alpha_s: float
    beta_s_per_byte: float
    resources: tuple[int, ...] = ()

    def duration_s(self, size_bytes: float) -> float:
        """Time to move that many bytes in one transfer."""
        return self.alpha_s + self.beta_s_per_byte * size_bytes


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


@dataclass(frozen=True)
class Topology:
    """Devices (ranks, where they communicate), links and exclusive resources.

    `node_of_device[d]`: the node (chassis) of device d. `memory_bytes[d]`: its capacity, inf for no limit.
    `engines[e]`: (device, name) of compute stream e; without any, every device has one. `resources`: names of what only
    one transfer may hold at a time; each link and each engine is exclusive besides.
    Raises `InputError` where a number is out of range; the message names link and field.
    """

    name: str
    node_of_device: tuple[int, ...]
    links: tuple[Link, ...] = ()
    resources: tuple[str, ...] = ()
    nics: tuple[Nic, ...] = ()
    switches: tuple[Switch, ...] = ()
    engines: tuple[tuple[int, str], ...] = ()
    memory_bytes: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.node_of_device)
        if not count:
            raise InputError(f"topology {self.name!r}: must have at least one device, got none")
        object.__setattr__(self, "memory_bytes", self.memory_bytes or (math.inf,) * count)
        object.__setattr__(self, "engines", self.engines or tuple((device, "compute") for device in range(count)))
        if len(self.memory_bytes) != count:
            got = len(self.memory_bytes)
            raise InputError(f"topology {self.name!r}: memory_bytes must be {count} numbers, got {got}")
        for device, capacity in enumerate(self.memory_bytes):
            if not capacity >= 0:
                raise InputError(f"device {device}: memory_bytes must be >= 0, got {capacity}")
        for link in self.links:
            self._check_link(link)
        for device, engine in self.engines:
            if not 0 <= device < count:
                raise InputError(f"engine {engine!r}: device must be in 0..{count - 1}, got {device}")
        groups: tuple[Nic | Switch, ...] = (*self.nics, *self.switches)
        for group in groups:
            for rank in group.ranks:
                if not 0 <= rank < count:
                    raise InputError(f"{type(group).__name__.lower()}: ranks must be in 0..{count - 1}, got {rank}")

    def _check_link(self, link: Link) -> None:
        where, count = f"link {link.source} -> {link.target}", len(self.node_of_device)
        if not (0 <= link.source < count and 0 <= link.target < count):
            raise InputError(f"{where}: both ends must be in 0..{count - 1}")
        if link.source == link.target:
            raise InputError(f"{where}: the ends must differ")
        for field in ("alpha_s", "beta_s_per_byte"):
            value = getattr(link, field)
            if not (value >= 0 and math.isfinite(value)):
                raise InputError(f"{where}: {field} must be finite and >= 0, got {value}")
        for resource in link.resources:
            if not 0 <= resource < len(self.resources):
                raise InputError(f"{where}: resources must be in 0..{len(self.resources) - 1}, got {resource}")

    @property
    def device_count(self) -> int:
        """The number of devices."""
        return len(self.node_of_device)

    @property
    def node_count(self) -> int:
        """The number of nodes (chassis)."""
        return max(self.node_of_device) + 1

    @cached_property
    def link_source(self) -> NDArray[np.int64]:
        """Source device of each link, int64."""
        return np.array([link.source for link in self.links], dtype=np.int64)

    @cached_property
    def link_target(self) -> NDArray[np.int64]:
        """Target device of each link, int64."""
        return np.array([link.target for link in self.links], dtype=np.int64)

    @cached_property
    def alpha_s(self) -> NDArray[np.float64]:
        """Latency of each link, float."""
        return np.array([link.alpha_s for link in self.links], dtype=np.float64)

    @cached_property
    def beta_s_per_byte(self) -> NDArray[np.float64]:
        """Inverse bandwidth of each link, float."""
        return np.array([link.beta_s_per_byte for link in self.links], dtype=np.float64)

    @cached_property
    def is_inter_node(self) -> NDArray[np.bool_]:
        """Whether each link joins two nodes, bool."""
        node = np.array(self.node_of_device, dtype=np.int64)
        return np.asarray(node[self.link_source] != node[self.link_target]) if self.links else np.empty(0, np.bool_)

    def ranks_of_node(self, node: int) -> list[int]:
        """The devices of one node, ascending."""
        return [device for device, its_node in enumerate(self.node_of_device) if its_node == node]

    def link_name(self, link: int) -> str:
        """`3->7`."""
        return f"{self.links[link].source}->{self.links[link].target}"

    def to_networkx(self, size_bytes: float = 0.0, links: Sequence[int] | None = None) -> nx.DiGraph[int]:
        """Devices and (some) links; the edge attribute `duration_s` is the time of one transfer of `size_bytes`."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(self.device_count))
        for number in range(len(self.links)) if links is None else links:
            link = self.links[number]
            duration_s = link.duration_s(size_bytes)
            known = graph.get_edge_data(link.source, link.target)
            if known is None or duration_s < known["duration_s"]:
                graph.add_edge(link.source, link.target, duration_s=duration_s, link=number)
        return graph
