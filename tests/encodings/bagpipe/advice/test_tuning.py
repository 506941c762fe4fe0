"""The tuner takes the smallest lookahead within 1 % of the fastest that fits the cache."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.encodings.bagpipe.advice.comparison import TOLERANCE, candidates, fitting_lookahead, tune_lookahead
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.problem import Planning
from gapless.errors import InputError
from gapless.profiles.traces.generators import zipf_trace
from gapless.profiles.traces.trace import trace_of_array

BATCH = 32
TRACE = zipf_trace([10_000] * 4, 1.0, 200 * BATCH)
LATE = Cluster(2, forward_s=1e-3, backward_s=2e-3, dense_bytes=0, fetch_latency_s=25e-3, pass_examples=BATCH // 2)
"""A round trip of about 8 iterations: below L = 8 prefetches are late."""


def test_a_late_prefetch_wants_a_longer_lookahead_but_no_longer_than_needed() -> None:
    found = tune_lookahead(TRACE, Planning(2, BATCH, lookahead=40, cache_rows=10**6), LATE)
    times_s = [entry.iteration_s for entry in found.tried]
    assert [entry.lookahead for entry in found.tried] == [1, 2, 5, 10, 20, 40]
    assert times_s[0] > 2 * times_s[2] > 2 * times_s[3]
    assert found.chosen.lookahead == 10
    assert (found.rule, found.settled) == (40, 40)
    assert found.chosen.iteration_s <= (1 + TOLERANCE) * min(times_s)


def test_a_small_cache_bounds_what_is_tried() -> None:
    rows = 500
    found = tune_lookahead(TRACE, Planning(2, BATCH, cache_rows=rows), LATE)
    assert 1 < found.settled <= found.rule < 10
    assert found.tried[-1].asked == found.settled
    assert all(entry.cache_rows <= rows for entry in found.tried)
    assert found.chosen is found.tried[-1]


def test_a_fast_fetch_takes_the_smallest() -> None:
    found = tune_lookahead(TRACE, Planning(2, BATCH, cache_rows=1000), Cluster(2, latency_s=0.0))
    assert [entry.asked for entry in found.tried][:2] == [1, 2]
    assert found.chosen is found.tried[0]


def test_the_rule_takes_what_fits_at_start_up_and_shrinks_later() -> None:
    """A cache of 6 rows holds three batches of two new ids; one of 3 rows three of one id, and later one of two."""
    even = trace_of_array(np.arange(24).reshape(12, 2))
    assert fitting_lookahead(even, Planning(1, 1, cache_rows=6)) == (3, 3)
    narrow, wide = np.repeat(np.arange(6), 2), np.arange(10, 22)
    wider = trace_of_array(np.concatenate([narrow, wide])[:, None])
    assert fitting_lookahead(wider, Planning(1, 2, cache_rows=3)) == (3, 1)


def test_candidates_are_a_series_with_its_end() -> None:
    assert candidates(1) == [1]
    assert candidates(10) == [1, 2, 5, 10]
    assert candidates(300) == [1, 2, 5, 10, 20, 50, 100, 200, 300]
    with pytest.raises(InputError, match="lookahead: must be >= 1, got 0"):
        candidates(0)


def test_bad_questions_are_named() -> None:
    with pytest.raises(InputError, match="cache_rows: must be given to tune the lookahead, got none"):
        tune_lookahead(TRACE, Planning(2, BATCH, lookahead=3), LATE)
    with pytest.raises(InputError, match="cache_rows must hold the distinct ids of a batch; batch 0 has"):
        tune_lookahead(TRACE, Planning(2, BATCH, cache_rows=9), LATE)
