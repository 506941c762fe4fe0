"""Classes: what a bound of TACCL holds for, and that it does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from little import LITTLE

import gapless
from gapless import SolveOptions, Status
from gapless.encodings.taccl import Chunked, load_sketch
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.bounds.classes import QuestionBounds
from gapless.encodings.taccl.problem import Problem
from gapless.options import Progress
from gapless.result import Result
from gapless.solution import PlanClass, StopReason
from gapless.topologies.files import load_topology

UNDER_SKETCH = {"topology": "ndv2", "nodes": 2, "sketch": "ndv2-sk-1", "collective": "allgather", "size": "1MB"}


@pytest.fixture(scope="module")
def sketched() -> Result:
    return gapless.taccl.solve(**UNDER_SKETCH, parameters=LITTLE)


def classes(result: Result) -> list[PlanClass]:
    return [one.plans for one in result.solution.bounds]


def test_under_a_sketch_the_gap_is_to_the_bound_on_all_links_and_the_sketch_stands_by_name(sketched: Result) -> None:
    of_topology = bounds_of(Chunked.of(load_topology("ndv2", 2), "allgather", 10**6)).any_chunking_s
    question, *narrower = sketched.data["bounds"]
    assert (question["class"], question["bound"]) == ("question", pytest.approx(of_topology))
    assert question["source"] in sketched.data["bound_sources_s"] or question["source"] == "cuts"
    assert sketched.solution.gap == question["gap"] == pytest.approx(1 - of_topology / sketched.report.makespan_s)
    assert sketched.status is Status.FEASIBLE
    assert narrower[-1]["plans"] == "plans in 1 chunk under sketch ndv2-sk-1"
    assert narrower[-1]["gap"] < 0.05 < question["gap"]
    values = [one["bound"] for one in sketched.data["bounds"]]
    assert values == sorted(values)


def test_a_search_ends_where_its_sketch_leaves_less_than_the_gap(sketched: Result) -> None:
    assert sketched.solution.stop_reason is StopReason.CLASS_EXHAUSTED


def test_summary_and_repr_name_the_class_after_the_gap_of_the_question(sketched: Result) -> None:
    lines = dict(
        line.split(None, 1) for line in sketched.summary().splitlines() if line.startswith(("gap", "narrower"))
    )
    assert lines["gap"] == f"{100 * sketched.solution.gap:.2f} %"
    assert lines["narrower"].endswith("among plans in 1 chunk under sketch ndv2-sk-1")
    assert f"gap {lines['gap']}; " in repr(sketched)
    assert "among plans in 1 chunk under sketch ndv2-sk-1" in repr(sketched)


@pytest.mark.thorough
def test_no_plan_in_other_chunks_or_without_the_sketch_is_below_the_bound_of_the_question(sketched: Result) -> None:
    for asked in ({"chunks": 2}, {"sketch": None}, {"sketch": None, "chunks": 2}):
        other = gapless.taccl.solve(**{**UNDER_SKETCH, **asked}, parameters=LITTLE)
        assert other.report.makespan_s >= sketched.solution.bound * (1 - 1e-9)


@pytest.mark.thorough
def test_plans_of_a_sketch_in_other_chunks_are_above_the_bound_of_the_sketch(sketched: Result) -> None:
    problem = Problem(load_topology("ndv2", 2), "allgather", 10**6, load_sketch("ndv2-sk-1"))
    bound = QuestionBounds(bounds_of(problem.coarsest), problem.coarsest).sketch
    assert bound is not None
    assert bound.plans is PlanClass.SKETCH
    for chunks in (1, 4):
        other = gapless.taccl.solve(**UNDER_SKETCH, chunks=chunks, parameters=LITTLE)
        assert other.report.makespan_s >= bound.value * (1 - 1e-9)


def test_a_sketch_with_planes_of_its_own_is_held_against_both_machines() -> None:
    problem = Problem(load_topology("dgx2", 2), "allgather", 1_000, load_sketch("dgx2-sk-2"))
    found = QuestionBounds(bounds_of(problem.coarsest), problem.coarsest)
    assert found.makes_more
    assert found.sketch is not None
    on_topology = bounds_of(Chunked.of(problem.topology, "allgather", 1_000)).any_chunking_s
    assert found.widest[0] == pytest.approx(min(on_topology, found.sketch.value))


def test_named_chunks_are_a_class_and_an_open_question_has_none() -> None:
    asked = {"topology": "line:5", "collective": "broadcast", "size": "64MB", "parameters": LITTLE}
    named, left_open = gapless.taccl.solve(**asked, chunks=4), gapless.taccl.solve(**asked)
    assert classes(named) == [PlanClass.QUESTION, PlanClass.CHUNKS]
    assert named.solution.bounds[0].value == pytest.approx(left_open.solution.bound)
    assert named.data["bounds"][1]["plans"] == "plans in 4 chunks"
    assert classes(left_open)[0] is PlanClass.QUESTION
    assert all(left_open.solution.gap_of(one) == 0 for one in left_open.solution.narrower)


def test_what_the_milp_proves_is_of_chunks_alone_and_of_groups_where_these_are_no_better() -> None:
    asked = {"collective": "broadcast", "size": "1MB", "method": "milp", "gap": 0.0, "parameters": LITTLE}
    proven = gapless.taccl.solve("line:4", chunks=2, **asked)
    assert proven.status is Status.FEASIBLE
    assert proven.solution.proven_class is PlanClass.CHUNKS
    assert "optimal among plans in 2 chunks" in proven.summary()
    apart = gapless.taccl.solve("ndv2", chunks=1, **{**asked, "collective": "allgather"})
    assert classes(apart) == [PlanClass.QUESTION, PlanClass.CHUNKS, PlanClass.ALONE]
    assert apart.data["bounds"][-1]["plans"] == "plans in 1 chunk, one at a time"


def test_the_bound_of_a_question_knows_no_rounding_of_its_chunks() -> None:
    problem = Problem(load_topology("ndv2", 1), "allgather", 9, chunks=8)
    whole = bounds_of(Problem(load_topology("ndv2", 1), "allgather", 9).coarsest).any_chunking_s
    uncut = Problem(load_topology("ndv2", 1), "allgather", 9).coarsest
    assert bounds_of(problem.coarsest).any_chunking_s > whole
    assert QuestionBounds(bounds_of(problem.coarsest), uncut).widest[0] <= whole


def test_progress_has_the_bound_of_the_question() -> None:
    seen: list[Progress] = []
    problem = Problem(load_topology("ndv2", 2), "allgather", 10**6, load_sketch("ndv2-sk-1"))
    result = gapless.solve(problem, SolveOptions(gap=0.05, on_progress=seen.append), LITTLE)
    assert {news.bound for news in seen} <= {None, result.solution.bound}


def test_a_wider_question_that_is_better_is_said_in_one_line_and_changes_nothing(sketched: Result) -> None:
    wider = sketched.data["wider"]
    assert wider["asked"] == "without --sketch"
    assert sketched.solution.bound <= wider["objective_s"] < 0.99 * sketched.report.makespan_s
    assert "wider question   without --sketch: " in sketched.summary()
    none = replace(LITTLE, wider=replace(LITTLE.wider, least_gain=0.9))
    alone = gapless.taccl.solve(**UNDER_SKETCH, parameters=none)
    assert "wider" not in alone.details
    assert alone.schedule.start_s.tolist() == sketched.schedule.start_s.tolist()
    again = gapless.taccl.solve(**UNDER_SKETCH, parameters=LITTLE)
    assert again.data["wider"] == wider


def test_nothing_is_wider_than_an_open_question() -> None:
    assert "wider" not in gapless.taccl.solve("ndv2", collective="allgather", size="1MB", parameters=LITTLE).details


def test_too_few_chunks_are_named_as_what_costs_time() -> None:
    result = gapless.taccl.solve("line:5", collective="broadcast", size="64MB", chunks=1, parameters=LITTLE)
    assert result.data["wider"]["asked"] == "without --chunks"
    assert result.data["wider"]["objective_s"] < 0.5 * result.report.makespan_s
