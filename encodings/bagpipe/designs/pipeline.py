"""Pipeline: when each batch is prefetched, trained, synchronised and written back, for a cache design on a cluster.

What waits for what (section 5.2.3), for batch x:

- its **prefetch** follows that of x - 1 on the servers' network, and starts no earlier than a fetch latency after the
  last write-back of the batch that the lookahead names (x - L): no row is read before its updates are back;
- its **peer fetch** (partitioned cache only) and then its **forward** and **backward** pass wait for its prefetch and
  for the critical synchronisation of x - 1;
- its **critical synchronisation**, on the trainers' network, waits for its backward pass and for the background
  synchronisation of x - 1, and holds the dense gradients in every design;
- its **background synchronisation** follows, beside the forward and backward pass of x + 1; where rows are rooted, it
  gathers gradients of batch x and sends the rows that x + 2 uses and x + 1 doesn't;
- private rows are **written back** after its backward pass, the others after all its synchronisation, in the order of
  batches on the servers' network. That carries both directions at once, and doesn't compete with the trainers' network,
  unless the cluster's placement says so (`one_network.py`).

Each starts as soon as it may. An activity without rows takes no time and holds no network.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.counts import Counts
from gapless.encodings.bagpipe.designs.one_network import earliest_on_one_network
from gapless.encodings.bagpipe.designs.rows import DesignRows, design_rows
from gapless.encodings.bagpipe.question import Question
from gapless.errors import InputError

__all__ = ["ACTIVITIES", "Pipeline", "Spans", "Times", "durations", "pipeline"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ACTIVITIES = (
    "prefetch", "peer_fetch", "forward", "backward", "sync_now", "sync_later", "write_early", "write_late",
)  # fmt: skip
"""Of each batch."""


@dataclass(frozen=True)
class Spans:
    """When one activity runs; float64, shape (batches,)."""

    start_s: Floats
    end_s: Floats

    @property
    def duration_s(self) -> Floats:
        """How long it takes."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Times:
    """When the activities of each batch run; one that has nothing to do starts when it ends.

    `prefetch`: while the servers' network carries it, after the latency. `write_early`: of private rows; `write_late`:
    of those that are synchronised before.
    """

    prefetch: Spans
    forward: Spans
    backward: Spans
    sync_now: Spans
    sync_later: Spans
    write_early: Spans
    write_late: Spans


@dataclass(frozen=True)
class Pipeline(Times):
    """The times of a cache design on a cluster. `peer_fetch`: of a partitioned cache. `lookahead`: L of each batch."""

    peer_fetch: Spans
    rows: DesignRows
    cluster: Cluster
    lookahead: Ints

    @property
    def design(self) -> str:
        """The cache design."""
        return self.rows.design

    @property
    def makespan_s(self) -> float:
        """Until the last row is written back."""
        return float(max(self.write_early.end_s[-1], self.write_late.end_s[-1], self.sync_later.end_s[-1]))

    @cached_property
    def measured(self) -> slice:
        """The batches that times are taken of: those after the first L, which are prefetched without waiting.

        As many whole runs of L as there are: where prefetches are late, L batches come together and then a gap. All
        batches but the first, if L is not below their number.
        """
        batches, lookahead = len(self.lookahead), int(self.lookahead[-1])
        if batches <= lookahead + 1:
            return slice(min(1, batches - 1), batches)
        rest = batches - lookahead
        return slice(lookahead, lookahead + (rest - rest % lookahead if rest >= lookahead else rest))

    @property
    def iteration_s(self) -> float:
        """Mean time from the end of one critical synchronisation to the next, over the measured batches."""
        ends, span = self.sync_now.end_s, self.measured
        begin_s = ends[span.start - 1] if span.start else 0.0
        return float((ends[span.stop - 1] - begin_s) / (span.stop - span.start))

    @property
    def sync_s(self) -> float:
        """Mean time on the critical path for embeddings: from the backward pass on, without the dense gradients' part.

        With a partitioned cache, its fetch before the forward pass too.
        """
        after = self.sync_now.end_s - self.backward.end_s - self.cluster.all_reduce_s(float(self.cluster.dense_bytes))
        return float((after + self.peer_fetch.duration_s)[self.measured].mean())

    @property
    def stall_s(self) -> float:
        """Mean time that trainers wait for a prefetch."""
        before = np.concatenate([[0.0], self.sync_now.end_s[:-1]])
        return float((self.peer_fetch.start_s - before)[self.measured].mean())


