"""Text that people read."""

from __future__ import annotations

from gapless.report.text import aligned, described, table, words


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
    assert described("cells", [{"name": "plain"}]) == "1 entry"


def test_short_lists_and_answers_are_words() -> None:
    assert described("groups", [[0, 1], [2]]) == "0, 1; 2"
    assert described("gather", ["bf16"]) == "bf16"
    assert described("layer_bytes", [5_000_000, 2_000]) == "5 MB, 2 KB"
    assert described("recomputed", []) == "none"
    assert (described("fits", True), described("fits", False)) == ("yes", "no")
    assert described("median", {"fetched_rows": 2, "step_s": 0.001}) == "fetched rows 2, step 1 ms"


def test_the_parts_of_a_time_are_times() -> None:
    assert described("baselines_s", {"layer-wise": 0.001}) == "layer-wise 1 ms"
    assert described("stages", {"routing": 1.0}) == "routing 1 s"


def test_columns_are_right_aligned() -> None:
    assert table([["size", "time"], ["1", "100 ms"]]) == "size    time\n   1  100 ms"


def test_counts_have_their_thousands_apart_from_five_digits_on() -> None:
    assert (described("events", 9999), described("events", 31_622)) == ("9999", "31,622")
    assert (described("median_rows", 1154.5), described("words", 517_672.5)) == ("1154.5", "517,672.5")
    assert (described("ideal", 18_750.0), described("loss", 3.25)) == ("18,750", "3.2500")


def test_a_seed_stands_as_it_is_typed() -> None:
    assert described("seed", 31_622) == "31622"


def test_values_begin_in_one_column_beside_the_longest_name() -> None:
    assert aligned([("gap", "1 %")]) == f"{'gap':<16} 1 %"
    assert aligned([("least budget found", "2 GB"), ("gap", "-")], "  ") == (
        f"  least budget found 2 GB\n  {'gap':<18} -"
    )
