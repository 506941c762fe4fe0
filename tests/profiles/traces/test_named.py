"""Traces by name: generators and files, with the options that go with each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.profiles.traces.named import find_trace


def test_generators_have_the_tables_of_criteo_kaggle_by_default() -> None:
    for name in ("criteo-like", "zipf", "skew"):
        trace = find_trace(name)
        assert (trace.table_count, trace.examples) == (26, 39_200_000)
        assert sum(trace.table_rows or ()) == 33_762_577
    for name, tables, examples, rows in (
        ("avazu-like", 21, 40_400_000, 9_449_205),
        ("terabyte-like", 26, 4_370_000_000, 882_774_559),
    ):
        trace = find_trace(name)
        assert (trace.name, trace.table_count, trace.examples) == (name, tables, examples)
        assert sum(trace.table_rows or ()) == rows
    assert find_trace("zipf", exponent=2.5, table_rows=[7, 8]).name == "zipf-2.5"
    assert find_trace("skew", hot_share=0.9, examples=5).name == "skew-0.9"
    first, other = (next(find_trace("zipf", trace_seed=seed).batches(5)) for seed in (0, 1))
    assert not np.array_equal(first, other)


def test_files_are_read_by_their_ending(tmp_path: Path) -> None:
    ids = np.arange(12).reshape(6, 2)
    np.save(tmp_path / "t.npy", ids)
    np.savez(tmp_path / "t.npz", ids=ids, other=ids + 1)
    (tmp_path / "t.csv").write_text("a,b,c\n" + "".join(f"{a},{b},x\n" for a, b in ids))
    assert next(find_trace(str(tmp_path / "t.npy")).batches(6)).tolist() == ids.tolist()
    assert next(find_trace(tmp_path / "t.npz", array="ids").batches(6)).tolist() == ids.tolist()
    csv = find_trace(tmp_path / "t.csv", columns=["b", "a"], string_columns=["a"])
    assert csv.table_names == ("b", "a")
    assert next(csv.batches(6)).tolist() == [[b, rank] for rank, (_, b) in enumerate(ids.tolist())]


def test_an_array_of_ids_is_a_trace_and_a_trace_is_itself() -> None:
    ids = np.arange(6).reshape(3, 2)
    trace = find_trace(ids)
    assert next(trace.batches(3)).tolist() == ids.tolist()
    assert find_trace(trace) is trace


@pytest.mark.parametrize(
    ("trace", "options", "rule"),
    [
        (
            "criteo-lik",
            {},
            "trace: must be one of criteo-like, avazu-like, terabyte-like, zipf, .*, got 'criteo-lik'; did you mean",
        ),
        ("t.parquet", {}, "a file ending in .npy, .npz, .csv or .csv.gz, got 't.parquet'"),
        ("none.npy", {}, "none.npy"),
        (
            "t.npy",
            {"examples": 5},
            "examples: goes with criteo-like or avazu-like or .* or skew, got trace t.npy",
        ),
        ("t.npy", {"array": "a"}, "array: goes with a .npz file, got trace t.npy"),
        (
            "criteo-like",
            {"table_rows": [5]},
            "table_rows: goes with zipf or skew or a .csv or .* file, got trace criteo-like",
        ),
        (np.ones((2, 2), dtype=int), {"array": "a"}, "array: goes with a .npz file, got trace an object"),
        (7, {}, "trace: must be a text or a Trace or a Bags or a ndarray, got int"),
    ],
)
def test_bad_traces_are_named(trace: Any, options: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        find_trace(trace, **options)
