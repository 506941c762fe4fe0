"""What TACCL is asked: along which links, when and how grouped to send the chunks of a collective; and its commands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal

from gapless.io.formats.ef_options import LOWERING
from gapless.options import MOST_SECONDS
from gapless.question import Asked, asked, fields_of, said
from gapless.question.command_fields import output
from gapless.question.fields import (
    Bandwidth,
    Choice,
    Field,
    Flag,
    Listed,
    Number,
    Object,
    Ranks,
    Seconds,
    Size,
    Text,
    Whole,
)
from gapless.topologies.names import topology_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gapless.encodings.taccl.sketch.format import Sketch
    from gapless.io.plan import SavedPlan
    from gapless.ir.collective import Collective
    from gapless.profiles.steps.profile import TrainingStep
    from gapless.result import Result
    from gapless.topologies.topology import Topology

__all__ = [
    "AUTO", "COLLECTIVE", "METHODS", "SKETCH", "LinksQuestion", "Method", "Question", "RunQuestion", "StepQuestion",
    "SweepQuestion", "sketch_names",
]  # fmt: skip

Method = Literal["auto", "milp", "greedy"]
METHODS: tuple[Method, ...] = ("auto", "milp", "greedy")
AUTO: Literal["auto"] = "auto"
"""The sketch that stands for a search over sketches."""
COLLECTIVE = "allgather"
"""What is planned if nothing is said."""
SKETCH = Object(("gapless.encodings.taccl.sketch.format.Sketch",))


def _collective_names() -> Iterable[str]:
    from gapless.ir.amounts import VECTORS
    from gapless.ir.collective import COLLECTIVES

    return (*COLLECTIVES, *VECTORS)


def sketch_names() -> Iterable[str]:
    """The shipped sketches, and the search over them."""
    from gapless.encodings.taccl.sketch.format import sketch_names

    return (*sketch_names(), AUTO)


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """A collective on a machine, for buffers of `size` bytes; or several at once, among the ranks of process groups.

    `ranks`, `group` and `groups_file` name groups (`gapless/ir/process_groups.py`); `size` may be the sketch's.
    `without_links`, `without_ranks`, `degraded`: the machine after a failure (`failures.py`).
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
    matrix: str | NDArray[Any] | None = asked(
        Object(("numpy.ndarray",)),
        "alltoallv: bytes from each rank (row) to each (column); allgatherv: bytes of each rank; .csv, .npy or .json",
        metavar="FILE",
        group="unlike shares",
    )
    expert_loads: str | NDArray[Any] | None = asked(
        Object(("numpy.ndarray",)),
        "alltoallv of experts: tokens of each rank (row) for each expert (column); .csv, .npy or .json",
        metavar="FILE",
        group="unlike shares",
    )
    expert_token_bytes: int | None = asked(
        Size(), "bytes of a token, such as 8KB", metavar="SIZE", group="unlike shares"
    )
    expert_placement: tuple[int, ...] | None = asked(
        Listed(Whole(0)),
        "the rank of each expert",
        otherwise="as many on each rank, in order",
        metavar="R,R,...",
        group="unlike shares",
    )
    expert_direction: str = asked(
        Choice(("dispatch", "combine")), "tokens to experts, or their answers back", "dispatch", group="unlike shares"
    )
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
    no_switch_reduction: bool = asked(Flag(), "plan as if switches didn't add up or multicast", False)
    without_links: Sequence[str] | None = asked(
        Listed(Text()),
        "links that failed: 3-7 (3>7: one way), and all through a NIC or port: node1:nic2 (nic2: of every node)",
        metavar="LINK|NAME,...",
        group="after a failure",
    )
    without_ranks: int | Sequence[int] | None = asked(
        Ranks(), "ranks that left, such as 5 or 8-15: the others keep their numbers", metavar="RANKS",
        group="after a failure",
    )  # fmt: skip
    degraded: Sequence[str] | None = asked(
        Listed(Text()),
        "the share of its bandwidth that a link, NIC or port has left: 3-7:0.5,node1:nic2:0.25",
        metavar="LINK|NAME:SHARE,...",
        group="after a failure",
    )
    from_plan: str | SavedPlan | Result | None = asked(
        Object(("gapless.io.plan.SavedPlan", "gapless.result.Result")),
        "go on from a plan of before the failure: what still holds of it is kept, in little time",
        metavar="FILE",
        group="after a failure",
        is_asked=False,
        called="from",
    )


_ASKED = {field.name: field for field in fields_of(Question)}
_LOWERING = {field.name: field for field in LOWERING}


