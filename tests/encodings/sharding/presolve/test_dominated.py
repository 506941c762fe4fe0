"""Dominated time points: without them the same plans fit."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from examples import share

from gapless.encodings.sharding.presolve.dominated import without_dominated
from gapless.encodings.sharding.presolve.points import Points


def drawn_points(seed: int) -> tuple[Points, np.ndarray]:
    """Points of nodes of two or three choices, and their sizes."""
    random = np.random.default_rng(seed)
    sizes, count = random.integers(2, 4, size=5), 8
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows = []
    for node, size in enumerate(sizes):
        first, end = sorted(random.choice(count + 1, size=2, replace=False).tolist())
        rows += [(starts[node] + choice, first, end, int(random.integers(1, 9))) for choice in range(1, size)]
    choice, first, end, used = np.array(rows, dtype=np.int64).T
    return Points(random.integers(9, 25, size=count), choice, first, end, used), sizes


@pytest.mark.parametrize("seed", range(share(30)))
def test_the_same_plans_fit(seed):
    points, sizes = drawn_points(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    fewer = without_dominated(points, np.repeat(np.arange(len(sizes)), sizes), sizes)
    assert len(fewer.room) < len(points.room)
    for plan in product(*map(range, sizes.tolist())):
        taken = starts + np.array(plan)
        assert (points.slack(taken).min() >= 0) == (fewer.slack(taken).min() >= 0)


def test_of_equal_points_one_stays():
    used = np.array([5, 5])
    points = Points(np.array([4, 4, 4]), np.array([1, 3]), np.array([0, 0]), np.array([3, 3]), used)
    fewer = without_dominated(points, np.array([0, 0, 1, 1]), np.array([2, 2]))
    assert (fewer.room.tolist(), fewer.first.tolist(), fewer.end.tolist()) == ([4], [0, 0], [1, 1])
