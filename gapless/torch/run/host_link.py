"""Copies to the host and back beside a step: on a GPU by streams and pinned memory, on a CPU as if there were a link.

The step says when a copy begins and when it needs it to be over. One copy goes each way at a time, in the order in
which they begin. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gapless.errors import InputError
from gapless.ir.schedule import Schedule
from gapless.torch.devices import device_of
from gapless.torch.library import Tensor, torch

__all__ = ["HostLink", "link_of"]

OUT, BACK = 0, 1
"""The links of a plan that offloads, from the device to its host and from there."""


@dataclass
class _Trip:
    """A tensor's memory, on the device while it is there and on the host; `looks` makes the tensor of it."""

    host: Tensor
    looks: tuple[torch.dtype, int, tuple[int, ...], tuple[int, ...]] = (torch.uint8, 0, (), ())
    here: Tensor | None = None
    ticket: Any = None


class HostLink:
    """The copies of one step after the other. What lies on the host is allocated once, when it is first needed.

    `beta_s_per_byte`: of the plan's links, out and back, at which copies are emulated where there are none. Raises
    `InputError` for a device that is not known.
    """

    def __init__(self, device: torch.device, beta_s_per_byte: tuple[float, float]) -> None:
        self._place, self._device = device, device_of(device)
        self._out, self._back = map(self._device.copy_queue, beta_s_per_byte)
        self._trips: dict[int, list[_Trip]] = {}

    def leave(self, number: int, tensors: Sequence[Tensor]) -> None:
        """Begin to copy out what copy `number` holds. Raises `InputError` for what is no tensor of its own memory."""
        trips = self._trips.get(number)
        if trips is None:
            rooms = [self._device.host_memory(_memory_of(tensor).numel()) for tensor in tensors]
            trips = self._trips[number] = [_Trip(room) for room in rooms]
        for trip, tensor in zip(trips, tensors, strict=True):
            trip.here = _memory_of(tensor)
            trip.looks = tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
            trip.ticket = self._out.copy(trip.host, trip.here)

    def gone(self, number: int) -> None:
        """Wait until it is on the host, and let the device's memory go."""
        for trip in self._trips[number]:
            self._out.wait(trip.ticket)
            trip.here = None

    def come(self, number: int) -> None:
        """Take the device's memory, and begin to copy it back."""
        for trip in self._trips[number]:
            trip.here = torch.empty(trip.host.numel(), dtype=torch.uint8, device=self._place)
            trip.ticket = self._back.copy(trip.here, trip.host, trip.ticket)

    def back(self, number: int) -> tuple[Tensor, ...]:
        """Wait until it is there; the tensors."""
        found = []
        for trip in self._trips[number]:
            self._back.wait(trip.ticket)
            assert trip.here is not None
            kind, *place = trip.looks
            found.append(torch.empty(0, dtype=kind, device=self._place).set_(trip.here.untyped_storage(), *place))
            trip.here = None
        return tuple(found)

    def stop(self) -> None:
        """Wait for all that has begun, after a step that broke off."""
        for trip in (trip for trips in self._trips.values() for trip in trips if trip.here is not None):
            self._back.wait(trip.ticket)
            trip.here = None


def link_of(schedule: Schedule, device: torch.device) -> HostLink:
    """The link to the host that a plan's copies take. Raises `InputError` for a plan without, or an unknown device."""
    links = schedule.topology.links
    if [(link.source, link.target) for link in links] != [(0, 1), (1, 0)]:
        raise InputError("plan: its copies must be between a device and its host; make it with --offload")
    return HostLink(device, (links[OUT].beta_s_per_byte, links[BACK].beta_s_per_byte))


def _memory_of(tensor: Tensor) -> Tensor:
    """All bytes of the memory that a tensor looks at."""
    if not isinstance(tensor, torch.Tensor):
        raise InputError("offload: an island's own memory can't be copied to the host; plan this model without a link")
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
