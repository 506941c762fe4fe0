"""The TACCL-EF program (MSCCL XML) as data, and the limits that both runtimes that read it have.

A program has one `Gpu` a rank, a gpu has thread blocks, a block has steps that run one after the other. Steps address
chunks of three buffers of their own GPU: `i` input, `o` output, `s` scratch. All chunks have one size: the larger of
the user's two buffers divided by `nchunksperloop`. Field names are the attribute names of the format, except
`min_bytes` and `max_bytes`.

Of the two runtimes, `executor` is the newer one (also RCCL's), `original` the older. Where they differ (which file each
loads, what it allocates, which it takes for a call) is data of `Runtime`; verify.py has what both refuse alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gapless.errors import InputError
from gapless.io.formats.ef_options import MAX_SCRATCH_BYTES

__all__ = [
    "BUFFERS", "DEFAULT_MAX_BYTES", "EXECUTOR", "MAX_SCRATCH_BYTES", "NO_MAX_BYTES", "ORIGINAL", "PROTOCOLS",
    "RECEIVING", "RUNTIMES", "SENDING", "STEP_TYPES", "Gpu", "Problem", "Program", "Runtime", "Step", "ThreadBlock",
    "allocation_problems", "default_max_bytes", "load_problems", "place_text", "runtime_for", "served_placement",
    "written_name",
]  # fmt: skip

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


@dataclass(frozen=True)
class Runtime:
    """Where a runtime differs from the other.

    Load: `blocks` of a GPU, `steps` of a block, `programs` that it keeps, `names` (the `coll` of each collective that
    it offers), `attributes` of `<algo>` that it requires, `counts_chunks` (compares i_chunks and o_chunks with
    nchunksperloop). Allocate: `reserves` scratch for maxBytes as soon as a file is loaded, else for the call. Select:
    `reads_outofplace` (else a file serves the calls whose placement equals its inplace), `includes_max` (a call of
    maxBytes is served, and 0 is no limit), `by_name` (files are tried in the order of their names, else in the order in
    which they are listed), `needs_all` (one file that doesn't load stops it, else it goes on without).
    """

    name: str
    blocks: int
    steps: int
    programs: int
    names: Mapping[str, str]
    attributes: tuple[str, ...]
    counts_chunks: bool
    reserves: bool
    reads_outofplace: bool
    includes_max: bool
    by_name: bool
    needs_all: bool

    @property
    def title(self) -> str:
        """What messages call it."""
        return "the executor" if self.name == "executor" else "the original runtime"

    def scratch_bytes(self, program: Program) -> int:
        """What it allocates on a GPU once the file is loaded."""
        chunks = max((gpu.s_chunks for gpu in program.gpus), default=0)
        return program.max_bytes * chunks // max(program.nchunksperloop, 1) if self.reserves else 0


EXECUTOR = Runtime(
    name="executor",
    blocks=1024,
    steps=64,
    programs=1024,
    names={
        name: name
        for name in (
            "reduce", "broadcast", "allreduce", "reducescatter", "allgather", "send", "recv", "gather", "scatter",
            "alltoall", "alltoallv",
        )
    },
    attributes=("outofplace", "minBytes", "maxBytes"),
    counts_chunks=False,
    reserves=False,
    reads_outofplace=True,
    includes_max=True,
    by_name=True,
    needs_all=True,
)  # fmt: skip
ORIGINAL = Runtime(
    name="original",
    blocks=216,
    steps=256,
    programs=4,
    names={
        **{name: name for name in ("allreduce", "allgather", "reduce", "broadcast", "alltoall", "custom")},
        "reducescatter": "reduce_scatter",
        # What it has no call for is called by the number of its program.
        **dict.fromkeys(("gather", "scatter", "sendrecv"), "custom"),
    },
    attributes=("name",),
    counts_chunks=True,
    reserves=True,
    reads_outofplace=False,
    includes_max=False,
    by_name=False,
    needs_all=False,
)
RUNTIMES: Mapping[str, tuple[Runtime, ...]] = {
    "executor": (EXECUTOR,),
    "original": (ORIGINAL,),
    "both": (EXECUTOR, ORIGINAL),
}
"""By the name that a user gives: those that a file is for."""


def runtime_for(collective: str) -> str:
    """The runtime that a file is for where nobody says it: both where they have one name for the collective, else who
    offers it.

    `collective` may also be the `coll` of a file.
    """
    colls = [(each.name, each.names.get(collective, collective)) for each in RUNTIMES["both"]]
    takers = [name for name, coll in colls if coll in RUNTIMES[name][0].names.values()]
    if len(takers) == 2 and len({coll for _, coll in colls}) == 1:
        return "both"
    return takers[0] if takers else "both"


def written_name(collective: str, runtime: str) -> str:
    """The `coll` of a collective in a file for a runtime.

    Raises `InputError` where a runtime can't offer the collective, or where the two call it by different names.
    """
    names = {each.name: each.names.get(collective) for each in RUNTIMES[runtime]}
    if len(names) > 1 and len(set(names.values())) > 1:
        known = ", ".join(
            f"{name} {f'calls it {coll}' if coll else 'has no call for it'}" for name, coll in names.items()
        )
        usable = " and once with ".join(name for name, coll in names.items() if coll)
        raise InputError(f"runtime: one file can't serve both with {collective}: {known}; export with {usable}")
    (name, *_) = names.values()
    if name is None:
        known = ", ".join(sorted(RUNTIMES[runtime][0].names))
        raise InputError(
            f"runtime: {runtime} knows the collectives {known}, not {collective}; original runs it as custom"
        )
    return name


def served_placement(placement: str | None, collective: str, runtime: str) -> str:
    """The placement of the calls that a file is to serve; None asks for all that one file can serve.

    Raises `InputError` where one file can't serve what is asked for.
    """
    strict = [each for each in RUNTIMES[runtime] if not each.reads_outofplace]
    if placement is None:
        return "out-of-place" if strict else "both"
    if strict and collective == "alltoall" and placement != "out-of-place":
        rule = "original offers ALLTOALL between two buffers only"
        raise InputError(f"placement: {rule}, got {placement}; take out-of-place, or runtime executor")
    if strict and placement == "both":
        rule = "original takes a file for the calls in place or for those out of place"
        raise InputError(f"placement: {rule}, got both; export once with in-place and once with out-of-place")
    return placement


def default_max_bytes(program: Program, runtime: str, max_scratch_bytes: int) -> int:
    """The largest maxBytes for which the runtime's scratch fits: no limit where it reserves none."""
    chunks = max((gpu.s_chunks for gpu in program.gpus), default=0)
    if not chunks or not any(each.reserves for each in RUNTIMES[runtime]):
        return NO_MAX_BYTES
    return max_scratch_bytes * program.nchunksperloop // chunks


def load_problems(program: Program, runtimes: Sequence[Runtime]) -> Iterator[Problem]:
    """Why a runtime would not load a file, or never take it, beyond what both refuse alike."""
    for each in runtimes:
        for title in each.attributes:
            if title in program.absent:
                yield Problem("attribute", f"{title} is missing: {each.title} refuses the file{_other(each)}")
        colls = sorted(set(each.names.values()))
        if program.coll not in colls:
            message = f"coll must be one of {', '.join(colls)} for {each.title}, got {program.coll!r}"
            yield Problem("coll", message + _other(each))
        if program.max_bytes == 0 and not each.includes_max:
            yield Problem("byte-range", f"maxBytes must be > 0: {each.title} never chooses a file with 0")
        if program.coll == "alltoall" and not each.reads_outofplace and not program.outofplace:
            yield Problem("placement", f"inplace must be 0: {each.title} offers ALLTOALL between two buffers only")


def _other(runtime: Runtime) -> str:
    """The way out for a file that is meant for the other runtime."""
    (other,) = (each.name for each in RUNTIMES["both"] if each is not runtime)
    return f"; for a file that only the other sees: --runtime {other}"


def allocation_problems(program: Program, runtimes: Sequence[Runtime], max_scratch_bytes: int) -> Iterator[Problem]:
    """Scratch that a runtime would allocate with a file, and that is not there."""
    for each in runtimes:
        wanted = each.scratch_bytes(program)
        if wanted > max_scratch_bytes:
            most = default_max_bytes(program, each.name, max_scratch_bytes)
            message = f"{each.title} allocates {wanted} bytes of scratch for maxBytes {program.max_bytes}"
            limit = f"more than --max-scratch {max_scratch_bytes}; maxBytes may be {most}"
            yield Problem("scratch", f"{message}, {limit}")
