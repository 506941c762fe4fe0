"""The question as people ask it: a trace, how it is planned, and the cluster that it is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.batch_plans import Planning
from gapless.encodings.bagpipe.cluster import find_cluster
from gapless.encodings.bagpipe.problem import Problem
from gapless.profiles.traces.named import find_trace
from gapless.profiles.traces.recommendation import DenseModel
from gapless.profiles.traces.trace import Trace

__all__ = ["problem"]


def problem(
    trace: str | Path | Trace | NDArray[np.integer],
    *,
    trainers: int,
    batch_size: int,
    lookahead: int | None = None,
    cache_rows: int | None = None,
    objective: str = "paper",
    method: str = "auto",
    ownership: str = "first-touch",
    batches: int = 50,
    columns: Sequence[str] | None = None,
    string_columns: Sequence[str] | None = None,
    array: str | None = None,
    exponent: float | None = None,
    hot_share: float | None = None,
    table_rows: Sequence[int] | None = None,
    examples: int | None = None,
    trace_seed: int | None = None,
    model: str | DenseModel = "dlrm",
    dimension: int = 48,
    trainer_bandwidth: float | None = None,
    server_bandwidth: float | None = None,
    latency: float | None = None,
    fetch_latency: float | None = None,
    forward: float | None = None,
    backward: float | None = None,
    control: float | None = None,
) -> Problem:
    """The plans of a trace's first batches, for trainers with a cache.

    `lookahead` to `batches` are as for `Planning`, `columns` to `trace_seed` as for `find_trace`, `model` to `control`
    as for `find_cluster`. Raises `InputError` that names an argument which is unknown or doesn't go with the others.
    """
    planning = Planning(
        trainers, batch_size, lookahead, cache_rows, objective, method, ownership=ownership, batches=batches
    )
    cluster = find_cluster(
        trainers, model=model, dimension=dimension, trainer_bandwidth=trainer_bandwidth,
        server_bandwidth=server_bandwidth, latency=latency, fetch_latency=fetch_latency, forward=forward,
        backward=backward, control=control,
    )  # fmt: skip
    found = find_trace(
        trace, columns=columns, string_columns=string_columns, array=array, exponent=exponent, hot_share=hot_share,
        table_rows=table_rows, examples=examples, trace_seed=trace_seed,
    )  # fmt: skip
    return Problem(found, planning, cluster)
