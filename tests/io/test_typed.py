"""Typed records: what a class says of its fields is what may stand in a file, and what is written comes back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.record import Record
from gapless.io.typed import Stored, data_of, read_archive, read_file, read_record, text_of, write_archive


@dataclass(frozen=True)
class Line:
    slope: Annotated[float, Stored(0)]


@dataclass(frozen=True)
class Points:
    points: Annotated[tuple[tuple[float, float], ...], Stored(each="[x, y]")]


@dataclass(frozen=True)
class Part:
    name: str
    sizes: Annotated[tuple[int, ...], Stored(1, 9)] = ()


@dataclass(frozen=True)
class Thing:
    title: Annotated[str, Stored(choices=("a", "b"))]
    parts: Annotated[tuple[Part, ...], Stored(is_filled=True)]
    cost: Annotated[Line | Points, Stored(kinds={"line": Line, "points": Points}, place=-1)]
    weight: Annotated[float | None, Stored(0)] = None
    count: Annotated[int, Stored(1, 5, key="number")] = 2
    is_new: bool = False
    kind: Annotated[str, Stored(is_needed=True)] = "plain"

    def __post_init__(self) -> None:
        if self.weight == 13:
            raise InputError("thing: weight must not be 13, got 13")


THING = Thing("a", (Part("x", (1, 2)), Part("y")), Points(((1.0, 2.0),)))
DATA: dict[str, Any] = {
    "cost": {"kind": "points", "points": [[1.0, 2.0]]},
    "title": "a",
    "parts": [{"name": "x", "sizes": [1, 2]}, {"name": "y"}],
    "kind": "plain",
}


def test_a_record_is_written_as_it_is_read_and_without_defaults() -> None:
    assert data_of(THING) == DATA
    assert list(data_of(THING)) == list(DATA)
    assert read_record(Thing, Record(DATA, "file")) == THING


def test_a_number_that_may_have_fractions_is_written_with_a_point() -> None:
    assert json.dumps(data_of(Line(2))) == '{"slope": 2.0}'


def test_a_file_has_an_entry_a_line(tmp_path: Path) -> None:
    text = text_of(THING, "made-up", 3, ["parts"])
    assert json.loads(text) == {"format": "made-up", "version": 3, **DATA}
    assert '\n{"name": "y"}]}\n' in text
    (tmp_path / "thing.json").write_text(text)
    assert read_file(Thing, tmp_path / "thing.json", "made-up", 3) == THING
    with pytest.raises(InputError, match=r"thing\.json: version: must be 4, got 3"):
        read_file(Thing, tmp_path / "thing.json", "made-up", 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"title": "c"}, 'title: must be one of a, b, got "c"'),
        ({"number": 6}, r"number: must be a whole number in 1\.\.5, got 6"),
        ({"weight": -1}, "weight: must be a number >= 0, got -1"),
        ({"weight": 13}, "thing: weight must not be 13"),
        ({"is_new": 1}, "is_new: must be true or false, got 1"),
        ({"parts": []}, r"parts: must be a list of at least one, got \[\]"),
        ({"parts": [{"name": "x", "sizes": [0]}]}, r"parts\[0\]: sizes\[0\]: must be a whole number in 1\.\.9, got 0"),
        ({"cost": {"kind": "curve"}}, "cost: kind: must be one of line, points"),
        ({"cost": {"kind": "line", "slope": "1"}}, "cost: slope: must be a number >= 0"),
        ({"cost": {"kind": "points", "points": [[1]]}}, r"cost: points\[0\]: must be \[x, y\], got \[1\]"),
        ({"count": 3}, "field 'count' is unknown"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^file: {message}"):
        read_record(Thing, Record({**DATA, **change}, "file"))


def test_what_is_needed_has_no_default_in_a_file() -> None:
    with pytest.raises(InputError, match="file: field 'kind' is missing"):
        read_record(Thing, Record({key: value for key, value in DATA.items() if key != "kind"}, "file"))


@dataclass(frozen=True)
class Meta:
    name: str
    depth: Annotated[NDArray[np.float64], Stored(0)]
    shapes: Annotated[tuple[tuple[int, ...], ...], Stored(1, each="a list of lengths")]


def test_an_archive_has_a_record_and_arrays(tmp_path: Path) -> None:
    meta, path = Meta("x", np.array([0.5]), ((2, 3), ())), tmp_path / "a.npz"
    write_archive(path, meta, "made-up", 1, {"error": np.arange(3.0)})
    back, arrays = read_archive(Meta, path, "made-up", 1, ["error"], written_by="make")
    assert (back.name, back.depth.tolist(), back.shapes) == ("x", [0.5], ((2, 3), ()))
    assert arrays["error"].tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(InputError, match="array 'loss' is missing in what must be a made-up, which `make` writes"):
        read_archive(Meta, path, "made-up", 1, ["loss"], written_by="make")
    with pytest.raises(InputError, match="meta: format: must be other"):
        read_archive(Meta, path, "other", 1, ["error"], written_by="make")
    with pytest.raises(InputError, match="meta: version: must be 2, got 1; `make` makes the file again"):
        read_archive(Meta, path, "made-up", 2, ["loss"], written_by="make")
