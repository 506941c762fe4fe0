"""The stage of whole messages beside the others: the fastest is kept, named, bounded, and no slower than a baseline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from little import LITTLE
from shapes import SHAPES

import gapless
from gapless.encodings.taccl import Chunked, load_sketch
from gapless.encodings.taccl.aggregate.stage import may_aggregate, plan_aggregated
from gapless.encodings.taccl.baselines.library import Baselines
from gapless.options import SolveOptions
from gapless.solution import PlanClass
from gapless.topologies.files import load_topology

QUICK = SolveOptions(gap=0.02)


@pytest.mark.thorough("ndv2-2", "hub", "64000", "dgx-a100-2", "ring:8")
@pytest.mark.parametrize(
    ("machine", "nodes", "name"),
    [
        ("dgx2", 1, "allgather"),
        ("dgx2", 1, "broadcast"),
        ("ndv2", 2, "allgather"),
        ("dgx-a100", 1, "alltoall"),
        ("dgx-a100", 2, "reducescatter"),
        ("ring:8", None, "allreduce"),
        ("hub-and-spoke:8", None, "reducescatter"),
    ],
)
@pytest.mark.parametrize("size", [1_000, 64_000])
def test_solve_is_no_slower_than_any_baseline(machine: str, nodes: int | None, name: str, size: int) -> None:
    problem = replace(Chunked.of(load_topology(machine, nodes), name, size), may_cut=True)
    result = gapless.solve(problem, QUICK)
    assert result.valid
    assert result.report is not None
    baselines = Baselines(problem.topology, problem.collective).of_size(problem.chunk_bytes)
    assert result.report.makespan_s <= min(its.makespan_s for its in baselines) * (1 + 1e-9)


@pytest.mark.thorough("ndv2-2", "dgx2-1-allreduce")
@pytest.mark.parametrize(
    ("machine", "nodes", "name", "ratio"),
    [
        ("dgx2", 1, "allgather", 1.001),
        ("dgx2", 1, "allreduce", 1.2),
        ("dgx2", 1, "alltoall", 1.02),
        ("ndv2", 1, "reducescatter", 1.02),
        ("ndv2", 2, "allgather", 1.15),
        ("dgx-h100", 2, "alltoall", 1.05),
    ],
)
def test_a_kilobyte_is_close_to_the_bound_for_any_grouping(machine: str, nodes: int, name: str, ratio: float) -> None:
    result = gapless.solve(Chunked.of(load_topology(machine, nodes), name, 1_000), QUICK)
    assert result.valid
    assert result.details["ratio"] <= ratio


def test_a_baseline_that_is_proven_optimal_is_the_answer() -> None:
    result = gapless.solve(Chunked.of(load_topology("dgx2", 1), "allgather", 1_000), QUICK)
    assert result.solution.proven_class is PlanClass.CHUNKS
    assert result.details["method"] == "baseline:recursive-doubling"
    assert result.solution.solver == "baseline:recursive-doubling"
    assert max(result.details["bounds_s"].values()) == pytest.approx(result.solution.bounds[-1].value)


def test_a_baseline_that_is_fastest_is_named_and_its_chunks_are_cut() -> None:
    problem = Chunked.of(load_topology("ring:8"), "broadcast", 10**6)
    whole, cut = (plan_aggregated(replace(problem, may_cut=its), SolveOptions()) for its in (False, True))
    assert whole is not None
    assert cut is not None
    assert cut.method.startswith("baseline:")
    assert cut.end_s < whole.end_s
    assert cut.problem is not None
    assert cut.problem.chunk_bytes < problem.chunk_bytes
    assert whole.problem is not None
    assert whole.problem.chunk_bytes == problem.chunk_bytes


def test_a_plan_of_other_methods_that_is_faster_is_kept() -> None:
    result = gapless.solve(Chunked.of(load_topology("ndv2", 2), "allgather", 10**7), QUICK, LITTLE)
    assert result.details["method"] in ("milp", "greedy", "matching")


@pytest.mark.parametrize("method", ["milp", "greedy"])
def test_other_methods_send_chunk_by_chunk(method: str) -> None:
    problem = Chunked.of(load_topology("dgx2", 1), "allgather", 1_000, method=method)  # type: ignore[arg-type]
    assert gapless.solve(problem, SolveOptions(gap=0.5), LITTLE).details["method"] == method


@pytest.mark.thorough
def test_a_baseline_that_leaves_the_sketch_is_no_choice() -> None:
    sketch = load_sketch("ndv2-sk-1")
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000, sketch)
    plan = plan_aggregated(problem, SolveOptions(), LITTLE.aggregation)
    assert plan is not None
    assert plan is not None
    moves = plan.schedule.moves
    assert problem.logical.allowed[moves.values, plan.schedule.place[moves.owner]].all()


def test_who_restricts_links_or_orders_chunks_gets_no_whole_messages() -> None:
    topology = SHAPES["switch"](3, lambda _: (1e-6, 1e-12))
    assert may_aggregate(Chunked.of(topology, "allgather", 1_000))
    assert not may_aggregate(Chunked.of(topology, "allgather", 1_000, path_slack=0.5))
    assert not may_aggregate(Chunked.of(load_topology("dgx-a100", 64), "allgather", 1_000))
