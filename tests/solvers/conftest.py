"""A model that no solver finishes, for the tests of limits and interrupts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gapless.model import Model


def _market_split(rows: int = 4, columns: int = 40) -> Model:
    """Split customers so that each product is halved, as nearly as can be: small, and out of reach of any solver.

    All columns are integers, so that every backend but min_cost_flow takes it.
    """
    draw = np.random.default_rng(0)
    share = draw.integers(0, 100, (rows, columns))
    model = Model("market_split")
    is_first = model.binaries("is_first", columns)
    over, under = model.integers("over", rows, upper=5000), model.integers("under", rows, upper=5000)
    half = share.sum(axis=1) // 2
    spread = np.broadcast_to(is_first, share.shape)
    model.add("split", (share, spread), (1, over[:, None]), (-1, under[:, None]), lower=half, upper=half)
    model.minimize((1, over), (1, under))
    return model


def _start_of(model: Model) -> NDArray[np.float64]:
    """A feasible point of the market split, and a bad one: everybody to the second side."""
    arrays = model.arrays()
    rows = len(arrays.row_lower)
    start = np.zeros(len(arrays.cost))
    start[-2 * rows : -rows] = arrays.row_lower
    return start


@pytest.fixture
def hard() -> Model:
    """A market split problem that runs for hours."""
    return _market_split()


@pytest.fixture
def hard_start(hard: Model) -> NDArray[np.float64]:
    """A feasible point of `hard`, far from the best."""
    return _start_of(hard)
