"""Methods: which route plans what, and that the better plan is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from little import LITTLE
from rails import rails

import gapless
from gapless.checker import check
from gapless.encodings.taccl import Chunked, load_sketch
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.flow.greedy import plan_greedy
from gapless.encodings.taccl.flow.restarts import matched_plan
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.question import Method
from gapless.encodings.taccl.solve import in_chunks, solve
from gapless.errors import InputError
from gapless.io.taccl_ef import lower, verify
from gapless.options import Progress, SolveOptions
from gapless.solution import Status
from gapless.system import Plan
from gapless.topologies.fabric import Fabric
from gapless.topologies.files import load_topology
from gapless.topologies.node import Cluster, NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.topology import Topology

QUICK = SolveOptions(gap=0.02)


def best_chunking(topology: Topology, collective: str, size_bytes: int) -> int:
    return in_chunks(Problem(topology, collective, size_bytes), SolveOptions(), LITTLE).chunks


def test_orbits_are_counted() -> None:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 10**6, load_sketch("ndv2-sk-1"))
    assert problem.routing_binaries == 16 * (64 + 2) // 2
    assert Chunked.of(load_topology("ndv2", 1), "allgather", 10**6).routing_binaries == 8 * 32


@pytest.mark.parametrize(
    ("method", "said"), [("milp", {"milp"}), ("greedy", {"greedy"}), ("auto", {"milp", "greedy", "aggregated"})]
)
def test_the_answer_says_which_method_ran(method: str, said: set[str]) -> None:
    result = gapless.solve(Chunked.of(load_topology("ndv2", 1), "allgather", 10**6, method=method), QUICK, LITTLE)
    assert result.valid
    assert result.details["method"] in said


def test_auto_is_as_good_as_either() -> None:
    problem = Chunked.of(rails(2, 2), "allgather", 10**5)
    methods: tuple[Method, ...] = ("auto", "milp", "greedy")
    ends = {
        method: gapless.solve(replace(problem, method=method), QUICK, LITTLE).solution.objective for method in methods
    }
    assert ends["auto"] <= min(ends["milp"], ends["greedy"]) * (1 + 1e-9)


def test_nothing_is_looked_for_that_can_not_beat_a_pipeline_and_reports_only_get_better() -> None:
    seen: list[Progress] = []
    problem = replace(Chunked.of(load_topology("dgx1", 1), "broadcast", 64_000_000), may_cut=True)
    result = gapless.solve(problem, replace(QUICK, on_progress=seen.append), LITTLE)
    assert result.valid
    assert result.details["method"] == "baseline:ring"
    assert "routing" not in {news.phase for news in seen}
    incumbents = [news.incumbent for news in seen if news.incumbent is not None]
    assert incumbents == sorted(incumbents, reverse=True)
    assert [news.wall_s for news in seen] == sorted(news.wall_s for news in seen)


@pytest.mark.parametrize("collective", ["allgather", "allreduce"])
@pytest.mark.parametrize("method", [matched_plan, plan_greedy])
def test_better_plans_are_offered_while_a_method_goes_on(collective: str, method: Callable[..., Candidate]) -> None:
    offered: list[tuple[float, Callable[[], Candidate]]] = []
    problem = Chunked.of(rails(2, 2), collective, 10**6)
    plan = method(problem, SolveOptions(on_plan=lambda *offer: offered.append(offer)), bounds=bounds_of(problem))
    assert [end_s for end_s, _ in offered] == sorted((end_s for end_s, _ in offered), reverse=True)
    for end_s, make in (offered[0], offered[-1]):
        early = make().schedule
        assert early is not None
        assert check(early).valid
        assert float(early.end_s.max()) <= end_s * (1 + 1e-9)
    assert np.array_equal(early.start_s, plan.schedule.start_s)


def test_a_phase_is_not_reported_as_the_whole_plan() -> None:
    seen: list[Progress] = []
    result = gapless.solve(Problem(rails(2, 2), "allreduce", 10**6), replace(QUICK, on_progress=seen.append), LITTLE)
    assert result.report is not None
    incumbents = [news.incumbent for news in seen if news.incumbent is not None]
    assert min(incumbents) >= result.report.makespan_s * (1 - 1e-9)


@pytest.mark.thorough
def test_large_clusters_are_not_for_the_milp() -> None:
    result = gapless.solve(Chunked.of(rails(8), "allgather", 10**6), QUICK, LITTLE)
    assert result.valid
    assert result.details["method"] != "milp"


def test_a_sketch_goes_to_the_milp() -> None:
    result = gapless.solve(
        Chunked.of(load_topology("ndv2", 2), "allgather", 10**6, load_sketch("ndv2-sk-1")), QUICK, LITTLE
    )
    assert result.details["method"] == "milp"


def test_a_solver_that_is_named_is_used_and_the_greedy_takes_none() -> None:
    topology, options = load_topology("ndv2", 1), SolveOptions(gap=0.02, solver="highs")
    assert gapless.solve(Chunked.of(topology, "allgather", 10**6), options).details["method"] == "milp"
    with pytest.raises(InputError, match="solver: must be left out with method greedy, which takes none; got 'highs'"):
        gapless.solve(Chunked.of(topology, "allgather", 10**6, method="greedy"), options)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match="method: must be one of auto, milp, greedy, got 'best'"):
        Chunked.of(load_topology("ndv2", 1), "allgather", 10**6, method="best")  # type: ignore[arg-type]


def test_more_chunks_for_larger_sizes() -> None:
    topology = load_topology("ndv2", 1)
    numbers = [best_chunking(topology, "allgather", size) for size in (1_000, 10**8)]
    assert numbers[0] == 1
    assert numbers[1] >= 4


@pytest.mark.thorough
def test_chunks_for_one_rank_are_cut_where_several_ways_share_them() -> None:
    """NDv2's flow goes in thirds: behind switches one chunk is as good as many, and pays fewer latencies."""
    assert best_chunking(load_topology("ndv2", 1), "alltoall", 10**8) == 3
    assert best_chunking(load_topology("dgx2", 1), "alltoall", 10**8) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["reducescatter", "allreduce"])
