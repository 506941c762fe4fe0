"""The routing optimum against a second formulation (one binary a tree) and against enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from shapes import SHAPES, pairs_of_nodes

from gapless.encodings.taccl import Chunked, load_sketch
from gapless.encodings.taccl.flow.paths import exclusive_groups, shortest_path_routing
from gapless.encodings.taccl.milp.routers import routing_model
from gapless.encodings.taccl.milp.tree_routing import tree_router
from gapless.encodings.taccl.ordering.sends import Routing
from gapless.model import Model
from gapless.model.lp import lp_text
from gapless.options import SolveOptions
from gapless.solution import Status
from gapless.solvers.registry import solve_model
from gapless.topologies.files import load_topology

SIZES = (
    ("line", 3),
    ("line", 5),
    ("ring", 3),
    ("ring", 4),
    ("ring", 5),
    ("star", 4),
    ("star", 5),
    ("switch", 3),
    ("switch", 4),
    ("switch", 5),
)
COSTS = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=10, max_size=10)


def solved_s(problem: Chunked) -> tuple[float, Routing]:
    parts = tree_router(problem)
    parts.model.minimize((1.0, [parts.time]))
    solution = solve_model(parts.model, SolveOptions(threads=1))
    assert solution.status is Status.OPTIMAL
    assert solution.objective is not None
    assert solution.values is not None
    return solution.objective * parts.unit_s, parts.decode(solution.values)


def trees_of(problem: Chunked, chunk: int) -> list[tuple[int, ...]]:
    """Every spanning tree of links away from the chunk's owner."""
    topology, owner = problem.logical.topology, int(problem.owners[chunk])
    into = [
        [k for k, link in enumerate(topology.links) if link.target == rank] for rank in range(topology.device_count)
    ]
    choices = [into[rank] for rank in range(topology.device_count) if rank != owner]
    found = []
    for links in itertools.product(*choices):
        tree = nx.DiGraph([(topology.links[link].source, topology.links[link].target) for link in links])
        if nx.is_arborescence(tree) and tree.in_degree(owner) == 0:
            found.append(links)
    return found


def tree_time_s(problem: Chunked, links: tuple[int, ...], owner: int) -> float:
    """When the last rank of a tree has the chunk, no other chunk in the path."""
    topology = problem.logical.topology
    tree = nx.DiGraph()
    for link in links:
        tree.add_edge(topology.links[link].source, topology.links[link].target, weight=float(problem.duration_s[link]))
    return max(nx.single_source_dijkstra_path_length(tree, owner, weight="weight").values())


def optimum_by_trees_s(problem: Chunked) -> float:
    """The second formulation: pick a tree for each chunk; no arrival times, no big-M."""
    unit_s = float(problem.duration_s.min())
    model = Model("trees")
    time = model.continuous("time")
    used: dict[int, list[tuple[int, float]]] = {number: [] for number in range(len(exclusive_groups(problem)))}
    for chunk in range(len(problem.owners)):
        trees = trees_of(problem, chunk)
        picks = model.binaries(f"pick{chunk}", len(trees))
        model.add(f"one_tree_{chunk}", (1.0, picks), lower=1.0, upper=1.0)
        spans = [tree_time_s(problem, links, int(problem.owners[chunk])) / unit_s for links in trees]
        model.add(f"dilation_{chunk}", (1.0, [time]), (-np.array(spans), picks), lower=0.0)
        for number, group in enumerate(exclusive_groups(problem)):
            for pick, links in zip(picks.tolist(), trees, strict=True):
                load = sum(float(problem.occupancy_s[link]) for link in links if link in group) / unit_s
                if load:
                    used[number].append((pick, load))
    for number, entries in used.items():
        picks, loads = [pick for pick, _ in entries], [load for _, load in entries]
        model.add(f"congestion_{number}", (1.0, [time]), (-np.array(loads), picks), lower=0.0)
    model.minimize((1.0, [time]))
    solution = solve_model(model, SolveOptions(threads=1))
    assert solution.objective is not None
    return solution.objective * unit_s


