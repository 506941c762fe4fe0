"""What is asked of Bagpipe: some batches of a trace, to be planned for trainers with a cache, on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from gapless.profiles.traces.trace_question import OPTIMIZERS, TraceQuestion
from gapless.question import Asked, asked
from gapless.question.fields import Bandwidth, Choice, Flag, Listed, Number, Object, Seconds, Size, Text, Whole

if TYPE_CHECKING:
    from gapless.profiles.traces.recommendation import DenseModel

__all__ = [
    "BASELINES",
    "DESIGNS",
    "LAYOUTS",
    "METHODS",
    "MODELS",
    "OBJECTIVES",
    "OWNERSHIPS",
    "PAPERS",
    "PLACEMENTS",
    "SHARDED",
    "TRAINER_FLOPS_PER_S",
    "AdviceQuestion",
    "ClusterQuestion",
    "Question",
]

METHODS = ("auto", "transport", "search", "milp", "lp", "min_cost_flow", "contiguous", "random")
"""`auto` is `transport` for the paper's objective, `search` for the others."""
OBJECTIVES = ("auto", "paper", "fetches", "max-load", "synchronised", "time")
"""`auto` is the design's own: `time` for `lrpp-fine-grained`, `synchronised` for the other LRPPs, else `paper`, as
`fetches` and `max-load` for `partitioned`."""
OWNERSHIPS = ("first-touch", "hash")
PAPERS = "lrpp-delayed"
"""The design of the paper."""
DESIGNS = ("replicated", "partitioned", "lrpp", "lrpp-delayed", "lrpp-fine-grained")
BASELINES = {"static-hot": "lrpp", "lfu": "partitioned"}
"""Caches that don't look ahead, each with the design by which its rows lie on the trainers and move."""
SHARDED = ("table-wise", "row-wise")
"""Tables on the trainers themselves, by how they are cut, and no cache: model parallelism as TorchRec's."""
LAYOUTS = {**{name: name for name in DESIGNS}, **BASELINES, **dict.fromkeys(SHARDED, "sharded")}
"""Of every design, how rows lie and move."""

MODELS = ("dlrm", "wide-and-deep", "deep-and-cross", "deepfm")
"""Dense parts: of the times of a plan at full size, of `gapless run` small."""

PLACEMENTS = ("apart", "same-network", "colocated")

LOOKAHEAD = 200
"""Batches, as in the paper."""
TRAINER_BYTES_PER_S, SERVER_BYTES_PER_S, LATENCY_S = 10e9 / 8, 25e9 / 8, 50e-6
"""The paper's: p3.2xlarge trainers, a c5.18xlarge server."""
TRAINER_FLOPS_PER_S = 4.186e12
"""27 % of a V100's peak in fp32: `Cluster` says what it is from."""


@dataclass(frozen=True, repr=False)
class ClusterQuestion(Asked):
    """The cluster that a dense model's training takes place on; what is said goes before what the model says."""

    _: KW_ONLY
    model: str | DenseModel = asked(
        Object(("gapless.profiles.traces.recommendation.DenseModel",)),
        f"dense part: {', '.join(MODELS)}", MODELS[0], metavar="NAME", group="cluster",
    )  # fmt: skip
    dimension: int = asked(Whole(1, 10**6), "fp32 values of a row", 48, metavar="D", group="cluster")
    optimizer: str = asked(
        Choice(OPTIMIZERS), f"of rows: {', '.join(OPTIMIZERS)}; state moves with them", "sgd", metavar="NAME",
        group="cluster",
    )  # fmt: skip
    trainer_flops: float | None = asked(
        Number(0, strict=True), "floating-point operations of a trainer a second", otherwise=TRAINER_FLOPS_PER_S,
        metavar="F", group="cluster",
    )  # fmt: skip
    trainer_bandwidth: float | None = asked(
        Bandwidth(), "bandwidth of each trainer", otherwise=TRAINER_BYTES_PER_S, metavar="B", group="cluster"
    )
    server_bandwidth: float | None = asked(
        Bandwidth(), "bandwidth of each server", otherwise=SERVER_BYTES_PER_S, metavar="B", group="cluster"
    )
    servers: int | None = asked(
        Whole(1, 2**15), "number of servers, each with a slice of every row", otherwise=1, metavar="S", group="cluster"
    )
    placement: str = asked(
        Choice(PLACEMENTS),
        "where the servers are: apart; same-network, that of synchronisation; colocated, in trainers", "apart",
        metavar="NAME", group="cluster",
    )  # fmt: skip
    latency: float | None = asked(Seconds(), "latency of a message", otherwise=LATENCY_S, metavar="T", group="cluster")
    fetch_latency: float | None = asked(
        Seconds(), "time from asking for rows to the first one", otherwise=0.0, metavar="T", group="cluster"
    )
    forward: float | None = asked(
        Seconds(), "time of the forward pass of a trainer's part of a batch", otherwise="by the model's arithmetic",
        metavar="T", group="cluster",
    )  # fmt: skip
    backward: float | None = asked(
        Seconds(), "time of the backward pass", otherwise="twice the forward pass", metavar="T", group="cluster"
    )
    control: float | None = asked(
        Seconds(), "measured overhead a batch of designs that send rows between trainers", otherwise=0.0, metavar="T",
        group="cluster",
    )  # fmt: skip


