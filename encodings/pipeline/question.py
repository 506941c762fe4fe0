"""What is asked of pipelines: where a model is cut, in which order micro-batches run, what is sent compressed."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

from gapless.encodings.pipeline.compression.rules import RECIPES
from gapless.lazy import lazy
from gapless.options import MOST_SECONDS
from gapless.profiles.pipelines import named
from gapless.question import Asked, asked, said
from gapless.question.command_fields import HOST_MEMORY, MODEL, OFFLOAD, PLAN, WAIT, output
from gapless.question.fields import Bandwidth, Choice, Flag, Listed, Number, Object, Scaled, Seconds, Size, Text, Whole
from gapless.topologies.names import topology_names
from gapless.units import parse_plain_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gapless.io.plan import SavedPlan
    from gapless.profiles.pipelines.compression import CompressionTable
    from gapless.profiles.pipelines.profile import PipelineProfile
    from gapless.result import Result
    from gapless.topologies.topology import Topology

__all__ = [
    "BACKWARDS",
    "CUTS",
    "EMBEDDINGS",
    "EMULATED",
    "FORMS",
    "LIMITS",
    "MESSAGE_MEMORIES",
    "METHODS",
    "OBJECTIVES",
    "OPTIMIZERS",
    "RECOMPUTATIONS",
    "SCHEDULES",
    "ErrorsQuestion",
    "LayersQuestion",
    "Question",
    "RunQuestion",
]  # fmt: skip

SCHEDULES = (
    "auto", "search", "gpipe", "1f1b", "eager-1f1b", "seq1f1b", "interleaved-1f1b", "looped-bfs", "interleaved-zb",
    "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v", "hanayo", "chimera", "dualpipe", "squeezed",
    "zero-bubble",
)  # fmt: skip
_RECIPES = ", or a recipe such as 1f1b+cb+fe+sc75"
METHODS = (*SCHEDULES, *RECIPES)
"""`auto` tries all and searches on; `search`: without the exact method; `zero-bubble`: the heuristic with memory.

