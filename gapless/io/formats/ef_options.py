"""The options of TACCL-EF programs, as fields: how a plan is lowered, and by whose limits a program is judged."""

from __future__ import annotations

from gapless.question.fields import Choice, Field, Flag, Size, Text, Whole

__all__ = ["DTYPE_BYTES", "JUDGING", "LOWERING", "MAX_SCRATCH_BYTES", "SELECTING"]

MAX_SCRATCH_BYTES = 4 * 2**30
"""Scratch of one program on one GPU that is taken for granted where nobody says how much there is."""
DTYPE_BYTES = {
    "int8": 1, "uint8": 1, "float8_e4m3": 1, "float8_e5m2": 1, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
"""Bytes of an element, by the name of NCCL's type."""

_GROUP = "TACCL-EF"
_RUNTIMES = Choice(("both", "executor", "original"))

_SCRATCH = Field(
    "max_scratch", Size(1), "scratch that the original runtime may allocate on a GPU, which it does for the largest "
    "size", MAX_SCRATCH_BYTES, metavar="SIZE", group=_GROUP,
)  # fmt: skip

LOWERING = (
    Field("instances", Whole(1, 64), "parts that each chunk is cut into", 1, metavar="N", group=_GROUP),
    Field("proto", Choice(("Simple", "LL", "LL128")), "NCCL protocol", "Simple", group=_GROUP),
    Field(
        "placement", Choice(("out-of-place", "in-place", "both")), "calls served",
        otherwise="all that one file can serve: both for the executor, else out-of-place", group=_GROUP,
    ),
    Field(
        "runtime", _RUNTIMES,
        "the runtime that is to take the file",
        otherwise="both where one file can, else the one that offers the collective", group=_GROUP,
    ),
    Field(
        "min_bytes", Size(0),
        "least size of the larger buffer for which the runtime may choose the program",
        0, metavar="SIZE", group=_GROUP,
    ),
    Field(
        "max_bytes", Size(0),
        "the most of that size; 0 for as much as the runtime can serve", 0, metavar="SIZE", group=_GROUP,
    ),
    Field(
        "sm_count", Whole(1), "multiprocessors of the GPU: so many thread blocks at most",
        otherwise="merge above 80, no limit", metavar="N", group=_GROUP,
    ),
    _SCRATCH,
    Field("fuse", Flag(), "keep receives and sends apart, no rcs, rrs, rrcs steps", True, group=_GROUP),
    Field("per_rank", Flag(), "one file a rank, FILE.RANK.xml, for runs of many ranks", False, group=_GROUP),
)  # fmt: skip
"""How a plan is lowered to a program."""

JUDGING = (
    Field(
        "runtime", _RUNTIMES, "the runtime that is to take the file", otherwise="those that know its coll", group=_GROUP
    ),
    _SCRATCH,
    Field(
        "collective", Text(), "what the program must do; MSCCL++ plans take it too", otherwise="what its coll says",
        metavar="NAME", group=_GROUP,
    ),
    Field("root", Whole(0), "rank of its root", otherwise="found from who sends", metavar="RANK", group=_GROUP),
)  # fmt: skip
"""How somebody's program is judged."""

SELECTING = (
    Field("runtime", Choice(("executor", "original")), "the runtime that chooses", is_required=True, group=_GROUP),
    Field("collective", Text(), "the collective that is called", is_required=True, metavar="NAME", group=_GROUP),
    Field(
        "size", Size(), "size of the larger of a rank's two buffers, as nccl-tests print it", is_required=True,
        metavar="SIZE", group=_GROUP,
    ),
    Field("dtype", Choice(tuple(DTYPE_BYTES)), "type of the elements", "float32", group=_GROUP),
    Field("ranks", Whole(2), "ranks of the communicator", is_required=True, metavar="N", group=_GROUP),
    Field("in_place", Flag(), "input and output are one memory", False, group=_GROUP),
    _SCRATCH,
)  # fmt: skip
"""A call, and the runtime that chooses a file for it."""