@dataclass(frozen=True, repr=False)
class Question(TraceQuestion, ClusterQuestion):
    """The plans of a trace's first batches, for trainers with a cache.

    `lookahead` to `batches` are as for `Planning`, `resume` is as for `Problem`.
    """

    _: KW_ONLY
    trainers: int = asked(
        Whole(1, 2**15 - 1), "number of trainers, which hold the cache", is_required=True, metavar="P"
    )
    batch_size: int = asked(Whole(1), "examples of a batch", is_required=True, metavar="N")
    lookahead: int | None = asked(Whole(1), "batches to look ahead", otherwise=LOOKAHEAD, metavar="L")
    cache_rows: int | None = asked(
        Whole(1), "rows that fit into the cache; the lookahead shrinks until they do", metavar="N"
    )
    objective: str = asked(
        Choice(OBJECTIVES),
        "what partitions minimise: paper, fetches, max-load for design partitioned, synchronised for lrpp, time for "
        "lrpp-fine-grained; auto: by design", "auto", metavar="NAME",
    )  # fmt: skip
    method: str = asked(Choice(METHODS), f"what decides: {', '.join(METHODS)}", "auto", metavar="NAME")
    ownership: str = asked(Choice(OWNERSHIPS), "who owns a row: first-touch or hash", "first-touch", metavar="NAME")
    shares: Sequence[float] | None = asked(
        Listed(Number(0, strict=True)), "each trainer's share of a batch, such as 3,2,2,1", otherwise="even",
        metavar="S,S,...",
    )  # fmt: skip
    design: str = asked(
        Choice(("auto", *LAYOUTS)),
        f"of the cache: auto (the fastest), {', '.join(DESIGNS)}; "
        f"for --cache-rows: {', '.join(BASELINES)}; tables on trainers, no cache: "
        f"{', '.join(SHARDED)}", "auto",
        metavar="NAME",
    )  # fmt: skip
    replicate_budget: int | None = asked(
        Size(), "memory of each trainer for tables that stay on all trainers; the solve chooses which", metavar="SIZE"
    )
    memory: int | None = asked(
        Size(),
        "memory of each trainer for rows, optimiser state and gradients; picks lookahead, cache and replicated tables",
        metavar="SIZE",
    )  # fmt: skip
    batches: int = asked(Whole(1), "batches to plan", 50, metavar="N")
    resume: str | None = asked(
        Text(), "go on with the run in this file, as far as it came", metavar="FILE", is_asked=False
    )


@dataclass(frozen=True, repr=False)
class AdviceQuestion(TraceQuestion, ClusterQuestion):
    """The cache designs for a lookahead; with a cache, the smallest lookahead within 1 % of the fastest for `design`.

    `cache_size`: of the cache in bytes, instead of `cache_rows`; `lookahead` is the largest to try then.
    """

    _: KW_ONLY
    trainers: int = asked(Whole(1, 10_000), "number of trainers", 8, metavar="N")
    batch_size: int = asked(Whole(1), "examples of a batch", 16_384, metavar="N")
    lookahead: int | None = asked(

        Whole(1, 10_000), "batches to look ahead; with a cache size, the most to try", otherwise=LOOKAHEAD, metavar="L",
    )  # fmt: skip
    cache_rows: int | None = asked(Whole(1, 2**40), "tune the lookahead for this cache", metavar="N")
    cache_size: int | None = asked(Size(), "the same, in bytes such as 500MB", metavar="SIZE")
    batches: int | None = asked(Whole(1), "plan no more than so many each time", metavar="N")
    objective: str = asked(
        Choice(OBJECTIVES), "what partitions minimise: paper, fetches, max-load, synchronised, time", "auto",
        metavar="NAME",
    )  # fmt: skip
    design: str = asked(Choice(DESIGNS), "cache design to tune for", PAPERS, metavar="NAME")
    baselines: bool = asked(
        Flag(), f"baselines too: caches without lookahead, tables without a cache: {', '.join([*BASELINES, *SHARDED])}",
        False,
    )  # fmt: skip
