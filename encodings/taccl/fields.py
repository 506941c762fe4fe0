"""What a question of collectives says, and what a sweep over sizes asks."""

from __future__ import annotations

from collections.abc import Iterable

from gapless.fields import Bandwidth, Choice, Field, Listed, Number, Object, Size, Text, Whole
from gapless.io.taccl_ef.options import LOWERING

__all__ = ["QUESTION", "SWEEP"]

_METHODS = ("auto", "milp", "greedy")


def _topologies() -> Iterable[str]:
    from gapless.topologies.files import topology_names

    return topology_names()


def _sketches() -> Iterable[str]:
    from gapless.encodings.taccl.sketch.format import sketch_names

    return sketch_names()


def _collectives() -> Iterable[str]:
    from gapless.collective import COLLECTIVES

    return COLLECTIVES


_MACHINE = (
    Field(
        "topology", Object(("gapless.topologies.topology.Topology",)),
        "a machine (ndv2) or a family (torus:4x4): `gapless list topologies`", metavar="NAME", names=_topologies,
    ),
    Field("topology_file", Text(), "a topology in gapless's or TACCL's format", metavar="FILE"),
    Field("nodes", Whole(1, 10**6), "number of a machine's nodes (default: the sketch's, or 1)", metavar="N"),
    Field(
        "sketch", Object(("gapless.encodings.taccl.sketch.format.Sketch",)),
        "a shipped sketch (`gapless list sketches`), or auto", metavar="NAME", names=lambda: (*_sketches(), "auto"),
    ),
    Field("sketch_file", Text(), "a sketch in TACCL's format", metavar="FILE"),
)  # fmt: skip
_COLLECTIVE = Field(
    "collective", Object(("gapless.collective.Collective",)),
    "allgather (default), or one of `gapless list collectives`", metavar="NAME", names=_collectives,
)  # fmt: skip

QUESTION = (
    *_MACHINE,
    _COLLECTIVE,
    Field("collective_file", Text(), "one of your own, in gapless's format", metavar="FILE"),
    Field("root", Whole(0), "rank that broadcast, reduce, gather, ... start or end on (0)", metavar="R"),
    Field("target", Whole(0), "rank that sendrecv ends on (the last)", metavar="R"),
    Field("size", Size(), "one rank's input buffer, such as 1MB = 10^6 bytes", metavar="SIZE"),
    Field(
        "path_slack", Number(0), "only links within (1 + S) of the shortest path of a chunk (default: all)",
        metavar="S",
    ),
    Field(
        "method", Choice(_METHODS), "auto (default): the fastest of the MILP where it is small enough, the greedy, "
        "aggregated sends (all that a rank has at once) and what libraries do; the answer says which", "auto",
    ),
    Field(
        "chunks", Whole(1), "chunks that a rank's own data are cut into (default: the sketch's, else the best of some)",
        metavar="N",
    ),
)  # fmt: skip

SWEEP = (
    *_MACHINE,
    _COLLECTIVE,
    Field("min_size", Size(), "(default 1KB)", 1000, metavar="SIZE"),
    Field("max_size", Size(), "(default 1GB)", 10**9, metavar="SIZE"),
    Field("factor", Whole(2), "between sizes (default 4)", 4, metavar="N"),
    Field("sizes", Listed(Size()), "these, instead of a range", metavar="SIZE,SIZE,..."),
    Field(
        "parts", Listed(Whole(1, 64)), "into how many parts chunks are cut, each of them tried (default 1,2, and "
        "without a sketch the best number)", metavar="N,N,...",
    ),
    Field(
        "tolerance", Number(0), "a plan serves a size if it is at most (1 + T) times as slow as the fastest "
        "(default 0)", 0.0, metavar="T",
    ),
    Field(
        "output", Text(), "folder for programs, plans and the table", is_required=True, metavar="DIR", short="-o"
    ),
    Field(
        "instances", Listed(Whole(1, 64)), "to choose from (default 1,2,4,8)", (1, 2, 4, 8), metavar="N,N,...",
        group="instances",
    ),
    Field(
        "block_bandwidth", Bandwidth(), "of a thread block (default 20GB/s)", 20e9, metavar="B", group="instances"
    ),
    Field(
        "alpha_growth", Number(0), "part of a link's alpha that each further instance adds (default 0.05)", 0.05,
        metavar="G", group="instances",
    ),
    *(field for field in LOWERING if field.name in ("proto", "placement", "runtime")),
)  # fmt: skip