@pytest.mark.parametrize("machine", ["ndv2", "dgx2"])
def test_large_sums_are_within_a_twentieth_of_a_bound_on_both_phases(name: str, machine: str) -> None:
    topology, size = load_topology(machine, 2), 64 * 10**6
    chunks = best_chunking(topology, name, size)
    assert chunks > 1
    problem = Chunked.of(topology, name, size, method="greedy", chunks_per_rank=chunks)
    result = gapless.solve(problem, SolveOptions(gap=0.05))
    assert result.valid
    assert result.solution.objective is not None
    assert (
        result.solution.objective <= 1.06 * result.details["bounds_s"][f"{chunks} chunks, one at a time inside nodes"]
    )


@pytest.mark.thorough(but=("ndv2-sk-1-allgather-auto", "ndv2-sk-1-alltoall-greedy"))
@pytest.mark.parametrize("method", ["auto", "greedy", "milp"])
@pytest.mark.parametrize(
    ("sketch", "name"),
    [("ndv2-sk-1", "allgather"), ("ndv2-sk-1", "allreduce"), ("ndv2-sk-1", "alltoall"), ("dgx2-sk-2", "allgather")],
)
def test_a_plan_uses_only_what_its_sketch_allows(sketch: str, name: str, method: Method) -> None:
    problem = Chunked.of(load_topology(sketch.split("-")[0], 2), name, 64_000, load_sketch(sketch), method=method)
    result = gapless.solve(problem, replace(QUICK, gap=0.05), LITTLE)
    assert result.valid
    schedule = result.schedule
    assert schedule is not None
    assert schedule.topology == problem.logical.topology
    link, reduces = schedule.place[schedule.moves.owner], schedule.reduces[schedule.moves.owner]
    for phase in problem.phases:
        moved = reduces == phase.backwards
        assert phase.problem.logical.allowed[schedule.moves.values[moved], link[moved]].all()


