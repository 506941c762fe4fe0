"""Classes: what a pipeline's bound holds for, and that it does."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from examples import is_thorough
from tiny_pipelines import best_cost_s, sequences

from gapless.checker import check
from gapless.encodings.pipeline.classes import any_placement_s, has_placements
from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.order.zero_bubble import zero_bubble
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import EvenHops, Problem, problem
from gapless.encodings.pipeline.schedules.baselines import BASELINES, suits, whole
from gapless.encodings.pipeline.solve import solve
from gapless.options import SolveOptions
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.solution import PlanClass, Status, StopReason
from gapless.system import Plan

UNIFORM = {"profile": "uniform:f=10,b=12,w=8", "ranks": 4, "micro_batches": 8, "hop": 2.0, "in_flight": 5}
PLACEMENTS = (("linear", 1), ("looped", 2), ("v", 2), ("bidirectional", 2))


QUICK = Parameters(exact_ops=1, rounds=1, quick_ops=2000, heuristic_ops=4000)


def layered(layers: int, seed: int = 1) -> PipelineProfile:
    rng = np.random.default_rng(seed)
    times, sizes = [rng.integers(2, 12, layers).astype(float) for _ in range(3)], np.ones(layers, dtype=np.int64)
    return PipelineProfile("layered", tuple(map(str, range(layers))), *times, sizes, sizes, sizes, sizes)


def solved(question: Problem) -> Plan:
    plan = solve(question, SolveOptions(threads=1), QUICK)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    return plan


def step_s(question: Problem, cut: tuple[int, ...]) -> float:
    """What the best of the field's schedules and the heuristic takes."""
    stages, steps = stages_of(question, cut), [math.inf]
    for name, baseline in BASELINES.items():
        if suits(name, question.placement, stages):
            costs = stages if baseline.splits else whole(stages)
            timeline = timed(costs, baseline.order(costs))
            steps += [] if timeline is None else [timeline.cost_s]
    found = zero_bubble(stages, 300)
    return min(*steps, math.inf if found is None else found[1].cost_s)


def classes(plan: Plan) -> list[PlanClass]:
    return [one.plans for one in plan.solution.bounds]


def test_an_order_that_is_proven_for_a_placement_is_not_called_optimal() -> None:
    plan = solved(problem(**UNIFORM))
    assert plan.solution.objective == 286
    assert plan.solution.status is Status.FEASIBLE
    assert plan.solution.stop_reason is StopReason.CLASS_EXHAUSTED
    assert classes(plan) == [PlanClass.QUESTION, PlanClass.PLACEMENT]
    assert plan.solution.proven_class is PlanClass.PLACEMENT
    assert plan.solution.narrower[0].name == "with linear placement"
    assert plan.solution.bound == 240


def test_a_better_placement_is_said_and_plays_what_is_said() -> None:
    question = problem(**UNIFORM)
    wider = solved(question).details["wider"]
    assert wider["objective_s"] < 0.99 * 286
    placement = wider["asked"].removeprefix("with --placement ")
    other = solved(problem(**{**UNIFORM, "placement": placement}))
    assert other.solution.objective is not None
    assert other.solution.objective <= wider["objective_s"]
    assert other.solution.bound == pytest.approx(solved(question).solution.bound)


@pytest.mark.thorough(but=["-0]", "-1]"])
@pytest.mark.parametrize("seed", range(12 if is_thorough() else 7))
@pytest.mark.parametrize("backward", ["split", "whole"])
@pytest.mark.parametrize("minimise", ["makespan", "span"])
def test_no_cut_in_any_placement_beats_the_bound_of_the_question(seed: int, backward: str, minimise: str) -> None:
    layers = 5 + seed % 3
    question = Problem(layered(layers, seed), 2, 1 + seed % 4, hops=EvenHops(0.5 * (seed % 2)), backward=backward,
                       minimise=minimise)  # fmt: skip
    bound_s, _ = any_placement_s(question)
    is_one_copy = question.micro_batches % 2 or minimise == "span"
    for placement, chunks in PLACEMENTS[: -1 if is_one_copy else None]:
        placed = replace(question, placement=placement, chunks=chunks)
        cuts = combinations(range(1, layers), placed.stage_count - 1)
        assert min(step_s(placed, cut) for cut in cuts) >= bound_s * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_no_order_at_all_of_two_ranks_beats_the_bound_of_the_question(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times, sizes = [rng.integers(1, 9, 4).astype(float) for _ in range(3)], np.ones(4, dtype=np.int64)
    profile = PipelineProfile("tiny", tuple("abcd"), *times, sizes, sizes, sizes, sizes)
    asked = product(PLACEMENTS, ("whole", "split"), ("makespan", "span"))
    for (placement, chunks), backward, minimise in asked:
        if (placement, minimise) == ("bidirectional", "span"):  # is refused
            continue
        batches = 1 if placement in ("looped", "v") else 2
        question = Problem(profile, 2, batches, placement, chunks, backward=backward, minimise=minimise)
        bound_s, _ = any_placement_s(question)
        for cut in combinations(range(1, 4), question.stage_count - 1):
            stages = stages_of(question, cut)
            assert sum(1 for _ in sequences(stages, 0)) > 0
            assert best_cost_s(stages) >= bound_s * (1 - 1e-9)


def test_a_cut_that_is_named_is_a_class_of_its_own() -> None:
    plan = solved(Problem(layered(7), 3, 4, cut=(1, 2)))
    values = [one.value for one in plan.solution.bounds]
    assert PlanClass.CUT in classes(plan)
    assert plan.solution.narrower[-1].name == "with this cut"
    assert values == sorted(values)
    assert plan.details["wider"]["asked"].startswith(("without --cut", "with --placement"))
    free = solved(Problem(layered(7), 3, 4))
    assert free.solution.objective is not None
    placed = next((one.value for one in plan.solution.narrower if one.plans is PlanClass.PLACEMENT), 0.0)
    assert max(placed, plan.solution.bound or 0.0) <= free.solution.objective * (1 + 1e-9)


def test_a_rule_for_cuts_is_named() -> None:
    plan = solved(Problem(layered(7), 3, 4, cut="even"))
    assert plan.solution.narrower[-1].name == "with cut even"


def test_where_no_other_placement_is_possible_a_proof_is_of_the_question() -> None:
    for question in (Problem(layered(3), 3, 2), problem(**{**UNIFORM, "ranks": 1})):
        assert not has_placements(question)
        plan = solved(question)
        assert classes(plan) == [PlanClass.QUESTION]
        assert plan.solution.status is Status.OPTIMAL
        assert "wider" not in plan.details


def test_equal_parts_that_are_made_up_can_be_cut_finer() -> None:
    question = problem(**UNIFORM)
    assert question.profile.is_uniform
    assert has_placements(question)
    finer_s = [any_placement_s(problem(**UNIFORM, placement="v", chunks=chunks))[0] for chunks in (2, 4)]
    assert finer_s == [any_placement_s(question)[0]] * 2
