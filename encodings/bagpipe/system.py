"""Bagpipe as the rest of gapless sees it."""

from __future__ import annotations

from gapless.fields import Bandwidth, Choice, Field, Flag, Listed, Number, Object, Seconds, Size, Text, Whole
from gapless.profiles.traces.row_optimizers import OPTIMIZERS
from gapless.system import Command, System, answering_in_time, lazy, named

__all__ = ["BASELINES", "DESIGNS", "METHODS", "OBJECTIVES", "OWNERSHIPS", "PLACEMENTS", "SYSTEM"]


METHODS = ("auto", "transport", "search", "milp", "lp", "min_cost_flow", "contiguous", "random")
"""`auto` is `transport` for the paper's objective, `search` for the others."""
OBJECTIVES = ("auto", "paper", "fetches", "max-load", "synchronised")
"""`auto` is the design's own: `synchronised` for LRPP, else `paper`, as `fetches` and `max-load` for `partitioned`."""
OWNERSHIPS = ("first-touch", "hash")
DESIGNS = ("replicated", "partitioned", "lrpp", "lrpp-delayed", "lrpp-fine-grained")
BASELINES = {"static-hot": "lrpp", "lfu": "partitioned"}
"""Caches without lookahead (`demand.py`), each with the design by which its rows lie on the trainers and move."""


PLACEMENTS = ("apart", "same-network", "colocated")


def _trace(group: str) -> tuple[Field, ...]:
    return (
        Field(
            "trace",
            Object(("gapless.profiles.traces.trace.Trace", "gapless.profiles.traces.bags.Bags", "numpy.ndarray")),
            "criteo-like, zipf, skew, or a file: .npy, .npz (integers, examples x tables), .csv, .csv.gz",
            is_required=True, metavar="NAME|FILE", names=lambda: ("criteo-like", "zipf", "skew"), group=group,
        ),
        Field(
            "columns", Listed(Text()), "of a csv: the columns that become tables", metavar="A,B,...", group=group
        ),
        Field(
            "string_columns", Listed(Text()), "columns whose numbers are names, not ids", metavar="A,...",
            group=group,
        ),
        Field(
            "bag_columns", Listed(Text()), "columns whose cells are lists, such as 3;17;4", metavar="A,...",
            group=group,
        ),
        Field("array", Text(), "the array, of a .npz that has several", metavar="NAME", group=group),
        Field("exponent", Number(1), "skew of the generator zipf, 1 to 5 (default 1)", metavar="A", group=group),
        Field(
            "hot_share", Number(0, strict=True),
            "for the generator skew: share of accesses to the hottest 1 % of rows (default 0.4)",
            metavar="S", group=group,
        ),
        Field(
            "table_rows", Listed(Whole(1, 2**40)),
            "rows of each table, for zipf, skew (default: Criteo Kaggle's) and files",
            metavar="R,R,...", group=group,
        ),
        Field(
            "examples", Whole(1, 10**12),
            "examples to generate (default: as many as Criteo Kaggle, 39.2 M)", metavar="N", group=group
        ),
        Field("trace_seed", Whole(0), "seed of a generator (default 0)", metavar="N", group=group),
        Field(
            "pooling_factors", Listed(Number(1)), "for generators: mean ids of a bag, one for each table or for all",
            metavar="F,F,...", group=group,
        ),
    )  # fmt: skip


_CLUSTER = (
    Field(
        "model", Object(("gapless.profiles.traces.recommendation.DenseModel",)),
        "dense part: dlrm (default), wide-and-deep, deep-and-cross, deepfm", "dlrm", metavar="NAME", group="cluster",
    ),
    Field("dimension", Whole(1, 10**6), "fp32 values of a row (default 48)", 48, metavar="D", group="cluster"),
    Field(
        "optimizer", Choice(OPTIMIZERS), f"of rows: {', '.join(OPTIMIZERS)} (default sgd); state moves with them",
        "sgd", metavar="NAME", group="cluster",
    ),
    Field(
        "trainer_flops", Number(0, strict=True),
        "floating-point operations of a trainer a second (default 4.186e12)", metavar="F",
        group="cluster",
    ),
    Field("trainer_bandwidth", Bandwidth(), "bandwidth of each trainer (default 10Gbps)", metavar="B", group="cluster"),
    Field("server_bandwidth", Bandwidth(), "bandwidth of each server (default 25Gbps)", metavar="B", group="cluster"),
    Field(
        "servers", Whole(1, 2**15),
        "number of servers, each with a slice of every row (default 1)", metavar="S", group="cluster"
    ),
    Field(
        "placement", Choice(PLACEMENTS),
        "where the servers are: apart (default); same-network, that of synchronisation; colocated, in trainers",
        "apart",
        metavar="NAME", group="cluster",
    ),
    Field("latency", Seconds(), "latency of a message (default 50us)", metavar="T", group="cluster"),
    Field(
        "fetch_latency", Seconds(),
        "time from asking for rows to the first one (default 0)", metavar="T", group="cluster"
    ),
    Field(
        "forward", Seconds(),
        "time of the forward pass of a trainer's part of a batch (default: by the model's arithmetic)", metavar="T",
        group="cluster",
    ),
    Field(
        "backward", Seconds(),
        "time of the backward pass (default: twice the forward pass)", metavar="T", group="cluster"
    ),
    Field(
        "control", Seconds(), "overhead of a partitioned cache a batch (default 85ms)", metavar="T", group="cluster"
    ),
)  # fmt: skip

