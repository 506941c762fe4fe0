"""Distinct ids and their places against numpy's own, for ids that are dense, sparse, and larger than 32 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.bagpipe.ids.distinct import numbered, positions, unique_ids
from gapless.errors import InputError
from gapless.profiles.traces.trace import MOST_IDS, TABLE_SHIFT, global_ids


@given(
    st.integers(1, 60), st.lists(st.sampled_from([1, 9, 500, 2**31, 2**33, MOST_IDS]), min_size=1), st.integers(0, 99)
)
def test_equal_to_sorting_all_global_ids(examples: int, most: list[int], seed: int) -> None:
    chance = np.random.default_rng(seed)
    batch = np.stack([chance.integers(max(0, limit - 40), limit, examples) for limit in most], axis=1)
    ids, bounds = unique_ids(batch)
    assert ids.dtype == np.int64
    assert np.array_equal(ids, np.unique(global_ids(batch)))
    assert bounds.tolist() == np.searchsorted(ids >> TABLE_SHIFT, np.arange(len(most) + 1)).tolist()
    places = positions(ids, bounds, batch)
    assert places.shape == batch.shape
    assert np.array_equal(ids[places], global_ids(batch))


@pytest.mark.parametrize("wrong", [-1, MOST_IDS])
def test_ids_out_of_range_are_refused(wrong: int) -> None:
    with pytest.raises(InputError, match=rf"batch: ids must be in 0..{MOST_IDS - 1}, got {wrong}"):
        unique_ids(np.array([[0, 5], [wrong, 5]]))


def test_numbers_are_places_among_the_distinct_values_whether_marked_or_sorted() -> None:
    for values in (np.array([3, 1, 3, 0]), np.array([2**40, 7, 2**40]), np.empty(0, dtype=np.int64)):
        ordered, inverse = np.unique(values, return_inverse=True)
        place, count = numbered(values)
        assert place.tolist() == inverse.tolist()
        assert count == len(ordered)
