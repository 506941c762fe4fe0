"""Generated traces: the same for the same seed however they are read, and distributed as they say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.profiles.traces.generators import (
    avazu_like_trace,
    criteo_like_trace,
    power_law_trace,
    skew_trace,
    terabyte_like_trace,
    zipf_trace,
)
from gapless.profiles.traces.trace import Trace

GENERATORS: dict[str, Callable[[int, int], Trace]] = {
    "criteo": criteo_like_trace,
    "avazu": avazu_like_trace,
    "terabyte": terabyte_like_trace,
    "zipf": lambda examples, seed: zipf_trace([5, 100_000], 1.2, examples, seed),
    "skew": lambda examples, seed: skew_trace([5, 100_000], 0.4, examples, seed),
    "repeats": lambda examples, seed: zipf_trace([5, 100_000], 1.2, examples, seed, repeats=3),
}


def whole(trace: Trace, batch_size: int = 4096) -> np.ndarray:
    return np.concatenate(list(trace.batches(batch_size)))


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_seed_gives_one_trace_in_any_batches(generator: str) -> None:
    make = GENERATORS[generator]
    trace = make(40_000, 3)
    ids = whole(trace)
    assert ids.shape == (40_000, trace.table_count)
    assert np.array_equal(ids, whole(trace, 333))
    assert np.array_equal(ids, whole(make(40_000, 3), 40_000))
    assert np.array_equal(ids[:20_000], whole(make(20_000, 3)))
    assert not np.array_equal(ids, whole(make(40_000, 4)))
    assert trace.table_rows is not None
    assert (ids.max(axis=0) < np.array(trace.table_rows)).all()
    assert ids.min() == 0


def test_most_ids_of_a_criteo_like_batch_are_used_by_one_example() -> None:
    (batch,) = criteo_like_trace(16_384).batches(16_384)
    counts = np.concatenate([np.unique(column, return_counts=True)[1] for column in np.asarray(batch).T])
    assert np.mean(counts == 1) == pytest.approx(0.77, abs=0.005)


def test_repeats_make_rows_that_one_example_uses_as_few_as_published() -> None:
    """A batch's rows: around 25 % in the text. An id lies near where it was drawn, and is drawn as often as before."""
    (batch,) = criteo_like_trace(16_384, repeats=3).batches(16_384)
    counts = np.concatenate([np.unique(column, return_counts=True)[1] for column in np.asarray(batch).T])
    assert np.mean(counts == 1) == pytest.approx(0.25, abs=0.02)
    ids = whole(zipf_trace([10**9], 1.0, 16_384, repeats=4))[:, 0]
    values, first, uses = np.unique(ids[:12_000], return_index=True, return_counts=True)
    last = 11_999 - np.unique(ids[:12_000][::-1], return_index=True)[1]
    assert (last - first)[values > 10**7].max() < 4096 + 100
    assert uses[values > 10**7].mean() == pytest.approx(4, rel=0.1)


def test_criteo_like_counts_are_near_the_published_ones() -> None:
    """Distinct ids of a batch of 16,384 (65 K), those in the next batch too (22.7 K), and those of ten batches."""
    trace = criteo_like_trace(10 * 16_384, seed=1)
    assert trace.table_rows is not None
    assert (len(trace.table_rows), sum(trace.table_rows)) == (26, 33_762_577)
    batches = [[np.unique(column) for column in batch.T] for batch in trace.batches(16_384)]
    assert sum(map(len, batches[0])) == pytest.approx(65_000, rel=0.13)
    both = sum(len(np.intersect1d(*pair)) for pair in zip(batches[0], batches[1], strict=True))
    assert both == pytest.approx(22_700, rel=0.13)
    window = sum(len(np.unique(np.concatenate(columns))) for columns in zip(*batches, strict=True))
    assert window == pytest.approx(66.7e6 / 192, rel=0.15)


@pytest.mark.parametrize("share", [0.01, 0.4, 0.9])
def test_the_hottest_percent_gets_its_share(share: float) -> None:
    ids = whole(skew_trace([100_000, 50], share, 200_000))
    assert (ids[:, 0] < 1000).mean() == pytest.approx(share, abs=0.005)
    cold = ids[:, 0][ids[:, 0] >= 1000]
    assert np.histogram(cold, bins=10, range=(1000, 100_000))[0] == pytest.approx(len(cold) / 10, rel=0.05)
    assert (ids[:, 1] == 0).mean() == pytest.approx(share, abs=0.005)


def test_within_the_hottest_percent_the_share_falls_exponentially() -> None:
    ids = whole(skew_trace([100_000], 0.9, 400_000))[:, 0]
    counts = np.histogram(ids, bins=4, range=(0, 1000))[0]
    assert counts[1:] / counts[:-1] == pytest.approx(0.1 ** (1 / 4), rel=0.05)


def test_a_table_of_one_row_has_one_id() -> None:
    assert whole(skew_trace([1], 0.5, 100)).max() == 0
    assert whole(zipf_trace([1], 2.0, 100)).max() == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: zipf_trace([5], 0.5, 10), "the exponent must be in 1..5, got 0.5"),
        (lambda: skew_trace([5], 1.0, 10), "the hottest 1 % must be in 0.01..1, below 1, got 1.0"),
        (lambda: skew_trace([0], 0.5, 10), "table 'table0': rows must be in 1.., got 0"),
        (lambda: criteo_like_trace(5, repeats=0.5), "trace 'criteo-like': repeats must be in 1..1000, got 0.5"),
        (lambda: criteo_like_trace(0), "trace 'criteo-like': examples must be >= 1, got 0"),
        (lambda: criteo_like_trace(5, seed=-1), "trace 'criteo-like': the seed must be >= 0, got -1"),
        (lambda: power_law_trace("none", [], 10), "trace 'none': tables must number 1.."),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[[], Trace], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("rows must be in 1..", "rows must be in 1..[0-9]*")):
        make()
