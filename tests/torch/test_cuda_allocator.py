"""The simulated caching allocator: cases made by hand, from the constants that PyTorch ships."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.ir.graph import Graph, Implementation, Op
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.topologies.topology import Topology
from gapless.torch.cuda_allocator import CachingAllocator, reserved_by

KIB, MIB = 2**10, 2**20


def after(*sizes: int) -> CachingAllocator:
    """An allocator that has handed out blocks of these sizes."""
    allocator = CachingAllocator()
    for size in sizes:
        allocator.allocate(size)
    return allocator


@pytest.mark.parametrize(
    ("sizes", "reserved_bytes", "peak_bytes"),
    [
        ((1,), 2 * MIB, 512),
        ((513,), 2 * MIB, 1024),
        ((MIB, MIB), 2 * MIB, 2 * MIB),  # small ones share a segment
        ((MIB, MIB, 1), 4 * MIB, 2 * MIB + 512),
        ((MIB + 1,), 20 * MIB, MIB + 512),
        ((9 * MIB, 9 * MIB), 20 * MIB, 18 * MIB),
        ((9 * MIB, 9 * MIB, 3 * MIB), 40 * MIB, 21 * MIB),  # 2 MiB are left
        ((10 * MIB,), 10 * MIB, 10 * MIB),  # a segment of its own
        ((11 * MIB,), 12 * MIB, 12 * MIB),  # of which one MiB is not worth cutting off
        ((13 * MIB + 1,), 14 * MIB, 14 * MIB),
        ((), 0, 0),
    ],
)
def test_segments_are_those_of_the_published_constants(
    sizes: tuple[int, ...], reserved_bytes: int, peak_bytes: int
) -> None:
    reserved = after(*sizes).reserved
    assert (reserved.reserved_bytes, reserved.peak_bytes) == (reserved_bytes, peak_bytes)


def test_the_smallest_free_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator()
    large, _, small, _ = (allocator.allocate(size * KIB) for size in (700, 100, 300, 100))
    allocator.free(large)
    allocator.free(small)
    assert allocator.allocate(250 * KIB).place == small.place


def test_freed_neighbours_become_one_block() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(6 * MIB) for _ in range(3)]
    for number in (0, 2, 1):
        allocator.free(blocks[number])
    allocator.allocate(9 * MIB)
    allocator.allocate(9 * MIB)
    assert allocator.reserved.segment_count == 1


def test_holes_that_nothing_fits_into_are_fragmentation() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(5 * MIB) for _ in range(4)]
    for block in blocks[::2]:
        allocator.free(block)
    allocator.allocate(8 * MIB)  # there are 10 free, in two holes
    assert allocator.reserved.reserved_bytes == 40 * MIB
    assert allocator.reserved.fragmentation == pytest.approx(0.5)


def test_a_block_is_freed_once() -> None:
    allocator = CachingAllocator()
    block = allocator.allocate(1)
    allocator.free(block)
    with pytest.raises(InputError, match="block: must be in use"):
        allocator.free(block)


def plan(overwrites: bool) -> Schedule:
    """Two ops on one device: 12 MiB become 12 more, with 30 MiB of workspace in the second."""
    second = Implementation(1.0, 30 * MIB, overwrites=(0,) if overwrites else ())
    ops = (Op("a", (), (0,), (Implementation(1.0),)), Op("b", (0,), (1,), (second,)))
    topology = Topology("gpu", (0,))
    graph = Graph(np.array([12 * MIB, 12 * MIB]), ops)
    gone = () if overwrites else ((0, 0),)
    events = [Event(EventKind.COMPUTE, 0.0, 1.0, 0, op=0), Event(EventKind.COMPUTE, 1.0, 2.0, 0, op=1, frees=gone)]
    return schedule_from_events(graph, topology, events)


@pytest.mark.parametrize(("overwrites", "segments", "reserved_mib"), [(True, 2, 42), (False, 3, 54)])
def test_a_plan_reserves_what_it_writes_and_its_workspaces(overwrites: bool, segments: int, reserved_mib: int) -> None:
    found = reserved_by(plan(overwrites))
    assert (found.segment_count, found.reserved_bytes) == (segments, reserved_mib * MIB)
    assert found.peak_bytes == found.reserved_bytes


def test_a_plan_of_several_devices_is_refused() -> None:
    schedule = schedule_from_events(Graph(np.array([1])), Topology("two", (0, 0)), [])
    with pytest.raises(InputError, match="plan: must be of one device to be allocated, is of 2"):
        reserved_by(schedule)