@pytest.mark.thorough("alltoall", "broadcast")
@pytest.mark.parametrize(
    ("name", "size", "method"),
    [("allgather", 1_000, "aggregated"), ("alltoall", 64 * 10**6, "greedy"), ("broadcast", 64 * 10**6, "matching")],
)
def test_a_plan_says_which_method_made_it_in_which_variant_and_how_many_chunks(
    name: str, size: int, method: str
) -> None:
    result = gapless.solve(Problem(load_topology("dgx1", 1), name, size), QUICK)
    provenance = result.details["provenance"]
    assert set(provenance) == {"method", "variant", "chunks", "sketch"}
    assert provenance["method"].startswith(method)
    assert provenance["method"] == result.details["method"]
    assert provenance["chunks"] >= 1
    assert provenance["variant"]
    assert result.problem.description["chunks_per_rank"] >= provenance["chunks"]
    assert result.timings


def test_a_bound_holds_for_every_number_of_chunks_unless_the_question_names_one() -> None:
    asked = {"topology": "line:5", "collective": "broadcast", "size": "64MB", "parameters": LITTLE}
    open_question = gapless.taccl.solve(**asked)
    for chunks in (4, 64):
        named = gapless.taccl.solve(**asked, chunks=chunks)
        assert named.report is not None
        assert open_question.solution.bound <= named.report.makespan_s
        assert open_question.report.makespan_s <= named.report.makespan_s * (1 + 1e-9)
        assert named.solution.bound >= open_question.solution.bound * (1 - 1e-9)
        assert f"{chunks} chunks, any grouping" in named.details["bounds_s"]
    assert open_question.details["bounds_s"]["any chunking"] == open_question.solution.bound


def test_an_optimal_plan_is_not_beaten_in_any_number_of_chunks() -> None:
    asked = {"topology": "fat-tree:k=4", "collective": "alltoall", "size": "1KB", "parameters": LITTLE}
    best = gapless.taccl.solve(**asked)
    assert best.status is Status.OPTIMAL
    for chunks in (1, 2, 3, 8):
        other = gapless.taccl.solve(**asked, chunks=chunks)
        assert other.report.makespan_s >= best.report.makespan_s * (1 - 1e-9)


def test_the_milp_alone_takes_as_many_chunks_as_are_small_enough_for_it() -> None:
    problem = Problem(load_topology("mesh:2x4", 1), "broadcast", 64 * 10**6, method="milp")
    fastest, for_milp = (in_chunks(problem, SolveOptions(), LITTLE, for_milp=asked) for asked in (False, True))
    assert 1 < for_milp.chunks < fastest.chunks
    assert for_milp.routing_binaries <= LITTLE.milp.most_binaries < fastest.routing_binaries


def test_what_the_milp_finds_before_its_end_is_offered_as_an_answer_to_the_question() -> None:
    offers: list[tuple[float, Plan]] = []
    options = SolveOptions(threads=1, on_plan=lambda end_s, make: offers.append((end_s, make())))
    problem = Chunked.of(load_topology("hypercube:3", 1), "alltoall", 10**6, method="milp")
    best = solve(problem, options, LITTLE)
    assert len({end_s for end_s, _ in offers}) > 2
    for end_s, plan in offers:
        assert plan.schedule is not None
        assert check(plan.schedule).valid
        assert plan.solution.objective == pytest.approx(end_s)
        assert plan.solution.bound is not None
        assert plan.solution.bound <= end_s * (1 + 1e-9)
        assert plan.details["provenance"]["chunks"] == problem.chunks
    assert best.solution.objective == pytest.approx(min(end_s for end_s, _ in offers))


@pytest.mark.thorough("reduce", "alltoall")
@pytest.mark.parametrize("name", ["allgather", "reducescatter", "allreduce", "alltoall", "broadcast"])
def test_nodes_that_differ_are_planned_and_their_programs_are_right(name: str) -> None:
    nics = tuple(NicTemplate((rank,), 1e-6, 1e-10 * (1 + rank)) for rank in range(3))
    three = NodeTemplate("three", 3, switches=(SwitchTemplate((0, 1, 2), 1e-6, 1e-11),), nics=nics)
    cluster = Cluster("five", (three, three.without_ranks([1])), Fabric(rails=True)).topology()
    problem = Problem(cluster, name, 10**6)
    result = gapless.solve(problem, QUICK, LITTLE)
    assert result.valid
    assert result.schedule is not None
    assert result.details["ratio"] >= 1 - 1e-9
    collective = problem.in_chunks(result.details["provenance"]["chunks"]).collective
    assert not verify(lower(result.schedule, collective, runtime="executor"), "executor")
