"""An MSCCL++ execution plan as data: what its executor loads, in the part that gapless writes and reads.

A plan has one `Gpu` a rank; a gpu has thread blocks, a block has operations that run one after the other. It is
one-sided: a block puts chunks into a peer's buffer, and signals and waits. All chunks have one size: the
input divided by `input_chunks`, which is the output divided by `output_chunks`. Field names are those of the format,
except `min_message_bytes` and `max_message_bytes`.

Threads of a block run an operation without waiting for each other; `nop` is where they meet. So what one operation
brings, the next one has for sure only after a `nop`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from gapless.errors import InputError
from gapless.io.typed import Stored

__all__ = [
    "BUFFERS", "CHANNEL_TYPES", "COLLECTIVES", "LIMITS", "MAX_MESSAGE_BYTES", "OPERATIONS", "SWITCH", "Block",
    "ChannelIds", "Channels", "Chunks", "Gpu", "Limits", "Operation", "Plan", "RankGroup", "RemoteBuffer", "RemoteIds",
    "Semaphore", "Shape",
]  # fmt: skip

BUFFERS = ("i", "o", "s")
CHANNEL_TYPES = ("memory", "port")
"""Memory channels reach a peer's memory directly; port channels hand the transfer to a proxy, as networks need it."""
SWITCH = "switch"
"""Switch channels reach one buffer of several ranks at once, the own one among them: NVLink SHARP's multicast."""
ALL_TYPES = (*CHANNEL_TYPES, SWITCH)

COLLECTIVES = ("allgather", "allreduce", "alltoall", "reducescatter")
MAX_MESSAGE_BYTES = 2**64 - 1
"""Written for "no upper limit"."""
MOST = 2**31 - 1
"""Counts and indices are 32-bit numbers in the executor."""


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
    own GPU; the others are a peer's, or behind a switch channel. `channels`: the types that it may use. `signals`:
    whether it has `channel_ids`, a number for each channel type.
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
    "glres": Shape((1, 1), (1, 1), channels=(SWITCH,), reduces=True),
    "gstore": Shape((1, 1), (1, 1), local_reads=1, channels=(SWITCH,)),
    "rlxsignal": Shape(channels=("memory",), has_channel_ids=True),
    "rlxwait": Shape(channels=("memory",), has_channel_ids=True),
    "sem_acquire": Shape(has_semaphores=True),
    "sem_release": Shape(has_semaphores=True),
}
"""The operations that are covered: without packets, pipelines, barriers and thread block groups. `pws` is a put and a
signal, `pwsf` a flush too. `rre` and `rres` add what they read of a peer; `res` and `rres` also write the sum to peers.
By a switch, `gstore` writes to all ranks of a channel, and `glres` to all of them the sum of what all of them hold."""


@dataclass(frozen=True)
class Chunks:
    """`size` chunks from `index` on, of one of three.

    An own buffer (`type`), a peer's (`buffer_id`), or that of all ranks of a switch channel (`switch_channel_id`); ids
    count in the block's list.
    """

    index: Annotated[int, Stored(0, MOST, place=1)]
    size: Annotated[int, Stored(1, MOST, place=1)]
    type: Annotated[str, Stored(choices=BUFFERS)] = ""
    buffer_id: Annotated[int, Stored(0, MOST)] = -1
    switch_channel_id: Annotated[int, Stored(0, MOST)] = -1


@dataclass(frozen=True)
class Operation:
    """One operation. `channel_ids` count in the block's list of its `channel_type`. What is added up is summed."""

    name: Annotated[str, Stored(choices=OPERATIONS)]
    src: Annotated[tuple[Chunks, ...], Stored(key="src_buff")] = ()
    dst: Annotated[tuple[Chunks, ...], Stored(key="dst_buff")] = ()
    channel_type: Annotated[str, Stored(choices=ALL_TYPES, place=2)] = ""
    channel_ids: Annotated[tuple[int, ...], Stored(0, MOST, place=1)] = ()
    semaphore_ids: Annotated[tuple[int, ...], Stored(0, MOST, place=3)] = ()
    reduce_op: Annotated[str, Stored(choices=["sum"], place=4)] = field(default="", compare=False)

    def __post_init__(self) -> None:
        adds = self.name in OPERATIONS and OPERATIONS[self.name].reduces
        object.__setattr__(self, "reduce_op", "sum" if adds else "")


@dataclass(frozen=True)
class ChannelIds:
    """The channels that a block uses: numbers in its GPU's list of that type."""

    channel_type: Annotated[str, Stored(choices=ALL_TYPES)]
    channel_ids: Annotated[tuple[int, ...], Stored(0, MOST)]


