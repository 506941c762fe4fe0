"""The options of TACCL-EF programs, as fields: how a plan is lowered, and by whose limits a program is judged."""

from __future__ import annotations

from gapless.fields import Choice, Field, Flag, Size, Text, Whole

__all__ = ["JUDGING", "LOWERING"]

_GROUP = "TACCL-EF"
_RUNTIMES = Choice(("both", "executor", "original"))

LOWERING = (
    Field("instances", Whole(1, 64), "parts that each chunk is cut into (default 1)", 1, metavar="N", group=_GROUP),
    Field("proto", Choice(("Simple", "LL", "LL128")), "NCCL protocol (default Simple)", "Simple", group=_GROUP),
    Field(
        "placement", Choice(("out-of-place", "in-place", "both")), "buffers served (default both)", "both",
        group=_GROUP,
    ),
    Field(
        "runtime", _RUNTIMES, "whose limits to keep, and whose name of the collective to write (default both)", "both",
        group=_GROUP,
    ),
    Field(
        "min_bytes", Size(0), "size of the larger buffer for which the runtime may choose the program: least "
        "(default 0)", 0, metavar="SIZE", group=_GROUP,
    ),
    Field(
        "max_bytes", Size(0), "size of the larger buffer for which the runtime may choose the program: most, 0 for no "
        "limit (default 0)", 0, metavar="SIZE", group=_GROUP,
    ),
    Field(
        "sm_count", Whole(1), "multiprocessors of the GPU: so many thread blocks at most (default: merge above 80, no "
        "limit)", metavar="N", group=_GROUP,
    ),
    Field("fuse", Flag(), "keep receives and sends apart, no rcs, rrs, rrcs steps", True, group=_GROUP),
)  # fmt: skip
"""How a plan is lowered to a program."""

JUDGING = (
    Field("runtime", _RUNTIMES, "whose limits to keep (default both: the narrower of each)", "both", group=_GROUP),
    Field(
        "collective", Text(), "what the program must do (default: what its coll says); MSCCL++ plans take it too",
        metavar="NAME", group=_GROUP,
    ),
    Field("root", Whole(0), "its root (default: found from who sends)", metavar="RANK", group=_GROUP),
)  # fmt: skip
"""How somebody's program is judged."""
