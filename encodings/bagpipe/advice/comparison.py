"""Comparison: what an iteration moves and takes, by cache design (Figures 5.6 and 5.7) and by lookahead (Table 5.3).

Means over the batches after the first window.

**The lookahead for a cache.** The paper's rule takes all that fits: batches are prefetched until the cache is full, L
is how many were, and shrinks where a later window is wider. But beyond some L nothing gets faster (Table 5.3: 100), and
the cache is better used for something else: the tuner takes the smallest L that is within 1 % of the fastest that it
tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.batch_plans import BatchPlan, batch_plans
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.counts import Counts, counted
from gapless.encodings.bagpipe.designs.pipeline import Pipeline, pipeline
from gapless.encodings.bagpipe.lookahead.steps import lookahead_steps
from gapless.encodings.bagpipe.parameters import Bound, Parameters
from gapless.encodings.bagpipe.problem import Planning
from gapless.encodings.bagpipe.question import BASELINES, DESIGNS, PAPERS, SHARDED
from gapless.errors import InputError
from gapless.options import Deadline
from gapless.profiles.traces.trace import Trace

__all__ = [
    "TOLERANCE",
    "DesignSummary",
    "LookaheadSummary",
    "Tuning",
    "batches_wanted",
    "candidates",
    "compare_baselines",
    "compare_designs",
    "counted_run",
    "fitting_lookahead",
    "lookahead_table",
    "summary",
    "tune_lookahead",
]

LEAST_MEASURED = 50
"""Batches after the first window that a time is the mean of, if the trace has them."""


@dataclass(frozen=True)
class DesignSummary:
    """A design's mean iteration. Rows, as everywhere, of `row_bytes` each; synchronised, `gradient_bytes`.

    `fetched_rows`: leave the servers, copies counted. `critical_rows`: synchronised while training waits; for a
    partitioned cache the rows that the busiest trainer gets from or gives to its peers, once each way: a hot spot; of
    tables that lie on the trainers, pooled vectors instead of rows.
    `peer_rows`: all that peers exchange, once each way. `background_rows`: synchronised beside the next batch.
    `sync_s`: time on the critical path for embeddings, `stall_s`: waiting for prefetches.
    """

    design: str
    row_bytes: int
    gradient_bytes: int
    fetched_rows: float
    critical_rows: float
    background_rows: float
    peer_rows: float
    evicted_rows: float
    iteration_s: float
    sync_s: float
    stall_s: float


@dataclass(frozen=True)
class LookaheadSummary:
    """The mean iteration for one lookahead; `counts` are those it is made of.

    `asked`: the lookahead asked for; `lookahead`: what was left of it at the end, where the cache made it shrink.
    `cache_rows`: held at most, `cache_bytes` of them.
    """

    asked: int
    design: str
    counts: Counts
    iteration_s: float
    stall_s: float
    cache_bytes: int

    @property
    def lookahead(self) -> int:
        """At the end of the run."""
        return int(self.counts.lookahead[-1])

    @property
    def cache_rows(self) -> int:
        """Held at most."""
        return int(self.counts.cache_rows.max())


def compare_designs(counts: Counts, cluster: Cluster, designs: Sequence[str] = DESIGNS) -> tuple[DesignSummary, ...]:
    """The designs side by side, for the same plans. Raises `InputError` as `pipeline` does."""
    return tuple(_design_summary(pipeline(counts, cluster, design), counts) for design in designs)


def compare_baselines(
    trace: Trace, planning: Planning, counts: Counts, cluster: Cluster, designs: Sequence[str] = (*BASELINES, *SHARDED)
) -> tuple[DesignSummary, ...]:
    """Caches without lookahead on the batches that were counted, as large as theirs, or as `planning` says; and tables
    without a cache.

    Times are the means of the same batches, which lie after a window: the caches have filled by then.
    """
    summaries: list[DesignSummary] = []
    for design in designs:
        asked = replace(
            planning, design=design, lookahead=None, batches=counts.batches,
            cache_rows=None if design in SHARDED else planning.cache_rows or int(counts.cache_rows.max()),
            objective=planning.objective if planning.objective != "synchronised" else "auto",
            method="auto" if design in SHARDED else planning.method,
        )  # fmt: skip
        alone = counted(batch_plans(trace, asked, Parameters(bound=Bound(rounds=0))), design)
        summaries += compare_designs(replace(alone, lookahead=counts.lookahead), cluster, [design])
    return tuple(summaries)


def lookahead_table(
    trace: Trace, planning: Planning, cluster: Cluster, lookaheads: Sequence[int], design: str = PAPERS,
    deadline: Deadline | None = None, enough_s: float = 0.0,
) -> tuple[LookaheadSummary, ...]:  # fmt: skip
    """Cache and iteration for each lookahead, whatever the one in `planning` is; a cache size in there still holds.

    Once the deadline is over, the run at hand ends with the batches that it has, and those that follow are left out, as
    they are once an iteration takes no more than `enough_s`.
    Raises `InputError` for a lookahead below 1, and as `batch_plans` and `pipeline` do.
    """
    summaries: list[LookaheadSummary] = []
    for lookahead in lookaheads:
        if summaries and ((deadline is not None and deadline.over) or summaries[-1].iteration_s <= enough_s):
            break
        counts = counted_run(trace, replace(planning, lookahead=lookahead), deadline)
        summaries.append(summary(lookahead, counts, cluster, design))
    return tuple(summaries)


def counted_run(trace: Trace, planning: Planning, deadline: Deadline | None = None) -> Counts:
    """Counts of the plans of a trace's first batches: a window, and as many again, or 50 if that is more.

    The lookahead is not cut off at the last of them: the batches behind it are looked at as in a longer run. At most
    `planning.batches` are planned, and none after the first for which there is no time. `planning` must have a
    lookahead. Partitions get no bounds: nothing needs them.
    """
    plans = batch_plans(trace, replace(planning, batches=None), Parameters(bound=Bound(rounds=0)))
    wanted = islice(plans, batches_wanted(planning))
    return counted(wanted if deadline is None else _in_time(wanted, deadline))


def batches_wanted(planning: Planning) -> int:
    """How many batches `counted_run` counts where the trace has so many. Raises `InputError` without a lookahead."""
    lookahead = planning.lookahead
    if lookahead is None:
        raise InputError("lookahead: must be given to count a run, got a cache size alone")
    most = lookahead + max(lookahead, LEAST_MEASURED)
    return most if planning.batches is None else min(most, planning.batches)


def _in_time(plans: Iterable[BatchPlan], deadline: Deadline) -> Iterator[BatchPlan]:
    """The plans up to the first after which there is no time for one like the longest of those before."""
    since_s: float | None = None  # the first plan waits for the whole window
    for plan in plans:
        yield plan
        if since_s is not None:
            deadline.keep(deadline.elapsed_s - since_s)
        if deadline.over:
            return
        since_s = deadline.elapsed_s


def summary(asked: int, counts: Counts, cluster: Cluster, design: str) -> LookaheadSummary:
    """The iteration of a run that was counted."""
    timed = pipeline(counts, cluster, design)
    cache_bytes = int(counts.cache_rows.max()) * cluster.row_bytes
    return LookaheadSummary(asked, design, counts, timed.iteration_s, timed.stall_s, cache_bytes)


def _design_summary(timed: Pipeline, counts: Counts) -> DesignSummary:
    rows, measured = timed.rows, timed.measured

    def mean(values: NDArray[np.int64]) -> float:
        return float(values[measured].mean())

    is_partitioned = rows.layout in ("partitioned", "sharded")
    return DesignSummary(
        design=timed.design,
        row_bytes=timed.cluster.row_bytes,
        gradient_bytes=timed.cluster.gradient_bytes,
        fetched_rows=mean(rows.fetched),
        critical_rows=mean(counts.max_load if is_partitioned else rows.sync_now),
        background_rows=mean(rows.sync_later),
        peer_rows=mean(rows.peer_rows),
        evicted_rows=mean(rows.evicted),
        iteration_s=timed.iteration_s,
        sync_s=timed.sync_s,
        stall_s=timed.stall_s,
    )


TOLERANCE = 0.01
"""How much slower than the fastest a smaller lookahead may be, as a share."""


@dataclass(frozen=True)
class Tuning:
    """What was tried, in order of the lookahead, and what follows.

    `rule`: the lookahead at start-up by the paper's rule; `settled`: what is left of it once windows have overflowed.
    `chosen`: the entry with the smallest lookahead within the tolerance of the fastest.
    """

    cache_rows: int
    rule: int
    settled: int
    tried: tuple[LookaheadSummary, ...]
    chosen: LookaheadSummary


def tune_lookahead(
    trace: Trace, planning: Planning, cluster: Cluster, design: str = PAPERS, deadline: Deadline | None = None,
    enough: float = 0.0,
) -> Tuning:  # fmt: skip
    """The lookahead for the cache of `planning`, which must have a size; its lookahead, if any, is the largest tried.

    Once the deadline is over, it is chosen among those that were tried by then. None is tried above one whose iteration
    is within the tolerance of `enough` times the passes and the dense all-reduce: with 1, of what none is faster than.
    Raises `InputError` without a cache size, for a cache smaller than a batch, and as `lookahead_table` does.
    """
    if planning.cache_rows is None:
        raise InputError("cache_rows: must be given to tune the lookahead, got none")
    rule, settled = fitting_lookahead(trace, planning)
    enough_s = (1 + TOLERANCE) * enough * cluster.ideal_s
    table = lookahead_table(trace, planning, cluster, candidates(settled), design, deadline, enough_s)
    limit_s = (1 + TOLERANCE) * min(entry.iteration_s for entry in table)
    chosen = next(entry for entry in table if entry.iteration_s <= limit_s)
    return Tuning(planning.cache_rows, rule, settled, table, chosen)


def fitting_lookahead(trace: Trace, planning: Planning) -> tuple[int, int]:
    """The lookahead that fits the cache: at start-up, by the paper's rule, and after a window and 50 batches more.

    Nothing is partitioned for it. Raises `InputError` for a cache smaller than a batch.
    """
    batches = trace.batches(planning.batch_size)
    steps = lookahead_steps(batches, planning.lookahead, planning.cache_rows)
    rule = next(steps).lookahead
    return rule, min((step.lookahead for step in islice(steps, rule + LEAST_MEASURED)), default=rule)


def candidates(most: int) -> list[int]:
    """Lookaheads to try: 1, 2, 5, 10, 20, 50, ... below `most`, and `most`.

    >>> candidates(60)
    [1, 2, 5, 10, 20, 50, 60]
    """
    if most < 1:
        raise InputError(f"lookahead: must be >= 1, got {most}")
    steps = [digit * 10**power for power in range(len(str(most))) for digit in (1, 2, 5)]
    return [*(step for step in steps if step < most), most]
