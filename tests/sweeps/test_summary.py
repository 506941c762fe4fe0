"""Tables of sweeps as CSV."""

from __future__ import annotations

from gapless.sweeps.summary import csv_text


def test_none_and_what_a_row_lacks_are_empty_cells() -> None:
    text = csv_text(["a", "b", "c"], [{"a": 1, "b": None}, {"a": "x,y", "c": 0.5}])
    assert text == 'a,b,c\n1,,\n"x,y",,0.5\n'
