"""The TACCL-EF program (MSCCL XML) as data, and the limits that both runtimes that read it have.

A program has one `Gpu` a rank, a gpu has thread blocks, a block has steps that run one after the other. Steps address
chunks of three buffers of their own GPU: `i` input, `o` output, `s` scratch. All chunks have one size: the larger of
the user's two buffers divided by `nchunksperloop`. Field names are the attribute names of the format, except
`min_bytes` and `max_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "BUFFERS",
    "DEFAULT_MAX_BYTES",
    "NO_MAX_BYTES",
    "PROTOCOLS",
    "RECEIVING",
    "SENDING",
    "STEP_TYPES",
    "Gpu",
    "Problem",
    "Program",
    "Step",
    "ThreadBlock",
    "place_text",
]

BUFFERS = ("i", "o", "s")
PROTOCOLS = ("Simple", "LL", "LL128")
"""Case-sensitive in both runtimes."""

STEP_TYPES = ("s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy", "re", "nop")
SENDING = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVING = frozenset({"r", "rcs", "rrc", "rrs", "rrcs"})
READS_SOURCE = frozenset({"s", "rrc", "rrs", "rrcs", "cpy", "re"})
"""These read `srcbuf[srcoff ...]` of their own GPU; in the others the source fields only say where data came from."""
WRITES = frozenset({"r", "rcs", "rrc", "rrcs", "cpy", "re"})
"""These write `dstbuf[dstoff ...]` of their own GPU."""

MAX_NAME = 63
"""Characters of `name`: the original runtime copies it into a fixed array."""
MAX_VALUE = 255
"""Characters of an attribute's name or value: the parsers do not check the length and overflow."""
MAX_ATTRIBUTES = 16
"""Attributes of one element."""
MAX_CHILDREN = 1024
"""Children of one element."""
MAX_NODES = 4096
"""Elements that one rank loads: the algo, all gpus, and the blocks and steps of its own gpu."""
MAX_CHANNELS = 32
"""Channels are 0..31. Both parsers let channel 32 pass (they compare with >) and crash."""
MAX_PEERS_PER_CHANNEL = 32
"""Blocks of one GPU that send on one channel; as many may receive."""
MAX_COUNT = 71
"""Chunks that one step moves; the arrays of the parsers end at 72."""
MAX_DEPENDENCY_BLOCK = 127
"""The device keeps the block of a dependency in an int8: 128 reads as -128."""
MAX_OFFSET = 32767
"""The device keeps chunk offsets in an int16."""
DEFAULT_MAX_BYTES = 2**27
"""What the original runtime takes where a file has no maxBytes."""
NO_MAX_BYTES = 2**62
"""Written for "no upper limit" where the original runtime has no scratch to allocate for it. The executor also takes 0
for that, but the original runtime wants size < maxBytes and never chooses an algorithm whose maxBytes is 0."""


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction. `s` is its number in the block, offsets and `cnt` count chunks.

    `depid`, `deps`: the block and step of the same GPU that must have finished before, or -1 and -1. `hasdep` says that
    another block waits for this step.
    """

    s: int
    type: str
    srcbuf: str
    srcoff: int
    dstbuf: str
    dstoff: int
    cnt: int
    depid: int = -1
    deps: int = -1
    hasdep: bool = False


@dataclass(frozen=True)
class ThreadBlock:
    """Steps that run in order. `send`, `recv`: the one peer rank of each direction, or -1."""

    id: int
    send: int
    recv: int
    chan: int
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """One rank: its blocks and the number of chunks in its input, output and scratch buffer."""

    id: int
    i_chunks: int
    o_chunks: int
    s_chunks: int
    threadblocks: tuple[ThreadBlock, ...] = ()


@dataclass(frozen=True)
class Program:
    """A TACCL-EF file.

    `inplace`, `outofplace`: the placements of the user's buffers that the program serves. `min_bytes`, `max_bytes`: the
    sizes of the larger buffer for which a runtime may choose it. `nthreads`: threads a block, for the original runtime
    only, None to leave it out. `absent`: the attributes of `<algo>` that a file leaves out although one of the runtimes
    requires them; their fields have the other one's defaults.
    """

    name: str
    proto: str
    nchannels: int
    nchunksperloop: int
    ngpus: int
    coll: str
    inplace: bool
    outofplace: bool
    min_bytes: int = 0
    max_bytes: int = DEFAULT_MAX_BYTES
    redop: str = "nop"
    nthreads: int | None = None
    gpus: tuple[Gpu, ...] = ()
    absent: frozenset[str] = frozenset()

    @property
    def step_count(self) -> int:
        """Steps of all blocks of all GPUs."""
        return sum(len(block.steps) for gpu in self.gpus for block in gpu.threadblocks)


@dataclass(frozen=True)
class Problem:
    """A broken rule: its name, what is wrong with the numbers, and where; -1 where a level does not apply."""

    rule: str
    message: str
    gpu: int = -1
    tb: int = -1
    step: int = -1

    def __str__(self) -> str:
        place = place_text(self.gpu, self.tb, self.step)
        return f"{place}: {self.message} [{self.rule}]"


def place_text(gpu: int = -1, tb: int = -1, step: int = -1) -> str:
    """`gpu 0 tb 1 step 2`, or `algo` where all are -1."""
    parts = [f"{title} {number}" for title, number in (("gpu", gpu), ("tb", tb), ("step", step)) if number >= 0]
    return " ".join(parts) or "algo"
