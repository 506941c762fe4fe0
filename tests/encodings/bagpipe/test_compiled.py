"""Compiled loops give what arrays give, number for number: a plan doesn't depend on what is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bagpipe_batches import click_log_batch, random_batch

from gapless.encodings.bagpipe import capacities, cost_matrix, fast
from gapless.encodings.bagpipe.transport import transport

compiled = pytest.importorskip("gapless.encodings.bagpipe.compiled", reason="needs the extra `fast` (numba)")

Twice = Callable[[Callable[[], Any]], tuple[Any, Any]]


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch) -> Twice:
    """What a function gives with compiled loops, and as where numba isn't installed."""

    def run(function: Callable[[], Any]) -> tuple[Any, Any]:
        assert fast.loops(1) is compiled
        with_loops = function()
        with monkeypatch.context() as without:
            without.setattr(fast, "_is_installed", lambda: False)
            assert fast.loops(fast.LEAST_WORK) is None
            return with_loops, function()

    return run


@pytest.mark.parametrize("seed", range(40))
def test_assignments_of_least_cost(seed: int, twice: Twice) -> None:
    rng = np.random.default_rng(seed)
    examples, trainers = int(rng.integers(0, 300)), int(rng.integers(1, 14))
    cost = rng.integers(-3, rng.choice([-2, 2, 30, 10**9]), (examples, trainers))
    places = rng.multinomial(examples, rng.dirichlet(np.full(trainers, 0.5)))
    start = rng.integers(-20, 20, trainers)
    found, expected = twice(lambda: transport(cost, places, start))
    assert np.array_equal(found.trainer, expected.trainer)
    assert np.array_equal(found.prices, expected.prices)
    assert (found.cost, found.steps) == (expected.cost, expected.steps)


def test_the_assignment_of_a_click_log_to_many_trainers(twice: Twice) -> None:
    cost = cost_matrix(click_log_batch(3000, 32))
    found, expected = twice(lambda: transport(cost, capacities(3000, 32, range(32))))
    assert np.array_equal(found.trainer, expected.trainer)
    assert found.steps == expected.steps


@pytest.mark.parametrize("seed", range(10))
def test_cost_matrices(seed: int, twice: Twice) -> None:
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, int(rng.integers(1, 60)), int(rng.integers(1, 9)))
    found, expected = twice(lambda: cost_matrix(batch))
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
