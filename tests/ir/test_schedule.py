from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.ir.graph import Graph
from gapless.ir.schedule import Event, EventKind, Ragged, Schedule, schedule_from_events
from gapless.topologies.topology import Link, Topology

TOPOLOGY = Topology("pair", (0, 0), links=(Link(0, 1, 1.0, 0.0),))
EVENTS = [
    Event(EventKind.TRANSFER, 0.0, 1.0, 0, moves=(0, 2), reduces=True),
    Event(EventKind.COMPUTE, 1.0, 2.5, 1, op=3, implementation=1, frees=((2, 1), (0, 0))),
    Event(EventKind.COLLECTIVE, 2.5, 3.0, 0, op=4),
]


def schedule() -> Schedule:
    return schedule_from_events(Graph(np.array([1, 1, 1])), TOPOLOGY, EVENTS, name="three events")


def test_rows_become_columns_and_come_back_as_they_were() -> None:
    columns = schedule()
    assert len(columns) == 3
    assert list(columns.events()) == EVENTS
    assert columns.is_transfer.tolist() == [True, False, False]
    assert columns.moves.lengths.tolist() == [2, 0, 0]
    assert columns.name == "three events"


def test_narrow_integer_columns_are_widened_to_64_bits() -> None:
    narrow = replace(schedule(), place=np.array([0, 1, 0], dtype=np.int8))
    assert narrow.place.dtype == np.int64
    assert list(narrow.events()) == EVENTS


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("place", np.array([0]), "column place must have 3 rows, as kind has, got 1"),
        ("moves", Ragged.empty(2), "column moves must have 3 rows, as kind has, got 2"),
        ("start_s", np.array([0.0, np.nan, 0.0]), "column start_s must be finite numbers"),
        ("end_s", np.array([0.0, np.inf, 0.0]), "column end_s must be finite numbers"),
        ("op", np.array([0.0, 0.5, 1.0]), "column op must hold integers, got float64"),
        ("freed_tensor", Ragged.empty(3), "freed_tensor and freed_device must list the same number of copies"),
        ("moves", Ragged(np.array([0, 1, 1, 3]), np.array([0, 1])), "column moves must cut all of its 2 values"),
        ("moves", Ragged(np.array([0, 2, 1, 2]), np.array([0, 1])), "column moves must cut all of its 2 values"),
        ("moves", Ragged(np.array([0, 1, 1, 1]), np.array([0.5])), "column moves must hold integers, got float64"),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name(column: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(schedule(), **{column: value})  # type: ignore[arg-type]


LISTS = st.lists(st.lists(st.integers(0, 99), max_size=4), max_size=8)


@given(LISTS)
def test_ragged_holds_lists_of_different_lengths(lists: list[list[int]]) -> None:
    ragged = Ragged.of(lists)
    assert len(ragged) == len(lists)
    assert [ragged[number].tolist() for number in range(len(lists))] == lists
    assert ragged.lengths.tolist() == [len(part) for part in lists]
    assert ragged.owner.tolist() == [number for number, part in enumerate(lists) for _ in part]


@given(LISTS.filter(bool), st.data())
def test_ragged_takes_lists_in_any_order_and_more_than_once(lists: list[list[int]], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=10))
    taken = Ragged.of(lists).take(np.array(numbers, dtype=np.int64))
    assert [taken[row].tolist() for row in range(len(numbers))] == [lists[number] for number in numbers]


def test_ragged_empty_is_that_many_empty_lists() -> None:
    assert [part.tolist() for part in map(Ragged.empty(2).__getitem__, range(2))] == [[], []]