@dataclass(frozen=True)
class RemoteIds:
    """The peers' buffers that a block uses by one type of channel: numbers in its GPU's list."""

    channel_type: Annotated[str, Stored(choices=CHANNEL_TYPES, key="access_channel_type")]
    buffer_ids: Annotated[tuple[int, ...], Stored(0, MOST, key="remote_buffer_ids")]


@dataclass(frozen=True)
class Block:
    """A thread block."""

    id: Annotated[int, Stored(0, MOST)]
    ops: tuple[Operation, ...]
    channels: Annotated[tuple[ChannelIds, ...], Stored(is_needed=True)] = ()
    remote_buffer_refs: Annotated[tuple[RemoteIds, ...], Stored(otherwise=())] = ()


@dataclass(frozen=True)
class RankGroup:
    """The `size` ranks of a switch channel."""

    size: Annotated[int, Stored(1, MOST)]
    ranks: Annotated[tuple[int, ...], Stored(0, MOST)]


@dataclass(frozen=True)
class Channels:
    """One channel to each rank in `connected_to`; the k-th to a peer is the same as the peer's k-th back.

    Of switches, a channel to each of `rank_groups` instead, all for the buffer `buffer_type`; the k-th to a group is
    the same as the k-th to it of each of its ranks.
    """

    channel_type: Annotated[str, Stored(choices=ALL_TYPES)]
    connected_to: Annotated[tuple[int, ...], Stored(0, MOST)] = ()
    buffer_type: Annotated[str, Stored(choices=BUFFERS)] = ""
    rank_groups: tuple[RankGroup, ...] = ()

    def __post_init__(self) -> None:
        by_switch, by_pair = bool(self.buffer_type and self.rank_groups), bool(self.connected_to)
        if (by_switch, by_pair) != (self.channel_type == SWITCH, self.channel_type != SWITCH):
            fields = "buffer_type and rank_groups" if self.channel_type == SWITCH else "connected_to"
            raise InputError(f"channels: must have {fields}, and no others, where channel_type is {self.channel_type}")


@dataclass(frozen=True)
class RemoteBuffer:
    """A buffer of a peer that the GPU reaches."""

    rank: Annotated[int, Stored(0, MOST)]
    type: Annotated[str, Stored(choices=BUFFERS)]
    access_channel_types: Annotated[
        tuple[str, ...], Stored(choices=CHANNEL_TYPES, each=f"a list of {' and '.join(CHANNEL_TYPES)}")
    ]


@dataclass(frozen=True)
class Semaphore:
    """What counts releases between two blocks."""

    init_value: Annotated[int, Stored(0, MOST, is_needed=True)] = 0


@dataclass(frozen=True)
class Gpu:
    """One rank; the executor divides by its chunks of input and output. Blocks share the semaphores."""

    id: Annotated[int, Stored(0, MOST)]
    input_chunks: Annotated[int, Stored(1, MOST)]
    output_chunks: Annotated[int, Stored(1, MOST)]
    scratch_chunks: Annotated[int, Stored(0, MOST)]
    threadblocks: tuple[Block, ...]
    channels: Annotated[tuple[Channels, ...], Stored(is_needed=True)] = ()
    remote_buffers: Annotated[tuple[RemoteBuffer, ...], Stored(is_needed=True)] = ()
    semaphores: Annotated[tuple[Semaphore, ...], Stored(otherwise=())] = ()

    def peers(self, channel_type: str) -> list[int]:
        """The peer of each channel of a type, in the order in which blocks count them."""
        return [peer for group in self.channels if group.channel_type == channel_type for peer in group.connected_to]

    def switches(self) -> list[tuple[str, tuple[int, ...]]]:
        """The (buffer, ranks) of each switch channel, in the order in which blocks count them."""
        return [(each.buffer_type, group.ranks) for each in self.channels for group in each.rank_groups]


@dataclass(frozen=True)
class Plan:
    """An execution plan. `min_message_bytes`, `max_message_bytes`: of the larger buffer."""

    name: str
    collective: str
    inplace: bool
    gpus: tuple[Gpu, ...]
    num_threads_per_block: Annotated[int, Stored(1, LIMITS.threads, otherwise=1024)] = 1024
    buffer_alignment: Annotated[int, Stored(1, MOST, otherwise=16)] = 16
    min_message_bytes: Annotated[int, Stored(0, MAX_MESSAGE_BYTES, key="min_message_size", otherwise=0)] = 0
    max_message_bytes: Annotated[
        int, Stored(0, MAX_MESSAGE_BYTES, key="max_message_size", otherwise=MAX_MESSAGE_BYTES)
    ] = MAX_MESSAGE_BYTES