Recipes are tried by `auto`, too, but say what is compressed only where they are asked for by name.
"""
BACKWARDS = ("split", "whole", "auto")
CUTS = ("auto", "even", "bottleneck")
RECOMPUTATIONS = ("none", "auto", "all", "curve")
MESSAGE_MEMORIES = ("counted", "free")
OBJECTIVES = ("makespan", "span")
EMBEDDINGS = ("fused", "separate")
FORMS = ("compute", "communication")
"""Of a schedule for torch: what is computed, or messages too."""
LIMITS = ("memory", "in_flight")
"""What limits memory, one at a time."""
OPTIMIZERS = ("adam", "sgd")
EMULATED = ("none", "compute", "links")
"""What ranks wait for instead of doing it: nothing, computing, or messages too."""


def _cut(value: object) -> str | tuple[int, ...]:
    """The name of a rule, or first layers."""
    if isinstance(value, str) and value in CUTS:
        return value
    firsts: tuple[int, ...] = Listed(Whole(1))(value)
    return firsts


def _placement(value: object) -> str | tuple[int, ...]:
    """A name, the rank of each stage, or a file that has them."""
    if isinstance(value, str) and not value.replace(",", "").replace(" ", "").isdigit():
        return {"loop": "looped"}.get(value, value)
    ranks: tuple[int, ...] = Listed(Whole(0))(value)
    return ranks


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """The pipeline of a profile's layers on so many ranks.

    `hop`: seconds of a message as large as the largest boundary; or `bandwidth` and `latency`; or a topology.
    """

    profile: str | Path | PipelineProfile = asked(
        Object(("gapless.profiles.pipelines.profile.PipelineProfile",)),
        "`gapless list profiles`, gpt:layers=9,hidden=96, uniform:f=10,b=12,w=8 (seconds of a rank's part), or a file",
        is_required=True,
        metavar="NAME|FILE",
        names=lazy(lambda: named.pipeline_profile_names),
    )
    _: KW_ONLY
    ranks: int = asked(Whole(1, 1024), "ranks of the pipeline", is_required=True, metavar="P")
    micro_batches: int = asked(Whole(1, 65536), "micro-batches of a step", is_required=True, metavar="M")
    placement: str | tuple[int, ...] = asked(
        _placement,
        "which rank runs which stage: linear, looped, v, wave, bidirectional, auto (the best of them), "
        "the stages' ranks, or a file of them",
        "linear",
        metavar="NAME|R,R,...|FILE",
    )
    chunks: int | None = asked(
        Whole(1, 64),
        "stages a rank has",
        otherwise="2 for looped, v and bidirectional, 4 for wave, 2 and 4 for auto",
        metavar="N",
    )
    cut: str | tuple[int, ...] = asked(
        _cut,
        f"where the model is cut: {', '.join(CUTS)}, or the first layers of all stages but the first",
        "auto",
        metavar="NAME|L,L,...",
    )
    vocabulary_parts: int = asked(
        Whole(1, 256),
        "layers that the head is cut into along the vocabulary, to be on any stages; 1: it is one layer",
        1,
        metavar="N",
    )
    backward: str = asked(
        Choice(BACKWARDS),
        "gradients of inputs and weights as two ops: split, as one: whole, or what the profile's times favour: auto",
        "split",
    )
    overlap_cost: float = asked(
        Number(0.5, maximum=1),
        "what a forward and a backward take in one cell, measured, as a share of their sum; 1: there are no cells",
        1.0,
        metavar="X",
    )
    recomputation: str = asked(
        Choice(RECOMPUTATIONS),
        "stages that run their forward again to save memory: none, auto, all; or each layer by a policy: curve",
        "none",
    )
    work: Sequence[float] | None = asked(
        Listed(Number(0.001, maximum=1000)),
        "what computing each micro-batch takes, as a multiple of the profile's times: 1,1.3,0.8,...",
        otherwise="all alike",
        metavar="X,X,...",
    )
    slices: int = asked(
        Whole(1, 64),
        "slices of its sequence that each micro-batch is cut into, first to last forward, last to first backward",
        1,
        metavar="K",
    )
    attention: float = asked(
        Number(0, maximum=1),
        "of slices: the share of a forward, and of a gradient of inputs, that is causal attention",
        0.0,
        metavar="X",
    )
    slice_lengths: Sequence[float] | None = asked(
        Listed(Number(0.001, maximum=10**6)),
        "tokens of each slice, relative: 1,1,1,1",
        otherwise="slices of equal work",
        metavar="X,X,...",
    )
    minimise: str = asked(
        Choice(OBJECTIVES),
        "the time until the last rank is done: makespan; or the longest of a rank, where steps don't wait: span",
        "makespan",
    )
    steps: int = asked(
        Whole(1, 65536),
        "steps that follow one another in the same order, each rank on its own: the end of the last one is minimised",
        1,
        metavar="N",
    )
    method: str = asked(
        Choice(METHODS, len(SCHEDULES), _RECIPES), f"what decides: {', '.join(SCHEDULES)}{_RECIPES}", "auto",
        metavar="NAME",
    )  # fmt: skip
    memory: int | None = asked(Size(), "memory of a rank, such as 40GiB", metavar="SIZE", group="memory")
    in_flight: int | None = asked(
        Whole(1, 65536), "instead of bytes: how many micro-batches a rank may hold at once", metavar="N", group="memory"
    )
    message_memory: str = asked(
        Choice(MESSAGE_MEMORIES),
        "messages take memory of their sender and receiver: counted; or they don't: free, as with --in-flight",
        "counted",
        group="memory",
    )
    offload: float | None = said(replace(OFFLOAD, group="memory"))
    host_memory: int | None = said(replace(HOST_MEMORY, group="memory"))
    from_plan: str | SavedPlan | Result | None = asked(
        Object(("gapless.io.plan.SavedPlan", "gapless.result.Result")),
        "a plan to begin with, such as one for less memory: a search goes on from its order",
        metavar="FILE",
        is_asked=False,
        called="from",
    )
    hop: float | None = asked(
        Scaled(parse_plain_seconds, Number(0, maximum=MOST_SECONDS)),
        "seconds of a plain message between neighbours: 2, 1.5ms",
        metavar="T",
        group="network",
    )
    bandwidth: float | None = asked(
        Bandwidth(), "instead of --hop: bandwidth between neighbours, such as 200Gbps", metavar="B", group="network"
    )
    latency: float | None = asked(Seconds(), "latency of a message", otherwise=0, metavar="T", group="network")
    topology: str | Topology | None = asked(
        Object(("gapless.topologies.topology.Topology",)),
        "instead of --hop: take the links of ndv2, ring:8, ...",
        metavar="NAME",
        names=topology_names,
        group="network",
    )
    nodes: int | None = asked(
        Whole(1, 10**6), "number of the topology's nodes", otherwise=1, metavar="N", group="network"
    )
    blocking_sends: bool = asked(Flag(), "a rank computes nothing while it sends", False, group="network")
    replicas: int = asked(Whole(1, 10**6), "data-parallel degree", 1, metavar="D", group="replicas")
    replica_bandwidth: float | None = asked(
        Bandwidth(), "bandwidth of the sum among replicas", otherwise="--bandwidth", metavar="B", group="replicas"
    )
    embedding: str = asked(
        Choice(EMBEDDINGS),
        "how a shared embedding's gradients are summed: fused, separate",
        "fused",
        group="replicas",
    )
    compression: str | Path | CompressionTable | None = asked(
        Object(("gapless.profiles.pipelines.compression.CompressionTable",)),
        "a table of measured errors; without one nothing is compressed",
        metavar="FILE",
        group="compression",
    )
    error_budget: float = asked(
        Number(0),
        "the most that compression may spoil: relative squared errors, added up",
        0.0,
        metavar="E",
        group="compression",
    )


@dataclass(frozen=True, repr=False)
class RunQuestion(Asked):
    """A plan run by torch on processes of this machine: a step beside one process, or a training of `steps`."""

    model: str | None = asked(
        MODEL.kind, MODEL.help, otherwise="none, where computing is emulated", metavar=MODEL.metavar
    )
    plan: str = said(PLAN)
    ranks: int = asked(
        Whole(1, 1024), "processes, as many as the plan has ranks; a training has them for each of the plan's replicas",
        is_required=True, metavar="P",
    )  # fmt: skip
    steps: int = asked(
        Whole(1, 10**6), "of a training: plain, and in the plan's modes with and without error propagation", 1,
        metavar="N", group="training",
    )  # fmt: skip
    optimizer: str = asked(Choice(OPTIMIZERS), "what takes the gradients: adam, sgd", "adam", group="training")
    learning_rate: float = asked(Number(0), "of every step", 0.001, metavar="X", group="training")
    warm_up: int = asked(
        Whole(0, 10**6), "steps at the start in which nothing is compressed", 0, metavar="N", group="training"
    )
    rules: Sequence[str] | None = asked(
        Listed(Text()), "trained besides: rules of Optimus-CC on the plan's order, such as cb,naive-cb,cb+fe+sc75",
        otherwise="none", metavar="RULE,RULE,...", group="training",
    )  # fmt: skip
    hop_mode: Sequence[str] = asked(
        Listed(Text()), "modes of hops that rules compress, each in a training of its own", ("rank 4",),
        metavar="MODE,MODE,...", group="training",
    )  # fmt: skip
    sum_mode: Sequence[str] = asked(
        Listed(Text()), "modes of sums that rules compress, likewise", ("rank 4",), metavar="MODE,MODE,...",
        group="training",
    )  # fmt: skip
    errors_every: int = asked(
        Whole(0, 10**6), "look at what compressed hops lose every so many steps; 0: never", 0, metavar="N",
        group="training",
    )  # fmt: skip
    form: str = asked(Choice(FORMS), "of the schedule that torch gets", "compute")
    repeats: int = asked(
        Whole(0, 10**6), "steps that are timed besides, of which the median is taken", 5, metavar="N", group="times"
    )
    emulate: str = asked(
        Choice(EMULATED), "wait as long as the plan says instead of computing: compute; for messages, too: links",
        "none", group="times",
    )  # fmt: skip
    op: float = asked(
        Seconds(), "of an emulated op on the mean, to which the plan's times are scaled", 0.02, metavar="T",
        group="times",
    )  # fmt: skip
    error_propagation: bool = asked(Flag(), "add what compression loses to the hop's next gradient", False)
    wait: float = said(WAIT)


@dataclass(frozen=True, repr=False)
class _Measured(Asked):
    model: str = said(MODEL)
    micro_batches: int = asked(Whole(1, 65536), "micro-batches into which the batch is cut", 1, metavar="M")
    repeats: int = asked(Whole(1), "runs of which the median is taken", 9, metavar="N")


@dataclass(frozen=True, repr=False)
class LayersQuestion(_Measured):
    """The layers of a model, to be measured."""

    processes: int | None = asked(
        Whole(1, 1024), "processes that measure at once, a thread each, as ranks of a run do",
        otherwise="this one, with all its threads", metavar="N",
    )  # fmt: skip
    policies: bool = asked(
        Flag(), "plan each layer within less and less memory, as policies for --recomputation curve", False
    )
    optimizer_ratio: float = asked(Number(0), "bytes of the optimiser for one of parameters; Adam: 2", 2.0)
    output: str = said(output("the profile to write"))
    wait: float = said(WAIT)


@dataclass(frozen=True, repr=False)
class ErrorsQuestion(_Measured):
    """What compressors spoil of a model's gradients, to be measured."""

    modes: Sequence[str] = asked(
        Listed(Text()), "compressors, with commas between them: rank N, top X%, float16, onebit, ...",
        ("rank 4", "rank 16", "top 1%", "float16", "bfloat16"), metavar="MODE,MODE,...",
    )  # fmt: skip
    depths: int = asked(Whole(1), "boundaries between layers at which hops are measured", 8, metavar="N")
    output: str = said(output("the table to write"))
