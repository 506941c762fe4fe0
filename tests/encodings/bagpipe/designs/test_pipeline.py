"""Times are those of a simulation event by event, and of small cases by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from bagpipe_counts import random_counts, steady_counts
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.array_types import Mask
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.designs.counts import Counts
from gapless.encodings.bagpipe.designs.pipeline import ACTIVITIES, Pipeline, durations, pipeline
from gapless.encodings.bagpipe.designs.rows import design_rows
from gapless.encodings.bagpipe.question import DESIGNS
from gapless.errors import InputError

PLAIN = Cluster(
    trainers=2, trainer_bytes_per_s=1.0, server_bytes_per_s=2.0, latency_s=0.0, row_bytes=1, forward_s=4.0,
    backward_s=6.0, dense_bytes=5, all_reduce_share=1.0, control_s=20.0,
)  # fmt: skip
"""A row takes 1 s from trainer to trainer, half of it to or from the servers; so does a byte of an all-reduce of 2."""

Task = tuple[str, int]
_QUEUES = {
    "prefetch": "from servers", "write_early": "to servers", "write_late": "to servers", "sync_now": "trainers",
    "sync_later": "trainers", "relay_write": "to servers",
}  # fmt: skip
_IN_TURN = ("prefetch", "peer_fetch", "forward", "backward", "sync_now", "sync_later", "write_early", "relay_write",
            "relay_fetch", "write_late", "ask", "ask to relay", "gathered")  # fmt: skip


def simulated(counts: Counts, cluster: Cluster, design: str, is_relayed: Mask) -> dict[Task, tuple[float, float]]:
    """Start and end of each task: a clock that goes from end to end, and starts whatever may start then."""
    lasting = durations(design_rows(counts, design), cluster, counts.examples_most)
    length: dict[Task, float] = {}
    needs: dict[Task, list[Task]] = {}
    for x in range(counts.batches):
        length |= {(name, x): float(lasting[name][x]) for name in ACTIVITIES if name in lasting}
        after, is_first, relayed = int(counts.prefetch_after[x]), bool(lasting["later_first"][x]), bool(is_relayed[x])
        parts = [float(lasting[name][x]) for name in ("gather", "dense", "send")]
        length["gathered", x], length["sync_now", x] = parts[0], sum(parts[: 2 + (not relayed)])
        if not relayed:
            length["relay_write", x] = length["relay_fetch", x] = 0.0
        asks = [(name, after) for name in ("write_early", "write_late")] if after >= 0 else []
        has_rows = length["prefetch", x] > 0
        length["ask", x] = cluster.fetch_latency_s if has_rows else 0.0
        length["ask to relay", x] = cluster.fetch_latency_s if relayed else 0.0
        needs["ask", x] = asks if has_rows else []
        needs["prefetch", x] = [("ask", x), *([("prefetch", x - 1)] if x else [])]
        before = [(name, x - 1) for name in ("sync_now", "relay_fetch")] if x else []
        trained = [("backward", x), *([("sync_later", x - 1)] if x else [])]
        needs["peer_fetch", x] = [("prefetch", x), *before]
        needs["forward", x] = [("peer_fetch", x)]
        needs["backward", x] = [("forward", x)]
        needs["sync_now", x] = needs["gathered", x] = [*trained, ("sync_later", x)] if is_first else trained
        needs["sync_later", x] = trained if is_first else [("sync_now", x)]
        needs["write_early", x] = [("backward", x)]
        needs["relay_write", x] = [("gathered" if relayed else "sync_now", x)]
        needs["ask to relay", x] = [("relay_write", x)]
        needs["relay_fetch", x] = [("ask to relay", x)]
        given_back = "gathered" if lasting["is_owned"][x] else "sync_later"
        needs["write_late", x] = [(given_back, x), ("write_early", x), *([("relay_write", x)] if relayed else [])]

    def turn(task: Task) -> tuple[int, int, int]:
        is_later = task[0] == "sync_now" and bool(lasting["later_first"][task[1]])
        return task[1], _IN_TURN.index(task[0]) + is_later, is_later

    waiting = sorted(needs, key=turn)
    spans: dict[Task, tuple[float, float]] = {}
    clock = 0.0
    while waiting:
        while starting := [task for task in waiting if _may_start(task, clock, needs, length, spans, waiting, counts)]:
            task = min(starting, key=lambda one: one[0] != "relay_fetch")  # goes before prefetches that wait
            spans[task] = clock, clock + length[task]
            waiting.remove(task)
        assert not waiting or any(end > clock for _, end in spans.values()), "everything waits for something else"
        clock = min((end for _, end in spans.values() if end > clock), default=clock)
    return spans


def _may_start(
    task: Task,
    clock: float,
    needs: dict[Task, list[Task]],
    length: dict[Task, float],
    spans: dict[Task, tuple[float, float]],
    waiting: list[Task],
    counts: Counts,
) -> bool:
    if any(need not in spans or spans[need][1] > clock for need in needs[task]):
        return False
    queue = _QUEUES.get(task[0])
    if task[0] in ("prefetch", "relay_fetch") and length[task]:
        relay = ("relay_fetch", int(counts.prefetch_after[task[1]]))
        if task[0] == "prefetch" and length.get(relay) and relay not in spans:
            return False  # what waits for a batch comes behind what that batch relays
        got = [span for other, span in spans.items() if other[0] in ("prefetch", "relay_fetch") and length[other]]
        return all(end <= clock for _, end in got)
    if queue is None or not length[task]:
        return True
    same = [other for other in needs if _QUEUES.get(other[0]) == queue and length[other]]
    ahead = [other for other in waiting if other in same]
    return ahead[0] == task and all(spans[other][1] <= clock for other in same if other in spans)


def assert_as_simulated(found: Pipeline, spans: dict[Task, tuple[float, float]]) -> None:
    for name in ACTIVITIES:
        expected = [spans[name, x] for x in range(len(found.lookahead))]
        span = getattr(found, name)
        assert np.allclose(np.stack([span.start_s, span.end_s], axis=1), expected, rtol=1e-9), name


@given(
    seed=st.integers(0, 2**32 - 1),
    batches=st.integers(1, 9),
    trainers=st.integers(1, 4),
    design=st.sampled_from(DESIGNS),
    fetch_latency_s=st.sampled_from([0.0, 1e-4, 5e-3]),
    server_bytes_per_s=st.sampled_from([1e7, 1e8, 3e9]),
)
@examples(150)
def test_times_are_those_of_an_event_simulation(
    seed: int, batches: int, trainers: int, design: str, fetch_latency_s: float, server_bytes_per_s: float
) -> None:
    counts = random_counts(np.random.default_rng(seed), batches, trainers)
    cluster = Cluster(
        trainers, trainer_bytes_per_s=2e8, server_bytes_per_s=server_bytes_per_s, forward_s=1e-4, backward_s=2e-4,
        dense_bytes=10_000, fetch_latency_s=fetch_latency_s, control_s=1e-3,
    )  # fmt: skip
    found = pipeline(counts, cluster, design)
    assert_as_simulated(found, simulated(counts, cluster, design, found.is_relayed))


@given(seed=st.integers(0, 2**32 - 1), batches=st.integers(2, 12), design=st.sampled_from(DESIGNS))
def test_nothing_is_read_early_and_no_network_carries_two_things(seed: int, batches: int, design: str) -> None:
    counts = random_counts(np.random.default_rng(seed), batches, trainers=3)
    found = pipeline(counts, Cluster(3, fetch_latency_s=1e-3), design)
    written_s = np.maximum(found.write_early.end_s, found.write_late.end_s)
    late = (counts.prefetch_after >= 0) & (counts.prefetched > 0)
    assert (found.prefetch.start_s[late] >= written_s[counts.prefetch_after[late]] + 1e-3).all()
    assert (found.forward.start_s >= found.prefetch.end_s).all()
    assert (found.forward.start_s[1:] >= found.sync_now.end_s[:-1]).all()
    assert (found.sync_now.start_s[1:] >= found.sync_later.end_s[:-1]).all()
    assert (found.sync_later.start_s[:-1] >= found.sync_now.end_s[:-1]).all()
    assert found.sync_later.start_s[-1] >= min(found.sync_now.end_s[-1], found.backward.end_s[-1])
    assert (found.prefetch.start_s[1:] >= found.prefetch.end_s[:-1]).all()
    writes = [(found.write_early, counts.private), (found.write_late, counts.evicted - counts.private)]
    if design == "lrpp":
        spans = sorted((s, e) for span, rows in writes for s, e in
                       zip(span.start_s[rows > 0], span.end_s[rows > 0], strict=True))  # fmt: skip
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_a_delayed_batch_by_hand() -> None:
    """6 rows leave the servers in 3 s, 4 + 6 s of compute, 3 + 5 s on the critical path, 5 s behind it."""
    found = pipeline(steady_counts(3), PLAIN)
    assert found.prefetch.start_s.tolist() == [0, 3, 27]
    assert found.prefetch.end_s.tolist() == [3, 6, 30]
    assert found.forward.start_s.tolist() == [3, 21, 39]
    assert found.backward.end_s.tolist() == [13, 31, 49]
    assert found.sync_now.start_s.tolist() == [13, 31, 49]
    assert found.sync_later.start_s.tolist() == [21, 39, 57]
    assert found.sync_later.end_s.tolist() == [26, 44, 62]
    assert found.write_early.start_s.tolist() == [13, 31, 49]
    assert found.write_early.duration_s.tolist() == [1, 1, 1]
    assert found.write_late.start_s.tolist() == [26, 44, 62]
    assert found.makespan_s == 63


def test_the_prefetch_waits_for_the_write_back_that_the_lookahead_names() -> None:
    """Two batches ahead: batch 2 asks once batch 0 is written back, at 27 s, and hears 2 s later."""
    cluster = replace(PLAIN, fetch_latency_s=2.0)
    found = pipeline(steady_counts(3), cluster)
    assert found.prefetch.start_s.tolist() == [2, 5, 31]


def test_each_design_by_hand() -> None:
    """Rows over 2 trainers: a row on the critical path takes 1 s, and so do the 5 dense bytes; compute takes 10 s.

    Control is of both designs that send rows from trainer to trainer.
    """
    steady = {design: pipeline(steady_counts(20, lookahead=9), PLAIN, design) for design in DESIGNS}
    assert steady["replicated"].iteration_s == pytest.approx(10 + 10 + 5)
    assert steady["partitioned"].iteration_s == pytest.approx(20 + 3 + 10 + 5 + 3)
    assert steady["lrpp"].iteration_s == pytest.approx(10 + 8 + 5)
    assert steady["lrpp-delayed"].iteration_s == pytest.approx(10 + 3 + 5)
    assert steady["lrpp-fine-grained"].iteration_s == pytest.approx(20 + 10 + 1 + 5)  # gathered, not sent but relayed
    assert [found.sync_s for found in steady.values()] == pytest.approx([10, 26, 8, 3, 21])
    assert [found.stall_s for found in steady.values()] == pytest.approx([0, 0, 0, 0, 0])
    assert pytest.approx(15) == PLAIN.ideal_s


def test_a_background_longer_than_the_compute_holds_up_the_next_critical_part() -> None:
    cluster = replace(PLAIN, forward_s=1.0, backward_s=1.0)
    found = pipeline(steady_counts(12, lookahead=3), cluster)
    assert found.iteration_s == pytest.approx(5 + 3 + 5)  # the trainers' network never rests
    assert found.sync_s == pytest.approx(3 + 3)


@pytest.mark.parametrize("lookahead", [1, 2, 5, 10])
def test_late_prefetches_share_a_round_trip_among_the_window(lookahead: int) -> None:
    """Table 5.3 at small L: batches come L at a time, once a round trip."""
    cluster = replace(PLAIN, fetch_latency_s=1000.0)
    found = pipeline(steady_counts(4 * lookahead - 1, lookahead=lookahead), cluster)
    assert found.measured == slice(lookahead, 3 * lookahead)
    assert 1000 / lookahead < found.iteration_s < 1040 / lookahead + 18
    assert found.stall_s > 0.9 * (found.iteration_s - 18)


def test_one_batch_and_a_window_longer_than_the_run_are_measured_too() -> None:
    assert pipeline(steady_counts(1), PLAIN).iteration_s == 21
    assert pipeline(steady_counts(3, lookahead=50), PLAIN).iteration_s == 18


def test_a_cluster_of_other_trainers_and_an_unknown_design_are_named() -> None:
    with pytest.raises(InputError, match="trainers must be the plans' 2, got 3"):
        pipeline(steady_counts(3), Cluster(3))
    with pytest.raises(InputError, match=r"design: must be one of .*, got 'lrp'; .*lrpp"):
        pipeline(steady_counts(3), PLAIN, "lrp")


def test_one_trainer_synchronises_nothing() -> None:
    counts = random_counts(np.random.default_rng(1), 6, trainers=1)
    found = pipeline(counts, Cluster(1))
    assert not found.sync_now.duration_s.any()
    assert not found.sync_later.duration_s.any()


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [("fetch_latency_s", -1.0, "fetch_latency_s must be finite and >= 0"), ("control_s", np.inf, "control_s must be")],
)
def test_bad_clusters_are_named(field: str, value: float, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        replace(PLAIN, **{field: value})


def test_cluster_times_are_the_same_for_numbers_and_arrays() -> None:
    cluster = Cluster(8, latency_s=1e-3)
    sizes = np.array([0.0, 1e6, 2e7])
    assert cluster.all_reduce_s(sizes).tolist() == [cluster.all_reduce_s(float(size)) for size in sizes]
    assert cluster.server_s(sizes).tolist() == [cluster.server_s(float(size)) for size in sizes]
    assert cluster.peer_s(sizes).tolist() == [cluster.peer_s(float(size)) for size in sizes]
    assert cluster.all_reduce_s(0.0) == cluster.server_s(0.0) == cluster.peer_s(0.0) == 0
    assert cluster.server_s(1e6, 1e6) == pytest.approx(1e-3 + 1e6 * 192 / 1.25e9)  # one trainer's network is the limit
    assert cluster.server_s(1e6) == pytest.approx(1e-3 + 1e6 * 192 / 3.125e9)
    dense_s = 14 * (1e-3 + 4 * 2_962_289 / 8 / (cluster.all_reduce_share * 1.25e9))
    assert cluster.ideal_s == pytest.approx(6 * 2_974_800 * 2048 / 4.186e12 + dense_s)


def test_passes_take_as_long_as_the_examples_of_the_busiest_trainer_and_a_batch_that_is_four_times_as_large() -> None:
    counts = steady_counts(6)
    larger = pipeline(replace(counts, examples_most=4 * counts.examples_most), PLAIN)
    assert larger.forward.duration_s.tolist() == [16] * 6
    assert larger.backward.duration_s.tolist() == [24] * 6
    assert larger.iteration_s == pipeline(counts, PLAIN).iteration_s + 30
