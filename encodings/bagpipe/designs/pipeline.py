"""Pipeline: when each batch is prefetched, trained, synchronised and written back, for a cache design on a cluster.

What waits for what (section 5.2.3), for batch x:

- its **prefetch** follows that of x - 1 on the servers' network, and starts no earlier than a fetch latency after the
  last write-back of the batch that the lookahead names (x - L): no row is read before its updates are back;
- its **peer fetch** (partitioned cache only) and then its **forward** and **backward** pass wait for its prefetch and
  for the critical synchronisation of x - 1;
- its **critical synchronisation**, on the trainers' network, waits for its backward pass and for the background
  synchronisation of x - 1, and holds the dense gradients in every design. Where rows are rooted, their gradients are
  gathered first, then the dense ones all-reduced, then the rows that x + 1 uses sent;
- instead of being sent, these rows may be **relayed** by the servers, beside the dense all-reduce: their roots write
  them back, their next users fetch them. A batch is relayed where the next one can start earlier so; that takes a
  network of the servers' own;
- its **background synchronisation** follows, beside the forward and backward pass of x + 1; where rows are rooted, it
  gathers gradients of batch x and sends the rows that x + 2 uses and x + 1 doesn't. After the last batch, of which no
  other one waits for anything, it comes before the dense gradients' turn, so that rows are written back beside that;
- private rows are **written back** after its backward pass, the others after all their synchronisation, in the order of
  batches on the servers' network. That carries both directions at once, and doesn't compete with the trainers' network,
  unless the cluster's placement says so.

Each starts as soon as it may. An activity without rows takes no time and holds no network.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gapless.array_types import Floats, Ints, Mask
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.counts import Counts
from gapless.encodings.bagpipe.designs.rows import DesignRows, design_rows
from gapless.encodings.bagpipe.question import PAPERS
from gapless.errors import InputError

__all__ = [
    "ACTIVITIES",
    "Pipeline",
    "Spans",
    "Times",
    "durations",
    "earliest_on_one_network",
    "pipeline",
]

ACTIVITIES = (
    "prefetch", "peer_fetch", "forward", "backward", "sync_now", "sync_later", "write_early", "write_late",
    "relay_write", "relay_fetch",
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
    of those that are synchronised before. `relay_write`, `relay_fetch`: of rows that the next batch uses and that the
    servers relay; they take no time in a batch whose rows aren't.
    """

    prefetch: Spans
    forward: Spans
    backward: Spans
    sync_now: Spans
    sync_later: Spans
    write_early: Spans
    write_late: Spans
    relay_write: Spans
    relay_fetch: Spans

    @property
    def is_relayed(self) -> Mask:
        """Whether the rows that the next batch uses are relayed by the servers; bool, shape (batches,)."""
        return self.relay_fetch.duration_s > 0

    def is_trained(self, number: int, time_s: float) -> bool:
        """Whether the passes of a batch are over at an instant, so that none of its rows is looked up from then on."""
        return bool(self.forward.start_s[number] < time_s and self.backward.end_s[number] <= time_s)

    @property
    def ready_s(self) -> Floats:
        """When the batch after each one may be trained, but for its prefetch."""
        return np.where(self.is_relayed, np.maximum(self.sync_now.end_s, self.relay_fetch.end_s), self.sync_now.end_s)


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
        """Until the last row is written back, and the last synchronisation is over."""
        last = (self.write_early, self.write_late, self.sync_now, self.sync_later)
        return float(max(span.end_s[-1] for span in last))

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
        ends, span = self.ready_s, self.measured
        begin_s = ends[span.start - 1] if span.start else 0.0
        return float((ends[span.stop - 1] - begin_s) / (span.stop - span.start))

    @property
    def sync_s(self) -> float:
        """Mean time on the critical path for embeddings: from the backward pass on, without the dense gradients' part.

        With a partitioned cache, its fetch before the forward pass too.
        """
        after = self.ready_s - self.backward.end_s - self.cluster.all_reduce_s(float(self.cluster.dense_bytes))
        return float((after + self.peer_fetch.duration_s)[self.measured].mean())

    @property
    def stall_s(self) -> float:
        """Mean time that trainers wait for a prefetch."""
        before = np.concatenate([[0.0], self.ready_s[:-1]])
        return float((self.peer_fetch.start_s - before)[self.measured].mean())