QUESTION = (
    *_trace("problem"),
    Field("trainers", Whole(1, 2**15 - 1), "number of trainers, which hold the cache", is_required=True, metavar="P"),
    Field("batch_size", Whole(1), "examples of a batch", is_required=True, metavar="N"),
    Field("lookahead", Whole(1), "batches to look ahead (default 200)", metavar="L"),
    Field("cache_rows", Whole(1), "rows that fit into the cache; the lookahead shrinks until they do", metavar="N"),
    Field(
        "objective", Choice(OBJECTIVES),
        "what partitions minimise: paper, fetches, max-load for design partitioned, synchronised for lrpp (default: by "
        "design)",
        "auto", metavar="NAME",
    ),
    Field("method", Choice(METHODS), f"auto (default), {', '.join(METHODS[1:])}", "auto", metavar="NAME"),
    Field(
        "ownership", Choice(OWNERSHIPS), "who owns a row: first-touch (default) or hash", "first-touch", metavar="NAME"
    ),
    Field(
        "shares", Listed(Number(0, strict=True)),
        "each trainer's share of a batch, such as 3,2,2,1 (default: even)", metavar="S,S,..."
    ),
    Field(
        "design", Choice((*DESIGNS, *BASELINES)),
        f"of the cache: {', '.join(DESIGNS)} (default lrpp-delayed); for --cache-rows: {', '.join(BASELINES)}",
        "lrpp-delayed",
        metavar="NAME",
    ),
    Field(
        "replicate_budget", Size(),
        "memory of each trainer for tables that stay on all trainers; the solve chooses which", metavar="SIZE"
    ),
    Field("batches", Whole(1), "batches to plan (default 50)", 50, metavar="N"),
    Field("resume", Text(), "go on with the run in this file, as far as it came", metavar="FILE", is_asked=False),
    *_CLUSTER,
)  # fmt: skip

ADVICE = (
    *_trace("trace"),
    Field("trainers", Whole(1, 10_000), "number of trainers (default 8)", 8, metavar="N"),
    Field("batch_size", Whole(1), "examples of a batch (default 16384)", 16_384, metavar="N"),
    Field(
        "lookahead", Whole(1, 10_000),
        "batches to look ahead (default 200); with a cache size, the most to try", metavar="L"
    ),
    Field("cache_rows", Whole(1, 2**40), "tune the lookahead for this cache", metavar="N"),
    Field("cache_size", Size(), "the same, in bytes such as 500MB", metavar="SIZE"),
    Field("batches", Whole(1), "plan no more than so many each time", metavar="N"),
    Field(
        "objective", Choice(OBJECTIVES),
        "what partitions minimise: paper, fetches, max-load, synchronised (default: the design's)",
        "auto", metavar="NAME",
    ),
    Field("design", Choice(DESIGNS), "cache design to tune for (default lrpp-delayed)", "lrpp-delayed", metavar="NAME"),
    Field("baselines", Flag(), "caches of that size without lookahead too: static-hot, lfu", False),
    *_CLUSTER,
)  # fmt: skip


