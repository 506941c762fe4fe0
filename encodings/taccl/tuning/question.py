"""What `gapless tune` is asked: what to measure, on which ranks, and where the winners go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.encodings.taccl.question import LinksQuestion, Question, RunQuestion
from gapless.question import Asked, asked, fields_of, said
from gapless.question.fields import Listed, Number, Size, Text, Whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.topologies.topology import Topology

__all__ = ["COLLECTIVES", "TuneQuestion"]

COLLECTIVES = ("allgather", "allreduce", "alltoall", "broadcast", "reduce", "reducescatter")
"""Those that torch.distributed has a function of one buffer for."""

_ASKED = {field.name: field for field in fields_of(Question)}
_RUN = {field.name: field for field in fields_of(RunQuestion)}
_LINKS = {field.name: field for field in fields_of(LinksQuestion)}


@dataclass(frozen=True, repr=False)
class TuneQuestion(Asked):
    """Collectives, groups and sizes, on ranks that are there or are started."""

    collectives: Sequence[str] | None = asked(
        Listed(Text()), "which collectives, in upper or lower case", otherwise=",".join(COLLECTIVES),
        metavar="NAME,NAME,...",
    )  # fmt: skip
    sizes: Sequence[int] | None = asked(
        Listed(Size()), "of one rank's input buffer", otherwise="1KB,64KB,1MB", metavar="SIZE,SIZE,..."
    )
    groups: Sequence[str] | None = asked(
        Listed(Text(), "+"), "all, ranks such as 0-3,6, or axes such as tp=4; with + between them", otherwise="all",
        metavar="all|RANKS|AXES",
    )  # fmt: skip
    cells_file: str | None = asked(
        Text(), "a TOML file with these three, in tables [[cells]]", metavar="FILE"
    )  # fmt: skip
    ranks: int | None = said(_LINKS["ranks"])
    backend: str = said(_RUN["backend"])
    topology: str | Topology | None = said(_ASKED["topology"])
    topology_file: str | None = asked(
        Text(), "plan for this topology, whose ranks are those here, instead of measuring one", metavar="FILE"
    )
    nodes: int | None = said(_ASKED["nodes"])
    profile_time: float | None = asked(
        Number(0, strict=True, maximum=86400), "seconds of the time limit for measuring the links",
        otherwise="half of it", metavar="S",
    )  # fmt: skip
    repeats: int = asked(Whole(3, 10**4), "calls of each plan in each measurement, and twice as many of the library", 9,
                         metavar="N")  # fmt: skip
    hopeless: float = asked(
        Number(1), "plans that take so many times as long as the library at first are given up", 2.0, metavar="F"
    )
    wait: float = said(_RUN["wait"])
    output: str = asked(Text(), "the folder for plans, table and selector", is_required=True, metavar="DIR", short="-o")