def pipeline(counts: Counts, cluster: Cluster, design: str = PAPERS) -> Pipeline:
    """The times of all batches. Raises `InputError` for an unknown design, and a cluster of other trainers."""
    if counts.trainers != cluster.trainers:
        raise InputError(f"cluster: trainers must be the plans' {counts.trainers}, got {cluster.trainers}")
    rows = design_rows(counts, design)
    lasting = durations(rows, cluster, counts.examples_most)
    after = [
        each if is_fetched else None
        for each, is_fetched in zip(counts.prefetch_after.tolist(), (rows.fetched > 0).tolist(), strict=True)
    ]
    earliest = _earliest if cluster.placement == "apart" else earliest_on_one_network
    batches = [_Batch(*each) for each in zip(*(lasting[name].tolist() for name in _Batch._fields), strict=True)]
    start_s, end_s = np.array(earliest(batches, after, cluster.fetch_latency_s)).transpose(1, 2, 0)
    spans = {name: Spans(*span) for name, *span in zip(ACTIVITIES, start_s, end_s, strict=True)}
    return Pipeline(**spans, rows=rows, cluster=cluster, lookahead=counts.lookahead)


def durations(rows: DesignRows, cluster: Cluster, examples: Ints) -> dict[str, Floats | Mask]:
    """How long each activity takes, alone on its network; float64, shape (batches,). Of the critical synchronisation,
    its parts: `gather`, `dense` and `send`; of rows that the servers might relay, `relay_write` and `relay_fetch`.
    And whether owned rows are written back once their gradients are gathered (`is_owned`), and whether a batch is the
    last, with nothing to synchronise at once (`later_first`); bool, likewise.

    `examples`: int64, shape (batches,), of the trainer with most.
    """
    forward_s, backward_s = cluster.pass_s(examples.astype(np.float64))
    peers_s = cluster.peer_s(rows.peer_most.astype(np.float64))
    is_rooted = rows.layout == "lrpp-fine-grained"
    is_controlled = is_rooted or rows.layout == "partitioned"
    most = rows.exchanges.astype(np.float64)
    gathered, gathered_later = cluster.peer_s(most[::2])
    sent, sent_later = cluster.peer_s(most[1::2], cluster.row_bytes)  # who gathers next needs the state too
    now, later = (np.zeros_like(sync) if is_rooted else sync for sync in (rows.sync_now, rows.sync_later))
    is_last = np.arange(len(examples)) == len(examples) - 1
    late_s = _server_s(cluster, rows.written_late, rows.written_late_most)
    own_slices = cluster.placement == "colocated" and rows.layout in ("replicated", "lrpp", "lrpp-delayed")
    return {
        "prefetch": _server_s(cluster, rows.fetched, rows.fetched_most),
        "peer_fetch": peers_s + (cluster.control_s if is_controlled else 0.0),
        "forward": forward_s,
        "backward": backward_s,
        "gather": peers_s + gathered,
        "dense": cluster.all_reduce_s(_size_bytes(now, cluster) + cluster.dense_bytes),
        "send": sent,
        "sync_later": cluster.all_reduce_s(_size_bytes(later, cluster)) + gathered_later + sent_later,
        "write_early": _server_s(cluster, rows.written_early, rows.written_early_most),
        "write_late": np.zeros_like(late_s) if own_slices else late_s,
        "relay_write": _server_s(cluster, rows.relayed, rows.relayed_most),
        "relay_fetch": _server_s(cluster, rows.relayed_copies, rows.exchanges[1]),
        "is_owned": np.full(len(examples), rows.layout == "partitioned"),
        "later_first": is_last & (rows.sync_now + rows.peer_most + most[0] + most[1] == 0),
    }


def _size_bytes(rows: Ints, cluster: Cluster) -> Floats:
    return np.multiply(rows, cluster.gradient_bytes, dtype=np.float64)


def _server_s(cluster: Cluster, rows: Ints, most: Ints) -> Floats:
    return cluster.server_s(rows.astype(np.float64), most.astype(np.float64))


class _Batch(NamedTuple):
    """What `durations` says of one batch."""

    prefetch: float
    peer_fetch: float
    forward: float
    backward: float
    gather: float
    dense: float
    send: float
    sync_later: float
    write_early: float
    write_late: float
    relay_write: float
    relay_fetch: float
    is_owned: bool
    later_first: bool


_Starts = tuple[tuple[float, ...], tuple[float, ...]]
"""Of one batch, when its activities start, and when they end, in the order of `ACTIVITIES`."""


