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
  unless the cluster's placement says so.

Each starts as soon as it may. An activity without rows takes no time and holds no network.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.counts import Counts, DesignRows, design_rows
from gapless.encodings.bagpipe.question import Question
from gapless.errors import InputError

__all__ = [
    "ACTIVITIES",
    "Pipeline",
    "Spans",
    "Times",
    "durations",
    "earliest_on_one_network",
    "pipeline",
    "run_bound_s",
]

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

    def of(self, number: int) -> tuple[float, float]:
        """From when until when it runs in a batch."""
        return float(self.start_s[number]), float(self.end_s[number])


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


def earliest_on_one_network(
    columns: list[list[float]], prefetch_after: list[int | None], fetch_latency_s: float
) -> Floats:
    """The start of every activity where servers' transfers and trainers' synchronisation take turns on one network.

    Float64, (activities, batches), in the order of `ACTIVITIES`. What has begun is carried to its end. After the
    backward pass of batch x come its critical synchronisation, its private rows' write-back, its background
    synchronisation and its late write-back. Prefetches fill the time until the next backward pass ends, in the order of
    batches: one that has been asked for begins as soon as the network is free, and may so hold up the synchronisation
    behind it. A batch about to be trained has its own prefetch carried before all else.

    `columns`: how long each takes, by batch. `prefetch_after`: the batch whose write-back a prefetch waits for, -1 for
    none; None where nothing is fetched.
    """
    network = _Network(columns[0], prefetch_after, fetch_latency_s)
    starts: list[tuple[float, ...]] = []
    synced = 0.0
    for number, (_, peer_s, forward_s, backward_s, now_s, later_s, early_s, late_s) in enumerate(
        zip(*columns, strict=True)
    ):
        network.prefetch_upto(number)
        peer = network.begin(max(network.fetched[number], synced), peer_s)
        forward = peer + peer_s
        backward = forward + forward_s
        trained = backward + backward_s
        network.prefetch_before(trained)
        now = network.begin(trained, now_s)
        early = network.begin(trained, early_s)
        synced = now + now_s
        later = network.begin(synced, later_s)
        late = network.begin(later + later_s, late_s)
        network.written(number, max(early + early_s, late + late_s))
        starts.append((network.fetch_start[number], peer, forward, backward, now, later, early, late))
    return np.array(starts).T


class _Network:
    """When it is free, and which prefetches it has carried, one after the other in the order of batches."""

    def __init__(self, prefetch_s: list[float], after: list[int | None], latency_s: float) -> None:
        self._prefetch_s, self._after, self._latency_s = prefetch_s, after, latency_s
        self._free_s = 0.0
        self._written: list[float] = []
        self._waiting = deque(range(len(prefetch_s)))
        self.fetch_start: list[float] = []
        self.fetched: list[float] = []

    def begin(self, ready_s: float, duration_s: float) -> float:
        """When something that is ready begins; what takes no time needs no network."""
        if not duration_s:
            return ready_s
        begin_s = max(ready_s, self._free_s)
        self._free_s = begin_s + duration_s
        return begin_s

    def written(self, number: int, end_s: float) -> None:
        """All updates of a batch are at the servers."""
        assert number == len(self._written)
        self._written.append(end_s)

    def prefetch_upto(self, number: int) -> None:
        """Carry the prefetches of batches up to this one."""
        while self._waiting and self._waiting[0] <= number:
            self._carry()

    def prefetch_before(self, time_s: float) -> None:
        """Carry the prefetches that can begin before that time."""
        while self._waiting and (asked_s := self._asked_s(self._waiting[0])) is not None:
            if max(asked_s, self._free_s) >= time_s:
                return
            self._carry()

    def _asked_s(self, number: int) -> float | None:
        """When the first rows of a batch may come; None while nobody knows."""
        after = self._after[number]
        if after is None or after < 0:
            return 0.0 if after is None else self._latency_s
        return self._written[after] + self._latency_s if after < len(self._written) else None

    def _carry(self) -> None:
        number = self._waiting.popleft()
        asked_s = self._asked_s(number)
        assert asked_s is not None, "a batch is prefetched after an earlier one"
        start_s = self.begin(max(asked_s, self.fetched[-1] if self.fetched else 0.0), self._prefetch_s[number])
        self.fetch_start.append(start_s)
        self.fetched.append(start_s + self._prefetch_s[number])


def run_bound_s(examples: Ints, first_rows: int, last_rows: int, cluster: Cluster) -> float:
    """Seconds that a run takes at least, whatever is cached, partitioned or moved.

    The rows of the first batch are fetched before anything is trained. Then batches follow one another: each waits for
    the one before it, its largest part has a p-th of its examples at least, and its dense gradients are all-reduced, in
    every design. At the end the rows of the last batch are written back.

    `examples`: of each batch; `first_rows`, `last_rows`: distinct rows of the first batch, and of the last.
    Of servers that lie with the trainers, each trainer may write its own slice, so that writing back may take no time.
    """
    most = -(-examples // cluster.trainers)
    forward_s, backward_s = cluster.pass_s(most.astype(np.float64))
    dense_s = float(cluster.all_reduce_s(float(cluster.dense_bytes)))
    fetch_s = _evenly_s(cluster, first_rows)
    written_s = 0.0 if cluster.placement == "colocated" else _evenly_s(cluster, last_rows)
    before_s = (cluster.fetch_latency_s + fetch_s) if fetch_s else 0.0
    trained_s = float((forward_s + backward_s).sum()) + (len(examples) - 1) * dense_s
    return before_s + trained_s + max(dense_s, written_s)


def _evenly_s(cluster: Cluster, rows: int) -> float:
    """Rows between servers and trainers, each once and as evenly as can be."""
    return float(cluster.server_s(np.float64(rows), np.float64(-(-rows // cluster.trainers))))