RUN = (
    *_trace("trace"),
    Field("trainers", Whole(1, 64), "processes", is_required=True, metavar="P"),
    Field("batch_size", Whole(1), "examples of a batch", is_required=True, metavar="N"),
    Field("lookahead", Whole(1), "batches to look ahead (default 200)", metavar="L"),
    Field("cache_rows", Whole(1), "rows that fit into the cache; the lookahead shrinks until they do", metavar="N"),
    Field("objective", Choice(OBJECTIVES), "what partitions minimise (default paper)", "paper", metavar="NAME"),
    Field(
        "ownership", Choice(OWNERSHIPS), "who owns a row: first-touch (default) or hash", "first-touch", metavar="NAME"
    ),
    Field(
        "shares",
        Listed(Number(0, strict=True)),
        "each trainer's share of a batch, such as 3,2,2,1 (default: even)",
        metavar="S,S,...",
    ),
    Field("batches", Whole(1), "batches to train (default 20)", 20, metavar="N"),
    Field("dimension", Whole(1, 4096), "fp32 values of a row (default 16)", 16, metavar="D"),
    Field("optimizer", Choice(OPTIMIZERS), f"of rows: {', '.join(OPTIMIZERS)} (default sgd)", "sgd", metavar="NAME"),
    Field("step_size", Number(0, strict=True), "step size of the optimiser (default 0.05)", 0.05, metavar="S"),
    Field("wait", Seconds(), "the longest that a process waits for another (default 120s)", 120.0, metavar="T"),
)

_RUN_HELP = """\
Trains a small DLRM by the plans of the trace's first batches, in one gloo process a trainer, each with its cache and
its part of the embedding servers. Then trains it without a cache in one process, by PyTorch's own tables and
optimisers. Says how far the two are apart, and what the processes moved beside what the plans say. Numbers and labels
are drawn at random.

example:
  gapless run bagpipe --trace zipf --table-rows 500,40,9000 --pooling-factors 1,4,2 --trainers 2 --batch-size 64 \\
    --optimizer rowwise-adagrad
"""

_ADVICE_HELP = """\
Batches are planned for a window of the lookahead and as many again (50 at least), and their times follow from the
cluster. `critical`: rows synchronised while training waits; of a partitioned cache, what its busiest trainer sends and
receives, once each way. With a cache size, lookaheads that fit are tried first, and the smallest within 1 % of the
fastest is taken.

example:
  gapless advise bagpipe --trace criteo-like --trainers 8 --batch-size 16384 --lookahead 50
  gapless advise bagpipe --trace clicks.csv --columns user,item --trainers 4 --cache-size 200MB --fetch-latency 50ms
"""

_SUMMARY = (
    "batches_planned", "fetched_rows", "sync_now_rows", "sync_later_rows", "evicted_rows", "cache_rows_peak",
    "partition_cost", "iteration_s",
)  # fmt: skip

SYSTEM = System(
    name="bagpipe",
    what="caching and partitioning for recommendation training",
    fields=QUESTION,
    problem=lazy("gapless.encodings.bagpipe.problem:problem"),
    plan=lazy("gapless.encodings.bagpipe.solve:solve"),
    parameters=lambda: named("gapless.encodings.bagpipe.parameters:Parameters"),
    example="""\
  gapless solve bagpipe --trace criteo-like --trainers 8 --batch-size 16384 --lookahead 200 --batches 50 -o plan.npz
""",
    summary=_SUMMARY,
    lighter="fewer --batches",
    ending=".npz",
    write=lazy("gapless.encodings.bagpipe.run_file:write_run"),
    read=lazy("gapless.encodings.bagpipe.run_file:read_run"),
    device_names=lambda plan: named("gapless.encodings.bagpipe.machine:device_names")(plan.schedule.topology),
    question=(
        "{trace} on {trainers} trainers, batches of {batch_size}",
        "lookahead {lookahead}",
        "cache of {cache_rows} rows",
    ),
    budgets=lambda plan: named("gapless.encodings.bagpipe.machine:budgets")(plan.schedule.topology, plan.problem),
    pictures=("gantt", "memory"),
    advice=(
        Command(
            "bagpipe",
            "cache designs side by side, and the lookahead for a cache",
            ADVICE,
            answering_in_time("gapless.encodings.bagpipe.advice:advise"),
            _ADVICE_HELP,
            is_limited=True,
        ),
    ),
    runs=(
        Command(
            "bagpipe",
            "a DLRM trained by the plans of a trace, on processes of this machine",
            RUN,
            lazy("gapless.encodings.bagpipe.execution:execute"),
            _RUN_HELP,
            when_stopped="ending the processes",
        ),
    ),
    challenges=lazy("gapless.encodings.bagpipe.challenges:challenges"),
    cost=lazy("gapless.encodings.bagpipe.challenges:cost"),
    package="gapless.encodings.bagpipe",
)
