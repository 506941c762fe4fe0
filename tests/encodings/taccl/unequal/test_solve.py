"""Plans of unlike shares: replayed clean, no faster than their bounds, which no exact plan beats."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from exact_shares import TICK_S, network, shortest_s
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

import gapless
from gapless.encodings.taccl.bounds.bandwidth.concurrent_flow import concurrent_flow
from gapless.encodings.taccl.unequal.bounds import quick_bounds, routed_bound_s
from gapless.encodings.taccl.unequal.fluid import fluid
from gapless.encodings.taccl.unequal.problem import Unequal
from gapless.errors import InputError
from gapless.io.formats.collective_file import collective_of
from gapless.ir.amounts import Amounts
from gapless.options import SolveOptions
from gapless.recipe import solve
from gapless.topologies.topology import Link, Topology


def alltoallv(seed: int, ranks: int = 3) -> Amounts:
    """A matrix of few bytes, some of them 0, and perhaps a rank that sends nothing."""
    chance = random.Random(seed)
    rows = [[chance.choice([0, 1, 2, 5, 9]) for _ in range(ranks)] for _ in range(ranks)]
    rows[chance.randrange(ranks)] = [0] * ranks if chance.random() < 0.3 else [1] * ranks
    rows[0][1] = 3
    return Amounts("alltoallv", tuple(map(tuple, rows)))


@examples(100, cases=5)
@given(seed=st.integers(0, 10**6))
def test_no_exact_plan_beats_the_bounds_of_alltoallv(seed: int) -> None:
    topology, amounts = network(seed), alltoallv(seed)
    problem = Unequal(topology, amounts)
    best_s = shortest_s(topology, amounts.sent, TICK_S)
    bounds_s = quick_bounds(problem)
    bounds_s["program"] = routed_bound_s(problem, SolveOptions(), 8_000)
    bounds_s["fluid"] = fluid(topology, amounts.sent.astype(np.float64), 40).bound_s
    for name, bound_s in bounds_s.items():
        assert bound_s <= best_s * (1 + 1e-9), name
    result = solve(problem, SolveOptions(gap=0.05))
    assert result.valid
    assert result.solution.bound <= best_s * (1 + 1e-9)
    assert result.solution.bound <= result.data["makespan_s"] * (1 + 1e-9)


@examples(100)
@given(seed=st.integers(0, 10**6))
def test_the_prices_of_a_fluid_prove_no_more_than_the_linear_program(seed: int) -> None:
    topology, sent = network(seed, 5), alltoallv(seed, 5).sent
    program = concurrent_flow(topology, topology.beta_s_per_byte, sent)
    assert program is not None
    found = fluid(topology, sent.astype(np.float64), 150)
    assert found.bound_s <= program.time_s * (1 + 1e-6)
    assert program.time_s <= found.load_s * (1 + 1e-6)
    assert found.load_s <= 1.2 * program.time_s


@examples(100, cases=3)
@given(seed=st.integers(0, 10**6))
def test_plans_of_allgatherv_replay_clean_and_keep_their_bounds(seed: int) -> None:
    chance = random.Random(seed)
    vector = [chance.choice([0, 1, 7, 1000, 2500]) for _ in range(4)]
    vector[0] = 40
    result = solve(Unequal(network(seed, 4), Amounts("allgatherv", (tuple(vector),))), SolveOptions(gap=0.05))
    assert result.valid
    assert result.solution.bound <= result.data["makespan_s"] * (1 + 1e-9)


def test_a_pair_without_bytes_sends_nothing() -> None:
    """Ranks 0 and 1 want nothing of each other, and the direct links for the others are the quickest."""
    matrix = np.array([[4, 0, 10], [0, 0, 0], [10, 0, 3]])
    result = gapless.taccl.solve("ring:3", collective="alltoallv", matrix=matrix)
    assert result.valid
    topology, schedule = result.schedule.topology, result.schedule
    ends = {(topology.links[link].source, topology.links[link].target) for link in schedule.place.tolist()}
    assert ends == {(0, 2), (2, 0)}
    collective = collective_of(result.plan.problem, "plan")
    assert collective.chunk_sizes is not None
    assert sum(collective.chunk_sizes) == matrix.sum()
    assert collective.inputs[1] == ()


@pytest.mark.parametrize("size", [1, 100_000_000])
def test_zipf_skewed_experts_on_two_nodes_are_near_the_bound_where_bytes_count(size: int) -> None:
    loads = np.random.default_rng(0).multinomial(1024, 1 / np.arange(1, 17) / (1 / np.arange(1, 17)).sum(), size=16)
    result = gapless.taccl.solve("dgx-h100", nodes=2, collective="alltoallv", matrix=loads * max(size // 10_000, 1))
    assert result.valid
    if size > 1:
        assert result.data["ratio"] <= 1.05


def test_a_plan_is_kept_with_its_sizes(tmp_path: Path) -> None:
    matrix = np.array([[0, 50, 1000], [200, 0, 0], [0, 300, 9]])
    result = gapless.taccl.solve("ring:3", collective="alltoallv", matrix=matrix)
    result.save(tmp_path / "plan.json")
    again = gapless.load(tmp_path / "plan.json")
    assert again.valid
    assert collective_of(again.plan.problem, "plan") == collective_of(result.plan.problem, "plan")
    with pytest.raises(InputError, match="chunks of one size"):
        again.export(tmp_path / "plan.xml", "taccl-ef")


def test_bytes_without_a_path_are_refused() -> None:
    topology = Topology("one way", (0, 0), (Link(0, 1, TICK_S, TICK_S),), ())
    with pytest.raises(InputError, match="must have a path from rank 1 to rank 0"):
        solve(Unequal(topology, Amounts("alltoallv", ((0, 1), (1, 0)))))


def test_a_multicast_stands_for_many_messages() -> None:
    """Few bytes between all GPUs of a machine: one multicast each takes one alpha, plain messages take three."""
    few = 10 * (1 - np.eye(8, dtype=np.int64))
    few[0, 1] = 20
    asked = {"topology": "dgx-h100", "collective": "alltoallv", "matrix": few}
    found, plain = (gapless.taccl.solve(**asked, no_switch_reduction=each) for each in (False, True))
    assert found.solution.bound is not None
    assert plain.solution.bound is not None
    assert found.solution.bound < 0.71e-6 < 2.1e-6 < plain.solution.bound
