from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.profiles.traces.bags import Bags, by_table, cells, joined, sums
from gapless.profiles.traces.trace import rebatched, trace_of_array

NESTED = [[[5, 6], [7]], [[], [5, 5, 2]], [[], []], [[1], [3]]]


def bags_of(nested: list[list[list[int]]]) -> Bags:
    """Examples of tables of ids."""
    lengths = np.array([[len(bag) for bag in example] for example in nested], dtype=np.int64)
    return Bags(np.array([id_ for example in nested for bag in example for id_ in bag], dtype=np.int64), lengths)


def nested_of(bags: Bags) -> list[list[list[int]]]:
    """The other way round."""
    values = iter(bags.values.tolist())
    return [[[next(values) for _ in range(length)] for length in row] for row in bags.lengths.tolist()]


NESTS = st.integers(1, 3).flatmap(
    lambda tables: st.lists(
        st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=tables, max_size=tables), min_size=1, max_size=7
    )
)


@given(NESTS, st.integers(1, 4), st.integers(1, 4))
def test_batches_are_the_examples_in_order(nested: list[list[list[int]]], block: int, batch: int) -> None:
    bags = bags_of(nested)
    cut = rebatched((bags[start : start + block] for start in range(0, len(bags), block)), batch)
    found = [nested_of(each) for each in cut]
    assert found == [nested[start : start + batch] for start in range(0, len(nested), batch)]
    assert nested_of(joined([bags, bags])) == nested * 2


@given(NESTS, st.data())
def test_examples_are_taken_in_any_order(nested: list[list[list[int]]], data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(nested) - 1)))
    assert nested_of(bags_of(nested).take(np.array(order, dtype=np.int64))) == [nested[k] for k in order]


@given(NESTS)
def test_an_id_counts_once_for_an_example(nested: list[list[list[int]]]) -> None:
    once = bags_of(nested).once()
    assert nested_of(once) == [[sorted({id_ for bag in example for id_ in bag})] for example in nested]


def test_ids_of_tables_know_where_they_were() -> None:
    bags = bags_of(NESTED)
    columns, order = by_table(bags)
    assert [column.tolist() for column in columns] == [[5, 6, 1], [7, 5, 5, 2, 3]]
    assert order is not None
    assert bags.values[order].tolist() == [5, 6, 1, 7, 5, 5, 2, 3]


def test_bags_of_one_id_are_an_array() -> None:
    ids = np.array([[3, 1], [0, 2], [2, 2]])
    bags, number = Bags(ids.reshape(-1), np.ones((3, 2), dtype=np.int64)), np.array([4, 0, 1])
    assert cells(bags, number, 5).tolist() == cells(ids, number, 5).tolist()
    per_value = np.arange(8.0).reshape(4, 2)
    assert sums(per_value, bags).tolist() == sums(per_value, ids).tolist()


def test_example_without_ids_sums_to_nothing() -> None:
    assert sums(np.ones((8, 1)), bags_of(NESTED)).tolist() == [[3.0], [3.0], [0.0], [2.0]]


@pytest.mark.parametrize(
    ("values", "lengths", "message"),
    [
        ([1, 2, 3], [[1, 1]], "lengths must add up to the 3 values, got 2"),
        ([1, 2], [[3, -1]], "lengths must be >= 0, got -1 in example 0, table 1"),
        ([1.5], [[1]], "values must be integers, one after another, got float64 of (1,)"),
        ([1], [1], "lengths must be integers, examples x tables, at least one of each, got int64 of shape (1,)"),
        ([1, -2], [[1], [1]], "ids must be in 0..17592186044415, got -2 in example 1, table 0"),
    ],
)
def test_bags_that_are_none_are_refused(values: list[float], lengths: list[object], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        list(trace_of_array(Bags(np.array(values), np.array(lengths))).blocks())
