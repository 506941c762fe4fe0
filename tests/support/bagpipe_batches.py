"""Batches to partition: small random ones, and some shaped like a click log, with skewed tables and a warm cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from gapless.encodings.bagpipe import Batch
from gapless.encodings.bagpipe.cluster import Cluster, cluster_of
from gapless.encodings.bagpipe.question import ClusterQuestion

CLICK_LOG = ((1460, 2.28, 0.45), (10_131_227, 1.02, 0.0), (2_202_608, 1.26, 0.0), (305, 1.8, 0.61), (24, 2.28, 0.35),
             (12_517, 2.28, 0.0), (633, 2.28, 0.48), (93_145, 2.28, 0.15), (5_461_306, 1.14, 0.0),
             (286_181, 1.62, 0.0))  # fmt: skip
"""Rows, exponent and share of the heaviest id of tables fitted to the Criteo Kaggle log."""


def random_batch(rng: np.random.Generator, examples: int, trainers: int, tables: int = 4, ids: int = 12) -> Batch:
    """Uniform ids, owned at random, some by nobody."""
    slot = rng.integers(ids, size=(examples, tables)) + ids * np.arange(tables)
    return Batch(slot.reshape(examples, tables), rng.integers(-1, trainers, size=ids * tables), trainers)


def click_log_batch(examples: int, trainers: int, tables: int = 26, seed: int = 0) -> Batch:
    """Zipf-like ids with heavy heads; nine tenths of the ids are cached, each on a random trainer."""
    rng = np.random.default_rng(seed)
    columns, first = [], 0
    for number in range(tables):
        rows, exponent, heaviest = CLICK_LOG[number % len(CLICK_LOG)]
        rank = _zipf(rng, examples, rows, exponent)
        rank[rng.random(examples) < heaviest] = 0
        distinct, slot = np.unique(rank, return_inverse=True)
        columns.append(slot + first)
        first += len(distinct)
    owner = np.where(rng.random(first) < 0.9, rng.integers(trainers, size=first), -1)
    return Batch(np.stack(columns, axis=1), owner, trainers)


def _zipf(rng: np.random.Generator, count: int, rows: int, exponent: float) -> np.ndarray:
    """Ranks in 0..rows-1, rank r with probability about (r + 1) to the -exponent, by inverting the integral of that."""
    power = 1.0 - exponent
    return np.minimum((1.0 + rng.random(count) * (rows**power - 1.0)) ** (1.0 / power) - 1.0, rows - 1).astype(np.int64)


def find_cluster(trainers: int, *, batch_size: int | None = None, **numbers: Any) -> Cluster:
    """`cluster_of` the question that the numbers ask, by the names of its fields."""
    return cluster_of(ClusterQuestion(**numbers), trainers, batch_size)
