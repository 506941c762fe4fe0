"""Compiled loops give what arrays give, number for number: a plan doesn't depend on what is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bagpipe_batches import click_log_batch, random_batch
from examples import share

pytest.importorskip("numba", reason="needs the extra `fast`")

from gapless.encodings.bagpipe import Planning, capacities, cost_matrix
from gapless.encodings.bagpipe.batch_plans import BatchPlan, batch_plans
from gapless.encodings.bagpipe.ids import compiled, loops
from gapless.encodings.bagpipe.ids.distinct import positions, unique_ids
from gapless.encodings.bagpipe.lookahead.steps import lookahead_steps
from gapless.encodings.bagpipe.partition import compiled as compiled_partition
from gapless.encodings.bagpipe.partition import compiled_messages
from gapless.encodings.bagpipe.partition.batch import Traffic
from gapless.encodings.bagpipe.partition.methods import partition
from gapless.encodings.bagpipe.partition.transport import transport
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.trace import Block, trace_of_array

Twice = Callable[[Callable[[], Any]], tuple[Any, Any]]


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch) -> Twice:
    """What a function gives with compiled loops, and as where numba isn't installed."""

    def run(function: Callable[[], Any]) -> tuple[Any, Any]:
        assert loops.ids_loops(1) is compiled
        assert loops.partition_loops(1) is compiled_partition
        assert loops.message_loops(1) is compiled_messages
        with_loops = function()
        with monkeypatch.context() as without:
            without.setattr(loops, "_is_installed", lambda: False)
            assert loops.ids_loops(loops.LEAST_WORK) is None
            assert loops.partition_loops(loops.LEAST_WORK) is None
            assert loops.message_loops(loops.LEAST_WORK) is None
            return with_loops, function()

    return run


@pytest.mark.parametrize("seed", range(share(40)))
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


def random_batches(rng: np.random.Generator) -> list[Block]:
    """Tables of few and of many ids, and of ids so large that they are sorted."""
    rows = [int(10 ** rng.uniform(0, 13)) for _ in range(int(rng.integers(1, 6)))]
    size = int(rng.integers(1, 60))
    return [np.stack([rng.integers(0, count, size) % 10**12 for count in rows], axis=1) for _ in range(12)]


@pytest.mark.parametrize("seed", range(share(20)))
def test_distinct_ids_and_places(seed: int, twice: Twice) -> None:
    for batch in random_batches(np.random.default_rng(seed)):
        for found, expected in zip(*twice(lambda batch=batch: unique_ids(batch)), strict=True):
            assert np.array_equal(found, expected)
        found, expected = twice(lambda batch=batch: positions(*unique_ids(batch), batch))
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("seed", range(10))
def test_distinct_ids_and_places_of_bags(seed: int, twice: Twice) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 4, (int(rng.integers(1, 40)), 3))
    lengths[0, 0] = 1
    bags = Bags(rng.integers(0, rng.choice([5, 10**9]), int(lengths.sum())), lengths)
    for found, expected in zip(*twice(lambda: unique_ids(bags)), strict=True):
        assert np.array_equal(found, expected)
    found, expected = twice(lambda: positions(*unique_ids(bags), bags).values)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("cache_rows", [None, 200])
@pytest.mark.parametrize("seed", range(share(20)))
def test_steps_of_the_lookahead(seed: int, cache_rows: int | None, twice: Twice) -> None:
    batches = random_batches(np.random.default_rng(seed))
    most = cache_rows and max(cache_rows, *(len(unique_ids(batch)[0]) for batch in batches))
    found, expected = twice(lambda: list(lookahead_steps(iter(batches), 1 + seed % 5, most)))
    for ours, theirs in zip(found, expected, strict=True):
        for name, value in vars(ours).items():
            assert np.array_equal(value, getattr(theirs, name)), name


def row_of_traffic(plan: BatchPlan) -> list[Any]:
    """From trainers, from servers, sent."""
    return list(vars(Traffic.of_users(plan.users, plan.owner)).values())


@pytest.mark.parametrize(
    ("design", "ownership"),
    [("lrpp-delayed", "first-touch"), ("lrpp-delayed", "hash"), ("lrpp-fine-grained", "first-touch")],
)
@pytest.mark.parametrize("seed", range(10))
def test_plans_of_a_trace(seed: int, design: str, ownership: str, twice: Twice) -> None:
    rng = np.random.default_rng(seed)
    trace = trace_of_array(np.concatenate(random_batches(rng)))
    size = int(rng.integers(4, 20))
    planning = Planning(int(rng.integers(1, size)), size, int(rng.integers(1, 5)), ownership=ownership, design=design)
    for found, expected in zip(*twice(lambda: list(batch_plans(trace, planning))), strict=True):
        for name in ("index", "trainer", "owner", "owner_after", "users", "only_user", "is_alone", "root"):
            assert np.array_equal(getattr(found, name), getattr(expected, name)), name
        for ours, theirs in zip(*twice(lambda plan=found: row_of_traffic(plan)), strict=True):
            assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("objective", ["fetches", "max-load"])
@pytest.mark.parametrize("seed", range(10))
def test_searches_beyond_the_papers_objective(seed: int, objective: str, twice: Twice) -> None:
    rng = np.random.default_rng(seed)
    batch = random_batch(rng, int(rng.integers(1, 80)), int(rng.integers(1, 9)))
    found, expected = twice(lambda: partition(batch, None, objective, "search"))
    assert np.array_equal(found.trainer, expected.trainer)
    assert (found.value, found.bound, found.details) == (expected.value, expected.bound, expected.details)
