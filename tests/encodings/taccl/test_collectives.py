"""Every collective on machines and on tiny topologies: replayed, bounded, and the best where all can be tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from exact_any import shortest_below_s
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from little import LITTLE
from shapes import complete, line, pairs_of_nodes, ring, star

import gapless
from gapless import SolveOptions, Status
from gapless.checker import Rule, check
from gapless.encodings.taccl import Chunked, Sketch, load_sketch
from gapless.encodings.taccl.flow.paths import shortest_path_routing
from gapless.encodings.taccl.milp.path_routing import flow_relaxation
from gapless.encodings.taccl.milp.routers import router_of, takes_paths
from gapless.encodings.taccl.ordering.list_scheduling import RULES, list_schedule
from gapless.encodings.taccl.ordering.list_scheduling import Rule as OrderRule
from gapless.encodings.taccl.ordering.sends import sends_of, to_schedule
from gapless.encodings.taccl.ordering.tables import single_sends, times_of
from gapless.encodings.taccl.programs.export import collective_of, to_program
from gapless.encodings.taccl.sketch.format import InterNode
from gapless.errors import InputError
from gapless.ir.collective import COLLECTIVES, Collective, alltoall, collective_by_name
from gapless.ir.schedule import Schedule
from gapless.recipe import Result
from gapless.solution import PlanClass
from gapless.solvers.registry import solve_model
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology

NAMES = sorted(COLLECTIVES)
SUMS = ["allreduce", "reduce", "reducescatter"]
COSTS: Callable[[int], tuple[float, float]] = lambda k: (1e-6, 10e-12)  # noqa: E731
SMALL = {
    "ring": ring(4, COSTS),
    "line": line(3, COSTS),
    "complete": complete(4, COSTS),
    "nodes": pairs_of_nodes(2, COSTS),
}
MACHINES = {"ndv2-sk-1": 16_000_000, "ndv2-sk-2": 16_000, "dgx2-sk-2": 32_000}
ONE_THREAD = SolveOptions(threads=1, gap=0.05)


def on_machine(sketch: str, name: str) -> Chunked:
    return Chunked.of(load_topology(sketch.split("-")[0], 2), name, MACHINES[sketch], load_sketch(sketch))


def assert_true(result: Result) -> None:
    """Clean under the replay, and no faster than its bound."""
    assert result.valid, result.report and result.report.summary()
    assert result.report is not None
    assert result.solution.bound is not None
    assert result.report.makespan_s == pytest.approx(result.solution.objective)
    assert result.report.makespan_s >= result.solution.bound * (1 - 1e-9)


@pytest.mark.thorough(but=("scatter-ndv2-sk-1", "sendrecv-ndv2-sk-1"))
@pytest.mark.parametrize("sketch", MACHINES)
@pytest.mark.parametrize("name", NAMES)
def test_every_collective_on_a_machine_replays_clean_above_its_bound(name: str, sketch: str) -> None:
    result = gapless.solve(on_machine(sketch, name), SolveOptions(gap=0.5, threads=1), LITTLE)
    assert_true(result)


@pytest.mark.thorough(but=("ring",))
@pytest.mark.parametrize("shape", SMALL)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_every_collective_on_a_small_topology_replays_clean_above_its_bound(name: str, parts: int, shape: str) -> None:
    sketch = Sketch("parts", chunks_per_rank=parts, inter_node=InterNode("fully-connected"))
    result = gapless.solve(Chunked.of(SMALL[shape], name, 1_000_000, sketch), SolveOptions(gap=0.5, threads=1))
    assert_true(result)


# -- against exhaustive search -----------------------------------------------------------------------------------------

TURNS = Collective("turns", 3, 1, ((0,), (1,), (2,)), ((2,), (0,), (1,)))
TWO_SUMS = Collective("two_sums", 3, 1, ((0, 1),) * 3, ((0,), (1,), ()), reduces=True)
TINY = [
    TURNS,
    TWO_SUMS,
    collective_by_name("allgather", 3),
    collective_by_name("broadcast", 4),
    collective_by_name("scatter", 4),
    collective_by_name("reduce", 4),
    collective_by_name("sendrecv", 4, 2),
]
COST_LISTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=6, max_size=6)


def everyone_sums(ranks: int) -> Collective:
    """One chunk to which all add, and which all want."""
    return Collective("sum_of_one", ranks, 1, ((0,),) * ranks, ((0,),) * ranks, reduces=True)


@examples(42)
@given(collective=st.sampled_from(TINY), shape=st.sampled_from([complete, line, star]), costs=COST_LISTS)
def test_no_schedule_beats_the_bound_nor_a_plan_that_is_proven(
    collective: Collective, shape: Callable[..., Topology], costs: list[tuple[int, int]]
) -> None:
    assume(shape is not complete or collective.rank_count <= 3)  # twelve links are too many to try
    topology = shape(collective.rank_count, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked(topology, collective, 300_000, method="milp")
    result = gapless.solve(problem, SolveOptions(threads=1, gap=0.0))
    assert_true(result)
    assert result.report is not None
    assert result.solution.bound is not None
    best_s = shortest_below_s(problem, result.report.makespan_s * (1 + 1e-9))
    assert all(one.value <= best_s * (1 + 1e-9) for one in result.solution.bounds)
    if result.solution.proven_class is not None:
        assert best_s == pytest.approx(result.report.makespan_s)


@pytest.mark.thorough
@examples(25)
@given(shape=st.sampled_from([line, star, complete]), costs=COST_LISTS)
def test_no_schedule_of_a_sum_for_all_beats_the_bounds_that_hold_for_any(
    shape: Callable[..., Topology], costs: list[tuple[int, int]]
) -> None:
    topology = shape(3, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked(topology, everyone_sums(3), 300_000, method="milp")
    result = gapless.solve(problem, SolveOptions(threads=1, gap=0.0))
    assert_true(result)
    assert result.report is not None
    best_s = shortest_below_s(problem, result.report.makespan_s * (1 + 1e-9))
    bounds_s = result.details["bound_sources_s"]
    for name in ("latency", "cuts", "routing", "reduction", "crossing", "any_grouping"):
        assert bounds_s[name] <= best_s * (1 + 1e-9), name


@pytest.mark.thorough
@examples(25)
@given(name=st.sampled_from(["alltoall", "reducescatter"]), costs=COST_LISTS)
def test_no_schedule_between_nodes_beats_the_bound(name: str, costs: list[tuple[int, int]]) -> None:
    topology = pairs_of_nodes(2, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    chunks = ((0,), (1,), (), ()), ((), (), (1,), (0,))
    collective = Collective("two_chunks", 4, 1, *chunks)
    if name == "reducescatter":
        collective = Collective("two_sums", 4, 1, ((0,), (0, 1), (1,), ()), chunks[1], reduces=True)
    problem = Chunked(topology, collective, 300_000, method="milp")
    result = gapless.solve(problem, SolveOptions(threads=1, gap=0.0))
    assert_true(result)
    assert result.report is not None
    assert result.solution.bound is not None
    best_s = shortest_below_s(problem, result.report.makespan_s * (1 + 1e-9))
    assert result.solution.bound <= best_s * (1 + 1e-9)


def test_star_reduces_in_the_time_that_doubling_allows() -> None:
    result = gapless.solve(Chunked(star(3, COSTS), collective_by_name("reduce", 3), 100_000))
    assert result.solution.proven_class is PlanClass.CHUNKS
    assert result.solution.objective == pytest.approx(4e-6)
    assert result.details["bound_sources_s"]["spreading"] == pytest.approx(4e-6)


def test_allreduce_behind_one_switch_takes_the_bandwidth_bound_of_the_ring() -> None:
    problem = Chunked.of(load_topology("dgx2", 1), "allreduce", 16_000_000, method="milp")
    result = gapless.solve(problem, ONE_THREAD)
    assert result.details["bound_sources_s"]["crossing"] == pytest.approx(2 * 15 * (0.7e-6 + 8e-6))
    assert result.report.makespan_s <= 1.05 * result.details["bounds_s"]["1 chunk, one at a time"]


# -- symmetry ----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["alltoall", "reducescatter", "allgather"])
@pytest.mark.parametrize("sketch", ["ndv2-sk-1", "dgx2-sk-2"])
def test_routing_on_orbits_takes_as_long_as_plain_routing(name: str, sketch: str) -> None:
    symmetric = on_machine(sketch, name)
    plain = Chunked.of(
        symmetric.topology, name, MACHINES[sketch], replace(load_sketch(sketch), symmetry=())
    )  # fmt: skip
    times_s = []
    for problem in (symmetric, plain):
        router = router_of(problem.phases[0].problem)
        solution = solve_model(router.least_time_model(), SolveOptions(threads=1, gap=0.0, time_limit_s=60))
        assert solution.status is Status.OPTIMAL
        assert solution.objective is not None
        times_s.append(solution.objective * router.unit_s)
    assert times_s[0] == pytest.approx(times_s[1], rel=1e-6)


def test_flow_on_orbits_has_the_optimum_of_the_plain_flow_in_fewer_columns() -> None:
    symmetric = on_machine("dgx2-sk-2", "alltoall")
    plain = replace(symmetric, sketch=replace(load_sketch("dgx2-sk-2"), symmetry=()))
    flows = [flow_relaxation(problem) for problem in (symmetric, plain)]
    assert flows[0].model.column_count < flows[1].model.column_count / 8
    values = [solve_model(flow.model, SolveOptions(threads=1)).objective for flow in flows]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def test_alltoall_carries_the_chunk_from_s_to_d_to_that_from_their_images() -> None:
    problem = on_machine("dgx2-sk-2", "alltoall")
    for symmetry in problem.logical.symmetry:
        for chunk in range(problem.collective.chunk_count):
            source, target = divmod(chunk, 32)
            image = divmod(int(symmetry.chunks[chunk]), 32)
            assert image == (symmetry.ranks[source], symmetry.ranks[target])


def test_collective_with_a_root_leaves_out_the_symmetries_that_move_it() -> None:
    problem = on_machine("dgx2-sk-2", "broadcast")
    assert problem.logical.symmetry == ()
    assert problem.logical.unused == ("[2, 16]", "[16, all]")


# -- encodings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_chunks_with_one_destination_take_paths_and_others_trees(name: str) -> None:
    paths = {"alltoall", "gather", "scatter", "sendrecv"}
    for phase in Chunked.of(SMALL["ring"], name, 1_000_000).phases:
        assert takes_paths(phase.problem) == (name in paths)


@pytest.mark.parametrize(("name", "phases"), [("allgather", [False]), ("reduce", [True]), ("allreduce", [True, False])])
def test_sums_are_routed_backwards_and_spread_forwards(name: str, phases: list[bool]) -> None:
    assert [phase.backwards for phase in Chunked.of(SMALL["ring"], name, 1_000_000).phases] == phases


def test_roots_of_allreduce_are_those_of_reducescatter() -> None:
    for parts in (1, 3):
        allreduce, reducescatter = (collective_by_name(name, 4, parts) for name in ("allreduce", "reducescatter"))
        assert allreduce.roots == reducescatter.roots


@pytest.mark.parametrize("name", NAMES)
def test_size_is_that_of_the_largest_input_buffer(name: str) -> None:
    problem = Chunked.of(SMALL["ring"], name, 1_200_000, Sketch("parts", chunks_per_rank=3))
    assert problem.chunk_bytes * max(len(buffer) for buffer in problem.collective.inputs) == 1_200_000
    per_rank = {"alltoall": 12, "scatter": 12, "reducescatter": 12, "allreduce": 12}
    assert max(len(buffer) for buffer in problem.collective.inputs) == per_rank.get(name, 3)


def test_alltoall_cuts_the_part_for_each_rank_into_chunkup_chunks() -> None:
    problem = Chunked.of(SMALL["ring"], "alltoall", 1_200_000, Sketch("parts", chunks_per_rank=3))
    assert problem.collective == alltoall(4, 12)
    assert problem.chunk_bytes == 100_000


@pytest.mark.parametrize("name", NAMES)
def test_collective_is_read_back_from_what_a_plan_says_of_its_problem(name: str) -> None:
    problem = Chunked.of(SMALL["ring"], name, 1_000_000, Sketch("parts", chunks_per_rank=2))
    assert collective_of(problem.description, "plan") == problem.collective


@pytest.mark.parametrize(("name", "root", "target"), [("broadcast", 2, None), ("gather", 3, None), ("sendrecv", 2, 1)])
def test_root_and_target_are_read_back_too(name: str, root: int, target: int | None) -> None:
    problem = Chunked.of(SMALL["ring"], name, 1_000_000, root=root, target=target)
    assert collective_of(problem.description, "plan") == problem.collective
    assert_true(gapless.solve(problem, ONE_THREAD))


@pytest.mark.thorough("alltoall", "scatter")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in SUMS])
def test_what_does_not_reduce_runs_as_taccl_ef(name: str) -> None:
    problem = on_machine("ndv2-sk-1", name)
    result = gapless.solve(problem, SolveOptions(gap=0.5, threads=1), LITTLE)
    assert result.schedule is not None
    program = to_program(result.schedule, problem.collective)
    assert program.coll == ("custom" if name == "sendrecv" else name)
    assert program.name == f"{name}_16"


@pytest.mark.thorough
def test_published_sketch_that_was_reported_infeasible_for_alltoall_has_a_plan(
    published: Callable[..., Chunked],
) -> None:
    problem = published("topo-dgx2-1MB.json", "sk1-dgx2-n2", 2_000_000, "alltoall")
    result = gapless.solve(problem, SolveOptions(gap=0.5), LITTLE)
    assert_true(result)


def test_sum_that_cannot_reach_its_home_is_refused_when_the_problem_is_built() -> None:
    sketch = Sketch("dead_end", inter_node=InterNode({0: (1,)}, relays={0: (0,), 1: (0,)}))
    one_path = replace(
        pairs_of_nodes(2, COSTS),
        links=tuple(k for k in pairs_of_nodes(2, COSTS).links if (k.source, k.target) != (1, 0)),
    )
    with pytest.raises(InputError, match="sketch dead_end backwards: leaves ranks apart"):
        Chunked.of(one_path, "reducescatter", 1_000, sketch)


# -- sums under the replay ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sums() -> Schedule:
    problem = Chunked.of(SMALL["ring"], "reducescatter", 1_000_000)
    schedule = gapless.solve(problem, ONE_THREAD).schedule
    assert schedule is not None
    return schedule


def kept(schedule: Schedule, rows: list[int]) -> Schedule:
    """The schedule of some rows, in that order."""
    chosen = np.array(rows)
    columns = ("kind", "start_s", "end_s", "place", "op", "implementation", "reduces")
    lists = ("moves", "freed_tensor", "freed_device")
    return replace(
        schedule,
        **{title: getattr(schedule, title)[chosen] for title in columns},
        **{title: getattr(schedule, title).take(chosen) for title in lists},
    )


def test_part_that_never_arrives_is_missing_at_the_end(sums: Schedule) -> None:
    for row in range(len(sums)):
        report = check(kept(sums, [k for k in range(len(sums)) if k != row]))
        assert {violation.rule for violation in report.violations} == {Rule.REQUIRED_MISSING}


def test_part_that_is_added_twice_is_a_double_reduction(sums: Schedule) -> None:
    for row in range(len(sums)):
        twice = kept(sums, [*range(len(sums)), row])
        end_s = twice.end_s.max()
        times = {"start_s": twice.start_s.copy(), "end_s": twice.end_s.copy()}
        times["start_s"][-1], times["end_s"][-1] = end_s, end_s + (sums.end_s - sums.start_s)[row]
        rules = {violation.rule for violation in check(replace(twice, **times)).violations}
        assert Rule.DOUBLE_REDUCTION in rules


def test_part_that_replaces_a_sum_is_found(sums: Schedule) -> None:
    reduces = sums.reduces.copy()
    reduces[-1] = False
    rules = {violation.rule for violation in check(replace(sums, reduces=reduces)).violations}
    assert Rule.REQUIRED_MISSING in rules


@pytest.mark.thorough("scatter", "allreduce")
@pytest.mark.parametrize("name", SUMS)
def test_rank_adds_one_part_of_a_sum_at_a_time_and_sends_it_on_when_all_are_in(name: str) -> None:
    schedule = gapless.solve(on_machine("dgx2-sk-2", name), SolveOptions(gap=0.5), LITTLE).schedule
    assert schedule is not None
    topology = schedule.topology
    into: dict[tuple[int, int], list[tuple[float, float]]] = {}
    sent: dict[tuple[int, int], float] = {}
    for event in schedule.events():
        if event.reduces:
            for chunk in event.moves:
                into.setdefault((chunk, topology.links[event.place].target), []).append((event.start_s, event.end_s))
                sent[chunk, topology.links[event.place].source] = event.start_s
    assert into
    for copy, times in into.items():
        times.sort()
        assert all(first[1] <= second[0] * (1 + 1e-9) for first, second in pairwise(times))
        assert sent.get(copy, np.inf) >= times[-1][1] * (1 - 1e-9)


def test_rank_without_a_part_hands_a_sum_on() -> None:
    collective = Collective("far_sum", 3, 1, ((0,), (), (0,)), ((), (0,), ()), reduces=True)
    result = gapless.solve(Chunked(line(3, COSTS), collective, 100_000), ONE_THREAD)
    assert_true(result)
    assert result.schedule is not None
    assert sorted(result.schedule.reduces.tolist()) == [False, True]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_allreduce_replays_clean_with_its_phases_overlapped(rule: OrderRule) -> None:
    problem = on_machine("ndv2-sk-1", "allreduce")
    sends = sends_of(problem, [shortest_path_routing(phase.problem) for phase in problem.phases])
    order = list_schedule(single_sends(problem, sends), rule)
    network = problem.logical.topology
    report = check(to_schedule(network, problem.collective, problem.chunk_bytes, sends, times_of(order)))
    assert report.valid, report.summary()
    assert report.makespan_s <= order.makespan_s * (1 + 1e-9)


@pytest.mark.thorough
def test_allreduce_spreads_first_sums_while_others_are_still_added_up() -> None:
    result = gapless.solve(on_machine("ndv2-sk-1", "allreduce"), SolveOptions(gap=0.5), LITTLE)
    schedule = result.schedule
    assert schedule is not None
    assert schedule.start_s[~schedule.reduces].min() < schedule.end_s[schedule.reduces].max()
