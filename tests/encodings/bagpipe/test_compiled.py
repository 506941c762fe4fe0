"""Compiled loops give what arrays give, number for number: a plan doesn't depend on what is installed."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from bagpipe_batches import click_log_batch, random_batch

from gapless.encodings.bagpipe import capacities, cost_matrix, fast, transport
from gapless.encodings.bagpipe.costs import _cost_matrix

compiled = pytest.importorskip("gapless.encodings.bagpipe.compiled", reason="needs the extra `fast` (numba)")


@pytest.fixture
def arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where numba isn't installed."""
    monkeypatch.setattr(fast, "_is_installed", lambda: False)


def test_loops_are_loaded_for_large_work_and_used_for_all_from_then_on() -> None:
    assert isinstance(fast.loops(fast.LEAST_WORK), ModuleType)
    assert fast.loops(1) is compiled


def test_without_numba_arrays_do_the_work(arrays: None) -> None:
    assert fast.loops(fast.LEAST_WORK) is None


@pytest.mark.parametrize("seed", range(40))
def test_assignments_of_least_cost(seed: int) -> None:
    rng = np.random.default_rng(seed)
    examples, trainers = int(rng.integers(1, 300)), int(rng.integers(1, 14))
    cost = rng.integers(-3, rng.choice([-2, 2, 30, 10**9]), (examples, trainers))
    places = rng.multinomial(examples, rng.dirichlet(np.full(trainers, 0.5)))
    start = rng.integers(-20, 20, trainers)
    expected = transport._assigned(transport._checked_costs(cost), places, start)
    found = compiled.assigned(transport._checked_costs(cost), places, start)
    for ours, theirs in zip(found, expected, strict=True):
        assert np.array_equal(ours, theirs)


def test_the_assignment_of_a_click_log_to_many_trainers() -> None:
    cost = cost_matrix(click_log_batch(3000, 32))
    places, start = capacities(3000, 32), np.zeros(32, np.int64)
    expected = transport._assigned(cost, places, start)
    for ours, theirs in zip(compiled.assigned(cost, places, start), expected, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("seed", range(10))
def test_cost_matrices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, int(rng.integers(1, 60)), int(rng.integers(1, 9)))
    found = cost_matrix(batch)
    assert found.dtype == _cost_matrix(batch).dtype
    assert np.array_equal(found, _cost_matrix(batch))
