"""How long the partition methods take side by side, and what the objectives beyond the paper's save.

`pytest tests/benchmarks/test_bagpipe_partition_speed.py -s` prints what the searches save and their gaps. Batches are
shaped like a click log, with 26 tables and rows owned at random.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bagpipe_batches import click_log_batch

from gapless.encodings.bagpipe import Batch, Bound, Parameters, Partition, Planning, Search, capacities, cost_matrix
from gapless.encodings.bagpipe.batch_plans import batch_plans
from gapless.encodings.bagpipe.partition.batch import Sharing
from gapless.encodings.bagpipe.partition.bounds import fetches_bound, max_load_bound
from gapless.encodings.bagpipe.partition.methods import partition
from gapless.encodings.bagpipe.partition.transport import lower_bound, transport
from gapless.options import Deadline, SolveOptions
from gapless.profiles.traces.generators import criteo_like_trace, zipf_trace

EXAMPLES, TRAINERS = 16_384, 8


@pytest.fixture(scope="module")
def batch() -> Batch:
    return click_log_batch(EXAMPLES, TRAINERS)


@pytest.fixture(scope="module")
def best(batch: Batch) -> Partition:
    found = partition(batch)
    assert found is not None
    return found


def test_the_cost_matrix(benchmark: Any, batch: Batch) -> None:
    cost = benchmark(cost_matrix, batch)
    assert cost.shape == (EXAMPLES, TRAINERS)


@pytest.mark.parametrize(("examples", "trainers"), [(EXAMPLES, TRAINERS), (131_072, 8), (131_072, 64)])
@pytest.mark.parametrize("even", [True, False])
def test_the_transport_after_the_cost_matrix(benchmark: Any, examples: int, trainers: int, even: bool) -> None:
    cost = cost_matrix(click_log_batch(examples, trainers))
    capacity = capacities(examples, trainers, None if even else np.linspace(1, 2, trainers).tolist())
    found = benchmark.pedantic(transport, args=(cost, capacity), rounds=5 if trainers == 8 else 2, warmup_rounds=1)
    assert lower_bound(cost, capacity, found.prices) == found.cost
    benchmark.extra_info["steps"] = found.steps


@pytest.mark.parametrize(("examples", "trainers"), [(EXAMPLES, TRAINERS), (131_072, 64)])
def test_the_whole_partition(benchmark: Any, loops: str, examples: int, trainers: int) -> None:
    batch = click_log_batch(examples, trainers)
    found = benchmark.pedantic(partition, args=(batch,), rounds=5, warmup_rounds=1)
    assert lower_bound(cost_matrix(batch), capacities(examples, trainers), found.prices) == found.value


@pytest.mark.parametrize("exponent", [1.0, 1.3, 2.0])
def test_the_partition_with_skewed_costs(benchmark: Any, loops: str, exponent: float) -> None:
    """Rows that all examples use have one owner, whom all examples prefer."""
    trace = zipf_trace(criteo_like_trace(1).table_rows or (), exponent, 6 * EXAMPLES)
    *_, plan = batch_plans(trace, Planning(TRAINERS, EXAMPLES, lookahead=10, objective="paper", ownership="hash"))
    batch = Batch(plan.index, plan.owner, TRAINERS)
    found = benchmark.pedantic(partition, args=(batch,), rounds=5, warmup_rounds=1)
    assert lower_bound(cost_matrix(batch), capacities(EXAMPLES, TRAINERS), found.prices) == found.value
    benchmark.extra_info["prefer_one"] = int(np.bincount(cost_matrix(batch).argmin(axis=1)).max())


@pytest.mark.parametrize(("method", "solver"), [("transport", None), ("min_cost_flow", None), ("lp", "highs"),
                                                ("lp", "pulp"), ("milp", "highs")])  # fmt: skip
def test_exact_methods(benchmark: Any, batch: Batch, best: Partition, method: str, solver: str | None) -> None:
    """From the ids to the partition, cost matrix included."""
    keywords = {"method": method, "options": SolveOptions(threads=1, solver=solver)}
    found = benchmark.pedantic(partition, args=(batch,), kwargs=keywords, rounds=1)
    assert found.value == found.bound == best.value


def test_cpsat_on_a_sixteenth_of_a_batch(benchmark: Any, sized: Any) -> None:
    """On a whole batch it finds nothing within two minutes."""
    batch = click_log_batch(sized(EXAMPLES // 16, 64), TRAINERS)
    keywords = {"method": "milp", "options": SolveOptions(threads=1, solver="cpsat", time_limit_s=120.0)}
    found = benchmark.pedantic(partition, args=(batch,), kwargs=keywords, rounds=1)
    optimum = partition(batch)
    assert optimum is not None
    assert found is not None
    assert found.value >= optimum.value


@pytest.mark.parametrize("method", ["contiguous", "random"])
def test_baselines(benchmark: Any, batch: Batch, best: Partition, method: str) -> None:
    found = benchmark(partition, batch, method=method)
    assert found.value > best.value
    benchmark.extra_info["above_the_optimum"] = found.value / best.value - 1


@pytest.mark.parametrize("rounds", [0, 24, 56])
@pytest.mark.parametrize("objective", ["fetches", "max-load"])
def test_search(benchmark: Any, loops: str, batch: Batch, objective: str, rounds: int) -> None:
    papers = partition(batch, None, objective, "transport")
    parameters = Parameters(Search(rounds), Bound(rounds=0))
    args = (batch, None, objective, "search", parameters)
    found = benchmark.pedantic(partition, args=args, rounds=2, warmup_rounds=loops == "compiled")
    assert papers is not None
    assert found.value < 0.9 * papers.value
    saved = 1 - found.value / papers.value
    benchmark.extra_info["saved"] = saved
    print(f"\n{objective}, {rounds} rounds: {found.value}, {100 * saved:.1f} % below the paper's optimum")


@pytest.mark.parametrize("rounds", [10, 40, 160])
@pytest.mark.parametrize("objective", ["fetches", "max-load"])
def test_bounds(benchmark: Any, batch: Batch, objective: str, rounds: int) -> None:
    sharing, places = Sharing.of(batch), capacities(EXAMPLES, TRAINERS)
    bound_of = fetches_bound if objective == "fetches" else max_load_bound
    bound = benchmark.pedantic(bound_of, args=(sharing, places, Bound(rounds), Deadline(SolveOptions())), rounds=1)
    found = partition(batch, None, objective, parameters=Parameters(Search(rounds=56), Bound(rounds=0)))
    assert found is not None
    assert bound <= found.value
    gap = 1 - bound / found.value
    benchmark.extra_info["gap"] = gap
    print(f"\n{objective}, {rounds} rounds of the bound: {bound}, {100 * gap:.1f} % below the search's {found.value}")
