"""Links in columns: the same to people as a tuple of links, and refused by the same rules."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.topologies.links import Link, Links
from gapless.topologies.topology import Topology

ROWS = (Link(0, 1, 1e-6, 1e-9, (1,)), Link(1, 2, 2e-6, 2e-9), Link(2, 0, 3e-6, 3e-9, (0, 1)))


def test_columns_give_back_the_rows() -> None:
    links = Links.of(ROWS)
    assert tuple(links) == ROWS
    assert [links[0], links[-1], links[np.int64(1)]] == [ROWS[0], ROWS[2], ROWS[1]]
    assert links[1:] == ROWS[1:]
    assert links.held_start.tolist() == [0, 1, 1, 3]
    assert links.held.tolist() == [1, 0, 1]
    with pytest.raises(IndexError):
        links[3]


def test_rows_hold_plain_python_numbers() -> None:
    row = Links.of(ROWS)[2]
    assert [type(value) for value in (row.source, row.alpha_s, row.resources[0])] == [int, float, int]


def test_links_equal_any_sequence_of_the_same_links() -> None:
    links = Links.of(ROWS)
    assert links == Links.of(list(ROWS))
    assert hash(links) == hash(Links.of(ROWS))
    assert links == ROWS
    assert links != ROWS[:2]
    assert links != Links.of(ROWS[::-1])


def test_topology_of_rows_equals_topology_of_columns() -> None:
    rows, columns = (Topology("t", (0, 0, 0), links, ("a", "b")) for links in (ROWS, Links.of(ROWS)))
    assert rows == columns
    assert hash(rows) == hash(columns)
    assert rows.held_by.tolist() == [0, 2, 2]


def test_columns_are_read_only() -> None:
    links = Links.of(ROWS)
    with pytest.raises(ValueError, match="read-only"):
        links.alpha_s[0] = 0.0


def test_resource_that_is_named_twice_is_held_once() -> None:
    assert Links.of([Link(0, 1, 0.0, 0.0, (1, 1))]).held.tolist() == [1]


def columns(**changes: object) -> Links:
    parts: dict[str, object] = {
        "source": np.array([0, 1]), "target": np.array([1, 0]), "alpha_s": np.zeros(2), "beta_s_per_byte": np.ones(2),
        "held_start": np.array([0, 1, 2]), "held": np.array([0, 0]), **changes,
    }  # fmt: skip
    return Links(**parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": np.array([1])}, "links: all columns must have 2 entries"),
        ({"held_start": np.array([0, 2])}, "links: all columns must have 2 entries"),
        ({"held_start": np.array([0, 1, 3])}, "links: held_start must rise from 0 to 2"),
        ({"held_start": np.array([0, 3, 2])}, "links: held_start must rise from 0 to 2"),
        ({"source": np.array([0, 2])}, r"link 2 -> 0: both ends must be in 0\.\.1"),
        ({"alpha_s": np.array([0.0, math.nan])}, "link 1 -> 0: alpha_s must be finite and >= 0, got nan"),
        ({"held": np.array([0, 1])}, r"link 1 -> 0: resources must be in 0\.\.0, got 1"),
        ({"held_start": np.array([0, 0, 2])}, "link 1 -> 0: resources must differ, got 0 twice"),
    ],
)
def test_broken_columns_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Topology("t", (0, 0), columns(**changes), ("r",))
