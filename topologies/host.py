"""Hosts of devices: the link to each, what a host may hold, as questions ask for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gapless.errors import InputError
from gapless.question.command_fields import HOST_MEMORY
from gapless.topologies.topology import Link
from gapless.units import parse_bytes

__all__ = ["HostLink", "host_link"]


@dataclass(frozen=True)
class HostLink:
    """What connects a device with its host: one copy each way at a time, each at `bytes_per_s`.

    `host_bytes`: the most that the host may hold.
    """

    bytes_per_s: float
    host_bytes: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bytes_per_s) and self.bytes_per_s > 0):
            raise InputError(f"offload: must be a bandwidth above 0, got {self.bytes_per_s}")
        if self.host_bytes < 1:
            raise InputError(f"host_memory: must be >= 1 byte, got {self.host_bytes}")

    def copy_s(self, size_bytes: float) -> float:
        """How long a copy takes."""
        return size_bytes / self.bytes_per_s

    @property
    def description(self) -> dict[str, object]:
        """What was asked, for the plan file."""
        return {"offload_bytes_per_s": self.bytes_per_s, "host_bytes": self.host_bytes}

    def links(self, devices: int) -> tuple[Link, ...]:
        """Of so many devices, whose hosts are numbered after them: from each to its host, then from each host back."""
        beta = 1.0 / self.bytes_per_s
        pairs = [(device, devices + device) for device in range(devices)]
        return tuple(Link(a, b, 0.0, beta) for a, b in (*pairs, *((b, a) for a, b in pairs)))


def host_link(bytes_per_s: float | None, host_bytes: int | None) -> HostLink | None:
    """The link to a host, None where none is asked for. Raises `InputError` for memory of a host without a link."""
    if bytes_per_s is None:
        if host_bytes is not None:
            raise InputError("host_memory: goes with offload, which is not given; give both, or neither")
        return None
    return HostLink(bytes_per_s, parse_bytes(str(HOST_MEMORY.otherwise)) if host_bytes is None else host_bytes)
