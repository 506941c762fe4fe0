"""What is impossible is proven in whole numbers; what is possible isn't refuted by any prices."""

from __future__ import annotations

import numpy as np
import pytest
from examples import share

from gapless.encodings.pipeline.bounds.refutation import refutes
from gapless.model import Model


def both(most: float, coefficient: float = 1.0) -> Model:
    """x >= y, and x + 1 <= y + `most`, both from 0 to 3."""
    model = Model("two rows")
    x, y = model.continuous("x", 2, upper=3.0)
    model.add("less", (np.array([-coefficient, coefficient]), np.array([x, y])), upper=0.0)
    model.add("more", (np.array([1.0, -1.0]), np.array([x, y])), upper=most - 1)
    return model


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rows_that_contradict_each_other_are_refuted_by_their_sum(sign: float) -> None:
    arrays = both(0.5).arrays()
    assert refutes(arrays, sign * np.array([1.0, 1.0]))
    assert not refutes(arrays, sign * np.array([1.0, 0.0]))
    assert not refutes(arrays, np.array([1.0, -1.0]))


def test_what_is_a_hair_from_impossible_is_not_refuted() -> None:
    assert not refutes(both(1.0).arrays(), np.array([1.0, 1.0]))
    assert refutes(both(1.0 - 2.0**-20).arrays(), np.array([1.0, 1.0]))


def test_what_is_not_whole_proves_nothing() -> None:
    assert not refutes(both(0.5, 0.1).arrays(), np.array([10.0, 1.0]))
    assert not refutes(both(0.1).arrays(), np.array([1.0, 1.0]))


@pytest.mark.parametrize("seed", range(share(30)))
def test_no_prices_refute_what_has_a_solution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model, point = Model("random"), rng.integers(0, 5, 6).astype(float)
    columns = model.continuous("x", 6, upper=5.0)
    matrix = rng.integers(-3, 4, (8, 6)).astype(float)
    model.add("rows", (matrix, np.broadcast_to(columns, matrix.shape)), upper=matrix @ point)
    arrays = model.arrays()
    assert not any(refutes(arrays, rng.normal(size=8)) for _ in range(50))