def _earliest(batches: list[_Batch], prefetch_after: list[int | None], fetch_latency_s: float) -> list[_Starts]:
    """When each activity of each batch may run at the earliest: each depends on this batch and earlier ones.

    `prefetch_after`: the batch whose write-back a prefetch waits for, -1 for none; None where nothing is fetched.
    """
    found: list[_Starts] = []
    servers = _Network([batch.prefetch for batch in batches], prefetch_after, fetch_latency_s)
    ready = servers_got = background_ended = 0.0
    for number, batch in enumerate(batches):
        servers.prefetch_upto(number)
        peer = max(servers.fetched[number], ready)
        forward = peer + batch.peer_fetch
        backward = forward + batch.forward
        trained = backward + batch.backward
        early = max(trained, servers_got) if batch.write_early else trained
        early_end = early + batch.write_early
        servers_got = early_end if batch.write_early else servers_got
        now = later = max(trained, background_ended)
        if batch.later_first:
            now = later + batch.sync_later
        gathered = now + batch.gather
        reduced = now_end = gathered + batch.dense
        relayed = None if not batch.send else servers.relay(max(gathered, servers_got), batch)
        if relayed is not None and max(reduced, relayed[-1]) < reduced + batch.send:
            write, write_end, fetch, fetch_end = relayed
            servers_got = write_end
            servers.begin(fetch, batch.relay_fetch)
        else:
            write = write_end = fetch = fetch_end = now_end = reduced + batch.send
        ready = max(now_end, fetch_end)
        later = later if batch.later_first else now_end
        background_ended = later + batch.sync_later
        given_back = gathered if batch.is_owned else background_ended
        late = max(given_back, servers_got) if batch.write_late else given_back
        late_end = late + batch.write_late
        servers_got = late_end if batch.write_late else servers_got
        servers.written(number, max(early_end, late_end))
        starts = (servers.fetch_start[number], peer, forward, backward, now, later, early, late, write, fetch)
        ends = (servers.fetched[number], forward, backward, trained, now_end, background_ended, early_end, late_end,
                write_end, fetch_end)  # fmt: skip
        found.append((starts, ends))
    return found


def earliest_on_one_network(
    batches: list[_Batch], prefetch_after: list[int | None], fetch_latency_s: float
) -> list[_Starts]:
    """The same where servers' transfers and trainers' synchronisation take turns on one network. Nothing is relayed.

    What has begun is carried to its end. After the backward pass of batch x come its critical synchronisation, its
    private rows' write-back, its background synchronisation and its late write-back. Prefetches fill the time until the
    next backward pass ends, in the order of batches: one that has been asked for begins as soon as the network is free,
    and may so hold up the synchronisation behind it. A batch about to be trained has its own prefetch carried before
    all else.
    """
    network = _Network([batch.prefetch for batch in batches], prefetch_after, fetch_latency_s)
    found: list[_Starts] = []
    synced = 0.0
    for number, batch in enumerate(batches):
        network.prefetch_upto(number)
        peer = network.begin(max(network.fetched[number], synced), batch.peer_fetch)
        forward = peer + batch.peer_fetch
        backward = forward + batch.forward
        trained = backward + batch.backward
        network.prefetch_before(trained)
        now_s = batch.gather + batch.dense + batch.send
        now = network.begin(trained, now_s)
        early = network.begin(trained, batch.write_early)
        synced = now + now_s
        later = network.begin(synced, batch.sync_later)
        late = network.begin(later + batch.sync_later, batch.write_late)
        early_end, late_end = early + batch.write_early, late + batch.write_late
        network.written(number, max(early_end, late_end))
        starts = (network.fetch_start[number], peer, forward, backward, now, later, early, late, synced, synced)
        ends = (network.fetched[number], forward, backward, trained, synced, later + batch.sync_later, early_end,
                late_end, synced, synced)  # fmt: skip
        found.append((starts, ends))
    return found


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

    def relay(self, ready_s: float, batch: _Batch) -> tuple[float, float, float, float]:
        """When rows that roots have ready then could be written and fetched, from when until when each, behind the
        prefetches that can begin before.
        """
        written = ready_s + batch.relay_write
        asked = written + self._latency_s
        self.prefetch_before(asked)
        fetch = max(asked, self._free_s)
        return ready_s, written, fetch, fetch + batch.relay_fetch

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
