"""What is asked of XXX."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from gapless.fields import Bandwidth, Choice, Listed, Number, Object, Seconds, Size, Text, Whole
from gapless.profiles.traces.row_optimizers import OPTIMIZERS
from gapless.question import Asked, asked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from dataclasses import dataclass
    from pathlib import Path
    import numpy as np
    from numpy.typing import NDArray
    from gapless.profiles.traces.bags import Bags
    from gapless.profiles.traces.recommendation import DenseModel
    from gapless.profiles.traces.trace import Trace

__all__ = ["Question"]

# CONSTANTS


@dataclass(frozen=True, repr=False)
class Question(Asked):
    """The plans of a trace's first batches, for trainers with a cache.

    `lookahead` to `batches` are as for `Planning`, `replicate_budget` is in bytes, `resume` is as for `Problem`,
    `columns` to `pooling_factors` as for `find_trace`, `model` to `control` as for `find_cluster`. Raises `InputError`
    that names an argument which is unknown or doesn't go with the others."""

    trace: str | Path | Trace | NDArray[np.integer] | Bags = asked(
        Object(("gapless.profiles.traces.trace.Trace", "gapless.profiles.traces.bags.Bags", "numpy.ndarray")),
        "criteo-like, zipf, skew, or a file: .npy, .npz (integers, examples x tables), .csv, .csv.gz",
        is_required=True,
        metavar="NAME|FILE",
        names=lambda: ("criteo-like", "zipf", "skew"),
    )
    _: KW_ONLY
    columns: Sequence[str] | None = asked(Listed(Text()), "of a csv: the columns that become tables", metavar="A,B,...")
    string_columns: Sequence[str] | None = asked(
        Listed(Text()), "columns whose numbers are names, not ids", metavar="A,..."
    )
    bag_columns: Sequence[str] | None = asked(
        Listed(Text()), "columns whose cells are lists, such as 3;17;4", metavar="A,..."
    )
    array: str | None = asked(Text(), "the array, of a .npz that has several", metavar="NAME")
    exponent: float | None = asked(Number(1), "skew of the generator zipf, 1 to 5", otherwise=1, metavar="A")
    hot_share: float | None = asked(
        Number(0, strict=True),
        "for the generator skew: share of accesses to the hottest 1 % of rows",
        otherwise="0.4",
        metavar="S",
    )
    table_rows: Sequence[int] | None = asked(
        Listed(Whole(1, 2**40)),
        "rows of each table, for zipf, skew and files",
        otherwise="Criteo Kaggle's",
        metavar="R,R,...",
    )
    examples: int | None = asked(
        Whole(1, 10**12), "examples to generate", otherwise="as many as Criteo Kaggle, 39.2 M", metavar="N"
    )
    trace_seed: int | None = asked(Whole(0), "seed of a generator", otherwise=0, metavar="N")
    pooling_factors: Sequence[float] | None = asked(
        Listed(Number(1)), "for generators: mean ids of a bag, one for each table or for all", metavar="F,F,..."
    )
    trainers: int = asked(
        Whole(1, 2**15 - 1), "number of trainers, which hold the cache", is_required=True, metavar="P"
    )
    batch_size: int = asked(Whole(1), "examples of a batch", is_required=True, metavar="N")
    lookahead: int | None = asked(Whole(1), "batches to look ahead", otherwise=200, metavar="L")
    cache_rows: int | None = asked(
        Whole(1), "rows that fit into the cache; the lookahead shrinks until they do", metavar="N"
    )
    objective: str = asked(
        Choice(OBJECTIVES),
        "what partitions minimise: paper, fetches, max-load for design partitioned, synchronised for lrpp; auto: by design",
        default="auto",
        metavar="NAME",
    )
    method: str = asked(Choice(METHODS), f"what decides: {', '.join(METHODS)}", default="auto", metavar="NAME")
    ownership: str = asked(
        Choice(OWNERSHIPS), "who owns a row: first-touch or hash", default="first-touch", metavar="NAME"
    )
    shares: Sequence[float] | None = asked(
        Listed(Number(0, strict=True)),
        "each trainer's share of a batch, such as 3,2,2,1",
        otherwise="even",
        metavar="S,S,...",
    )
    design: str = asked(
        Choice((*DESIGNS, *BASELINES)),
        f"of the cache: {', '.join(DESIGNS)}; for --cache-rows: {', '.join(BASELINES)}",
        default="lrpp-delayed",
        metavar="NAME",
    )
    replicate_budget: int | None = asked(
        Size(), "memory of each trainer for tables that stay on all trainers; the solve chooses which", metavar="SIZE"
    )
    batches: int = asked(Whole(1), "batches to plan", default=50, metavar="N")
    resume: str | None = asked(Text(), "go on with the run in this file, as far as it came", metavar="FILE")
    model: str | DenseModel = asked(
        Object(("gapless.profiles.traces.recommendation.DenseModel",)),
        "dense part: dlrm, wide-and-deep, deep-and-cross, deepfm",
        default="dlrm",
        metavar="NAME",
        group="cluster",
    )
    dimension: int = asked(Whole(1, 10**6), "fp32 values of a row", default=48, metavar="D", group="cluster")
    optimizer: str = asked(
        Choice(OPTIMIZERS),
        f"of rows: {', '.join(OPTIMIZERS)}; state moves with them",
        default="sgd",
        metavar="NAME",
        group="cluster",
    )
    trainer_flops: float | None = asked(
        Number(0, strict=True),
        "floating-point operations of a trainer a second",
        otherwise="4.186e12",
        metavar="F",
        group="cluster",
    )
    trainer_bandwidth: float | None = asked(
        Bandwidth(), "bandwidth of each trainer", otherwise="10Gbps", metavar="B", group="cluster"
    )
    server_bandwidth: float | None = asked(
        Bandwidth(), "bandwidth of each server", otherwise="25Gbps", metavar="B", group="cluster"
    )
    servers: int | None = asked(
        Whole(1, 2**15), "number of servers, each with a slice of every row", otherwise=1, metavar="S", group="cluster"
    )
    placement: str = asked(
        Choice(PLACEMENTS),
        "where the servers are: apart; same-network, that of synchronisation; colocated, in trainers",
        default="apart",
        metavar="NAME",
        group="cluster",
    )
    latency: float | None = asked(Seconds(), "latency of a message", otherwise="50us", metavar="T", group="cluster")
    fetch_latency: float | None = asked(
        Seconds(), "time from asking for rows to the first one", otherwise=0, metavar="T", group="cluster"
    )
    forward: float | None = asked(
        Seconds(),
        "time of the forward pass of a trainer's part of a batch",
        otherwise="by the model's arithmetic",
        metavar="T",
        group="cluster",
    )
    backward: float | None = asked(
        Seconds(), "time of the backward pass", otherwise="twice the forward pass", metavar="T", group="cluster"
    )
    control: float | None = asked(
        Seconds(), "overhead of a partitioned cache a batch", otherwise="85ms", metavar="T", group="cluster"
    )
