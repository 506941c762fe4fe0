"""Rises of the loss: which counts are measured, and what stands for the others."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.profiles.heads.profile import Rises, counts_to_measure

NAN = float("nan")


@pytest.mark.parametrize(
    ("key_heads", "counts"),
    [
        (1, []),
        (2, [1]),
        (8, [1, 2, 3, 4, 5, 6, 7]),
        (9, [1, 2, 3, 4, 6, 8]),
        (12, [1, 2, 3, 4, 6, 8]),
        (32, [1, 2, 3, 4, 6, 8, 12, 16, 24]),
    ],
)
def test_many_heads_are_measured_at_some_counts(key_heads: int, counts: list[int]) -> None:
    assert counts_to_measure(key_heads) == counts


def test_between_measured_counts_the_rise_is_on_a_line() -> None:
    loss = np.array([[0.8, NAN, 0.4, NAN, NAN, 0.0], [0.5, 0.3, 0.9, 0.2, 0.1, 0.0]])
    kept = np.tril(np.ones((6, 6), dtype=np.bool_))[None].repeat(2, axis=0)
    found = Rises(loss, kept)
    assert found.filled[0] == pytest.approx([0.8, 0.6, 0.4, 0.8 / 3, 0.4 / 3, 0.0])
    assert np.array_equal(found.filled[1], loss[1])
    assert found.is_measured.tolist() == [[True, False, True, False, False, True], [True] * 6]
    assert found.heads(1)[:3] == ((0,), (0, 1), (0, 1, 2))
