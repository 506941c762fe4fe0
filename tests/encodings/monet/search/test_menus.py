"""Menus: one look at arrays picks what trying every option would."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.monet.options import Option
from gapless.encodings.monet.search.menus import Menus, best_first

OPTIONS = st.builds(
    Option,
    duration_s=st.integers(0, 8).map(lambda number: number / 8),
    workspace_bytes=st.integers(-6, 6),
    implementation=st.integers(0, 3),
    in_place=st.booleans(),
)
STEPS = st.lists(st.tuples(st.lists(OPTIONS, min_size=1, max_size=6), st.integers(-8, 8)), min_size=1, max_size=6)


def lack(option: Option, room: int) -> int:
    return max(option.workspace_bytes - room, 0)


@given(steps=STEPS)
def test_total_is_that_of_the_options_that_lack_least_and_then_are_fastest(
    steps: list[tuple[list[Option], int]],
) -> None:
    menus = Menus.of([*(best_first(options) for options, _ in steps), []])
    numbers, room = np.arange(len(steps) + 1), np.array([*(float(room) for _, room in steps), -100.0])
    best = [min((lack(option, room), option.duration_s) for option in options) for options, room in steps]
    cost_s, most = menus.total(numbers, room)
    assert cost_s == sum(duration_s for _, duration_s in best)
    assert most == max(bytes_lacking for bytes_lacking, _ in best)


@given(steps=STEPS)
def test_of_two_options_as_good_the_one_in_place_is_picked(steps: list[tuple[list[Option], int]]) -> None:
    menus = Menus.of([best_first(options) for options, _ in steps])
    picks = menus.pick(np.arange(len(steps)), np.array([float(room) for _, room in steps])).tolist()
    for (options, room), menu, pick in zip(steps, menus.options, picks, strict=True):
        good = min((lack(option, room), option.duration_s) for option in options)
        as_good = [option for option in options if (lack(option, room), option.duration_s) == good]
        assert menu[pick] in as_good
        assert menu[pick].in_place == any(option.in_place for option in as_good)


def test_an_empty_menu_costs_nothing_and_fits_anywhere() -> None:
    menus = Menus.of([[Option(1.0, 5, 0)], []])
    assert menus.total(np.array([1]), np.array([-1e9])) == (0.0, 0.0)
