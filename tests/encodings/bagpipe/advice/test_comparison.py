"""A comparison is the mean of the pipeline's measured batches, and orders the designs as the text does."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from bagpipe_counts import random_counts, steady_counts
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.bagpipe.advice.advise import advise
from gapless.encodings.bagpipe.advice.comparison import compare_designs, counted_run, lookahead_table
from gapless.encodings.bagpipe.cluster import Cluster, model_cluster
from gapless.encodings.bagpipe.designs.pipeline import pipeline
from gapless.encodings.bagpipe.problem import Planning
from gapless.encodings.bagpipe.question import DESIGNS
from gapless.errors import InputError
from gapless.options import Deadline, SolveOptions
from gapless.profiles.traces.generators import criteo_like_trace, zipf_trace
from gapless.profiles.traces.recommendation import dense_model_names, named_dense_model

BATCH = 512
PLANNING = Planning(4, BATCH, lookahead=10)
CLUSTER = Cluster(4, forward_s=1e-3, backward_s=2e-3, pass_examples=BATCH // 4, dense_bytes=100_000, latency_s=5e-6)


def test_a_steady_run_is_summed_up_by_one_of_its_batches() -> None:
    cluster = Cluster(2, row_bytes=64)
    replicated, partitioned, lrpp, delayed, fine = compare_designs(steady_counts(9), cluster)
    assert [entry.design for entry in (replicated, partitioned, lrpp, delayed, fine)] == list(DESIGNS)
    assert [entry.critical_rows for entry in (replicated, partitioned, lrpp, delayed)] == [10, 6, 8, 3]
    assert (delayed.background_rows, lrpp.fetched_rows, lrpp.evicted_rows, lrpp.row_bytes) == (5, 6, 4, 64)
    assert partitioned.peer_rows == 6


@given(seed=st.integers(0, 2**32 - 1), trainers=st.integers(1, 5))
def test_delaying_never_slows_down_a_run_whose_prefetches_do_not_wait(seed: int, trainers: int) -> None:
    """With a whole run in the window: else later write-backs may hold up later prefetches."""
    counts = random_counts(np.random.default_rng(seed), 10, trainers)
    counts = replace(counts, prefetch_after=np.full(10, -1), lookahead=np.full(10, 10))
    cluster = Cluster(trainers, latency_s=0.0)
    ends = {design: pipeline(counts, cluster, design).sync_now.end_s for design in DESIGNS}
    assert (ends["lrpp-delayed"] <= ends["lrpp"] + 1e-12).all()
    assert (ends["lrpp"] <= ends["replicated"] + 1e-12).all()


def test_designs_are_ordered_as_in_the_text() -> None:
    counts = counted_run(criteo_like_trace(200 * BATCH, seed=1), PLANNING)
    replicated, partitioned, lrpp, delayed, fine = compare_designs(counts, CLUSTER)
    assert replicated.critical_rows > lrpp.critical_rows > delayed.critical_rows
    assert lrpp.critical_rows == pytest.approx(delayed.critical_rows + delayed.background_rows)
    assert partitioned.critical_rows < lrpp.critical_rows
    assert partitioned.iteration_s < delayed.iteration_s <= lrpp.iteration_s < replicated.iteration_s
    controlled = compare_designs(counts, replace(CLUSTER, control_s=85e-3))  # as the text measured it
    assert max(controlled, key=lambda entry: entry.iteration_s).design in ("partitioned", "lrpp-fine-grained")
    assert controlled[2].iteration_s == lrpp.iteration_s < controlled[1].iteration_s
    assert delayed.sync_s < lrpp.sync_s < replicated.sync_s
    assert fine.critical_rows < delayed.critical_rows
    assert fine.sync_s < delayed.sync_s
    assert len({entry.evicted_rows for entry in (replicated, partitioned, lrpp, delayed, fine)}) == 1


@pytest.mark.thorough
def test_the_cache_grows_more_slowly_than_the_lookahead() -> None:
    trace = criteo_like_trace(200 * BATCH, seed=2)
    table = lookahead_table(trace, PLANNING, CLUSTER, [2, 5, 10, 40])
    rows = np.array([entry.cache_rows for entry in table])
    assert (np.diff(rows) > 0).all()
    assert (np.diff(rows / [2, 5, 10, 40]) < 0).all()
    assert [entry.lookahead for entry in table] == [entry.asked for entry in table] == [2, 5, 10, 40]
    assert [entry.cache_bytes for entry in table] == (rows * 192).tolist()
    fetched = [entry.counts.prefetched[-10:].mean() for entry in table]
    assert fetched == sorted(fetched, reverse=True)


def test_a_counted_run_is_a_window_and_as_much_again_and_sees_beyond_its_end() -> None:
    trace = zipf_trace([5000] * 2, 1.0, 300 * 16)
    assert counted_run(trace, Planning(2, 16, lookahead=10)).batches == 60
    assert counted_run(trace, Planning(2, 16, lookahead=70)).batches == 140
    cut = counted_run(trace, Planning(2, 16, lookahead=10, batches=12))
    assert cut.batches == 12
    whole = counted_run(trace, Planning(2, 16, lookahead=10))
    assert np.array_equal(cut.evicted, whole.evicted[:12])
    with pytest.raises(InputError, match="lookahead: must be given to count a run"):
        counted_run(trace, Planning(2, 16, cache_rows=1000))


def test_a_run_whose_time_is_up_is_counted_as_far_as_it_came() -> None:
    trace, planning = zipf_trace([5000] * 2, 1.0, 300 * 16), Planning(2, 16, lookahead=10)
    whole, options = counted_run(trace, planning), SolveOptions()
    assert np.array_equal(counted_run(trace, planning, Deadline(options)).evicted, whole.evicted)
    options.stop.set()
    cut = counted_run(trace, planning, Deadline(options))
    assert np.array_equal(cut.evicted, whole.evicted[:1])
    assert [
        entry.asked for entry in lookahead_table(trace, planning, Cluster(2), [1, 2], deadline=Deadline(options))
    ] == [1]


def test_advice_says_what_there_was_no_time_for() -> None:
    asked = {"trainers": 2, "batch_size": 16, "lookahead": 10, "table_rows": [5000, 5000], "examples": 4800}
    assert advise("zipf", **asked, options=SolveOptions(time_limit_s=1e6)).left_out == ""
    stopped = SolveOptions()
    stopped.stop.set()
    cut = advise("zipf", **asked, options=stopped)
    assert cut.left_out == "59 of 60 batches with a lookahead of 10"
    assert len(cut.designs) == len(DESIGNS)
    tuned = advise("zipf", **asked, cache_rows=2000, options=stopped)
    assert tuned.left_out.endswith("batches with a lookahead of 1, lookaheads above 1")
    assert tuned.chosen.lookahead == 1


def test_models_take_as_long_as_their_arithmetic_and_the_all_reduce_of_their_gradients() -> None:
    """The two constants are those that Figure 5.14's times of DLRM and DeepFM determine."""
    cluster = Cluster(8)
    assert asdict(model_cluster(cluster, named_dense_model("dlrm"))) == pytest.approx(asdict(cluster))
    assert cluster.ideal_s == pytest.approx(30e-3, rel=1e-3)
    found = {name: model_cluster(cluster, named_dense_model(name)) for name in dense_model_names()}
    assert found["deepfm"].ideal_s == pytest.approx(236e-3, rel=1e-3)
    assert found["wide-and-deep"].dense_bytes == 4 * 136_673
    passes_s = {name: entry.forward_s + entry.backward_s for name, entry in found.items()}
    for name, time_s in passes_s.items():
        assert time_s / passes_s["dlrm"] == pytest.approx(named_dense_model(name).macs / named_dense_model("dlrm").macs)
    assert passes_s["deepfm"] < passes_s["wide-and-deep"] < passes_s["deep-and-cross"] < passes_s["dlrm"]


def test_delaying_saves_nothing_where_passes_are_too_short_to_hide_it() -> None:
    """It then costs the latency of a second all-reduce."""
    counts = counted_run(criteo_like_trace(100 * BATCH), PLANNING)
    short = replace(CLUSTER, forward_s=0.0, backward_s=0.0)
    *_, lrpp, delayed, _ = compare_designs(counts, short)
    assert delayed.iteration_s == pytest.approx(lrpp.iteration_s + 6 * short.latency_s, rel=0.02)
    assert delayed.sync_s > lrpp.sync_s
