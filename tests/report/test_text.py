"""Text that people read."""

from __future__ import annotations

from gapless.report.text import described, table, words


def test_the_ending_of_a_name_says_the_unit() -> None:
    assert described("peak_bytes", 5_000_000_000) == "5 GB"
    assert described("makespan_s", 0.0032) == "3.2 ms"
    assert described("gap", 0.05) == "5.00 %"
    assert described("bound_s", None) == "-"
    assert described("source", "") == "-"
    assert words("algbw_bytes_per_s") == "algbw"
    assert words("peak_bytes") == "peak"


def test_long_lists_are_described_by_their_length() -> None:
    assert described("groups", [[0, 1]] * 9) == "9 entries"
    assert described("costs", [{"name": "plain"}] * 2) == "2 entries"
    assert described("groups", [[0, 1]]) == "[[0, 1]]"


def test_the_parts_of_a_time_are_times() -> None:
    assert described("baselines_s", {"layer-wise": 0.001}) == "layer-wise 1 ms"
    assert described("stages", {"routing": 1.0}) == "routing 1 s"


def test_columns_are_right_aligned() -> None:
    assert table([["size", "time"], ["1", "100 ms"]]) == "size    time\n   1  100 ms"
