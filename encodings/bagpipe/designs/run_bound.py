"""A bound on the time of a run: what no plan of the same batches takes less, whatever is cached, partitioned or moved.

The rows of the first batch are fetched before anything is trained. Then batches follow one another: each waits for the
one before it, its largest part has a p-th of its examples at least, and its dense gradients are all-reduced, in every
design. At the end the rows of the last batch are written back. Nothing here depends on how batches are partitioned.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.cluster import Cluster

__all__ = ["run_bound_s"]

Ints = NDArray[np.int64]


def run_bound_s(examples: Ints, first_rows: int, last_rows: int, cluster: Cluster) -> float:
    """Seconds that a run takes at least.

    `examples`: of each batch; `first_rows`, `last_rows`: distinct rows of the first batch, and of the last.
    Of servers that lie with the trainers, each trainer may write its own slice, so that writing back may take no time.
    """
    most = -(-examples // cluster.trainers)
    forward_s, backward_s = cluster.pass_s(most.astype(np.float64))
    dense_s = float(cluster.all_reduce_s(float(cluster.dense_bytes)))
    fetch_s = _server_s(cluster, first_rows)
    written_s = 0.0 if cluster.placement == "colocated" else _server_s(cluster, last_rows)
    before_s = (cluster.fetch_latency_s + fetch_s) if fetch_s else 0.0
    trained_s = float((forward_s + backward_s).sum()) + (len(examples) - 1) * dense_s
    return before_s + trained_s + max(dense_s, written_s)


def _server_s(cluster: Cluster, rows: int) -> float:
    """Rows between servers and trainers, each once and as evenly as can be."""
    return float(cluster.server_s(np.float64(rows), np.float64(-(-rows // cluster.trainers))))
