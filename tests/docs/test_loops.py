"""The page of loops shows what differs between the scripts before and after, and that is little."""

from __future__ import annotations

from loop_pairs import LOOPS, changes, page_diffs


def test_page_shows_what_differs_between_the_scripts() -> None:
    assert page_diffs() == [changes(loop) for loop in LOOPS]


def test_each_loop_changes_by_five_lines_at_most() -> None:
    for loop in LOOPS:
        assert 1 <= sum(line.startswith(("+", "-")) for line in changes(loop)) <= 5
