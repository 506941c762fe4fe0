"""Traces: batches of any size from blocks of any size, global ids, and what a trace refuses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.profiles.traces.trace import (
    MOST_IDS,
    MOST_TABLES,
    Block,
    Trace,
    global_ids,
    rebatched,
    split_global_ids,
    trace_of_array,
)


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 12))
def test_batches_are_the_blocks_cut_anew(sizes: list[int], batch_size: int) -> None:
    whole = np.arange(2 * sum(sizes)).reshape(-1, 2)
    blocks = np.split(whole, np.cumsum(sizes)[:-1]) if sizes else []
    batches = list(rebatched(blocks, batch_size))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert all(0 < len(batch) <= batch_size for batch in batches)
    assert np.array_equal(np.concatenate([whole[:0], *batches]), whole)


def test_a_trace_is_read_again_and_again() -> None:
    trace = trace_of_array(np.arange(30, dtype=np.uint8).reshape(10, 3))
    first, second = list(trace.batches(4)), list(trace.batches(4))
    assert [len(batch) for batch in first] == [4, 4, 2]
    assert all(batch.dtype == np.int64 for batch in first)
    assert np.array_equal(np.concatenate(first), np.concatenate(second))
    assert [len(batch) for batch in trace.batches(4, most=2)] == [4, 4]


def test_a_batch_reads_no_further_than_it_needs() -> None:
    read = []

    def blocks() -> Iterator[Block]:
        for number in range(100):
            read.append(number)
            yield np.zeros((10, 1), dtype=np.int64)

    assert len(list(Trace("long", ("t",), blocks).batches(10, most=3))) == 3
    assert read == [0, 1, 2]


@given(st.lists(st.integers(0, MOST_IDS - 1), min_size=1, max_size=5))
def test_global_ids_split_back(ids: list[int]) -> None:
    block = np.array([ids, ids[::-1]])
    numbers = global_ids(block)
    tables, back = split_global_ids(numbers)
    assert np.array_equal(back, block)
    assert tables.tolist() == [list(range(len(ids)))] * 2


def test_global_ids_of_the_last_table_and_id_fit() -> None:
    last = (np.int64(MOST_TABLES - 1) << 44) + (MOST_IDS - 1)
    assert last == np.iinfo(np.int64).max


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.zeros((2, 2)), "trace 'array': must be integers, examples x tables, .* got float64 of shape"),
        (np.zeros(3, dtype=int), "got int64 of shape"),
        (np.zeros((0, 3), dtype=int), "at least one of each"),
    ],
)
def test_arrays_of_another_kind_are_refused(ids: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trace_of_array(ids)


@pytest.mark.parametrize("wrong", [-3, MOST_IDS])
def test_ids_out_of_range_are_named(wrong: int) -> None:
    ids = np.zeros((20_000, 3), dtype=np.int64)
    ids[17_000, 2] = wrong
    with pytest.raises(InputError, match=rf"ids must be in 0..{MOST_IDS - 1}, got {wrong} in example 17000, table 2"):
        list(trace_of_array(ids).batches(100))


def test_wrong_descriptions_are_refused() -> None:
    def nothing() -> Iterator[Block]:
        yield from ()

    for arguments, message in [
        (((), nothing), "tables must number 1.."),
        ((("a", "b", "a"), nothing), "names of tables must differ, got 'a' twice"),
        ((("a",), nothing, (1, 2)), "table_rows must have one entry for each of 1 tables"),
        ((("a",), nothing, (0,)), "table 'a': rows must be in 1.."),
        ((("a",), nothing, None, 0), "examples must be >= 1, got 0"),
    ]:
        with pytest.raises(InputError, match=message):
            Trace("t", *arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the batch size must be >= 1, got 0"):
        Trace("t", ("a",), nothing).batches(0)
    with pytest.raises(InputError, match="the number of batches must be >= 1, got 0"):
        Trace("t", ("a",), nothing).batches(1, most=0)
