"""Bound: seconds that a run takes at least, whatever is cached, partitioned, moved or synchronised, in any design.

A longest path with a load at each end. Batches follow one another: each waits for the one before it, trains on no fewer
examples than a p-th on its largest trainer, and all-reduces the dense gradients. Before batch x is trained, all rows
that the batches up to it use have left the servers, each once at least; after batch y, all rows that it or a later one
uses last go back, each once. So for each x <= y a run takes

    the first rows of the batches up to x over the servers' network
    + the passes of x to y, and the dense all-reduces between them
    + whichever is longer: the last all-reduces and passes, or the last rows of the batches from y on over that network

and the bound is the largest of these. It is the same for all designs in which rows lie on servers. Of tables that lie
on the trainers nothing is fetched or written back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.ids.row_map import RowMap

__all__ = ["first_uses", "run_bound_s"]

_MOST_ROWS = 2**23
"""Rows that are remembered. A longer run has a bound of the rows at its ends."""


def first_uses(batches: Iterable[Ints]) -> Iterator[int]:
    """Of each batch, by its distinct ids, how many no batch before it has; 0 once too many have been seen."""
    seen, count = RowMap(), 0
    for ids in batches:
        new = ids[seen.find(ids) < 0] if count <= _MOST_ROWS else ids[:0]
        seen.add(new)
        count += len(new)
        yield len(new)


def run_bound_s(most: Ints, first_rows: Ints, last_rows: Ints, cluster: Cluster) -> float:
    """The bound of a run in seconds.

    `most`: int64, shape (batches,), the fewest examples that the largest trainer has of each batch. `first_rows`,
    `last_rows`: int64, likewise, the rows that no batch before it uses, and that no batch after it does. Of servers
    that lie with the trainers, each trainer may write its own slice, so that writing back may take no time.
    """
    forward_s, backward_s = cluster.pass_s(most.astype(np.float64))
    passes_s = forward_s + backward_s
    dense_s = float(cluster.all_reduce_s(float(cluster.dense_bytes)))
    fetched_s = evenly_s(cluster, np.cumsum(first_rows))
    fetched_s += (fetched_s > 0) * cluster.fetch_latency_s
    written_s = evenly_s(cluster, np.cumsum(last_rows[::-1])[::-1])
    if cluster.placement == "colocated":
        written_s = np.zeros_like(written_s)
    done_s = np.cumsum(passes_s) + dense_s * np.arange(len(most))  # of the batches up to each one, its all-reduce not
    reached_s = np.maximum.accumulate(fetched_s - np.concatenate([[0.0], done_s[:-1] + dense_s]))  # x up to each y
    left_s = done_s[-1] + dense_s - done_s
    return float((reached_s + done_s + np.maximum(left_s, written_s)).max())


def evenly_s(cluster: Cluster, rows: Ints) -> Floats:
    """Rows between servers and trainers, each once and as evenly as can be; shape of `rows`."""
    spread = -(-rows // cluster.trainers)
    return np.asarray(cluster.server_s(rows.astype(np.float64), spread.astype(np.float64)))
