"""Problem: some batches of a trace, to be planned for trainers with a cache, on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.brief import BriefQuestion
from gapless.encodings.bagpipe.batch_plans import Planning
from gapless.encodings.bagpipe.cluster import Cluster, find_cluster
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.named import find_trace
from gapless.profiles.traces.recommendation import DenseModel
from gapless.profiles.traces.trace import Trace

__all__ = ["Problem", "problem"]


@dataclass(frozen=True, repr=False)
class Problem(BriefQuestion):
    """Which trainer gets which example, and what is fetched, synchronised and evicted, batch by batch.

    The cache is of the design that `planning` names: logically replicated and physically partitioned, with delayed
    synchronisation, unless another is asked for (section 5.2.3). `resume`: the file of a run of the same question, as
    far as it came, to go on with. `replicate_budget_bytes`: of each trainer's memory, for tables that stay on all of
    them; they are chosen before the run is planned. Raises `InputError` for a cluster of other trainers.
    """

    trace: Trace
    planning: Planning
    cluster: Cluster
    replicate_budget_bytes: int | None = None
    resume: str | None = None

    def __post_init__(self) -> None:
        if self.cluster.trainers != self.planning.trainers:
            raise InputError(f"cluster: trainers must be {self.planning.trainers}, got {self.cluster.trainers}")

    @property
    def system(self) -> str:
        """`bagpipe`."""
        return "bagpipe"

    @property
    def description(self) -> dict[str, Any]:
        """What was asked, for the plan file."""
        return {
            "trace": self.trace.name,
            "tables": self.trace.table_count,
            "trainers": self.planning.trainers,
            "batch_size": self.planning.batch_size,
            "batches": self.planning.batches,
            "lookahead": self.planning.lookahead,
            "cache_rows": self.planning.cache_rows,
            "objective": self.planning.objective,
            "method": self.planning.method,
            "ownership": self.planning.ownership,
            "design": self.planning.design,
            "replicate_budget_bytes": self.replicate_budget_bytes,
            "shares": None if self.planning.shares is None else list(self.planning.shares),
        }

    @property
    def batch_count(self) -> int | None:
        """How many batches will be planned, None where the trace doesn't say how long it is."""
        examples, asked = self.trace.examples, self.planning.batches
        there = None if examples is None else -(-examples // self.planning.batch_size)
        return min((count for count in (there, asked) if count is not None), default=None)

    @property
    def default_options(self) -> SolveOptions:
        """As long as it takes."""
        return SolveOptions()


def problem(
    trace: str | Path | Trace | NDArray[np.integer] | Bags,
    *,
    trainers: int,
    batch_size: int,
    lookahead: int | None = None,
    cache_rows: int | None = None,
    objective: str = "auto",
    method: str = "auto",
    ownership: str = "first-touch",
    shares: Sequence[float] | None = None,
    design: str = "lrpp-delayed",
    replicate_budget: int | None = None,
    batches: int = 50,
    resume: str | None = None,
    columns: Sequence[str] | None = None,
    string_columns: Sequence[str] | None = None,
    bag_columns: Sequence[str] | None = None,
    array: str | None = None,
    exponent: float | None = None,
    hot_share: float | None = None,
    table_rows: Sequence[int] | None = None,
    examples: int | None = None,
    trace_seed: int | None = None,
    pooling_factors: Sequence[float] | None = None,
    model: str | DenseModel = "dlrm",
    dimension: int = 48,
    optimizer: str = "sgd",
    trainer_flops: float | None = None,
    servers: int | None = None,
    placement: str = "apart",
    trainer_bandwidth: float | None = None,
    server_bandwidth: float | None = None,
    latency: float | None = None,
    fetch_latency: float | None = None,
    forward: float | None = None,
    backward: float | None = None,
    control: float | None = None,
) -> Problem:
    """The plans of a trace's first batches, for trainers with a cache.

    `lookahead` to `batches` are as for `Planning`, `replicate_budget` is in bytes, `resume` is as for `Problem`,
    `columns` to `pooling_factors` as for `find_trace`, `model` to `control` as for `find_cluster`. Raises `InputError`
    that names an argument which is unknown or doesn't go with the others.
    """
    planning = Planning(
        trainers, batch_size, lookahead, cache_rows, objective, method, ownership, batches=batches, design=design,
        shares=None if shares is None else tuple(shares),
    )  # fmt: skip
    cluster = find_cluster(
        trainers, batch_size=batch_size, model=model, dimension=dimension, optimizer=optimizer,
        trainer_flops=trainer_flops, servers=servers, placement=placement, trainer_bandwidth=trainer_bandwidth,
        server_bandwidth=server_bandwidth, latency=latency, fetch_latency=fetch_latency, forward=forward,
        backward=backward, control=control,
    )  # fmt: skip
    found = find_trace(
        trace, columns=columns, string_columns=string_columns, bag_columns=bag_columns, array=array,
        exponent=exponent, hot_share=hot_share, table_rows=table_rows, examples=examples, trace_seed=trace_seed,
        pooling_factors=pooling_factors,
    )  # fmt: skip
    return Problem(found, planning, cluster, replicate_budget, resume)