def optimum_by_enumeration_s(problem: Chunked) -> float:
    """Every combination of trees."""
    trees = [trees_of(problem, chunk) for chunk in range(len(problem.owners))]
    groups = exclusive_groups(problem)
    best_s = np.inf
    for choice in itertools.product(*trees):
        dilation_s = max(tree_time_s(problem, links, int(problem.owners[c])) for c, links in enumerate(choice))
        sent = list(itertools.chain(*choice))
        loads_s = [sum(float(problem.occupancy_s[link]) for link in sent if link in group) for group in groups]
        best_s = min(best_s, max(dilation_s, *loads_s))
    return best_s


def small_problem(shape: str, ranks: int, costs: list[tuple[int, int]]) -> Chunked:
    return Chunked.of(SHAPES[shape](ranks, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12)), "allgather", 1_000_000)


@pytest.mark.thorough("5]")
@pytest.mark.parametrize(("shape", "ranks"), SIZES)
@examples(12, cases=6)
@given(costs=COSTS)
def test_optimum_equals_that_of_the_tree_formulation(shape: str, ranks: int, costs: list[tuple[int, int]]) -> None:
    problem = small_problem(shape, ranks, costs)
    assert solved_s(problem)[0] == pytest.approx(optimum_by_trees_s(problem), rel=1e-6, abs=0)


@pytest.mark.parametrize(("shape", "ranks"), [("line", 4), ("ring", 3), ("ring", 4), ("star", 4), ("switch", 3)])
@examples(5, cases=5)
@given(costs=COSTS)
def test_optimum_equals_the_best_of_all_combinations_of_trees(
    shape: str, ranks: int, costs: list[tuple[int, int]]
) -> None:
    problem = small_problem(shape, ranks, costs)
    assert solved_s(problem)[0] == pytest.approx(optimum_by_enumeration_s(problem), rel=1e-6, abs=0)


@pytest.mark.thorough
@examples(25)
@given(costs=COSTS)
def test_optimum_over_two_nodes_equals_that_of_the_tree_formulation(costs: list[tuple[int, int]]) -> None:
    topology = pairs_of_nodes(2, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked.of(topology, "allgather", 1_000_000)
    assert solved_s(problem)[0] == pytest.approx(optimum_by_trees_s(problem), rel=1e-6, abs=0)


def test_symmetry_on_orbits_keeps_the_optimum_and_shrinks_the_model() -> None:
    sketch = load_sketch("ndv2-sk-1")
    symmetric = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, sketch)
    plain = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, replace(sketch, symmetry=()))
    assert tree_router(symmetric).model.column_count < 0.6 * tree_router(plain).model.column_count
    assert solved_s(symmetric)[0] == pytest.approx(solved_s(plain)[0], rel=1e-6, abs=0)


def test_symmetric_routing_carries_every_send_to_a_send() -> None:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))
    _, routing = solved_s(problem)
    sends = set(zip(routing.chunk.tolist(), routing.link.tolist(), strict=True))
    for automorphism in problem.logical.symmetry:
        assert {(int(automorphism.chunks[c]), int(automorphism.links[link])) for c, link in sends} == sends


