"""A placement that is searched: the best of those that go with the question, and a bound for all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact_pipeline import exact_step, few_stages
from examples import share

import gapless
from gapless.checker import check
from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.classes import any_placement_s, narrowing
from gapless.encodings.pipeline.methods import best_orders
from gapless.encodings.pipeline.parameters import DEFAULTS, Parameters
from gapless.encodings.pipeline.problem import Problem, problem
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.programs.program import program_of
from gapless.encodings.pipeline.solve import planned, solve
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, read_plan
from gapless.options import Deadline, SolveOptions
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.solution import PlanClass, Status
from gapless.system import Plan

TRIAL = {"profile": "uniform:f=10,b=12,w=8", "ranks": 4, "micro_batches": 8, "hop": 2.0, "placement": "auto"}
QUICK = Parameters(exact_ops=1, rounds=1, quick_ops=2000, heuristic_ops=4000, bound_points=8, bound_ranks=1)


def asked(**values: Any) -> Problem:
    return problem(**{**TRIAL, **values})


def questions(question: Problem) -> list[tuple[str, int]]:
    return [(each.placed, each.chunks) for each in (question, *question.alternatives)]


def solved(question: Problem, parameters: Parameters = QUICK) -> Plan:
    plan = solve(question, SolveOptions(threads=1), parameters)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    return plan


@pytest.mark.parametrize(
    ("values", "placements"),
    [
        ({}, [("linear", 1), ("looped", 2), ("v", 2), ("looped", 4), ("v", 4), ("bidirectional", 2)]),
        ({"ranks": 3}, [("linear", 1), ("looped", 2), ("v", 2), ("looped", 4), ("v", 4)]),
        ({"micro_batches": 7}, [("linear", 1), ("looped", 2), ("v", 2), ("looped", 4), ("v", 4)]),
        ({"chunks": 3}, [("looped", 3), ("v", 3)]),
        ({"chunks": 2}, [("looped", 2), ("v", 2), ("bidirectional", 2)]),
        ({"method": "dualpipe"}, [("bidirectional", 2)]),
        ({"method": "zb-v"}, [("v", 2)]),
    ],
)
def test_placements_are_those_that_go_with_the_question(values: dict[str, Any], placements: list[Any]) -> None:
    assert questions(asked(**values)) == placements


def test_what_no_placement_can_be_is_said_of_the_first() -> None:
    with pytest.raises(InputError, match="in_flight: goes without memory"):
        asked(in_flight=3, memory=10**9)


@pytest.mark.thorough
def test_the_plan_is_the_best_and_the_bound_holds_for_all_that_were_tried() -> None:
    question = asked(in_flight=3, micro_batches=4)
    plan = solved(question)
    assert plan.problem is not None
    assert isinstance(plan.problem, Problem)
    step_s, steps_s = plan.solution.objective, plan.details["placements_s"]
    assert step_s is not None
    assert isinstance(steps_s, dict)
    assert step_s == min(steps_s.values())
    assert set(steps_s) == {"linear", "looped of 2", "v of 2", "looped of 4", "v of 4", "bidirectional"}
    (narrower,) = plan.solution.narrower
    assert narrower.plans is PlanClass.PLACEMENT
    assert "bidirectional" in narrower.name
    assert plan.solution.bound == any_placement_s(question)[0]
    for each in (question, *question.alternatives):
        alone = planned(replace(each, alternatives=()), SolveOptions(threads=1), QUICK)
        assert alone.solution.objective is not None
        assert narrower.value <= alone.solution.objective


@pytest.mark.thorough
def test_a_placement_without_memory_for_it_is_left_out() -> None:
    """Two copies of these states don't fit into memory, one does."""
    ones, sizes = np.ones(4), np.full(4, 100, dtype=np.int64)
    profile = PipelineProfile("heavy", tuple("abcd"), 10 * ones, 12 * ones, 8 * ones, sizes, 10 * sizes, sizes, sizes)
    for memory, is_there in ((1900, False), (2900, True)):
        plan = solved(asked(profile=profile, memory=memory))
        steps_s = plan.details["placements_s"]
        assert isinstance(steps_s, dict)
        assert list(steps_s)[-1] == "linear"
        assert ("bidirectional" in steps_s) == is_there


def test_a_plan_says_its_placement_and_is_read_again(tmp_path: Path) -> None:
    result = gapless.solve(asked(in_flight=5, method="zero-bubble"), SolveOptions(threads=1), QUICK)
    assert result.valid
    result.save(tmp_path / "plan.json")
    plan = read_plan(tmp_path / "plan.json")
    assert plan.problem["placement"] in ("looped", "v", "linear", "bidirectional")
    assert PipelineDecision.of(plan).method == "zero-bubble"


def test_the_question_is_no_narrower_than_any_placement() -> None:
    question = asked()
    assert question.description["placement"] == "auto"
    assert narrowing(question, {}) == []
    assert [each.plans for each in narrowing(asked(cut="even"), {})] == [PlanClass.CUT]


@pytest.mark.thorough("[21]", "[23]")
@pytest.mark.parametrize("seed", range(share(100)))
def test_ranks_with_unlike_numbers_of_stages_are_bounded_and_proven(seed: int) -> None:
    stages = few_stages(seed, is_uneven=True)
    best_s, proven_s = exact_step(stages, 20.0)
    assert max(bounds_of(stages).values()) <= best_s
    placement = tuple(stages.rank.tolist())
    question = problem(**{**TRIAL, "ranks": stages.ranks, "micro_batches": stages.micro_batches,
                          "placement": placement})  # fmt: skip
    found = best_orders(
        question, (), stages, SolveOptions(), Deadline(SolveOptions()), replace(DEFAULTS, heuristic_ops=1000)
    )
    assert found.best is not None
    assert found.bound_s <= best_s
    assert found.best.timeline.step_s == best_s or best_s > proven_s


def test_a_rank_may_have_one_stage_more() -> None:
    """A line whose last stage is on the first rank: what it decides is read again, and torch's schedule has it."""
    question = asked(placement="0,1,2,3,0", in_flight=5)
    assert (question.stage_count, question.chunks, question.profile.layer_count) == (5, 2, 8)
    plan = solved(question)
    assert plan.schedule is not None
    assert plan.decision is not None
    saved = SavedPlan(
        "pipeline", question.description, {}, dict(plan.details), plan.schedule, decision=plan.decision.data
    )
    program = program_of(saved)
    assert program.order.rank_of_stage == (0, 1, 2, 3, 0)
    assert {action.stage for action in program.order.of_rank(0)} == {0, 4}


def test_no_placement_at_all_is_infeasible() -> None:
    plan = solve(asked(memory=1000, micro_batches=2), SolveOptions(threads=1), QUICK)
    assert plan.schedule is None
    assert plan.solution.status is Status.INFEASIBLE
