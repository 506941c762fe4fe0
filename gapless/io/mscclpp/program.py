"""An MSCCL++ execution plan as data: what its executor loads, in the part that gapless writes and reads.

A plan has one `Gpu` a rank; a gpu has thread blocks, a block has operations that run one after the other. It is
one-sided: a block puts chunks into a peer's buffer, and signals and waits. All chunks have one size: the
input divided by `input_chunks`, which is the output divided by `output_chunks`. Field names are those of the format,
except `min_message_bytes` and `max_message_bytes`.

Threads of a block run an operation without waiting for each other; `nop` is where they meet. So what one operation
brings, the next one has for sure only after a `nop`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "BUFFERS", "CHANNEL_TYPES", "COLLECTIVES", "LIMITS", "MAX_MESSAGE_BYTES", "OPERATIONS", "Block", "ChannelIds",
    "Channels", "Chunks", "Gpu", "Limits", "Operation", "Plan", "RemoteBuffer", "RemoteIds", "Shape",
]  # fmt: skip

BUFFERS = ("i", "o", "s")
CHANNEL_TYPES = ("memory", "port")
"""Memory channels reach a peer's memory directly; port channels hand the transfer to a proxy, as networks need it."""

COLLECTIVES = ("allgather", "allreduce", "alltoall", "reducescatter")
MAX_MESSAGE_BYTES = 2**64 - 1
"""Written for "no upper limit"."""


@dataclass(frozen=True)
class Limits:
    """What the executor's arrays hold."""

    operations: int = 64
    channels: int = 16
    remote_buffers: int = 16
    channels_per_operation: int = 8
    spans_per_operation: int = 10
    semaphores_per_operation: int = 16
    threads: int = 1024


LIMITS = Limits()


@dataclass(frozen=True)
class Shape:
    """What an operation needs: how many spans of chunks it reads and writes, whether it has channels or semaphores.

    `reads`, `writes`: (fewest, most). `local_reads`, `local_writes`: how many of them, the first ones, must be of the
    own GPU; the others are a peer's. `channels`: the types that it may use. `signals`: whether it has `channel_ids`,
    a number for each channel type.
    """

    reads: tuple[int, int] = (0, 0)
    writes: tuple[int, int] = (0, 0)
    local_reads: int = 0
    local_writes: int = 0
    channels: tuple[str, ...] = ()
    has_channel_ids: bool = False
    has_semaphores: bool = False
    reduces: bool = False


MANY = LIMITS.spans_per_operation
OPERATIONS = {
    "nop": Shape(),
    "put": Shape((1, 8), (1, 8), local_reads=8, channels=CHANNEL_TYPES, has_channel_ids=True),
    "pws": Shape((1, 8), (1, 8), local_reads=8, channels=("port",), has_channel_ids=True),
    "pwsf": Shape((1, 8), (1, 8), local_reads=8, channels=("port",), has_channel_ids=True),
    "get": Shape((1, 8), (1, 8), local_writes=8, channels=("memory",), has_channel_ids=True),
    "signal": Shape(channels=CHANNEL_TYPES, has_channel_ids=True),
    "wait": Shape(channels=CHANNEL_TYPES, has_channel_ids=True),
    "flush": Shape(channels=("port",), has_channel_ids=True),
    "copy": Shape((1, 1), (1, 1), local_reads=1, local_writes=1),
    "re": Shape((2, MANY), (1, 1), local_reads=MANY, local_writes=1, reduces=True),
    "res": Shape((2, MANY), (2, MANY), local_reads=MANY, local_writes=1, channels=("memory",), reduces=True),
    "rre": Shape((2, MANY), (1, 1), local_reads=1, local_writes=1, channels=("memory",), reduces=True),
    "rres": Shape((2, MANY), (2, MANY), local_reads=1, local_writes=1, channels=("memory",), reduces=True),
    "sem_acquire": Shape(has_semaphores=True),
    "sem_release": Shape(has_semaphores=True),
}
"""The operations that are covered: without packets, switches, pipelines, barriers, thread block groups and the relaxed
signals. `pws` is a put and a signal, `pwsf` a flush too. `rre` and `rres` add what they read of a peer; `res` and
`rres` also write the sum to peers."""


@dataclass(frozen=True)
class Chunks:
    """`size` chunks from `index` on, of an own buffer (`type`) or of a peer's (`buffer_id`, in the block's list)."""

    index: int
    size: int
    type: str = ""
    buffer_id: int = -1


@dataclass(frozen=True)
class Operation:
    """One operation. `channel_ids` count in the block's list of its `channel_type`."""

    name: str
    src: tuple[Chunks, ...] = ()
    dst: tuple[Chunks, ...] = ()
    channel_type: str = ""
    channel_ids: tuple[int, ...] = ()
    semaphore_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class ChannelIds:
    """The channels that a block uses: numbers in its GPU's list of that type."""

    channel_type: str
    channel_ids: tuple[int, ...]


@dataclass(frozen=True)
class RemoteIds:
    """The peers' buffers that a block uses by one type of channel: numbers in its GPU's list."""

    channel_type: str
    buffer_ids: tuple[int, ...]


@dataclass(frozen=True)
class Block:
    """A thread block."""

    id: int
    ops: tuple[Operation, ...]
    channels: tuple[ChannelIds, ...] = ()
    remote_buffer_refs: tuple[RemoteIds, ...] = ()


@dataclass(frozen=True)
class Channels:
    """One channel to each rank in `connected_to`; the k-th to a peer is the same as the peer's k-th back."""

    channel_type: str
    connected_to: tuple[int, ...]


@dataclass(frozen=True)
class RemoteBuffer:
    """A buffer of a peer that the GPU reaches."""

    rank: int
    type: str
    access_channel_types: tuple[str, ...]


@dataclass(frozen=True)
class Gpu:
    """One rank. `semaphores`: the first value of each; they are shared by its blocks."""

    id: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    threadblocks: tuple[Block, ...]
    channels: tuple[Channels, ...] = ()
    remote_buffers: tuple[RemoteBuffer, ...] = ()
    semaphores: tuple[int, ...] = ()

    def peers(self, channel_type: str) -> list[int]:
        """The peer of each channel of a type, in the order in which blocks count them."""
        return [peer for group in self.channels if group.channel_type == channel_type for peer in group.connected_to]


@dataclass(frozen=True)
class Plan:
    """An execution plan. `min_message_bytes`, `max_message_bytes`: of the larger buffer."""

    name: str
    collective: str
    inplace: bool
    gpus: tuple[Gpu, ...]
    num_threads_per_block: int = 1024
    buffer_alignment: int = 16
    min_message_bytes: int = 0
    max_message_bytes: int = MAX_MESSAGE_BYTES
