"""What PyTorch's caching allocator reserves on a GPU for a plan: its segments, simulated without a GPU.

Sizes are rounded to blocks of 512 bytes. Up to 1 MiB, blocks are cut from segments of 2 MiB; up to 10 MiB from segments
of 20 MiB; what is larger gets a segment of its own, rounded to 2 MiB. The smallest free block that fits is taken and
cut if enough is left; a freed block joins its free neighbours; a segment is never given back. So with the defaults of
`PYTORCH_CUDA_ALLOC_CONF`, on one stream. Source: the constants of `c10/core/AllocatorConfig.h`, PyTorch 2.13.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gapless.errors import InputError
from gapless.ir.schedule import Schedule

__all__ = ["CUDA_BLOCK_BYTES", "Block", "CachingAllocator", "Reserved", "reserved_by"]

CUDA_BLOCK_BYTES = 512
"""PyTorch's CUDA allocator hands out whole blocks of this size."""
_SMALL_BYTES = 2**20
_SMALL_SEGMENT_BYTES, _LARGE_SEGMENT_BYTES = 2 * 2**20, 20 * 2**20
_OWN_SEGMENT_BYTES = 10 * 2**20
_OWN_ROUNDING_BYTES = 2 * 2**20


@dataclass(eq=False)
class Block:
    """A piece of a segment, between its neighbours there. `place`: the segment, and the first byte in it."""

    size_bytes: int
    is_small: bool
    place: tuple[int, int]
    is_free: bool = False
    before: Block | None = None
    after: Block | None = None


@dataclass(frozen=True)
class Reserved:
    """What a plan takes of a GPU above what was there before it.

    `reserved_bytes`: of all segments, which is what other programs can't have. `peak_bytes`: of blocks in use at once,
    rounded. `segment_count`: how often the driver was asked.
    """

    reserved_bytes: int = 0
    peak_bytes: int = 0
    segment_count: int = 0

    @property
    def fragmentation(self) -> float:
        """The share of what is reserved that is not in use at the peak."""
        return 1 - self.peak_bytes / self.reserved_bytes if self.reserved_bytes else 0.0


class CachingAllocator:
    """Blocks in segments, as the allocator hands them out. It begins with nothing. `reserved`: so far."""

    def __init__(self) -> None:
        self.reserved = Reserved()
        self._free: list[Block] = []
        self._used_bytes = 0

    def allocate(self, size_bytes: int) -> Block:
        """A block for so many bytes, which are rounded up."""
        size_bytes = max(-(-size_bytes // CUDA_BLOCK_BYTES), 1) * CUDA_BLOCK_BYTES
        is_small = size_bytes <= _SMALL_BYTES
        fitting = [block for block in self._free if block.is_small == is_small and block.size_bytes >= size_bytes]
        block = min(fitting, key=lambda each: (each.size_bytes, each.place), default=None)
        if block is None:
            block = self._segment(size_bytes, is_small)
        else:
            self._free.remove(block)
            block.is_free = False
        left_bytes = block.size_bytes - size_bytes
        if left_bytes >= CUDA_BLOCK_BYTES if is_small else left_bytes > _SMALL_BYTES:
            self._cut(block, size_bytes)
        self._used_bytes += block.size_bytes
        peak_bytes = max(self.reserved.peak_bytes, self._used_bytes)
        self.reserved = replace(self.reserved, peak_bytes=peak_bytes)
        return block

    def free(self, block: Block) -> None:
        """Give a block back. Raises `InputError` for one that is free."""
        if block.is_free:
            raise InputError("block: must be in use to be freed, is free already; free each once")
        self._used_bytes -= block.size_bytes
        for other in (block.before, block.after):
            if other is not None and other.is_free:
                self._free.remove(other)
        if block.before is not None and block.before.is_free:
            block = _joined(block.before, block)
        if block.after is not None and block.after.is_free:
            block = _joined(block, block.after)
        block.is_free = True
        self._free.append(block)

    def _segment(self, size_bytes: int, is_small: bool) -> Block:
        """A new segment, whole."""
        if is_small:
            whole_bytes = _SMALL_SEGMENT_BYTES
        elif size_bytes < _OWN_SEGMENT_BYTES:
            whole_bytes = _LARGE_SEGMENT_BYTES
        else:
            whole_bytes = -(-size_bytes // _OWN_ROUNDING_BYTES) * _OWN_ROUNDING_BYTES
        number = self.reserved.segment_count
        reserved_bytes = self.reserved.reserved_bytes + whole_bytes
        self.reserved = replace(self.reserved, reserved_bytes=reserved_bytes, segment_count=number + 1)
        return Block(whole_bytes, is_small, (number, 0))

    def _cut(self, block: Block, size_bytes: int) -> None:
        """Leave the rest of a block to others."""
        segment, offset = block.place
        place = (segment, offset + size_bytes)
        rest = Block(block.size_bytes - size_bytes, block.is_small, place, True, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.size_bytes, block.after = size_bytes, rest
        self._free.append(rest)


def _joined(first: Block, second: Block) -> Block:
    """Two neighbours as one."""
    first.size_bytes += second.size_bytes
    first.after = second.after
    if second.after is not None:
        second.after.before = first
    return first


def reserved_by(schedule: Schedule) -> Reserved:
    """What the events of a plan for one device reserve, one after the other: what they write, and their workspaces.

    What is there from the start (parameters, inputs) lies elsewhere. An op writes in place where its implementation
    says so. A tensor of a plan may be several in PyTorch, such as the gradients that one operator makes: then it is
    taken for one. Raises `InputError` for a plan of several devices.
    """
    if schedule.topology.device_count != 1:
        raise InputError(f"plan: must be of one device to be allocated, is of {schedule.topology.device_count}")
    graph, allocator = schedule.graph, CachingAllocator()
    held: dict[int, Block] = {}
    there = set(graph.initial.tensors.tolist())
    for event in schedule.events():
        op = graph.ops[event.op]
        implementation = op.implementations[event.implementation]
        taken = [held.pop(tensor) for tensor in implementation.overwrites if tensor in held]
        for tensor in op.outputs:
            if tensor not in held and tensor not in there:
                held[tensor] = taken.pop(0) if taken else allocator.allocate(int(graph.size_bytes[tensor]))
        for block in taken:
            allocator.free(block)
        if implementation.workspace_bytes:
            allocator.free(allocator.allocate(implementation.workspace_bytes))
        for tensor, _ in event.frees:
            if tensor in held:
                allocator.free(held.pop(tensor))
    return allocator.reserved
