"""Two copies of the model, one down the ranks and one up: bounds, optima, the sums of both, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact_pipeline import exact_step, two_copies
from examples import share

from gapless.array_types import Mask
from gapless.checker import Rule, check
from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.bounds.destructive import time_indexed_bound
from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.cut.search import least_memory_bytes
from gapless.encodings.pipeline.methods import best_orders
from gapless.encodings.pipeline.order.exact.model import order_model, order_of, values_of
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.ticks import in_ticks
from gapless.encodings.pipeline.order.timeline import has_room, steps_of, timed
from gapless.encodings.pipeline.order.zero_bubble import zero_bubble
from gapless.encodings.pipeline.parameters import DEFAULTS
from gapless.encodings.pipeline.problem import EvenHops, Problem, Replicas, problem
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.programs.lowering import to_schedule
from gapless.encodings.pipeline.programs.program import program_of
from gapless.encodings.pipeline.schedules.baselines import BASELINES, whole
from gapless.encodings.pipeline.solve import solve
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.ir.schedule import Schedule
from gapless.options import Deadline, SolveOptions
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.solvers.registry import solve_model

POINTS = (12, 30, 60, 150)
TRIAL = {"profile": "uniform:f=10,b=12,w=8", "ranks": 4, "micro_batches": 8, "hop": 2.0, "placement": "bidirectional"}


def asked(**values: Any) -> Problem:
    return problem(**{**TRIAL, **values})


def trained(layers: int = 4, embedding_bytes: int = 0) -> PipelineProfile:
    """Layers with parameters, of odd sizes."""
    rng, ones = np.random.default_rng(layers), np.ones(layers)
    sizes = rng.integers(50, 150, layers)
    return PipelineProfile("trained", tuple(f"l{k}" for k in range(layers)), 10 * ones, 12 * ones, 8 * ones, sizes,
                           8 * sizes, 50 * sizes, 2 * sizes, embedding_bytes)  # fmt: skip


def placed(**values: Any) -> Problem:
    """Hops of 1 s and a hundredth of a second a byte."""
    return Problem(values.pop("profile", trained()), 4, 8, "bidirectional", 2, EvenHops(1.0, 0.01), **values)


def lowered(question: Problem, name: str, stages: Stages | None = None) -> Schedule:
    baseline = BASELINES[name]
    made = stages or stages_of(question, even_cut(question.profile.layer_count, question.stage_count))
    costs = made if baseline.splits else whole(made)
    order = baseline.order(costs)
    timeline = timed(costs, order)
    assert timeline is not None
    schedule = to_schedule(question, costs, order, timeline)
    assert check(schedule).makespan_s == pytest.approx(timeline.step_s)
    return schedule


@pytest.mark.thorough("[7]", "[14]", "[15]")
@pytest.mark.parametrize("seed", range(share(300)))
def test_no_bound_is_above_the_optimum_which_is_found_and_proven(seed: int) -> None:
    stages = two_copies(seed)
    best_s, proven_s = exact_step(stages, 20.0)
    bounds_s = bounds_of(stages)
    assert max(bounds_s.values()) <= best_s
    ticked = in_ticks(stages, best_s)
    least = max(bounds_of(ticked.stages).values())
    refuted = time_indexed_bound(ticked.stages, least, 1.2 * best_s + 2, POINTS[seed % 4], 4, Deadline(SolveOptions()))
    assert refuted * ticked.tick_s <= best_s
    question = asked(ranks=stages.ranks, micro_batches=2 * stages.micro_batches)
    quick = replace(DEFAULTS, heuristic_ops=1000)
    found = best_orders(question, (), stages, SolveOptions(), Deadline(SolveOptions()), quick)
    assert found.best is not None
    assert found.proven
    assert found.best.timeline.step_s == best_s or best_s > proven_s


@pytest.mark.thorough(but=["[3]"])
@pytest.mark.parametrize("seed", range(share(60, 5)))
def test_the_least_longest_span_is_found(seed: int) -> None:
    """Of times in whole numbers; others can be less than one shorter. Ranks wait for the sums of both copies."""
    stages = replace(two_copies(seed), by_span=True)
    best_s, proven_s = exact_step(stages, 5.0)
    least = max(bounds_of(stages).values())
    assert least <= time_indexed_bound(stages, least, best_s, 60, 4, Deadline(SolveOptions())) <= best_s
    made = zero_bubble(stages, 1000)
    assert made is not None
    assert made[1].start_s.min() == 0
    ordered = order_model(stages, float(np.ceil(made[1].cost_s)))
    start = values_of(ordered, made[1])
    assert ordered.model.arrays().violation(start) == 0
    claimed = solve_model(ordered.model, SolveOptions(threads=1, gap=0.0, step_limit=30), "cpsat", start)
    assert claimed.objective is not None
    assert claimed.bound is not None
    assert claimed.bound <= best_s
    assert claimed.objective >= proven_s
    timeline = timed(stages, order_of(ordered, claimed.values))
    assert timeline is not None
    assert proven_s - 1 < timeline.cost_s <= claimed.objective


@pytest.mark.parametrize("seed", range(share(60)))
def test_no_bound_of_steps_is_above_what_an_order_takes(seed: int) -> None:
    stages = replace(two_copies(seed), steps=3)
    made = zero_bubble(stages, 1000)
    assert made is not None
    order, run = made
    one, least = timed(stages.one_step, order), max(bounds_of(stages).values())
    assert one is not None
    assert steps_of(stages, order)[-1].step_s == pytest.approx(run.cost_s)
    assert least <= time_indexed_bound(stages, least, run.cost_s, 40, 2, Deadline(SolveOptions())) <= run.cost_s
    assert one.step_s + 2 * stages.micro_batches * stages.compute_s.max() <= run.cost_s <= 3 * one.step_s


@pytest.mark.parametrize("values", [{"steps": 3}, {"minimise": "span"}])
def test_steps_follow_one_another_with_the_sums_of_both_copies(values: dict[str, Any]) -> None:
    """Each rank waits for its partner's gradients, and adds the next step's to new ones."""
    quick = replace(DEFAULTS, exact_ops=1, heuristic_ops=4000, rounds=2, bound_points=20)
    plan = solve(placed(cut="even", **values), SolveOptions(threads=1), quick)
    assert plan.schedule is not None
    report = check(plan.schedule)
    assert report.valid, report.summary()
    assert len(np.flatnonzero(plan.schedule.reduces)) == 2 * 4 * values.get("steps", 1)
    found_s = plan.schedule.span_s if "minimise" in values else report.makespan_s
    assert plan.solution.objective == pytest.approx(found_s)
    assert all(one.value <= found_s * (1 + 1e-9) for one in plan.solution.bounds)


@pytest.mark.parametrize("seed", range(share(100)))
def test_an_order_is_a_point_of_the_exact_model(seed: int) -> None:
    stages = two_copies(seed)
    made = zero_bubble(stages, 1000)
    assert made is not None
    assert has_room(stages, *made)
    ordered = order_model(stages, made[1].step_s)
    assert ordered.model.arrays().violation(values_of(ordered, made[1])) == 0


@pytest.mark.parametrize("name", ["chimera", "dualpipe"])
@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("embedding_bytes", [0, 30])
def test_a_schedule_of_the_field_replays_and_sums_what_both_copies_add(
    name: str, replicas: int, embedding_bytes: int
) -> None:
    """All micro-batches are in the gradients of both ranks that have a stage, whatever comes after."""
    how = "split" if BASELINES[name].splits else "whole"
    question = placed(profile=trained(embedding_bytes=embedding_bytes), backward=how,
                      replicas=Replicas(replicas, 0.5, 0.02))  # fmt: skip
    schedule = lowered(question, name)
    report = check(schedule)
    assert report.valid, report.summary()
    summed = np.flatnonzero(schedule.reduces)
    assert len(summed) == 2 * 4
    left = np.arange(len(schedule)) != summed[0]
    assert Rule.REQUIRED_MISSING in check(without(schedule, left)).violation_counts


def without(schedule: Schedule, left: Mask) -> Schedule:
    numbers = np.flatnonzero(left)
    columns = {name: getattr(schedule, name)[numbers]
               for name in ("kind", "start_s", "end_s", "place", "op", "implementation", "reduces")}  # fmt: skip
    lists = {name: getattr(schedule, name).take(numbers) for name in ("moves", "freed_tensor", "freed_device")}
    return replace(schedule, **columns, **lists)


def test_a_sum_takes_a_ring_of_two_and_waits_for_both_copies() -> None:
    question = placed(cut="even")
    stages = stages_of(question, (1, 2, 3))
    assert stages.copies_s is not None
    sizes = trained().parameter_bytes
    assert stages.copies_s[:4] == pytest.approx(2 * (1.0 + 0.01 * (sizes - sizes // 2)))
    assert (stages.copies_s[4:] == stages.copies_s[:4]).all()
    order = BASELINES["dualpipe"].order(stages)
    timeline = timed(stages, order)
    assert timeline is not None
    ends = timeline.end_s.reshape(3, 2, 4, 4)[2].max(axis=(0, 2))
    assert (timeline.reduced_s[:4] >= ends + stages.copies_s[:4] - 1e-9).all()
    assert (timeline.reduced_s[:4] == timeline.reduced_s[4:]).all()


def test_a_plan_says_what_each_copy_runs_and_is_read_again(tmp_path: Path) -> None:
    question = asked(in_flight=5, method="dualpipe")
    plan = solve(question, SolveOptions(threads=1))
    assert plan.schedule is not None
    assert isinstance(plan.decision, PipelineDecision)
    assert plan.decision.cut == (1, 2, 3)
    assert plan.decision.order[0].split()[:2] == ["0F0", "0F1"]
    assert "7F4" in plan.decision.order[0]
    assert plan.decision.order[3].split()[0] == "4F4"
    saved = SavedPlan("pipeline", question.description, {}, dict(plan.details), plan.schedule)
    again = PipelineDecision.of(saved)
    assert (again.cut, again.order) == (plan.decision.cut, plan.decision.order)
    with pytest.raises(InputError, match="two copies of the model"):
        program_of(saved)


@pytest.mark.thorough
def test_two_copies_are_faster_than_one_in_the_memory_of_as_many_micro_batches() -> None:
    """The weights of a second copy are beside them: 254 s, proven for the placement, where a line takes 286 s."""
    plan = solve(asked(in_flight=5), SolveOptions(threads=1))
    assert plan.solution.objective == 254
    assert [bound.value for bound in plan.solution.narrower] == [pytest.approx(254)]
    assert plan.solution.narrower[0].name == "with bidirectional placement"


@pytest.mark.thorough
def test_layers_that_differ_are_cut_alike_for_both_copies() -> None:
    plan = solve(placed(profile=trained(9)), SolveOptions(threads=1), replace(DEFAULTS, heuristic_ops=1000, rounds=2))
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    objective_s, bound_s = plan.solution.objective, plan.solution.narrower[0].value
    assert objective_s is not None
    assert bound_s <= objective_s
    states = [check(plan.schedule).peak_bytes[rank] for rank in (0, 3)]
    assert min(states) > 0


def test_memory_holds_both_copies_of_the_weights() -> None:
    question = placed(memory_bytes=2500.0, cut="even")
    each = trained().state_bytes + trained().stash_bytes / 2
    least, is_enough = least_memory_bytes(question, 1000, Deadline(SolveOptions()))
    assert (least, is_enough) == (max(each[0] + each[3], each[1] + each[2]), False)
    report = check(lowered(placed(cut="even"), "dualpipe"))
    assert min(report.peak_bytes) > least / 2


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"ranks": 3}, "ranks: must be even"),
        ({"micro_batches": 7}, "micro_batches: must be even"),
        ({"chunks": 4}, "chunks: must be 2"),
        ({"method": "1f1b"}, "method: 1f1b is for placement linear"),
        ({"method": "dualpipe", "micro_batches": 6}, "needs micro_batches >= 8"),
    ],
)
def test_what_two_copies_can_not_be_is_said(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        asked(**values)
