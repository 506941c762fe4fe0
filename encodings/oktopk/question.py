"""What is asked of Ok-Topk: a sparse allreduce of recorded index sets, to be cut into regions with owners; and what its
commands are asked: to record, to run, to train.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from gapless.lazy import lazy
from gapless.profiles.sparsity import index_file
from gapless.profiles.sparsity.estimates import ESTIMATES, EXACT
from gapless.question import Asked, asked, fields_of, said
from gapless.question.command_fields import MODEL, PLAN, REPEATS, WAIT, output
from gapless.question.fields import Bandwidth, Choice, Field, Listed, Number, Object, Seconds, Text, Whole
from gapless.topologies.names import topology_names

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.profiles.sparsity.index_sets import IndexSets
    from gapless.topologies.topology import Topology

__all__ = [
    "BANDWIDTH_BYTES_PER_S", "LATENCY_S", "METHODS", "OBJECTIVES", "SELECTIONS", "ProfileQuestion", "Question",
    "RunQuestion", "ScalingQuestion", "SelectionQuestion", "ValidationQuestion",
]  # fmt: skip

METHODS = ("auto", "exact", "joint", "milp", "robust", "averaged", "even")
"""`auto` tries all that suit the recorded steps, or is `robust` where steps are held out; the last two: baselines."""
OBJECTIVES = ("worst", "mean")
SELECTIONS = ("auto", "topk", "all")
BESIDE = ("TopkA", "Gaussiank", "TopkDSA", "gTopk")
"""Other sparse allreduces, by which training can go too."""
BANDWIDTH_BYTES_PER_S, LATENCY_S = 1.25e9, 10e-6
"""Of a flat network of which nothing is said: 10 Gbit/s out of and into a rank."""
_ADD = Field(
    "add", Seconds(), "what a rank takes to add a received entry to its sums, as in 2ns", 0.0, metavar="T",
    group="network",
)  # fmt: skip
_ADD_START = Field(
    "add_start", Seconds(), "what it takes each time, of however many entries, as in 20us", 0.0, metavar="T",
    group="network",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """The sparse allreduce of recorded or generated index sets.

    `indices`, `ranks`, `density`: as for `find_index_sets`; ranks are those of the topology where there is one. Without
    a topology the network is flat. The others: the fields of `Problem`. Raises `InputError` naming the field.
    """

    indices: str | Path | IndexSets = asked(
        Object(("gapless.profiles.sparsity.index_sets.IndexSets",)),
        "recorded index sets (.npz), or clustered, drifting, uniform, as in clustered:elements=1000000,steps=8",
        is_required=True, metavar="NAME|FILE", names=lazy(lambda: index_file.index_generator_names),
    )  # fmt: skip
    _: KW_ONLY
    ranks: int | None = asked(
        Whole(2, 1024), "number of ranks, the first recorded ones", otherwise="all, or the topology's", metavar="P"
    )
    density: float | None = asked(
        Number(0, strict=True, maximum=1), "share of the entries that a rank selects", otherwise="as recorded",
        metavar="D",
    )  # fmt: skip
    held_out: int = asked(
        Whole(0), "how many of the last steps only judge the plan, and don't shape it", 0, metavar="N"
    )
    objective: str = asked(Choice(OBJECTIVES), "minimise the time of the worst recorded step, or the mean", "worst")
    selection: str = asked(
        Choice(SELECTIONS), "what every rank gets: topk of the sum, all; auto: topk where values were recorded", "auto"
    )
    method: str = asked(Choice(METHODS), f"what decides: {', '.join(METHODS)}", "auto", metavar="NAME")
    topology: str | Topology | None = asked(
        Object(("gapless.topologies.topology.Topology",)), "take the links of ndv2, ring:8, ...", metavar="NAME",
        names=topology_names, group="network",
    )  # fmt: skip
    nodes: int | None = asked(
        Whole(1, 10**6), "number of the topology's nodes", otherwise=1, metavar="N", group="network"
    )
    bandwidth: float | None = asked(
        Bandwidth(), "without a topology: bandwidth into and out of each rank", otherwise=BANDWIDTH_BYTES_PER_S,
        metavar="B", group="network",
    )  # fmt: skip
    latency: float | None = asked(
        Seconds(), "without a topology: latency of a message", otherwise=LATENCY_S, metavar="T", group="network"
    )
    add: float = said(_ADD)
    add_start: float = said(_ADD_START)


_RANKS = Field("ranks", Whole(1, 1024), "processes: must be those of the plan", otherwise="as many", metavar="P")
_RATE = Field("learning_rate", Number(0, strict=True), "learning rate", 0.1, metavar="R")
_OPTIMIZER = Field("optimizer", Choice(("sgd", "adam", "adamw")), "what updates the model", "sgd")
_DECAY = Field("weight_decay", Number(0), "weight decay of the optimizer", 0.0, metavar="R")
_ESTIMATE = Field(
    "estimate", Choice(ESTIMATES), f"how a rank finds its threshold: {', '.join(ESTIMATES)}", EXACT, metavar="NAME"
)
_PERIOD = Field("period", Whole(1, 10**6), "steps between two thresholds", 32, metavar="N")
_DENSITY = Field(
    "density", Number(0, strict=True, maximum=1), "share of the entries that a rank selects", 0.01, metavar="D"
)


@dataclass(frozen=True, repr=False)
class ProfileQuestion(Asked):
    """Which entries of its gradient each rank selects, in training."""

    model: str = said(MODEL)
    ranks: int = asked(Whole(1, 1024), "processes", 4, metavar="P")
    density: float = said(_DENSITY)
    estimate: str = said(_ESTIMATE)
    steps: int = asked(Whole(1, 10**6), "steps of training, all of which are recorded", 50, metavar="N")
    learning_rate: float = said(_RATE)
    optimizer: str = said(_OPTIMIZER)
    weight_decay: float = said(_DECAY)
    wait: float = said(WAIT)
    output: str = said(output("the index sets to write, .npz"))


@dataclass(frozen=True, repr=False)
class ScalingQuestion(Asked):
    """What allreduces take as ranks are added."""

    indices: str | Path | IndexSets = said(fields_of(Question)[0])
    ranks: tuple[int, ...] = asked(
        Listed(Whole(2, 1024)), "numbers of ranks; the efficiency is against the fewest", (32, 64, 128, 256),
        metavar="P,P,...",
    )  # fmt: skip
    density: float = said(_DENSITY)
    compute: float = asked(Seconds(), "what computing a step takes", 0.0, metavar="T")
    bandwidth: float = asked(
        Bandwidth(), "bandwidth into and out of each rank", BANDWIDTH_BYTES_PER_S, metavar="B", group="network"
    )
    latency: float = asked(Seconds(), "latency of a message", LATENCY_S, metavar="T", group="network")
    add: float = said(_ADD)
    add_start: float = said(_ADD_START)


@dataclass(frozen=True, repr=False)
class RunQuestion(Asked):
    """A plan between processes of this machine."""

    plan: str = said(PLAN)
    indices: str | None = asked(
        Text(), "the index sets that the plan was made for; needed where they were recorded", metavar="FILE"
    )
    ranks: int | None = said(_RANKS)
    repeats: int = said(REPEATS)
    wait: float = said(WAIT)


@dataclass(frozen=True, repr=False)
class ValidationQuestion(Asked):
    """Training by a plan beside others."""

    model: str = said(MODEL)
    plan: str = said(PLAN)
    ranks: int | None = said(_RANKS)
    steps: int = asked(Whole(1, 10**6), "steps of each training", 200, metavar="N")
    learning_rate: float = said(_RATE)
    optimizer: str = said(_OPTIMIZER)
    weight_decay: float = said(_DECAY)
    estimate: str = said(_ESTIMATE)
    period: int = said(_PERIOD)
    renewal: int = asked(Whole(1, 10**6), "steps between two sets of regions", 64, metavar="N")
    balance_above: float | None = asked(
        Number(1), "balance in steps in which a rank holds more than this factor of the mean sums (the paper: 4)",
        otherwise="as the plan says", metavar="F",
    )  # fmt: skip
    beside: tuple[str, ...] = asked(
        Listed(Choice(BESIDE)), f"what else is trained by: {', '.join(BESIDE)}", ("TopkA",), metavar="NAME,..."
    )
    bandwidth: float | None = asked(
        Bandwidth(), "of an emulated wire, into and out of each rank", otherwise="as this machine has it", metavar="B",
        group="network",
    )  # fmt: skip
    latency: float = asked(Seconds(), "of its messages", LATENCY_S, metavar="T", group="network")
    compute: float = asked(
        Seconds(), "what computing a step takes at least, two thirds of it in the backward pass", 0.0, metavar="T",
        group="network",
    )  # fmt: skip
    wait: float = said(WAIT)


@dataclass(frozen=True, repr=False)
class SelectionQuestion(Asked):
    """What thresholds select in training, and the xi of Ok-Topk's assumption."""

    model: str = said(MODEL)
    ranks: int = asked(Whole(2, 1024), "processes", 4, metavar="P")
    density: float = said(_DENSITY)
    period: int = said(_PERIOD)
    steps: int = asked(Whole(1, 10**6), "steps of training", 200, metavar="N")
    learning_rate: float = said(_RATE)
    optimizer: str = said(_OPTIMIZER)
    weight_decay: float = said(_DECAY)
    wait: float = said(WAIT)
