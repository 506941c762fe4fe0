"""Times of a mesh: collectives along each of its axes, and kernels on a device, in whole nanoseconds.

An axis of a mesh joins groups of devices, and all groups use it at once. Collectives are rings, as for gradients: their
steps take turns where groups share a network interface or a bus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.profiles.devices import ARITHMETIC_EFFICIENCY, HALF_EFFICIENCY, Device
from gapless.profiles.gradients.communication import FlatNetwork, all_gather_cost, all_reduce_cost, side_by_side
from gapless.profiles.layouts.transitions import Step
from gapless.topologies.topology import Topology

__all__ = ["NS", "MeshCosts", "axis_groups", "mesh_costs", "to_ns"]

NS = 1e9
"""Nanoseconds in a second: costs are whole numbers of them."""


def to_ns(duration_s: float) -> int:
    """Whole nanoseconds, the next number up: what takes time is never free."""
    return math.ceil(duration_s * NS)


@dataclass(frozen=True)
class MeshCosts:
    """A mesh with the network of each of its axes, and what its devices are."""

    networks: tuple[FlatNetwork, ...]
    device: Device = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Devices along each axis."""
        return tuple(network.ranks for network in self.networks)

    def step_s(self, step: Step) -> float:
        """What one change along one axis takes: a launch, and a ring's rounds or the bytes that are copied."""
        network, size_bytes = self.networks[step.axis], step.size_bytes
        if step.kind in ("slice", "split"):
            kept = size_bytes / network.ranks if step.kind == "slice" else size_bytes
            return self.device.seconds(0.0, 2 * kept)
        if step.kind == "all_reduce":
            ring_s = float(all_reduce_cost(network)(size_bytes))
        else:  # all of one round: an all-gather sends what a rank holds, the others the part of each rank
            part = size_bytes if step.kind == "all_gather" else size_bytes / network.ranks
            ring_s = float(all_gather_cost(network)(part))
        return self.device.launch_s + ring_s

    def kernel_s(self, flops: float, moved_bytes: float, is_half: bool = False) -> float:
        """What a kernel takes on a device, with tensor cores where its numbers are half-precision."""
        device = self.device
        half = HALF_EFFICIENCY * device.half_flops_per_s / (ARITHMETIC_EFFICIENCY * device.flops_per_s)
        return device.seconds(flops, moved_bytes, half if is_half and half else 1.0)


def axis_groups(mesh: Sequence[int], axis: int) -> NDArray[np.int64]:
    """The devices that an axis joins, int64, shape (groups, devices along the axis); numbered row by row."""
    numbers = np.arange(math.prod(mesh), dtype=np.int64).reshape(mesh)
    return np.moveaxis(numbers, axis, -1).reshape(-1, mesh[axis])


def mesh_costs(topology: Topology, mesh: Sequence[int], device: Device) -> MeshCosts:
    """The mesh of a topology's first devices.

    Raises `InputError` where it has fewer, or a group of an axis has no ring along its links.
    """
    count = math.prod(mesh)
    if count > topology.device_count:
        rule = f"mesh: must have at most the {topology.device_count} devices of topology {topology.name}"
        raise InputError(f"{rule}, got {count}; give more nodes")
    return MeshCosts(
        tuple(side_by_side(topology, axis_groups(mesh, axis).tolist()) for axis in range(len(mesh))), device
    )
