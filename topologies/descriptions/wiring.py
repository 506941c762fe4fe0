"""Wiring: how one machine's GPUs and NICs are joined, as far as a description of the machine says."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from gapless.array_types import Ids
from gapless.errors import InputError

__all__ = ["LEVELS", "Leaf", "Wiring", "check_devices", "nearness_of"]


LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""How far two devices are apart, nearest first: behind one PCIe bridge, behind several, at one host bridge, in one NUMA
node, anywhere in the machine. Elsewhere the number of a level is its place here."""

_MOST_DEVICES = 256
"""GPUs or NICs of a machine: what joins them is looked at pair by pair."""


@dataclass(frozen=True)
class Wiring:
    """GPUs and NICs of a machine.

    `nvlinks[i, j]`: int64, shape (gpus, gpus), NVLinks from GPU i to GPU j. `switched[i]`: those of GPU i that end at
    NVSwitches, through which every GPU with some reaches every other. `between_gpus[i, j]`: levels, -1 for i = j.
    `to_nics[i, n]`: levels, shape (gpus, NICs). Bandwidths are of one direction, None where nobody says them:
    `nvlink_bytes_per_s` of one NVLink, `pcie_bytes_per_s` of the narrowest slot, `nic_bytes_per_s[n]` of NIC n.
    """

    gpus: int
    nvlinks: Ids
    switched: Ids
    between_gpus: Ids
    to_nics: Ids
    nic_names: tuple[str, ...]
    nvlink_bytes_per_s: float | None = None
    pcie_bytes_per_s: float | None = None
    nic_bytes_per_s: tuple[float | None, ...] = ()

    @property
    def is_joined_by_nvlink(self) -> bool:
        """Whether NVLinks alone join all GPUs."""
        graph = nx.from_numpy_array(self.nvlinks > 0)
        graph.add_edges_from(nx.utils.pairwise(np.flatnonzero(self.switched).tolist()))
        return self.gpus == 1 or bool(nx.is_connected(graph))

    def groups(self, level: int) -> Ids:
        """`groups[i]`: the number of the group that GPU i is in, of those no further apart than a level; int64."""
        near = nx.from_numpy_array((self.between_gpus >= 0) & (self.between_gpus <= level))
        number = np.empty(self.gpus, dtype=np.int64)
        for k, members in enumerate(sorted(map(sorted, nx.connected_components(near)))):
            number[members] = k
        return number

    def nic_of_gpu(self) -> Ids:
        """The NIC that each GPU uses, -1 for none: of the nearest the one that fewest use so far; int64."""
        users = np.zeros(len(self.nic_names), dtype=np.int64)
        chosen = np.full(self.gpus, -1, dtype=np.int64)
        for gpu in range(self.gpus if len(users) else 0):
            nearest = np.flatnonzero(self.to_nics[gpu] == self.to_nics[gpu].min())
            chosen[gpu] = nearest[users[nearest].argmin()]
            users[chosen[gpu]] += 1
        return chosen


@dataclass(frozen=True)
class Leaf:
    """A device in a tree of PCIe bridges: `bridges` above it, nearest first, then `host`, then `numa` nodes."""

    bridges: Sequence[Hashable]
    host: Hashable
    numa: Hashable


def nearness_of(one: Leaf, other: Leaf) -> int:
    """The level of two devices of a tree."""
    if one.numa != other.numa:
        return LEVELS.index("SYS")
    if one.host != other.host:
        return LEVELS.index("NODE")
    shared: Mapping[Hashable, int] = {bridge: depth for depth, bridge in enumerate(other.bridges)}
    for depth, bridge in enumerate(one.bridges):
        if bridge in shared:
            return LEVELS.index("PIX" if depth == shared[bridge] == 0 else "PXB")
    return LEVELS.index("PHB")


def check_devices(where: str, gpus: int, nics: int) -> None:
    """Raise `InputError` for a machine with no GPU, or with more GPUs or NICs than any has."""
    if not gpus:
        raise InputError(f"{where}: must hold at least one GPU, got none")
    if max(gpus, nics) > _MOST_DEVICES:
        raise InputError(f"{where}: must hold at most {_MOST_DEVICES} GPUs and NICs each, got {gpus} and {nics}")
