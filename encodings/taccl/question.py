"""What is asked of TACCL: along which links, when and how grouped the chunks of a collective are sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

from gapless.question import Asked, asked
from gapless.question.fields import Choice, Listed, Number, Object, Size, Text, Whole
from gapless.topologies.names import topology_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.encodings.taccl.sketch.format import Sketch
    from gapless.ir.collective import Collective
    from gapless.topologies.topology import Topology

__all__ = ["AUTO", "COLLECTIVE", "METHODS", "SKETCH", "Question", "sketch_names"]

METHODS = ("auto", "milp", "greedy")
AUTO: Literal["auto"] = "auto"
"""The sketch that stands for a search over sketches."""
COLLECTIVE = "allgather"
"""What is planned if nothing is said."""
SKETCH = Object(("gapless.encodings.taccl.sketch.format.Sketch",))


def _collective_names() -> Iterable[str]:
    from gapless.ir.collective import COLLECTIVES

    return COLLECTIVES


def sketch_names() -> Iterable[str]:
    """The shipped sketches, and the search over them."""
    from gapless.encodings.taccl.sketch.format import sketch_names

    return (*sketch_names(), AUTO)


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """A collective on a machine, for buffers of `size` bytes; or several at once, among the ranks of process groups.

    `ranks`, `group` and `groups_file` name groups (`gapless/ir/process_groups.py`); `size` may be the sketch's.
    """

    topology: str | Topology | None = asked(
        Object(("gapless.topologies.topology.Topology",)),
        "a machine (ndv2) or a family (torus:4x4): `gapless list topologies`",
        metavar="NAME",
        names=topology_names,
    )
    _: KW_ONLY
    topology_file: str | None = asked(Text(), "a topology in gapless's or TACCL's format", metavar="FILE")
    nodes: int | None = asked(
        Whole(1, 10**6), "number of a machine's nodes", otherwise="the sketch's, or 1", metavar="N"
    )
    sketch: str | Sketch | None = asked(
        SKETCH,
        "a shipped sketch (`gapless list sketches`), or auto",
        metavar="NAME",
        names=sketch_names,
    )
    sketch_file: str | None = asked(Text(), "a sketch in TACCL's format", metavar="FILE")
    collective: str | Collective | None = asked(
        Object(("gapless.ir.collective.Collective",)),
        "one of `gapless list collectives`",
        otherwise=COLLECTIVE,
        metavar="NAME",
        names=_collective_names,
    )
    collective_file: str | None = asked(Text(), "a collective of your own, in gapless's format", metavar="FILE")
    ranks: str | None = asked(
        Text(), "a collective among these ranks alone, such as 0-7,16-23", metavar="RANKS", group="process groups"
    )
    group: Sequence[str] | None = asked(
        Listed(Text(), "+"),
        "a collective in each group along the last axis of a layout (tp=8,dp=4: the first "
        "axis runs fastest), or among RANKS; :COLLECTIVE:SIZE where they differ; may stand several times",
        metavar="AXES|RANKS[:COLLECTIVE[:SIZE]]",
        group="process groups",
    )
    groups_file: str | None = asked(Text(), "groups in gapless's format", metavar="FILE", group="process groups")
    relays: str = asked(
        Choice(("yes", "no")),
        "whether ranks outside of a group may forward its data",
        "yes",
        group="process groups",
    )
    root: int | None = asked(
        Whole(0), "rank, or place in a group, that broadcast, reduce, ... start or end on (0)", metavar="R"
    )
    target: int | None = asked(Whole(0), "rank that sendrecv ends on (the last)", metavar="R")
    size: int | None = asked(Size(), "one rank's input buffer, such as 1MB = 10^6 bytes", metavar="SIZE")
    path_slack: float | None = asked(
        Number(0), "only links within (1 + S) of the shortest path of a chunk", otherwise="all", metavar="S"
    )
    method: str = asked(
        Choice(METHODS),
        "auto keeps the fastest plan of all methods, libraries' algorithms included, and "
        "says which made it; milp, greedy: that one alone",
        "auto",
    )
    chunks: int | None = asked(
        Whole(1, 4096),
        "chunks that a rank's own data are cut into",
        otherwise="the sketch's, else the best of some",
        metavar="N",
    )
