"""Blocks that repeat."""

from __future__ import annotations

from gapless.profiles.layouts.repeats import earlier_equal


def test_equal_blocks_lead_to_the_place_one_block_earlier() -> None:
    text = "e" + "abc" * 3 + "h" + "xy" * 3
    assert earlier_equal(text, [letter in "bx" for letter in text]) == [
        None, None, None, None, 1, 2, 3, 4, 5, 6, None, None, None, 11, 12, 13, 14
    ]  # fmt: skip


def test_neighbours_without_a_mark_are_no_blocks() -> None:
    assert earlier_equal("aaaa", [False] * 4) == [None] * 4
    assert earlier_equal("aaaa", [True] * 4) == [None, 0, 1, 2]


def test_the_longest_stretch_counts_before_shorter_periods() -> None:
    text = "aab" * 2
    assert earlier_equal(text, [True] * 6) == [None, None, None, 0, 1, 2]
    assert earlier_equal("abcde", [True] * 5) == [None] * 5
