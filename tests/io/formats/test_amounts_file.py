"""Tables of bytes and of loads: CSV, JSON and NumPy's, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.io.formats.amounts_file import read_rows, rows_of_array


def test_the_three_formats_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("# from rows to columns\n0, 1.5MB\n2KiB,3\n\n")
    (tmp_path / "a.json").write_text('[[0, "1.5MB"], ["2KiB", 3]]')
    np.save(tmp_path / "a.npy", np.array([[0, 1_500_000], [2048, 3]]))
    for ending in ("csv", "json", "npy"):
        assert read_rows(tmp_path / f"a.{ending}") == ((0, 1_500_000), (2048, 3))


def test_a_vector_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2,3\n")
    (tmp_path / "a.json").write_text("[1, 2, 3]")
    np.save(tmp_path / "a.npy", np.array([1.0, 2.0, 3.0]))
    for ending in ("csv", "json", "npy"):
        assert read_rows(tmp_path / f"a.{ending}") == ((1, 2, 3),)


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("a.txt", "1,2", "must end in .csv, .json, .npy"),
        ("a.csv", "", "must be a table"),
        ("a.csv", "1,2\n3", "rows must be of one length, got 1 and 2"),
        ("a.csv", "1,x\n3,4", "row 0, column 1: must be a number and a unit"),
        ("a.csv", "1,-2\n3,4", "row 0, column 1: must be"),
        ("a.csv", "1,\n3,4", "row 0, column 1: must be"),
        ("a.json", '{"a": 1}', "must be a list of rows"),
        ("a.json", "[[1], 2]", "row 1: must be a list"),
        ("a.json", "[[1, true]]", "row 0, column 1: must be bytes"),
        ("a.json", "[[1, 1.5]]", "row 0, column 1: must be bytes"),
        ("a.json", "[]", "must be a table"),
        ("a.npy", "no array", "a.npy"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, name: str, text: str, rule: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=rule) as refused:
        read_rows(path)
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("array", "rule"),
    [
        (np.array([[1.5]]), "row 0, column 0: must be a whole number >= 0, got 1.5"),
        (np.array([[np.nan]]), "must be a whole number"),
        (np.array([[-1]]), "must be a whole number"),
        (np.array([["a"]]), "must hold numbers"),
        (np.zeros((2, 2, 2)), "shape"),
        (np.zeros(0), "shape"),
    ],
)
def test_bad_arrays_are_refused(array: np.ndarray, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        rows_of_array(array, "matrix")


def test_loads_have_no_units(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2KB\n")
    with pytest.raises(InputError, match="row 0, column 1: must be a whole number"):
        read_rows(tmp_path / "a.csv", has_units=False)
