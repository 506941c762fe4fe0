"""What lies between the GPUs of a node, its CPUs and its NIC: PCIe switches, found by copies that slow each other.

Three questions (section 5.3 of the chapter on communication sketches): which CPU is nearest to the NIC, by the latency
of a loopback; which GPUs share a PCIe switch, since copies of both to the host at once take longer; which GPUs share
one with the NIC, since a loopback slows copies to them from the nearest CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np

from gapless.array_types import Floats
from gapless.topologies.measured.structure import joined

__all__ = ["HostProber", "HostStructure", "find_host"]

_SLOWED = 1.35
"""Two copies that share a PCIe link take twice as long, and what shares nothing as long as alone: between both."""


class HostProber(Protocol):
    """Carries out copies between GPUs and host memory, and loopbacks through the NIC, on one node."""

    @property
    def gpu_count(self) -> int:
        """The number of GPUs."""

    @property
    def cpu_count(self) -> int:
        """The number of CPUs (sockets) whose memory may be copied to; 0 where there is no NIC to loop through."""

    def copy_s(self, gpus: Sequence[int], cpu: int, to_host: bool, beside_loopback: bool) -> Floats:
        """Seconds that a copy of each of these GPUs takes, all at once: float, shape (gpus,)."""

    def loopback_s(self, cpu: int) -> float:
        """Seconds of an empty message from a CPU's memory through the NIC and back."""


@dataclass(frozen=True)
class HostStructure:
    """What was found. `pcie_switches`: GPUs in groups. `nearest_cpu`: to the NIC, None without one. `near_nic`: the
    GPUs on the NIC's PCIe switch.
    """

    pcie_switches: tuple[tuple[int, ...], ...]
    nearest_cpu: int | None
    near_nic: tuple[int, ...]

    @property
    def near_first(self) -> tuple[int, ...]:
        """All GPUs, those on the NIC's PCIe switch first, for `order_as`."""
        others = (gpu for group in self.pcie_switches for gpu in group if gpu not in self.near_nic)
        return *self.near_nic, *sorted(others)


def find_host(prober: HostProber, tries: int = 3) -> HostStructure:
    """Ask the three questions; the fastest of `tries` counts."""

    def fastest(gpus: Sequence[int], cpu: int, to_host: bool = True, beside_loopback: bool = False) -> Floats:
        taken_s = [prober.copy_s(gpus, cpu, to_host, beside_loopback) for _ in range(tries)]
        lowest_s: Floats = np.array(taken_s).min(axis=0)
        return lowest_s

    gpus, nearest = range(prober.gpu_count), None
    if prober.cpu_count:
        latencies = [[prober.loopback_s(cpu) for _ in range(tries)] for cpu in range(prober.cpu_count)]
        nearest = int(np.argmin(np.min(latencies, axis=1)))
    cpu = nearest or 0
    alone_s = np.array([fastest([gpu], cpu)[0] for gpu in gpus])
    shared = [pair for pair in combinations(gpus, 2) if _is_slowed(fastest(pair, cpu), alone_s[list(pair)])]
    near = [
        gpu
        for gpu in (gpus if nearest is not None else ())
        if _is_slowed(fastest([gpu], cpu, False, True), fastest([gpu], cpu, False))
    ]
    groups = tuple(map(tuple, joined(prober.gpu_count, shared)))
    return HostStructure(groups, nearest, tuple(near))


def _is_slowed(taken_s: Floats, alone_s: Floats) -> bool:
    """Whether copies at once take longer than each alone, on the whole: however unfairly they share, one does."""
    return bool((taken_s / alone_s).max() > _SLOWED)
