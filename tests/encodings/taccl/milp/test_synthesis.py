"""The three stages together, on the published cases and on tiny ones that can be searched exhaustively."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from exact import best_makespan_s
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from shapes import SHAPES, single_nodes

import gapless
from gapless import Progress, SolveOptions, Status, StopReason
from gapless.encodings.taccl import Chunked, load_sketch
from gapless.ir.collective import allgather
from gapless.topologies.files import load_topology

PUBLISHED = [
    ("topo-ndv2-1MB.json", "sk1-ndv2-n2", 1_000_000, 1.01, 914.8e-6),
    ("topo-dgx2-1MB.json", "sk1-dgx2-n2", 2_000_000, 1.07, 514.6e-6),
    ("topo-dgx2-1KB.json", "sk2-dgx2-n2", 1_000, 1.0, 9.3e-6),
]


@pytest.mark.thorough(but=("sk1-ndv2",))
@pytest.mark.parametrize(("profile", "sketch", "size", "ratio", "bound_s"), PUBLISHED, ids=[c[1] for c in PUBLISHED])
def test_published_cases_reach_their_ratio_to_the_bound(
    published: Callable[[str, str, int], Chunked],
    profile: str,
    sketch: str,
    size: int,
    ratio: float,
    bound_s: float,
) -> None:
    result = gapless.solve(replace(published(profile, sketch, size), method="milp"))
    assert result.valid
    assert result.report is not None
    (one_at_a_time_s,) = (
        known_s for name, known_s in result.details["bounds_s"].items() if name.endswith("one at a time inside nodes")
    )
    assert one_at_a_time_s == pytest.approx(bound_s)
    assert result.report.makespan_s <= ratio * bound_s * (1 + 1e-9)
    assert result.report.makespan_s == pytest.approx(result.solution.objective)


@examples(24)
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    costs=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=6, max_size=6),
)
def test_claimed_gap_holds_against_exhaustive_search(shape: str, costs: list[tuple[int, int]]) -> None:
    topology = SHAPES[shape](3, lambda k: (costs[k][0] * 1e-7, costs[k][1] * 1e-12))
    problem = Chunked.of(topology, "allgather", 1_000_000, method="milp")
    result = gapless.solve(problem, SolveOptions(threads=1, gap=0.0))
    best_s = best_makespan_s(problem)
    assert result.report is not None
    assert result.solution.bound is not None
    assert result.solution.bound <= best_s * (1 + 1e-9)
    assert result.report.makespan_s >= best_s * (1 - 1e-9)
    if result.status is Status.OPTIMAL:
        assert result.report.makespan_s == pytest.approx(best_s, rel=1e-6)


def test_grouped_transfers_are_found_where_they_are_best() -> None:
    topology = single_nodes(2, lambda k: (100e-6, 1e-12))
    problem = Chunked(topology, allgather(2, 3), 1_000_000)
    result = gapless.solve(problem, SolveOptions(threads=1, gap=0.0))
    assert result.status is Status.OPTIMAL
    assert result.solution.objective == pytest.approx(best_makespan_s(problem))
    assert result.details["sends"] == 2


@pytest.mark.thorough
def test_restricted_routes_are_measured_against_the_bound_of_all_routes() -> None:
    sketch = load_sketch("ndv2-sk-1")
    free, narrow = (
        gapless.solve(Chunked.of(load_topology("ndv2", 2), "allgather", 32_000, sketch, slack), SolveOptions(gap=0.5))
        for slack in (None, 0.0)
    )
    assert narrow.valid
    assert narrow.solution.bound is not None
    assert free.solution.bound is not None
    assert narrow.solution.bound <= free.solution.bound


def test_single_node_needs_no_internode_sketch() -> None:
    result = gapless.solve(Chunked.of(load_topology("ndv2", 1), "allgather", 1_000_000, load_sketch("ndv2-sk-1")))
    assert result.valid


@pytest.mark.thorough
def test_four_nodes_share_their_nics() -> None:
    problem = Chunked.of(load_topology("ndv2", 4), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))
    result = gapless.solve(problem)
    assert result.valid
    assert result.solution.bound is not None
    assert result.solution.bound >= (1.7 + 24 * 106) * 1e-6


@pytest.mark.thorough
def test_same_seed_on_one_thread_gives_the_same_schedule() -> None:
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))
    first, second = (gapless.solve(problem, SolveOptions(threads=1, gap=0.05)).schedule for _ in range(2))
    assert first is not None
    assert second is not None
    assert list(first.events()) == list(second.events())


@pytest.mark.thorough
def test_no_time_at_all_still_gives_a_replayed_plan() -> None:
    problem = Chunked.of(load_topology("dgx2", 2), "allgather", 2_000_000, load_sketch("dgx2-sk-1"))
    result = gapless.solve(problem, SolveOptions(time_limit_s=0.01))
    assert result.valid
    assert result.solution.stop_reason is StopReason.TIME_LIMIT


def test_stop_gives_the_best_plan_so_far() -> None:
    stop = threading.Event()
    reports: list[Progress] = []

    def stop_at_the_first_schedule(progress: Progress) -> None:
        reports.append(progress)
        if progress.incumbent is not None:
            stop.set()

    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))
    result = gapless.solve(problem, SolveOptions(gap=0.0, on_progress=stop_at_the_first_schedule, stop=stop))
    assert result.valid
    assert result.solution.stop_reason is StopReason.INTERRUPTED


def test_progress_never_reports_an_incumbent_below_the_bound() -> None:
    reports: list[Progress] = []
    problem = Chunked.of(load_topology("ndv2", 2), "allgather", 1_000_000, load_sketch("ndv2-sk-1"))
    gapless.solve(problem, SolveOptions(gap=0.05, on_progress=reports.append))
    assert {report.phase for report in reports} >= {"bounds", "routing", "ordering", "contiguity"}
    for report in reports:
        if report.phase == "first plan":  # before any bound
            continue
        assert report.bound is not None
        assert report.incumbent is None or report.incumbent >= report.bound * (1 - 1e-9)
