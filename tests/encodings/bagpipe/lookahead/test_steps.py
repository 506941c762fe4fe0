"""The lookahead against the paper's text, followed word for word with sets and dictionaries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.bagpipe.lookahead import steps as module
from gapless.encodings.bagpipe.lookahead.steps import Step, lookahead_steps
from gapless.errors import InputError
from gapless.profiles.traces.generators import zipf_trace
from gapless.profiles.traces.trace import TABLE_SHIFT, Block, global_ids

Uses = list[set[int]]


@st.composite
def traces(draw: st.DrawFn) -> list[Block]:
    """Up to twelve small batches, at times with a short last one."""
    tables, size = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    most = draw(st.sampled_from([1, 3, 9, 40]))
    row = st.lists(st.integers(0, most), min_size=tables, max_size=tables)
    batches = draw(st.lists(st.lists(row, min_size=size, max_size=size), min_size=1, max_size=12))
    last = draw(st.integers(1, size))
    return [np.array(batch) for batch in batches[:-1]] + [np.array(batches[-1][:last])]


def uses_of(batches: list[Block]) -> Uses:
    return [set(global_ids(batch).ravel().tolist()) for batch in batches]


def held(uses: Uses, first: int, batches: int) -> set[int]:
    return set().union(*uses[first : first + batches]) if batches else set()


def shrinking_lookaheads(uses: Uses, most: int, cache_rows: int) -> Iterator[int]:
    """L of each batch: prefetch until the cache is full; later one less wherever it would overflow."""
    lookahead = 0
    while lookahead < min(most, len(uses)) and len(held(uses, 0, lookahead + 1)) <= cache_rows:
        lookahead += 1
    if lookahead == len(uses):
        lookahead = most
    for batch in range(len(uses)):
        if batch + lookahead < len(uses) and len(held(uses, batch + 1, lookahead)) > cache_rows:
            lookahead -= 1
        yield lookahead


def check_against_text(batches: list[Block], steps: list[Step], lookaheads: list[int]) -> None:
    """Prefetch, TTL updates and evictions of every batch, as the text has them."""
    uses, cache = uses_of(batches), dict[int, int]()
    assert [step.batch for step in steps] == list(range(len(batches)))
    for step, lookahead, batch in zip(steps, lookaheads, batches, strict=True):
        now, window = step.batch, range(step.batch, min(step.batch + lookahead, len(uses) - 1) + 1)
        assert step.lookahead == lookahead
        assert step.examples == len(batch)
        assert step.ids.tolist() == sorted(uses[now])
        assert step.prefetch_ids.tolist() == sorted(uses[now] - cache.keys())
        last = {key: max(later for later in window if key in uses[later]) for key in uses[now]}
        cache |= last
        assert ttl_updates(step) == {key: later for key, later in last.items() if later > now}
        expired = {key for key, until in cache.items() if until == now}
        assert step.ids[step.evicted].tolist() == sorted(expired)
        cache = {key: until for key, until in cache.items() if until > now}
        following = uses[now + 1] if now + 1 < len(uses) else set()
        assert step.in_next.tolist() == [key in following for key in step.ids.tolist()]
        tables = (step.ids >> TABLE_SHIFT).tolist()
        assert step.bounds.tolist() == np.searchsorted(tables, range(batch.shape[1] + 1)).tolist()
    assert not cache


def ttl_updates(step: Step) -> dict[int, int]:
    """The ids that stay in the cache, and the last batch for which each does."""
    kept = ~step.evicted
    return dict(zip(step.ids[kept].tolist(), step.last_use[kept].tolist(), strict=True))


def check_rows(uses: Uses, steps: list[Step]) -> None:
    """An id keeps its row from its prefetch, as early as it may start, to its eviction; no two ids share one."""
    entering: dict[int, list[Step]] = {}
    for step in steps:
        entering.setdefault(step.prefetch_after, []).append(step)
    row_of: dict[int, int] = {}
    peak = 0
    for step in [None, *steps]:
        if step is not None:
            inside = sum(later.prefetch_after < step.batch for later in steps[step.batch :])
            assert len(row_of) == step.cache_rows == len(held(uses, step.batch, inside))
            assert [row_of[key] for key in step.ids.tolist()] == step.rows.tolist()
            for key in step.ids[step.evicted].tolist():
                del row_of[key]
        for entered in entering.get(-1 if step is None else step.batch, []):
            fresh = entered.rows[entered.prefetched].tolist()
            assert not set(fresh) & set(row_of.values())
            row_of |= dict(zip(entered.prefetch_ids.tolist(), fresh, strict=True))
        peak = max(peak, len(row_of))
    assert max(int(step.rows.max()) for step in steps) == peak - 1


@given(traces(), st.integers(1, 14))
def test_a_given_lookahead_follows_the_text(batches: list[Block], lookahead: int) -> None:
    steps = list(lookahead_steps(batches, lookahead))
    check_against_text(batches, steps, [lookahead] * len(batches))
    assert [step.prefetch_after for step in steps] == [max(-1, b - lookahead) for b in range(len(batches))]


@given(traces(), st.integers(1, 14))
def test_an_id_outside_the_cache_was_not_used_lately(batches: list[Block], lookahead: int) -> None:
    """Section 5.2.2: if an id of batch x isn't in the cache, no batch in [x - L, x) used it."""
    uses = uses_of(batches)
    for step in lookahead_steps(batches, lookahead):
        before = held(uses, max(0, step.batch - lookahead), min(step.batch, lookahead))
        assert not before & set(step.prefetch_ids.tolist())
        assert not set(step.ids[~step.prefetched].tolist()) - before


