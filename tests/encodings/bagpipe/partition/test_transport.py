"""The transportation algorithm is exact: its prices prove it, and every other exact method agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bagpipe_batches import click_log_batch
from examples import share
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gapless.encodings.bagpipe import capacities, cost_matrix
from gapless.encodings.bagpipe.partition import milp
from gapless.encodings.bagpipe.partition.transport import Transport, lower_bound, transport
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.solution import Status
from gapless.solvers.registry import solve_model


def proven(cost: NDArray[Any], capacity: NDArray[np.int64], found: Transport) -> bool:
    """Whether the assignment is balanced, costs what it says, and the prices prove that nothing is cheaper."""
    assert (np.bincount(found.trainer, minlength=len(capacity)) == capacity).all()
    assert found.cost == int(cost[np.arange(len(cost)), found.trainer].sum(dtype=np.int64))
    assert found.prices.min() == 0
    return lower_bound(cost, capacity, found.prices) == found.cost


def random_instance(rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ties and wide costs, negative ones, more trainers than examples, trainers without places."""
    examples, trainers = int(rng.integers(0, 40)), int(rng.integers(1, 12))
    cost = rng.integers(-3, rng.choice([-2, 2, 30, 10**9]), (examples, trainers))
    return cost, rng.multinomial(examples, rng.dirichlet(np.full(trainers, 0.5)))


@given(seed=st.integers(0, 2**32 - 1))
def test_prices_prove_the_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost, capacity = random_instance(rng)
    assert proven(cost, capacity, transport(cost, capacity))
    assert proven(cost, capacity, transport(cost, capacity, rng.integers(-20, 20, len(capacity))))


def test_random_instances_cost_what_the_linear_relaxation_does() -> None:
    rng = np.random.default_rng(0)
    for _ in range(share(200)):
        cost, capacity = random_instance(rng)
        parts = milp.encode(cost, capacity, relaxed=True)
        solution = solve_model(parts.model, SolveOptions(threads=1))
        assert solution.status is Status.OPTIMAL
        assert solution.objective == pytest.approx(transport(cost, capacity).cost, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("solver", ["highs", "pulp", "cpsat", "min_cost_flow"])
@pytest.mark.parametrize(("examples", "trainers"), [(3, 5), (61, 4), (200, 8)])
def test_backends_agree_on_the_papers_milp(solver: str, examples: int, trainers: int) -> None:
    cost = cost_matrix(click_log_batch(examples, trainers))
    capacity = capacities(examples, trainers, range(trainers))
    parts = milp.encode(cost, capacity)
    solution = solve_model(parts.model, SolveOptions(threads=1), solver)
    assert solution.values is not None
    trainer = milp.decode(parts, solution.values)
    assert (np.bincount(trainer, minlength=trainers) == capacity).all()
    assert int(cost[np.arange(examples), trainer].sum()) == transport(cost, capacity).cost


@pytest.mark.parametrize(("examples", "trainers"), [(4096, 8), (5000, 64), (17_000, 16), (100, 300)])
def test_batches_like_a_click_log_are_proven(examples: int, trainers: int) -> None:
    cost = cost_matrix(click_log_batch(examples, trainers))
    for capacity in (capacities(examples, trainers), capacities(examples, trainers, range(trainers))):
        assert proven(cost, capacity, transport(cost, capacity))


def test_blocks_are_large() -> None:
    cost = cost_matrix(click_log_batch(4096, 8))
    start = np.bincount(cost.argmin(axis=1), minlength=8)
    surplus = int(np.maximum(start - 512, 0).sum())
    assert transport(cost).steps < surplus / 5


def test_all_examples_may_want_one_trainer() -> None:
    cost = np.ones((1000, 7), np.int16)
    cost[:, 3] = 0
    found = transport(cost)
    assert proven(cost, capacities(1000, 7), found)
    assert found.cost == 1000 - 143


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int64])
def test_differences_do_not_overflow(dtype: Any) -> None:
    info = np.iinfo(dtype)
    low, high = max(info.min, -(2**38)), min(info.max, 2**38)
    cost = np.random.default_rng(0).choice(np.array([low, high], dtype), (30, 4))
    wide = transport(cost.astype(np.int64)).cost
    assert transport(cost).cost == wide


def test_costs_that_are_no_whole_matrix_are_named() -> None:
    with pytest.raises(InputError, match="cost: must be whole numbers"):
        transport(np.ones((2, 2)))
    with pytest.raises(InputError, match="cost: must be whole numbers, examples x trainers"):
        transport(np.ones((2, 0), np.int64))
    with pytest.raises(InputError, match="cost: must span less than"):
        transport(np.array([[0, 2**40]]))
