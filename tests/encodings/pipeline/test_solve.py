"""Solving pipelines: cuts, memory and recomputation together; what is infeasible, cut short, or asked for by name."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from gapless.checker import check
from gapless.encodings.pipeline.compression.modes import spoiling_of
from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import Problem, problem
from gapless.encodings.pipeline.schedules.baselines import BASELINES, suits, whole
from gapless.encodings.pipeline.solve import solve
from gapless.options import SolveOptions
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.solution import Status, StopReason
from gapless.system import Plan

OPTIONS = SolveOptions(threads=1)
QUICK = Parameters(exact_ops=1, rounds=1, quick_ops=2000, heuristic_ops=4000)


def layered(seed: int = 0, layers: int = 6) -> PipelineProfile:
    rng = np.random.default_rng(seed)
    times = [rng.integers(2, 12, layers).astype(float) for _ in range(3)]
    sizes = rng.integers(10, 40, layers)
    return PipelineProfile(
        "layered", tuple(map(str, range(layers))), *times, sizes, 2 * sizes, 5 * sizes, rng.integers(1, 5, layers)
    )


def asked(**values: Any) -> Problem:
    return problem(**{"profile": layered(), "ranks": 3, "micro_batches": 4, "hop": 1.0, **values})


def solved(question: Problem, parameters: Parameters = QUICK, **options: Any) -> Plan:
    plan = solve(question, SolveOptions(threads=1, **options), parameters)
    if plan.schedule is not None:
        report = check(plan.schedule)
        assert report.valid, report.violations[:3]
        assert report.makespan_s == pytest.approx(plan.solution.objective)
        assert plan.solution.bound is not None
        assert all(spent <= question.error_budget * (1 + 1e-9) for spent in report.spent)
        assert plan.solution.bound <= report.makespan_s * (1 + 1e-9)
    return plan


@pytest.mark.thorough(but=["[520]"])
@pytest.mark.parametrize("memory", [None, 700, 520])
def test_the_best_cut_is_no_worse_than_any_cut_by_itself(memory: int | None) -> None:
    best = solved(asked(memory=memory))
    steps = []
    for cut in combinations(range(1, 6), 2):
        plan = solved(asked(memory=memory, cut=cut))
        if plan.solution.status is not Status.INFEASIBLE:
            assert plan.solution.objective is not None
            steps.append(plan.solution.objective)
            assert best.solution.bound is not None
            assert best.solution.bound <= plan.solution.objective * (1 + 1e-9)
    assert best.solution.objective == pytest.approx(min(steps))


def test_without_memory_for_one_micro_batch_it_is_infeasible_and_says_the_least() -> None:
    plan = solved(asked(memory=100))
    assert plan.solution.status is Status.INFEASIBLE
    least = int(plan.details["least_memory_bytes"])
    assert solved(asked(memory=least - 1)).solution.status is Status.INFEASIBLE
    assert solved(asked(memory=least)).schedule is not None


def test_messages_have_room_beside_what_micro_batches_keep() -> None:
    """Each layer's message is as large as a tenth of what it keeps: with room for three micro-batches, two run."""
    ones, sizes = np.ones(3), np.full(3, 100)
    none = np.zeros(3, dtype=np.int64)
    profile = PipelineProfile("messages", ("a", "b", "c"), ones, ones, ones, none, none, sizes, sizes // 10)
    for memory in (300, 310, 330):
        solved(asked(profile=profile, memory=memory))


@pytest.mark.thorough
@pytest.mark.parametrize("placement", ["linear", "looped", "v"])
def test_recomputation_is_chosen_where_memory_forces_it(placement: str) -> None:
    sizes = np.full(6, 100)
    none = np.zeros(6, dtype=np.int64)
    profile = PipelineProfile(
        "heavy", tuple("abcdef"), np.full(6, 1.0), np.full(6, 4.0), np.full(6, 2.0), none, none, sizes, sizes // 50
    )
    memory = 270 if placement == "linear" else 330
    question = {"profile": profile, "ranks": 3 if placement == "linear" else 2, "memory": memory, "micro_batches": 6,
                "placement": placement, "cut": "even"}  # fmt: skip
    plain, chosen = solved(asked(**question)), solved(asked(**question, recomputation="auto"))
    every = solved(asked(**question, recomputation="all"))
    steps = [plan.solution.objective for plan in (plain, chosen, every)]
    assert all(step is not None for step in steps)
    assert steps[1] <= min(steps[0], steps[2]) + 1e-9  # type: ignore[operator, type-var]
    assert steps[1] < steps[0]  # type: ignore[operator]
    assert chosen.details["recomputed"]
    assert every.details["recomputed"] == list(range(len(every.details["cut"]) + 1))


def test_recomputation_is_left_where_memory_is_plenty() -> None:
    assert solved(asked(recomputation="auto")).details["recomputed"] == []


@pytest.mark.parametrize(("rule", "cut"), [("even", [2, 4]), ("bottleneck", None)])
def test_rules_for_cuts(rule: str, cut: list[int] | None) -> None:
    plan, best = solved(asked(cut=rule)), solved(asked())
    assert best.solution.objective <= plan.solution.objective  # type: ignore[operator]
    assert cut is None or plan.details["cut"] == cut
    profile = layered()
    each_s = profile.forward_s + profile.backward_s + profile.weight_s
    loads = {cut: max(part.sum() for part in np.split(each_s, cut)) for cut in combinations(range(1, 6), 2)}
    if rule == "bottleneck":
        assert loads[tuple(plan.details["cut"])] == pytest.approx(min(loads.values()))


def test_a_named_method_is_the_only_one_and_none_that_fits_is_no_solution() -> None:
    plan = solved(asked(method="1f1b"))
    assert list(plan.details["baselines_s"]) == ["1f1b"]
    assert plan.solution.solver == "1f1b"
    tight = solved(asked(method="gpipe", memory=460))
    assert tight.solution.status is Status.NO_SOLUTION
    assert tight.schedule is None


@pytest.mark.thorough
@pytest.mark.parametrize("cut", ["auto", "bottleneck"])
def test_looped_stages_of_a_real_model_are_cut_and_no_slower_than_evenly(cut: str) -> None:
    """Their loads are known late: the search for cuts ends without one, and cuts that are cheap to find are taken."""
    asked = problem("gpt-2.5b", ranks=4, micro_batches=8, placement="looped", bandwidth=25e9, replicas=4, cut=cut,
                    method="interleaved-1f1b")  # fmt: skip
    plan, even = (solve(each, SolveOptions()) for each in (asked, replace(asked, cut="even")))
    assert plan.solution.status is Status.FEASIBLE
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    assert plan.solution.objective is not None
    assert even.solution.objective is not None
    assert plan.solution.objective <= even.solution.objective


def test_a_gap_that_is_allowed_ends_the_search() -> None:
    plan = solved(asked(), gap=1.0)
    assert plan.details["cuts"] == 1
    assert plan.solution.stop_reason in (StopReason.GAP_REACHED, StopReason.FINISHED)


def test_what_is_found_is_offered_as_it_gets_better() -> None:
    offered: list[tuple[float, Any]] = []
    plan = solve(asked(), SolveOptions(threads=1, on_plan=lambda cost, make: offered.append((cost, make))), QUICK)
    costs = [cost for cost, _ in offered]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == plan.solution.objective
    assert offered[0][1]().schedule is not None


@pytest.mark.thorough
def test_the_same_question_has_the_same_plan() -> None:
    first, second = (solved(asked(memory=700, recomputation="auto")) for _ in range(2))
    assert first.details == second.details


ERRORS = np.array([0.4, 0.8])
TABLE = CompressionTable(
    "made up", np.array([0.0, 1.0]),
    (
        CompressionMode("half", 0.5, 0, 0.01, 0.01, ERRORS / 2, ERRORS / 2),
        CompressionMode("tenth", 0.1, 0, 0.01, 0.01, ERRORS, ERRORS),
    ),
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("placement", ["linear", "looped"])
def test_a_larger_error_budget_is_never_slower(placement: str) -> None:
    steps = []
    for budget in (0.0, 0.4, 5.0):
        question = asked(
            ranks=2, placement=placement, hop=None, bandwidth=0.5, replicas=2, compression=TABLE, error_budget=budget
        )
        plan = solved(question)
        steps.append(plan.solution.objective)
        if budget:
            assert plan.details["error"] <= budget * (1 + 1e-9)
            assert "modes" in plan.details["bounds_s"]
    assert steps == sorted(steps, reverse=True)  # type: ignore[type-var]
    assert steps[-1] < steps[0]  # type: ignore[operator]


@pytest.mark.thorough
def test_the_plan_is_no_slower_than_the_recipes_on_its_cut_at_no_more_error() -> None:
    question = asked(hop=None, bandwidth=0.5, replicas=4, compression=TABLE, error_budget=1.0)
    plan = solved(question)
    assert {"1f1b", "1f1b+cb", "1f1b+cb+fe"} <= set(plan.details["recipes"])
    for name, recipe in plan.details["recipes"].items():
        assert recipe["error"] <= 1.0, name
        assert plan.solution.objective <= recipe["step_s"] * (1 + 1e-9)  # type: ignore[operator]


@pytest.mark.thorough
def test_the_baselines_beside_a_compressed_plan_are_plain() -> None:
    question = asked(hop=None, bandwidth=0.5, replicas=4, compression=TABLE, error_budget=1.0)
    details = solved(question).details
    assert details["error"] > 0
    for name in ("1f1b", "zb-h1"):
        stages = stages_of(question, tuple(details["cut"]))
        costs = stages if BASELINES[name].splits else whole(stages)
        timeline = timed(costs, BASELINES[name].order(costs))
        assert timeline is not None
        assert details["baselines_s"][name] == pytest.approx(timeline.step_s)


def test_what_a_budget_buys_beats_every_plain_order_and_mode_by_force() -> None:
    """Two ranks, two micro-batches: all orders that the field runs, with all modes."""
    question = asked(
        profile=layered(3, 2), ranks=2, micro_batches=2, hop=None, bandwidth=0.5, replicas=2, compression=TABLE,
        error_budget=0.9,
    )  # fmt: skip
    plan = solved(question)
    assert plan.solution.bound is not None
    stages = stages_of(question, (1,))
    spoiling = spoiling_of(question, (1,), stages.crosses)
    assert spoiling is not None
    best_s = np.inf
    for name, baseline in BASELINES.items():
        if suits(name, "linear", stages):
            costs = stages if baseline.splits else whole(stages)
            plain = baseline.order(costs)
            for first, second, *sums in product(range(3), repeat=4):
                order = replace(plain, hop_modes=np.array([[first, second]]), reduce_modes=np.array(sums))
                timeline = timed(costs, order)
                if timeline is not None and spoiling.allows(order):
                    best_s = min(best_s, timeline.step_s)
    assert plan.solution.bound * (1 - 1e-9) <= plan.solution.objective <= best_s * (1 + 1e-9)  # type: ignore[operator]


@pytest.mark.thorough
@pytest.mark.parametrize("cut", ["auto", "bottleneck"])
def test_a_looped_placement_of_many_layers_has_a_plan(cut: str) -> None:
    many = problem("gpt-2.5b", ranks=4, micro_batches=8, placement="looped", bandwidth=25e9, replicas=4, cut=cut)
    for limit_s in (None, 1e-3):
        plan = solved(many, replace(QUICK, partial_cuts=20), time_limit_s=limit_s)
        assert plan.solution.gap is not None
        assert plan.solution.gap < 0.4


@pytest.mark.parametrize(("kept", "step_s"), [("1", 286.0), ("0.5", 280.0)])
def test_memory_that_backwards_free_makes_room_for_forwards(kept: str, step_s: float) -> None:
    question = problem(profile=f"uniform:f=10,b=12,w=8,kept={kept}", ranks=4, micro_batches=8, hop=2.0, in_flight=5)
    found = solve(question, OPTIONS)
    narrower = {bound.name: bound.value for bound in found.solution.narrower}
    assert found.solution.objective == narrower["with linear placement"] == step_s
    assert found.schedule is not None
    assert check(found.schedule).valid