def test_a_partition_binds_the_sends_of_its_parts_and_leaves_those_between_them_free() -> None:
    """Example 5.4.3: two NDv2 nodes under the permutation that swaps them."""
    nodes = tuple(range(8)), tuple(range(8, 16))
    swap = replace(load_sketch("ndv2-sk-1"), symmetry=(), permutations=((*nodes[1], *nodes[0]),))
    whole, inside, free = (
        Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, sketch)
        for sketch in (swap, replace(swap, partition=nodes), replace(swap, permutations=()))
    )
    (images,), is_between = inside.logical.inside, inside.logical.is_between
    assert is_between is not None
    assert is_between.tolist() == inside.logical.topology.is_inter_node.tolist()
    column, image = (tree_router(inside).is_sent[np.ix_(*cells)] for cells in (
        (range(16), range(inside.link_count)), (images.chunks, images.links),
    ))  # fmt: skip
    allowed = inside.usable
    assert (column == image)[allowed & ~is_between].all()
    assert (column != image)[allowed & is_between].all()
    sizes = [tree_router(problem).model.column_count for problem in (whole, inside, free)]
    assert sizes == sorted(set(sizes))
    least_s, routing = solved_s(inside)
    assert solved_s(free)[0] <= least_s * (1 + 1e-6)
    assert least_s <= solved_s(whole)[0] * (1 + 1e-6)
    sends = {
        (chunk, link)
        for chunk, link in zip(routing.chunk.tolist(), routing.link.tolist(), strict=True)
        if not is_between[link]
    }
    assert {(int(images.chunks[chunk]), int(images.links[link])) for chunk, link in sends} == sends


@pytest.mark.parametrize("routing_of", [lambda p: solved_s(p)[1], shortest_path_routing])
def test_each_chunk_travels_along_a_tree_that_reaches_every_rank(
    routing_of: Callable[[Chunked], Routing],
) -> None:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))
    routing = routing_of(problem)
    topology = problem.logical.topology
    for chunk in range(problem.collective.chunk_count):
        links = routing.link[routing.chunk == chunk]
        targets = sorted(topology.link_target[links].tolist())
        assert targets == [rank for rank in range(16) if rank != problem.owners[chunk]]
    for send, parent in enumerate(routing.parent.tolist()):
        source = topology.link_source[routing.link[send]]
        if parent < 0:
            assert source == problem.owners[routing.chunk[send]]
        else:
            assert parent < send
            assert topology.link_target[routing.link[parent]] == source
            assert routing.chunk[parent] == routing.chunk[send]


def test_same_problem_gives_the_same_lp_file() -> None:
    texts = {
        lp_text(routing_model(Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))))
        for _ in range(2)
    }
    assert len(texts) == 1
    assert "is_sent_c0_r0_r1" in texts.pop()


def test_without_slack_every_link_lies_on_a_shortest_way() -> None:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, load_sketch("ndv2-sk-1"), path_slack=0.0)
    _, routing = solved_s(problem)
    topology = problem.logical.topology
    arrival_s = problem.earliest_s[routing.chunk, topology.link_source[routing.link]] + problem.duration_s[routing.link]
    assert arrival_s == pytest.approx(
        problem.earliest_s[routing.chunk, topology.link_target[routing.link]], rel=1e-9, abs=0
    )


def test_more_slack_never_makes_the_optimum_worse() -> None:
    topology, sketch = load_topology("ndv2", 2), load_sketch("ndv2-sk-1")
    times_s = [solved_s(Chunked.of(topology, "allgather", 1_000_000, sketch, slack))[0] for slack in (0.0, 0.5, None)]
    assert times_s == sorted(times_s, reverse=True)


def test_link_policies_change_the_number_of_links_at_equal_time() -> None:
    problem = Chunked.of(load_topology("dgx2", 2), "allgather", 1_000, load_sketch("dgx2-sk-2"))
    parts = tree_router(problem)
    parts.model.minimize((1.0, [parts.time]))
    least = solve_model(parts.model, SolveOptions(threads=1))
    assert least.objective is not None
    parts.model.add("time_is_least", (1.0, [parts.time]), upper=least.objective * (1 + 1e-9))
    parts.model.minimize((-1.0, np.unique(parts.is_util[parts.is_util >= 0])))
    most = solve_model(parts.model, SolveOptions(threads=1))
    assert most.values is not None
    assert least.values is not None
    used = np.unique(parts.decode(most.values).link)
    assert (problem.link_weight[used] == -1).sum() == 2 * 16 * 15
    assert most.values[parts.time] <= least.objective * (1 + 1e-6)
