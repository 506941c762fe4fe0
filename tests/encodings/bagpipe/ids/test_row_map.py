"""The row map against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.bagpipe.ids.row_map import RowMap


@given(st.integers(0, 10**6), st.sampled_from([30, 3000]), st.sampled_from([1, 1 << 20, 1 << 44]), st.integers(1, 400))
def test_equal_to_a_dictionary(seed: int, most: int, stride: int, step: int) -> None:
    """Ids come and go many times over; with strides that would meet in one slot without mixing."""
    chance = np.random.default_rng(seed)
    rows, expected = RowMap(), dict[int, int]()
    for _ in range(12):
        ids = np.unique(chance.integers(0, most, step)) * stride
        found = rows.find(ids)
        assert found.tolist() == [expected.get(key, -1) for key in ids.tolist()]
        fresh = ids[found < 0]
        added = rows.add(fresh)
        assert len(set(added.tolist()) | set(expected.values())) == len(expected) + len(fresh)
        expected |= dict(zip(fresh.tolist(), added.tolist(), strict=True))
        assert np.array_equal(rows.ids[added], fresh)
        held = np.array(list(expected), dtype=np.int64)
        leaving = held[chance.random(len(held)) < chance.random()]
        rows.remove(np.array([expected.pop(key) for key in leaving.tolist()], dtype=np.int32))
        assert rows.count == len(expected)


def test_rows_stay_below_the_peak_and_the_table_does_not_grow_with_time() -> None:
    rows = RowMap()
    sizes = set()
    for turn in range(400):
        added = rows.add(np.arange(turn * 500, (turn + 1) * 500))
        assert added.max() < 500
        rows.remove(added)
        sizes.add(rows._row_in_slot.size)  # noqa: SLF001
    assert len(sizes) == 1
