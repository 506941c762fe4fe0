"""A request's membership: as many key heads as the counts say, and none of less error than the least."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from examples import share

from gapless.encodings.chai.clusters import clustered_map, least_map
from gapless.options import Deadline, SolveOptions


def drawn(seed: int) -> tuple[np.ndarray, list[int], int]:
    """Squared distances of points, of which some may coincide; counts by layer; key heads."""
    rng = np.random.default_rng(seed)
    layers, key_heads, group = int(rng.integers(1, 3)), int(rng.integers(2, 6)), int(rng.integers(1, 3))
    points = rng.normal(size=(layers, key_heads * group, 3))
    points[:, rng.integers(key_heads * group)] = points[:, 0]
    distance = np.square(points[:, :, None] - points[:, None]).sum(axis=3)
    return distance, rng.integers(1, key_heads + 1, layers).tolist(), key_heads


@pytest.mark.parametrize("seed", range(share(100)))
def test_the_least_map_is_the_least_of_all_choices_and_k_means_is_one_of_them(seed: int) -> None:
    distance, counts, key_heads = drawn(seed)
    group = distance.shape[1] // key_heads
    found, is_proven = least_map(distance, counts, key_heads, Deadline(SolveOptions()))
    clustered = clustered_map(distance, counts, key_heads, 50)
    least = 0.0
    for layer, count in zip(distance, counts, strict=True):
        offered = (
            [head for head in range(len(layer)) if head // group in heads]
            for heads in itertools.combinations(range(key_heads), count)
        )
        least += min(layer[:, heads].min(axis=1).sum() for heads in offered)
    assert is_proven
    assert found.error(distance) == pytest.approx(least, abs=1e-12)
    assert clustered.error(distance) >= least - 1e-12
    for chosen in (found, clustered):
        assert chosen.counts.tolist() == counts
        for kept, row in zip(chosen.kept, chosen.representative, strict=True):
            assert set(row // group) <= set(kept)
            own = [head for head in range(distance.shape[1]) if head // group in kept]
            assert row[own].tolist() == own


def test_heads_that_are_all_alike_still_keep_as_many() -> None:
    chosen = clustered_map(np.zeros((1, 4, 4)), [3], 4, 50)
    assert chosen.counts.tolist() == [3]
    assert least_map(np.zeros((1, 4, 4)), [3], 4, Deadline(SolveOptions()))[0].counts.tolist() == [3]


def test_clusters_that_are_apart_are_found() -> None:
    points = np.array([0.0, 0.1, 5.0, 5.2, 5.1, 9.0])
    distance = np.square(points[:, None] - points)[None]
    assert clustered_map(distance, [3], 6, 50).representative.tolist() == [[0, 0, 4, 4, 4, 5]]
