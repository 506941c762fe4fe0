"""The cost matrix is the paper's, capacities are as even as whole numbers allow, and bad input is named."""

from __future__ import annotations

import numpy as np
import pytest
from bagpipe_batches import random_batch
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.bagpipe import Batch, capacities, cost_matrix
from gapless.encodings.bagpipe.cluster import checked_capacities, places_of
from gapless.errors import InputError


@given(
    seed=st.integers(0, 2**32 - 1), examples=st.integers(0, 20), trainers=st.integers(1, 9), tables=st.integers(0, 5)
)
def test_a_cost_counts_the_ids_that_other_trainers_hold(seed: int, examples: int, trainers: int, tables: int) -> None:
    batch = random_batch(np.random.default_rng(seed), examples, trainers, tables)
    expected = [
        [sum(batch.owner[slot] not in (-1, trainer) for slot in slots) for trainer in range(trainers)]
        for slots in batch.slot
    ]
    cost = cost_matrix(batch)
    assert cost.dtype == np.int16
    assert cost.tolist() == expected


@given(examples=st.integers(0, 10**6), trainers=st.integers(1, 200))
def test_even_capacities_differ_by_one_at_most(examples: int, trainers: int) -> None:
    places = capacities(examples, trainers)
    assert places.sum() == examples
    assert places.max() - places.min() <= 1


@given(examples=st.integers(0, 10**6), shares=st.lists(st.integers(0, 50), min_size=1, max_size=9).filter(any))
def test_capacities_follow_shares(examples: int, shares: list[int]) -> None:
    places = capacities(examples, len(shares), shares)
    assert places.sum() == examples
    exact = examples * np.array(shares) / sum(shares)
    assert (np.abs(places - exact) <= 1 + 1e-6).all()
    assert (places[np.array(shares) == 0] == 0).all()


@pytest.mark.parametrize(
    ("shares", "rule"),
    [
        ([1.0], "one per trainer, 2"),
        ([1.0, -1.0], ">= 0, got -1 for trainer 1"),
        ([np.nan, 1.0], "finite"),
        ([0.0, 0.0], "zeros only"),
    ],
)
def test_bad_shares_are_named(shares: list[float], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        capacities(10, 2, shares)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ([5, 4], "add up to the number of examples, 10, got 9"),
        ([11, -1], "must be >= 0, got -1 for trainer 1"),
        ([10], r"one per trainer \(2\)"),
        ([5.0, 5.0], "whole numbers"),
    ],
)
def test_capacities_that_do_not_fit_are_named(given: list[float], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        checked_capacities(given, 10, 2)


def test_bad_batches_are_named() -> None:
    slot, owner = np.array([[0, 1]]), np.array([0, 1])
    with pytest.raises(InputError, match="slot: must be between 0 and 1, got -7"):
        Batch(np.array([[0, -7]]), owner, 2)
    with pytest.raises(InputError, match="slot: must be between 0 and 1, got 2"):
        Batch(np.array([[0, 2]]), owner, 2)
    with pytest.raises(InputError, match="owner: must be between -1 and 1, got 5"):
        Batch(slot, np.array([0, 5]), 2)
    with pytest.raises(InputError, match="slot: must be an array of integers with 2 axes"):
        Batch(np.array([0, 1]), owner, 2)
    with pytest.raises(InputError, match="trainers: must be between 1 and"):
        Batch(slot, owner, 0)


@given(st.integers(1, 40), st.lists(st.floats(0.01, 10), min_size=1, max_size=6), st.data())
def test_a_short_batch_takes_no_more_of_a_trainer_than_a_whole_one(
    batch_size: int, shares: list[float], data: st.DataObject
) -> None:
    examples, trainers = data.draw(st.integers(0, batch_size)), len(shares)
    places, most = places_of(examples, batch_size, trainers, shares), capacities(batch_size, trainers, shares)
    assert int(places.sum()) == examples
    assert (places <= most).all()
    assert places_of(batch_size, batch_size, trainers, shares).tolist() == most.tolist()