@given(traces(), st.integers(1, 40), st.integers(1, 14) | st.none())
def test_a_cache_size_gives_the_lookahead_and_shrinks_it(
    batches: list[Block], cache_rows: int, lookahead: int | None
) -> None:
    uses = uses_of(batches)
    largest = max(map(len, uses))
    if largest > cache_rows:
        with pytest.raises(InputError, match=rf"cache_rows must hold .* batch \d+ has \d+, got {cache_rows}"):
            list(lookahead_steps(batches, lookahead, cache_rows))
        return
    steps = list(lookahead_steps(batches, lookahead, cache_rows))
    assert all(step.cache_rows <= cache_rows for step in steps)
    lookaheads = list(shrinking_lookaheads(uses, lookahead or len(batches), cache_rows))
    check_against_text(batches, steps, lookaheads)
    for step in steps:
        # No batch after the one whose updates the prefetch waits for has used what it fetches.
        between = held(uses, step.prefetch_after + 1, step.batch - step.prefetch_after - 1)
        assert not between & set(step.prefetch_ids.tolist())


@given(traces(), st.integers(1, 14), st.integers(1, 40) | st.none())
def test_rows_are_kept_and_never_shared(batches: list[Block], lookahead: int, cache_rows: int | None) -> None:
    uses = uses_of(batches)
    if cache_rows is not None and max(map(len, uses)) > cache_rows:
        return
    check_rows(uses, list(lookahead_steps(batches, lookahead, cache_rows)))


def test_figure_5_5() -> None:
    """Batches 1 to 4 of the figure. It counts the current batch into its lookahead of 2; the definition doesn't."""
    batches = [np.array(ids).reshape(-1, 1) for ids in ([3, 9], [3, 4], [3, 6], [6, 1])]
    found = [
        (step.prefetch_ids.tolist(), ttl_updates(step),
         step.ids[step.evicted].tolist())
        for step in lookahead_steps(batches, lookahead=1)
    ]  # fmt: skip
    assert found == [([3, 9], {3: 1}, [9]), ([4], {3: 2}, [4]), ([6], {6: 3}, [3]), ([1], {}, [1, 6])]


def test_a_cache_as_large_as_the_trace_takes_it_whole() -> None:
    batches = [np.array([[number], [number + 1]]) for number in range(6)]
    steps = list(lookahead_steps(batches, cache_rows=7))
    assert {step.lookahead for step in steps} == {6}
    assert steps[0].cache_rows == 7
    assert {step.prefetch_after for step in steps} == {-1}


def test_a_chosen_lookahead_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LOOKAHEAD", 5)
    endless = (np.array([[number % 3]]) for number in count())
    assert [step.lookahead for step in islice(lookahead_steps(endless, cache_rows=10), 4)] == [5] * 4


def test_a_cache_smaller_than_a_batch_names_both_numbers() -> None:
    batches = [np.array([[0], [1]]), np.array([[0], [1]]), np.array([[0], [1], [2], [3]])]
    message = "lookahead: cache_rows must hold the distinct ids of a batch; batch 2 has 4, got 3"
    steps = lookahead_steps(batches, lookahead=1, cache_rows=3)
    assert next(steps).batch == 0
    with pytest.raises(InputError, match=message):
        list(steps)
    with pytest.raises(InputError, match="batch 0 has 2, got 1"):
        list(lookahead_steps(batches, cache_rows=1))


def test_it_runs_ahead_by_the_lookahead_and_no_more() -> None:
    read = 0

    def batches() -> Iterator[Block]:
        nonlocal read
        for number in count():
            read += 1
            yield np.array([[number % 5]])

    steps = lookahead_steps(batches(), lookahead=3)
    assert read == 0
    assert [(next(steps).batch, read) for _ in range(3)] == [(0, 4), (1, 5), (2, 6)]


def test_rows_in_the_map_stay_below_the_peak_on_a_long_trace() -> None:
    trace = zipf_trace([200_000, 50, 1 << 40], 1.05, 64 * 1000, seed=5)
    seen = np.zeros(0, dtype=np.int64)
    peak = 0
    for step in lookahead_steps(trace.batches(1000), lookahead=6):
        peak = max(peak, step.cache_rows)
        assert int(step.rows.max()) < peak
        assert len(np.unique(step.rows)) == len(step.ids)
        seen = np.concatenate([seen, step.prefetch_ids])
    distinct = np.unique(global_ids(np.concatenate(list(trace.batches(5000)))))
    assert np.array_equal(np.unique(seen), distinct)


@pytest.mark.parametrize(
    ("batches", "arguments", "message"),
    [
        ([], {"lookahead": 2}, "the trace must hold at least one batch, got none"),
        ([[[1]]], {}, "needs a lookahead or a cache size in rows, got neither"),
        ([[[1]]], {"lookahead": 0}, "lookahead must be >= 1, got 0"),
        ([[[1]]], {"lookahead": 1, "cache_rows": 0}, "cache_rows must be >= 1, got 0"),
        (
            [[[1, 2]], [[1]]],
            {"lookahead": 1},
            r"batch 1 must be examples x 2, at least one of each, got shape \(1, 1\)",
        ),
        ([[[]]], {"lookahead": 1}, r"batch 0 must be examples x tables, at least one of each, got shape \(1, 0\)"),
        ([[[1, -2]]], {"lookahead": 1}, r"batch: ids must be in 0..\d+, got -2"),
    ],
)
def test_wrong_input_is_refused(batches: list[list[list[int]]], arguments: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(lookahead_steps([np.array(batch, dtype=np.int64) for batch in batches], **arguments))
