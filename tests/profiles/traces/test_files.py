"""Trace files: what is read is what was written, and what is broken is named in one line."""

from __future__ import annotations

import gzip
import pickle
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.profiles.traces.files import read_trace
from gapless.profiles.traces.trace import BLOCK_EXAMPLES, Trace

LONG = 2 * BLOCK_EXAMPLES + 100


def whole(trace: Trace) -> np.ndarray:
    return np.concatenate(list(trace.batches(5000)))


def write_csv(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16", ">i4", "uint64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_in_any_integers_and_order(tmp_path: Path, dtype: str, order: str) -> None:
    ids = np.random.default_rng(0).integers(0, 60_000, (LONG, 3)).astype(dtype)
    np.save(tmp_path / "t.npy", ids if order == "C" else np.asfortranarray(ids))
    trace = read_trace(tmp_path / "t.npy")
    assert (trace.examples, trace.table_names) == (LONG, ("table0", "table1", "table2"))
    read = whole(trace)
    assert read.dtype == np.int64
    assert np.array_equal(read, ids)
    assert np.array_equal(whole(trace), ids)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_with_one_array_or_a_named_one(tmp_path: Path, save: object, order: Literal["C", "F"]) -> None:
    ids = np.random.default_rng(0).integers(0, 60_000, (LONG, 3)).astype(np.int32, order=order)
    save(tmp_path / "one.npz", ids)  # type: ignore[operator]
    save(tmp_path / "two.npz", ids=ids, labels=np.zeros(LONG))  # type: ignore[operator]
    assert np.array_equal(whole(read_trace(tmp_path / "one.npz")), ids)
    assert np.array_equal(whole(read_trace(tmp_path / "two.npz", array="ids")), ids)
    with pytest.raises(InputError, match=r"two.npz: `array` must be one of ids, labels; none is named"):
        read_trace(tmp_path / "two.npz")
    with pytest.raises(InputError, match=r"two.npz: `array` must be one of ids, labels; got 'id'; did you mean 'ids'"):
        read_trace(tmp_path / "two.npz", array="id")
    with pytest.raises(InputError, match=r"array 'labels': must be integers, examples x tables.* got float64"):
        read_trace(tmp_path / "two.npz", array="labels")


@pytest.mark.parametrize("name", ["t.npy", "t.npz"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_long_array_never_lies_in_memory_whole(tmp_path: Path, name: str, order: Literal["C", "F"]) -> None:
    ids = np.zeros((40 * BLOCK_EXAMPLES, 4), dtype=np.int64, order=order)
    (np.save if name == "t.npy" else np.savez_compressed)(tmp_path / name, ids)  # type: ignore[operator]
    trace = read_trace(tmp_path / name)
    tracemalloc.start()
    try:
        assert sum(len(batch) for batch in trace.batches(1000)) == len(ids)
        assert tracemalloc.get_traced_memory()[1] < ids.nbytes / 5
    finally:
        tracemalloc.stop()


def test_broken_arrays_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "flat.npy", np.zeros(5, dtype=int))
    np.save(tmp_path / "objects.npy", np.array([[None]]))
    np.savez(tmp_path / "objects.npz", np.array([[None]]))
    (tmp_path / "pickled.npy").write_bytes(pickle.dumps(np.zeros((2, 2), dtype=int)))
    (tmp_path / "text.npy").write_text("ids")
    (tmp_path / "text.npz").write_text("ids")
    (tmp_path / "ids.parquet").write_text("ids")
    np.save(tmp_path / "negative.npy", np.array([[1, 2], [3, -4]]))
    for name, message in [
        ("flat.npy", r"flat.npy: must be integers, examples x tables.* got int64 of shape \(5,\)"),
        ("objects.npy", r"objects.npy: is pickled, .* save numbers: np.save"),
        ("pickled.npy", r"pickled.npy: is pickled, .* save numbers: np.save"),
        ("objects.npz", r"objects.npz: array 'arr_0': is pickled"),
        ("text.npy", r"text.npy: not readable: (?!.*pickle)"),
        ("text.npz", r"text.npz: not readable: "),
        ("none.npy", r"cannot read .*none.npy: No such file"),
        ("none.npz", r"cannot read .*none.npz: No such file"),
        ("ids.parquet", r"ids.parquet: a trace must end in .npy, .npz, .csv or .csv.gz"),
        ("negative.npy", r"negative.npy: ids must be in 0..\d+, got -4 in example 1, table 1"),
    ]:
        with pytest.raises(InputError, match=message) as raised:
            whole(read_trace(tmp_path / name))
        assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match=r"columns are chosen in a .csv or .csv.gz only"):
        read_trace(tmp_path / "flat.npy", columns=["a"])


def test_a_truncated_npz_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", np.zeros((LONG, 2), dtype=int))
    (tmp_path / "t.npz").write_bytes((tmp_path / "t.npz").read_bytes()[:5000])
    with pytest.raises(InputError, match=r"t.npz: not readable: "):
        read_trace(tmp_path / "t.npz")


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_csv_columns_become_tables(tmp_path: Path, name: str) -> None:
    text = 'label,user,site,hash\n1,7,"b, c",0a\n0,3,a,11\n\n1,7,a,0a\n0,0,"b, c",\n'
    path = write_csv(tmp_path / name, "\ufeff" + text)
    trace = read_trace(path, ["hash", "user", "site"])
    assert trace.table_names == ("hash", "user", "site")
    assert whole(trace).tolist() == [[0, 7, 0], [1, 3, 1], [0, 7, 1], [2, 0, 0]]
    assert np.array_equal(whole(trace), whole(trace))
    assert whole(read_trace(path, ["user"], string_columns=["user"])).tolist() == [[0], [1], [0], [2]]


def test_csv_longer_than_a_chunk_is_numbered_as_a_whole(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 30_000, LONG)
    path = write_csv(tmp_path / "t.csv", "n,s\n" + "".join(f"{value},v{value}\n" for value in values))
    ids = whole(read_trace(path, ["n", "s"]))
    assert np.array_equal(ids[:, 0], values)
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    assert np.array_equal(ids[:, 1], np.argsort(np.argsort(first))[inverse])


LATE = "a,b\n" + "1,2\n" * (BLOCK_EXAMPLES + 5)


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("a,b\n1,2\n3\n", ["a"], r"t.csv: line 3: must have 2 fields as the header, got 1"),
        ('a,b\n"1\n",2\n\n3,4,5\n', ["a"], r"t.csv: line 5: must have 2 fields as the header, got 3"),
        ("a,b\n1,2\n3,-4\n", ["a", "b"], r"t.csv: line 3: column 'b' must be a whole number in 0..\d+, got '-4'"),
        ("a,b\n1,2\n3,99999999999999999999\n", ["b"], r"t.csv: line 3: column 'b' must be a whole number"),
        (LATE + "\nx,3\n", ["a"], rf"line {BLOCK_EXAMPLES + 8}: column 'a' must .* got 'x' as in the lines before; or"),
        ("user,b\n1,2\n", ["usr"], r"t.csv: column 'usr' must be one of user, b; did you mean 'user'\?"),
        ("a,a,b\n1,2,3\n", ["a"], r"t.csv: column 'a' stands twice in the header"),
        ("a,b\n1,2\n", ["a", "a"], r"names of tables must differ, got 'a' twice"),
        ("a,b\n1,2\n", [], r"t.csv: `columns` must name at least one of a, b"),
        ("a,b\n", ["a"], r"t.csv: must hold a header and at least one line of values"),
        ("", ["a"], r"t.csv: must hold a header and at least one line of values"),
    ],
)
def test_broken_csv_is_named(tmp_path: Path, text: str, columns: Sequence[str], message: str) -> None:
    path = write_csv(tmp_path / "t.csv", text)
    with pytest.raises(InputError, match=message) as raised:
        whole(read_trace(path, columns))
    assert "\n" not in str(raised.value)


def test_csv_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,b\n1,\xff\n")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 9)[:-9])
    for name, message in [
        ("t.csv", "t.csv: must be a UTF-8 text file, got byte 0xff"),
        ("cut.csv.gz", "cut.csv.gz: not readable: Compressed file ended"),
        ("none.csv", "cannot read .*none.csv: No such file"),
    ]:
        with pytest.raises(InputError, match=message):
            whole(read_trace(tmp_path / name, ["a"]))