def pipeline(counts: Counts, cluster: Cluster, design: str = Question.design) -> Pipeline:
    """The times of all batches. Raises `InputError` for an unknown design, and a cluster of other trainers."""
    if counts.trainers != cluster.trainers:
        raise InputError(f"cluster: trainers must be the plans' {counts.trainers}, got {cluster.trainers}")
    rows = design_rows(counts, design)
    lasting = durations(rows, cluster, counts.examples_most)
    earliest = _earliest if cluster.placement == "apart" else earliest_on_one_network
    columns = [lasting[name].tolist() for name in ACTIVITIES]
    after = [
        each if is_fetched else None
        for each, is_fetched in zip(counts.prefetch_after.tolist(), (rows.fetched > 0).tolist(), strict=True)
    ]
    start_s = earliest(columns, after, cluster.fetch_latency_s)
    spans = {name: Spans(start, start + lasting[name]) for name, start in zip(ACTIVITIES, start_s, strict=True)}
    return Pipeline(**spans, rows=rows, cluster=cluster, lookahead=counts.lookahead)


def durations(rows: DesignRows, cluster: Cluster, examples: Ints) -> dict[str, Floats]:
    """How long each activity takes, alone on its network; float64, shape (batches,).

    `examples`: int64, shape (batches,), of the trainer with most.
    """
    forward_s, backward_s = cluster.pass_s(examples.astype(np.float64))
    peers_s = cluster.peer_s(rows.peer_most.astype(np.float64))
    is_partitioned, is_rooted = rows.layout == "partitioned", rows.layout == "lrpp-fine-grained"
    most = rows.exchanges.astype(np.float64)
    gathered, gathered_later = cluster.exchange_s(most[::2], cluster.gradient_bytes)
    sent, sent_later = cluster.exchange_s(most[1::2], cluster.row_bytes)  # who gathers next needs the state too
    now, later = (np.zeros_like(sync) if is_rooted else sync for sync in (rows.sync_now, rows.sync_later))
    late_s = _server_s(cluster, rows.written_late, rows.written_late_most)
    own_slices = cluster.placement == "colocated" and rows.layout in ("replicated", "lrpp", "lrpp-delayed")
    return {
        "prefetch": _server_s(cluster, rows.fetched, rows.fetched_most),
        "peer_fetch": peers_s + (cluster.control_s if is_partitioned else 0.0),
        "forward": forward_s,
        "backward": backward_s,
        "sync_now": cluster.all_reduce_s(_size_bytes(now, cluster) + cluster.dense_bytes) + peers_s + gathered + sent,
        "sync_later": cluster.all_reduce_s(_size_bytes(later, cluster)) + gathered_later + sent_later,
        "write_early": _server_s(cluster, rows.written_early, rows.written_early_most),
        "write_late": np.zeros_like(late_s) if own_slices else late_s,
    }


def _size_bytes(rows: Ints, cluster: Cluster) -> Floats:
    return np.multiply(rows, cluster.gradient_bytes, dtype=np.float64)


def _server_s(cluster: Cluster, rows: Ints, most: Ints) -> Floats:
    return cluster.server_s(rows.astype(np.float64), most.astype(np.float64))


def _earliest(columns: list[list[float]], prefetch_after: list[int | None], fetch_latency_s: float) -> Floats:
    """The earliest start of every activity, (activities, batches): each depends on this batch and earlier ones.

    `prefetch_after`: the batch whose write-back a prefetch waits for, -1 for none; None where nothing is fetched.
    """
    starts: list[tuple[float, ...]] = []
    written: list[float] = []  # by batch, when the last of its updates is at the servers
    servers_sent = servers_got = synced = background_ended = 0.0
    for after, batch in zip(prefetch_after, zip(*columns, strict=True), strict=True):
        prefetch_s, peer_s, forward_s, backward_s, now_s, later_s, early_s, late_s = batch
        prefetch = servers_sent
        if after is not None:
            asked = written[after] if after >= 0 else 0.0
            prefetch = max(servers_sent, asked + fetch_latency_s)
        servers_sent = prefetch + prefetch_s
        peer = max(servers_sent, synced)
        forward = peer + peer_s
        backward = forward + forward_s
        trained = backward + backward_s
        now = max(trained, background_ended)
        synced = later = now + now_s
        background_ended = later + later_s
        early = max(trained, servers_got) if early_s else trained
        servers_got = early + early_s if early_s else servers_got
        late = max(background_ended, servers_got) if late_s else background_ended
        servers_got = late + late_s if late_s else servers_got
        written.append(max(early + early_s, late + late_s))
        starts.append((prefetch, peer, forward, backward, now, later, early, late))
    return np.array(starts).T