@dataclass(frozen=True, repr=False)
class SweepQuestion(Asked):
    """A collective for a range of sizes, and for which runtime its programs are."""

    topology: str | Topology | None = said(_ASKED["topology"])
    topology_file: str | None = said(_ASKED["topology_file"])
    nodes: int | None = said(_ASKED["nodes"])
    sketch: Sequence[str | Sketch] | None = asked(
        Listed(SKETCH),
        "shipped sketches, and auto for a search; each size is planned under each of them",
        metavar="NAME,NAME,...", names=sketch_names,
    )  # fmt: skip
    sketch_file: str | None = asked(Text(), "one more sketch, in TACCL's format", metavar="FILE")
    collective: str | None = said(_ASKED["collective"])
    min_size: int = asked(Size(), "the smallest size", 1000, metavar="SIZE")
    max_size: int = asked(Size(), "the largest size", 10**9, metavar="SIZE")
    factor: int = asked(Whole(2), "factor between sizes", 4, metavar="N")
    sizes: tuple[int, ...] | None = asked(
        Listed(Size()), "these sizes, instead of a range", metavar="SIZE,SIZE,..."
    )  # fmt: skip
    parts: tuple[int, ...] | None = asked(
        Listed(Whole(1, 64)), "into how many parts chunks are cut, each of them tried",
        otherwise="1,2, and without a sketch the best number", metavar="N,N,...",
    )  # fmt: skip
    tolerance: float = asked(
        Number(0), "a plan serves a size if it is at most (1 + T) times as slow as the fastest ", 0.0, metavar="T"
    )
    output: str = asked(
        Text(), "folder for programs, plans and the table", is_required=True, metavar="DIR", short="-o"
    )  # fmt: skip
    instances: tuple[int, ...] = asked(
        Listed(Whole(1, 64)), "numbers of instances to choose from", (1, 2, 4, 8), metavar="N,N,...",
        group="instances",
    )  # fmt: skip
    block_bandwidth: float = asked(
        Bandwidth(), "bandwidth of a thread block", 20e9, metavar="B", group="instances"
    )  # fmt: skip
    alpha_growth: float = asked(
        Number(0), "part of a link's alpha that each further instance adds", 0.05, metavar="G", group="instances"
    )
    proto: str = said(_LOWERING["proto"])
    placement: str | None = said(_LOWERING["placement"])
    runtime: str | None = said(_LOWERING["runtime"])


def _step_names() -> Iterable[str]:
    from gapless.profiles.steps.profile import training_step_names

    return training_step_names()


_SWEPT = {field.name: field for field in fields_of(SweepQuestion)}


@dataclass(frozen=True, repr=False)
class StepQuestion(Asked):
    """A training step, and the sweeps whose plans it is to be estimated with."""

    step: str | TrainingStep = asked(
        Object(("gapless.profiles.steps.profile.TrainingStep",)),
        "transformer-xl, bert-large, mixture-of-experts, or a file",
        is_required=True, metavar="NAME", names=_step_names,
    )  # fmt: skip
    batch: tuple[int, ...] = asked(Listed(Whole(1, 10**6)), "samples of a step", (1, 2, 4, 8), metavar="N,N,...")
    sweep: tuple[str, ...] | None = asked(
        Listed(Text()), "folders of sweeps, one for each collective; without, they are made first", metavar="DIR,DIR"
    )
    topology: str | Topology | None = said(_SWEPT["topology"])
    topology_file: str | None = said(_SWEPT["topology_file"])
    nodes: int | None = said(_SWEPT["nodes"])
    sketch: Sequence[str | Sketch] | None = said(_SWEPT["sketch"])
    output: str | None = asked(Text(), "folder for the sweeps", otherwise="none is kept", metavar="DIR", short="-o")


_BACKENDS = ("gloo", "nccl", "mpi")
_WAIT = Field("wait", Seconds(), "the longest that a rank waits for another", 60.0, metavar="T")


@dataclass(frozen=True, repr=False)
class RunQuestion(Asked):
    """A plan to run, and how often; or a folder of winners to train with."""

    plan: str | None = asked(Text(), "the plan to run, a file", otherwise="give `tuned`", metavar="FILE")
    backend: str = asked(
        Choice(_BACKENDS),
        "of torch.distributed; nccl: each rank on the GPU of its place on the machine; mpi: started by its launcher",
        "gloo",
    )
    repeats: int = asked(Whole(1, 10**4), "calls of the plan, and of the library, in turn", 9, metavar="N")
    wait: float = said(_WAIT)
    output: str | None = asked(
        Text(), "where to write what was measured; `report --measured` takes it", metavar="FILE", short="-o"
    )
    model: str | None = asked(
        Text(), "train this model too, gradients summed by the plan: train:gpt, or FILE.py:FACTORY",
        metavar="MODULE:FACTORY[,OPTION=N]", group="training",
    )  # fmt: skip
    tuned: str | None = asked(
        Text(), "train with the winners of this folder, that `gapless tune` wrote, instead of a plan", metavar="DIR",
        group="training",
    )  # fmt: skip
    steps: int = asked(Whole(1, 10**6), "steps of the training", 20, metavar="N", group="training")
    without_turns: bool = asked(Flag(), "don't let ranks take what they share in turn", False)
    anyway: bool = asked(Flag(), "run a plan that the library is predicted to be faster than", False)


@dataclass(frozen=True, repr=False)
class LinksQuestion(Asked):
    """The links of a machine, to be measured."""

    ranks: int | None = asked(
        Whole(2, 1024), "processes", otherwise="2; a launcher has started its own", metavar="P"
    )  # fmt: skip
    backend: str = asked(Choice(_BACKENDS), "of torch.distributed: gloo, nccl, mpi", "gloo")
    sizes: Sequence[int] | None = asked(
        Listed(Size()), "of chunks", otherwise="8 bytes, and what a link carries in 25, 12 and 6 ms",
        metavar="SIZE,SIZE,...",
    )  # fmt: skip
    by: str = asked(
        Choice(("class", "pair")), "a cost for each class of links, or each pair in a node", "class"
    )  # fmt: skip
    precision: float = asked(
        Number(0, strict=True, maximum=1), "the half of a 95 % interval, as a share of the cost, that is small enough",
        0.03, metavar="P",
    )  # fmt: skip
    time_limit: float = asked(
        Number(0, strict=True, maximum=MOST_SECONDS), "seconds for all of it; what is known then is written", 60.0,
        metavar="S",
    )  # fmt: skip
    machine: str | None = asked(
        Text(), "say in which order of its ranks each node is wired as this machine, what is near the NIC first",
        metavar="NAME", names=topology_names,
    )  # fmt: skip
    relabel: bool = asked(Flag(), "number the ranks of each node anew, those near the NIC first", False)
    wait: float = said(_WAIT)
    output: str = said(output("the topology file to write"))
